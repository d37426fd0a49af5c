package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/admitone/admitone/app/config"
)

// secretive has the word s3cret in each place where a secret or a password may stand.
const secretive = `
server: {admin_token: [s3cret-1, s3cret-2]}
store:
  durable: {driver: postgres, dsn: "postgres://user:s3cret/with@delimiters:@db/admitone?sslpassword=s3cret", migrate_dsn: "postgres://owner:s3cret@h1:1,h2:2/x"}
  fast: {driver: redis, url: "redis+sentinel://:s3cret@h1:26379,h2:26379/main/0"}
dispatch: {target: http, http: {url: "https://user:s3cret@app.example.com/events?api_key=s3cret&x=1", secret: s3cret}}
channels: {slack: {signing_secret: s3cret}}
tenants:
  - id: acme
    installations:
      - {id: a, channel: slack, account: T1, secrets: {signing_secret: [s3cret]}, dispatch: {url: "http://u:s3cret@127.0.0.1/"}}
`

func TestPrintingAConfigurationShowsNoSecret(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, secretive)
	in, _ := c.Installation("a")
	printed := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		for what, v := range map[string]any{
			"pointer": c, "value": *c, "installation": in, "secrets": in.Secrets, "secret": c.Server.AdminToken,
			"dsn": c.Store.Durable.DSN, "url": c.Store.Fast.URL, "tenants": c.Tenants, "channels": c.Channels,
		} {
			printed[what+" by "+verb] = fmt.Sprintf(verb, v)
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "c", c, "v", *c, "s", c.Server.AdminToken, "d", c.Store.Durable.DSN, "i", in, "m", in.Secrets)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "c", c, "v", *c, "s", c.Server.AdminToken, "d", c.Store.Durable.DSN, "i", in, "m", in.Secrets)
	printed["slog"] = log.String()
	for what, encode := range map[string]func(any) ([]byte, error){"json": json.Marshal, "yaml": yaml.Marshal} {
		b, err := encode(c)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		printed[what] = string(b)
	}
	for what, text := range printed {
		// In hex, as %x prints it, the word is 733363726574.
		if strings.Contains(text, "s3cret") || strings.Contains(strings.ToLower(text), "733363726574") {
			t.Errorf("%s shows a secret: %s", what, text)
		}
	}
	for _, want := range []string{"db/admitone", "signing_secret", "T1", "[redacted]"} {
		if !strings.Contains(printed["json"], want) {
			t.Errorf("JSON lacks %s, which is no secret: %s", want, printed["json"])
		}
	}
}

func TestPasswordsOfAddressesAreHiddenAndTheRestIsNot(t *testing.T) {
	t.Parallel()
	for address, want := range map[config.Address]string{
		"data/admitone.db":                            "data/admitone.db",
		"postgres://user@db:5432/admitone?x=1":        "postgres://user@db:5432/admitone?x=1",
		"postgres://user:pw@db:5432/admitone?x=1":     "postgres://user:[redacted]@db:5432/admitone?x=1",
		"postgres://u:p@ss@db/x?sslmode=require":      "postgres://u:[redacted]@db/x?sslmode=require",
		"redis://:pw@h1:1,h2:2/0":                     "redis://:[redacted]@h1:1,h2:2/0",
		"redis://127.0.0.1:6379/0":                    "redis://127.0.0.1:6379/0",
		"http://app/events?token=a&page=2":            "http://app/events?token=[redacted]&page=2",
		"postgres://db/x?user=u&password=p&a=b":       "postgres://db/x?user=u&password=[redacted]&a=b",
		"host=db password='a b' user=u password = pw": "host=db password=[redacted] user=u password = [redacted]",
	} {
		if got := address.String(); got != want {
			t.Errorf("%q prints as %q; want %q", string(address), got, want)
		}
	}
}

func TestErrorsShowNoSecret(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"everything else wrong": strings.NewReplacer(
			"driver: postgres", "driver: sqlite", "redis+sentinel", "redisx", "https://user", "ftp://user",
			"slack, account", "slck, account", "{slack: {signing_secret", "{slack: {signing_sekret",
		).Replace(secretive),
		"under keys of other types": `
server: {max_body: s3cret, drain_timeout: s3cret, listen: s3cret, public_url: "http://s3cret@host"}
store: {durable: {driver: s3cret, migrate: s3cret}, fast: s3cret}
dispatch: {target: s3cret, workers: s3cret, http: [s3cret]}
policy: {guarantee: s3cret, lease: s3cret, backoff: s3cret}
channels: s3cret
tenants: [s3cret, {id: "s3cret!"}, {id: b, installations: [{id: "s3cret!", channel: s3cret, secrets: {a: [[s3cret]]}, settings: {public_url: s3cret}}]}]
`,
		"malformed":  "server: {admin_token: s3cret",
		"unexpanded": `server: {admin_token: "s3cret${s3cret!}"}`,
		"indented":   "channels:\n  slack:\n   signing_secret: s3cret\n  - s3cret: \"s3cret",
		"alias":      "channels: {slack: {signing_secret: *s3cret}}",
		"tag":        "channels: {slack: {signing_secret: !s3cret}}",
		"no space":   "server: {admin_token:s3cret, listen: x}",
		"no colon":   "server: {admin_token s3cret}",
	} {
		_, err := load(t, text)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: an error shows a secret: %v", name, err)
		}
		for _, f := range config.Errors(err) {
			if strings.Contains(f.Text, "s3cret") {
				t.Errorf("%s: a finding shows a secret: %v", name, f)
			}
		}
		if errors.Unwrap(err) != nil && strings.Contains(fmt.Sprintf("%+v", errors.Unwrap(err)), "s3cret") {
			t.Errorf("%s: what the error wraps shows a secret", name)
		}
	}
}
