package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/app/config"
)

func TestVariablesWinOverTheFile(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
server: {max_body: 2MiB, admin_token: "${NOT_SET}"}
store: {durable: {driver: sqlite, dsn: other.db}}
channels: {slack: {signing_secret: of-file, enabled: false}}
`+acme,
		"ADMITONE_STORE_DURABLE_DRIVER=postgres",
		"ADMITONE_STORE_DURABLE_DSN=postgres://u:a${b$$c@db/admitone",
		"ADMITONE_STORE_DURABLE_MIGRATE_DSN=postgres://o@db/admitone",
		"ADMITONE_STORE_DURABLE_MIGRATE=false",
		"ADMITONE_SERVER_PUBLIC_URL=https://hooks.example.com",
		"ADMITONE_SERVER_ADMIN_TOKEN=token",
		"ADMITONE_SERVER_MAX_BODY=3MiB",
		"ADMITONE_DISPATCH_WORKERS=7",
		"ADMITONE_POLICY_FAST_TTL=26h",
		"ADMITONE_POLICY_BACKOFF={initial: 2s, max: 3m}",
		"ADMITONE_POLICY_BACKOFF_MAX=4m",
		`ADMITONE_CHANNELS_SLACK_SIGNING_SECRET=["new", 'old,er']`,
		"ADMITONE_CHANNELS_SLACK_ENABLED=true",
		"ADMITONE_CHANNELS_SLACK_POLICY_LEASE=3m",
		"ADMITONE_CHANNELS_TEAMS_SETTINGS_APP_ID=007",
		"ADMITONE_TENANTS_0_INSTALLATIONS_0_SECRETS_SIGNING_SECRET=of-variable",
		"ADMITONE_TENANTS_0_INSTALLATIONS_0_SETTINGS_PUBLIC_URL=https://own.example.com",
		"ADMITONE_TENANTS_0_INSTALLATIONS_1_ID=mail",
		"ADMITONE_TENANTS_0_INSTALLATIONS_1_CHANNEL=gmail",
		"ADMITONE_TENANTS_0_INSTALLATIONS_1_ACCOUNT=desk@example.com",
		`ADMITONE_TENANTS_0_INSTALLATIONS_1_SECRETS_CREDENTIALS={"type": "service_account", "x": [1, 2]}`,
		"ADMITONE_TENANTS_0_INSTALLATIONS_1_SETTINGS_QUERY=in:inbox",
		"ADMITONE_TENANTS_1={id: globex, installations: [{id: globex-mail, channel: cfworker, account: a@example.net, secrets: {signing_key: k}}]}",
		"ADMITONE_TENANTS_1_INSTALLATIONS_0_SETTINGS_ADDRESSES=[a@example.net, b@example.net]",
		"ADMITONE_TENANTS_1_INSTALLATIONS_0_DISPATCH_URL=http://127.0.0.1:9000/globex",
		"PATH=/bin", "ADMITONE=no-key", "ADMITONE_SERVER_MAX_BODY=9MiB",
	)
	slack, _ := c.Installation("acme-slack")
	mail, _ := c.Installation("mail")
	globex, _ := c.Installation("globex-mail")
	for _, tc := range []struct{ what, got, want any }{
		{"dsn, taken literally", string(c.Store.Durable.DSN), "postgres://u:a${b$$c@db/admitone"},
		{"migrate_dsn", string(c.Store.Durable.MigrateDSN), "postgres://o@db/admitone"},
		{"migrate", c.Store.Durable.Migrate, false},
		{"public_url", c.Server.PublicURL, "https://hooks.example.com"},
		{"admin_token, whose reference in the file is not needed", []string(c.Server.AdminToken), []string{"token"}},
		{"max_body, the first of two", c.Server.MaxBody, config.Size(3 << 20)},
		{"workers", c.Dispatch.Workers, 7},
		{"fast_ttl", c.Policy.FastTTL, 26 * time.Hour},
		{"backoff as YAML, a key of it by itself", c.Policy.Backoff, config.Backoff{Initial: 2 * time.Second, Max: 4 * time.Minute}},
		{"section's secret as a list", c.Channels["slack"].Secrets["signing_secret"], []string{"new", "old,er"}},
		{"enabled", c.Enabled("slack"), true},
		{"section's policy", c.PolicyFor("slack", "").Lease, 3 * time.Minute},
		{"section's setting, an id", c.Channels["teams"].Settings["app_id"], "007"},
		{"installation's secret", slack.Secrets["signing_secret"], []string{"of-variable"}},
		{"installation's public_url", c.PublicURL(slack.Settings), "https://own.example.com"},
		{"JSON credentials are one value", mail.Secrets["credentials"], []string{`{"type": "service_account", "x": [1, 2]}`}},
		{"added installation", mail.Tenant + " " + mail.Channel + " " + mail.Account, "acme gmail desk@example.com"},
		{"setting", mail.Settings["query"], "in:inbox"},
		{"added tenant", globex.Tenant, "globex"},
		{"setting as a list", globex.Settings["addresses"], []any{"a@example.net", "b@example.net"}},
		{"dispatch.url", string(globex.Dispatch.URL), "http://127.0.0.1:9000/globex"},
	} {
		if !reflect.DeepEqual(tc.got, tc.want) {
			t.Errorf("%s: got %v; want %v", tc.what, tc.got, tc.want)
		}
	}
}

func TestVariablesAloneAreAConfiguration(t *testing.T) {
	t.Parallel()
	c, err := config.Load("", []string{
		"ADMITONE_TENANTS_0_ID=acme",
		"ADMITONE_TENANTS_0_INSTALLATIONS_0_ID=bot",
		"ADMITONE_TENANTS_0_INSTALLATIONS_0_CHANNEL=telegram",
		"ADMITONE_TENANTS_0_INSTALLATIONS_0_ACCOUNT=7000000001",
		"ADMITONE_TENANTS_0_INSTALLATIONS_0_SECRETS_SECRET_TOKEN=x",
	}, toys)
	if err != nil {
		t.Fatal(err)
	}
	if in, ok := c.Installation("bot"); !ok || in.Account != "7000000001" {
		t.Errorf("the installation is %+v, %t", in, ok)
	}
}

func TestVariableThatNamesNoKeyIsAnErrorWithTheNearest(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"ADMITONE_STORE_DURABLE_DNS=x":                    "ADMITONE_STORE_DURABLE_DNS: the variable names no key; did you mean ADMITONE_STORE_DURABLE_DSN?",
		"ADMITONE_CHANNELS_SLACK_SIGNIN_SECRET=x":         "ADMITONE_CHANNELS_SLACK_SIGNIN_SECRET: the variable names no key; did you mean ADMITONE_CHANNELS_SLACK_SIGNING_SECRET?",
		"ADMITONE_CHANNELS_TELEGRAM_SECRT_TOKEN=x":        "ADMITONE_CHANNELS_TELEGRAM_SECRT_TOKEN: the variable names no key; did you mean ADMITONE_CHANNELS_TELEGRAM_SECRET_TOKEN?",
		"ADMITONE_SERVER_LISTEN_=x":                       "ADMITONE_SERVER_LISTEN_: the variable names no key; did you mean ADMITONE_SERVER_LISTEN?",
		"ADMITONE_=x":                                     "ADMITONE_: the variable names no key; did you mean ADMITONE_STORE?",
		"ADMITONE_TENANTS_0_INSTALLATIONS_0_ACOUNT=x":     "ADMITONE_TENANTS_0_INSTALLATIONS_0_ACOUNT: the variable names no key; did you mean ADMITONE_TENANTS_0_INSTALLATIONS_0_ACCOUNT?",
		"ADMITONE_TENANTS_1_ID=x":                         "tenants.1.id (ADMITONE_TENANTS_1_ID): there are 0 before it, so the next is number 0",
		"ADMITONE_DISPATCH_WORKERS=many":                  "dispatch.workers (ADMITONE_DISPATCH_WORKERS): must be a whole number above 0",
		"ADMITONE_SERVER_ADMIN_TOKEN=":                    "server.admin_token (ADMITONE_SERVER_ADMIN_TOKEN): must not be empty",
		"ADMITONE_SERVER_ADMIN_TOKEN=[*s3cret]":           "server.admin_token (ADMITONE_SERVER_ADMIN_TOKEN): is not well-formed YAML",
		"ADMITONE_STORE_FAST={driver: none, timout: 1s}":  "store.fast.timout (ADMITONE_STORE_FAST): unknown key; did you mean timeout?",
		"ADMITONE_STORE_FAST={driver: none, driver: ram}": "store.fast.driver (ADMITONE_STORE_FAST): duplicate key; it is in line 1 already",
	} {
		_, err := config.Load("", []string{variable}, toys)
		if err == nil || err.Error() != want {
			t.Errorf("%s gives\n\t%v\nwant\n\t%s", variable, err, want)
		}
	}
	_, err := load(t, "policy: [1]", "ADMITONE_POLICY_LEASE=3m")
	wantErrors(t, err,
		"policy.lease (ADMITONE_POLICY_LEASE): stands under a key that holds something else in the file",
		"policy (line 1): must be a mapping, is a list")
}

func TestVariablesOfAClustersServicesAreLeftAlone(t *testing.T) {
	t.Parallel()
	_, err := config.Load("", []string{
		"ADMITONE_SERVICE_HOST=10.0.0.1", "ADMITONE_SERVICE_PORT=8080", "ADMITONE_SERVICE_PORT_HTTP=8080",
		"ADMITONE_PORT=tcp://10.0.0.1:8080", "ADMITONE_PORT_8080_TCP=tcp://10.0.0.1:8080",
		"ADMITONE_PORT_8080_TCP_PROTO=tcp", "ADMITONE_PORT_8080_TCP_PORT=8080", "ADMITONE_PORT_8080_TCP_ADDR=10.0.0.1",
		"ADMITONE_ADMIN_SERVICE_HOST=10.0.0.2", "ADMITONE_ADMIN_PORT_8081_TCP_ADDR=10.0.0.2",
	}, toys)
	if err != nil {
		t.Error(err)
	}
}

func TestReferencesAreTakenFromTheEnvironment(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
server: {listen: "${HOST}:${PORT}", admin_token: "a$${HOST}$b$$c"}
dispatch: {workers: "${N}"}
store: {durable: {dsn: "${EMPTY}data.db"}}
tenants:
  - id: acme
    installations:
      - {id: m, channel: cfworker, account: "${A}", secrets: {signing_key: ["${K}", x]}, settings: {addresses: ["${A}", x]}}
`, "HOST=localhost", "PORT=1", "N=5", "EMPTY=", "A=a@example.com", "K=${PORT}")
	in, _ := c.Installation("m")
	for _, tc := range []struct{ what, got, want any }{
		{"two in one value", c.Server.Listen, "localhost:1"},
		{"$${ stands for ${, other dollars for themselves", c.Server.AdminToken[0], "a${HOST}$b$$c"},
		{"number", c.Dispatch.Workers, 5},
		{"empty variable", string(c.Store.Durable.DSN), "data.db"},
		{"in a list", in.Settings["addresses"], []any{"a@example.com", "x"}},
		{"account", in.Account, "a@example.com"},
		{"value of a variable is not expanded again", in.Secrets["signing_key"], []string{"${PORT}", "x"}},
	} {
		if !reflect.DeepEqual(tc.got, tc.want) {
			t.Errorf("%s: got %v; want %v", tc.what, tc.got, tc.want)
		}
	}
}

func TestReferenceToNothingIsAnError(t *testing.T) {
	t.Parallel()
	_, err := load(t, `
server: {listen: "${NO_HOST}:80", admin_token: "s3cret${not a name}"}
dispatch: {workers: "${NO_N", http: {secret: "${NO_SECRET}"}}
channels: {slack: {signing_secret: ["${NO_A}", b]}}
`)
	braces := "${ must be followed by the name of an environment variable and }; write $${ for the characters themselves"
	wantErrors(t, err,
		"server.listen (line 2): the environment variable NO_HOST is not set",
		"server.admin_token (line 2): "+braces,
		"dispatch.workers (line 3): "+braces,
		"dispatch.workers (line 3): must be a whole number above 0",
		"dispatch.http.secret (line 3): the environment variable NO_SECRET is not set",
		"channels.slack.signing_secret.0 (line 4): the environment variable NO_A is not set",
	)
}

func TestSecretsAreReadFromFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	files := map[string]string{"plain": "one", "newline": "two\n", "windows": "three\r\n", "newlines": "four\n\n", "blank": " \n", "dollar": "${X}"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(folder, "admitone.yaml")
	read := func(secret string, environ ...string) ([]string, error) {
		text := "channels: {slack: {signing_secret: " + secret + "}}"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path, environ, toys)
		if err != nil {
			return nil, err
		}
		return c.Channels["slack"].Secrets["signing_secret"], nil
	}
	got, err := read("[file:plain, file:newline, file:windows, file:newlines, file:dollar, \"file:${DIR}/plain\", plain]", "DIR="+folder)
	want := []string{"one", "two", "three", "four\n", "${X}", "one", "plain"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("secrets are %q, %v; want %q", got, err, want)
	}
	got, err = read("x", "ADMITONE_CHANNELS_SLACK_SIGNING_SECRET=file:newline")
	if err != nil || !reflect.DeepEqual(got, []string{"two"}) {
		t.Errorf("secret of the variable is %q, %v", got, err)
	}
	_, err = read("[file:blank]")
	wantErrors(t, err, "channels.slack.signing_secret.0 (line 1): must not be empty")
	if _, err = read("file:none"); err == nil || !strings.HasPrefix(err.Error(), "channels.slack.signing_secret (line 1): open ") {
		t.Errorf("a file that is not there gives %v", err)
	}
}

func TestEmptySecretIsAnError(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{`""`, "", "' '", "[]", `[a, ""]`, `"${EMPTY}"`, "[a, null]", "[a, [b]]"} {
		for key, text := range map[string]string{
			"channels.slack.signing_secret":                    "channels:\n  slack:\n    signing_secret: " + secret,
			"server.admin_token":                               "server:\n  admin_token: " + secret,
			"dispatch.http.secret":                             "dispatch:\n  http:\n    secret: " + secret,
			"tenants.0.installations.0.secrets.signing_secret": strings.ReplaceAll(strings.ReplaceAll(acme, "{signing_secret", "\n          signing_secret"), ` "s3cret"}`, " "+secret),
		} {
			_, err := load(t, text, "EMPTY=")
			if err == nil || !strings.HasPrefix(err.Error(), key) || len(config.Errors(err)) != 1 {
				t.Errorf("%s: %s gives %v; want one error about it", key, secret, err)
			}
		}
	}
}
