package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/app/config"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

func TestWithoutFileEverythingHasTheContractsDefault(t *testing.T) {
	t.Parallel()
	c, err := config.Load("", nil, toys)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		Server: config.Server{Listen: ":8080", AdminListen: "127.0.0.1:8081", MaxBody: 1048576, DrainTimeout: 25 * time.Second},
		Store: config.Store{
			Durable: config.Durable{Driver: "sqlite", DSN: "data/admitone.db", Migrate: true},
			Fast:    config.Fast{Driver: "memory", URL: "redis://127.0.0.1:6379/0", Timeout: 50 * time.Millisecond},
			Journal: config.Journal{Path: "data/journal", MaxBytes: 1073741824},
		},
		Dispatch: config.Dispatch{
			Target: "log", Workers: 64, Queue: 4096,
			HTTP: config.HTTPSink{URL: "http://127.0.0.1:9000/events", Timeout: 10 * time.Second},
		},
		Policy: config.Policy{
			Guarantee: "at-most-once", FastTTL: 25 * time.Hour, Retention: 720 * time.Hour, PayloadRetention: 168 * time.Hour,
			Lease: 2 * time.Minute, MaxAttempts: 8, Backoff: config.Backoff{Initial: time.Second, Max: 5 * time.Minute},
			OnStoreDown: "auto",
		},
	}
	got := config.Config{Server: c.Server, Store: c.Store, Dispatch: c.Dispatch, Policy: c.Policy, Channels: c.Channels, Tenants: c.Tenants}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("defaults are\n%+v\nwant\n%+v", got, want)
	}
}

func TestFileWinsOverDefaults(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
server: {listen: "127.0.0.1:1", admin_listen: "0.0.0.0:2", public_url: "https://hooks.example.com:8443/in/front/", max_body: 26MiB, drain_timeout: 8s, admin_token: [new, old]}
store:
  durable: {driver: postgres, dsn: "postgres://u:p@db/admitone", migrate: false, migrate_dsn: "postgres://o:p@db/admitone"}
  fast: {driver: redis, url: "redis+sentinel://:p@h1:26379,h2:26379/main/0", timeout: 20ms}
  journal: {path: "", max_bytes: 500kB}
dispatch: {target: http, workers: 2, queue: 3, http: {url: "https://app.example.com/events", secret: whsec_MDAw, timeout: 3s}}
policy: {guarantee: at-least-once, backoff: {max: 1m}, on_conflict: admit}
channels:
  slack: {signing_secret: ["one", "two"], policy: {lease: 3m}}
  telegram: {enabled: false}
  teams: {settings: {app_id: 0123}}
tenants:
  - id: acme
    installations:
      - id: acme_desk-1
        channel: cfworker
        account: desk@example.com
        secrets: {signing_key: k}
        settings: {addresses: [desk@example.com, "help@example.com"], public_url: "https://mail.example.com/"}
        policy: {max_attempts: 3}
        dispatch: {url: "http://127.0.0.1:9000/acme"}
      - {id: bot, channel: telegram, account: 7000000001, secrets: {secret_token: 0123}}
`)
	for _, tc := range []struct{ what, got, want any }{
		{"listen", c.Server.Listen, "127.0.0.1:1"},
		{"public_url without slash at its end", c.PublicURL(nil), "https://hooks.example.com:8443/in/front"},
		{"max_body", c.Server.MaxBody, config.Size(26 << 20)},
		{"admin_token", []string(c.Server.AdminToken), []string{"new", "old"}},
		{"dsn", string(c.Store.Durable.DSN), "postgres://u:p@db/admitone"},
		{"migrate", c.Store.Durable.Migrate, false},
		{"journal path", c.Store.Journal.Path, ""},
		{"journal size", c.Store.Journal.MaxBytes, config.Size(500000)},
		{"dispatch secret", []string(c.Dispatch.HTTP.Secret), []string{"whsec_MDAw"}},
		{"backoff.initial keeps its default", c.Policy.Backoff, config.Backoff{Initial: time.Second, Max: time.Minute}},
		{"slack is on", c.Enabled("slack"), true},
		{"telegram is off", c.Enabled("telegram"), false},
		{"twilio is on without a section", c.Enabled("twilio"), true},
	} {
		if !reflect.DeepEqual(tc.got, tc.want) {
			t.Errorf("%s: got %v; want %v", tc.what, tc.got, tc.want)
		}
	}

	in, ok := c.Installation("acme_desk-1")
	want := channels.Credentials{
		Account: "desk@example.com",
		Secrets: map[string][]string{"signing_key": {"k"}},
		Settings: channels.Settings{
			"addresses": []any{"desk@example.com", "help@example.com"}, "public_url": "https://mail.example.com/",
		},
	}
	if got := in.Credentials(); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("credentials are %#v; want %#v", got, want)
	}
	if in.Tenant != "acme" || string(in.Dispatch.URL) != "http://127.0.0.1:9000/acme" {
		t.Errorf("tenant %s, dispatch.url %s", in.Tenant, string(in.Dispatch.URL))
	}
	if got := c.PublicURL(in.Settings); got != "https://mail.example.com" {
		t.Errorf("PublicURL = %s; want the installation's own", got)
	}
	bot, _ := c.Installation("bot")
	if bot.Account != "7000000001" || bot.Secrets["secret_token"][0] != "0123" {
		t.Errorf("ids of digits are read as %q and %q", bot.Account, bot.Secrets["secret_token"])
	}
	if got := c.PublicURL(bot.Settings); got != c.PublicURL(nil) {
		t.Errorf("PublicURL = %s; want the server's", got)
	}
	if _, ok := c.Installation("other"); ok {
		t.Error("an installation that is not there is found")
	}
	var ids []string
	for in := range c.Installations() {
		ids = append(ids, in.ID)
	}
	if strings.Join(ids, " ") != "acme_desk-1 bot" {
		t.Errorf("Installations yields %v", ids)
	}
}

func TestAppWideAddressNeedsASectionThatOpensIt(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
channels:
  slack: {signing_secret: ["one", "two"]}
  teams: {settings: {app_id: "0123"}}
  cfworker: {enabled: true}
  twilio: {enabled: false, auth_token: x}
  telegram: {secret_token: x}
`)
	got, ok := c.AppWide("slack")
	if want := (channels.Credentials{Secrets: map[string][]string{"signing_secret": {"one", "two"}}}); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("slack: %#v, %t", got, ok)
	}
	if got, ok = c.AppWide("teams"); !ok || got.Settings["app_id"] != "0123" {
		t.Errorf("teams: %#v, %t", got, ok)
	}
	for channel, why := range map[string]string{
		"cfworker": "its section has no credentials", "twilio": "it is off", "telegram": "it has no such address", "gmail": "it has no section",
	} {
		if _, ok := c.AppWide(channel); ok {
			t.Errorf("%s has an app-wide address, although %s", channel, why)
		}
	}
}

func TestWhatIsNotUnderstoodIsAnErrorThatNamesTheKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"unknown key at the top": {"servr: {}", []string{"servr (line 1): unknown key; did you mean server?"}},
		"unknown key at depth": {"store:\n  durable:\n    driver: sqlite\n    drver: x", []string{
			"store.durable.drver (line 4): unknown key; did you mean driver?",
		}},
		"unknown key of a policy": {"policy:\n  backoff: {initail: 1s}", []string{
			"policy.backoff.initail (line 2): unknown key; did you mean initial?",
		}},
		"unknown key or secret of a section": {"channels:\n  slack:\n    signing_sekret: x\n    enbled: true", []string{
			"channels.slack.signing_sekret (line 3): unknown key; did you mean signing_secret?",
			"channels.slack.enbled (line 4): unknown key; did you mean enabled?",
		}},
		"unknown channel": {"channels: {slak: {}}", []string{"channels.slak (line 1): unknown channel; did you mean slack?"}},
		"unknown key of an installation": {acme + "        polcy: {}", []string{
			"tenants.0.installations.0.polcy (line 9): unknown key; did you mean policy?",
		}},
		"duplicate key": {"server: {}\nstore: {}\nserver: {}", []string{"server (line 3): duplicate key; it is in line 1 already"}},
		"duplicate key at depth": {"store:\n  fast:\n    driver: none\n    driver: memory", []string{
			"store.fast.driver (line 4): duplicate key; it is in line 3 already",
		}},
		"wrong types": {
			`
server: {listen: [":80"], max_body: big, drain_timeout: 25, public_url: true}
store: {durable: {migrate: maybe, dsn: }, fast: none}
dispatch: {workers: 0, queue: 1.5}
policy: {lease: -2m, backoff: [1s]}
channels: [slack]
tenants: {id: acme}
`, []string{
				"server.listen (line 2): must be one value, is a list",
				"server.max_body (line 2): is no size in bytes; write 1MiB, 500kB or 1048576",
				"server.drain_timeout (line 2): must be a duration above 0, such as 50ms, 90s, 15m or 25h",
				"server.public_url (line 2): must be text; put it in quotes if it is",
				"store.durable.migrate (line 3): must be true or false",
				"store.durable.dsn (line 3): has no value; leave the key out to have the default",
				"store.fast (line 3): must be a mapping, is a single value",
				"dispatch.workers (line 4): must be a whole number above 0",
				"dispatch.queue (line 4): must be a whole number above 0",
				"policy.lease (line 5): must be a duration above 0, such as 50ms, 90s, 15m or 25h",
				"policy.backoff (line 5): must be a mapping, is a list",
				"channels (line 6): must be a mapping, is a list",
				"tenants (line 7): must be a list, is a mapping",
			},
		},
		"values out of the list": {
			"store: {durable: {driver: mysql}, fast: {driver: rediss}}\ndispatch: {target: htpp}\npolicy: {guarantee: exactly-once, on_store_down: never, on_conflict: \"\"}",
			[]string{
				"store.durable.driver (line 1): must be one of sqlite, postgres",
				"store.fast.driver (line 1): must be one of memory, redis, none",
				"dispatch.target (line 2): must be one of log, http, nats, kafka",
				"policy.guarantee (line 3): must be one of at-most-once, at-least-once",
				"policy.on_store_down (line 3): must be one of auto, refuse, journal",
				"policy.on_conflict (line 3): must be one of suppress, admit",
			},
		},
		"key that is no word":        {"server: {[a]: b}", []string{"server (line 1): a key must be a word"}},
		"anchor that holds itself":   {"tenants: &t [*t]", []string{"tenants.0 (line 1): the anchor t holds itself", "tenants.0.id (line 1): needed"}},
		"merge of what is no map":    {"policy: {<<: 5}", []string{"policy (line 1): << needs a mapping to merge"}},
		"setting without a value":    {acme + "        settings: {public_url: }", []string{"tenants.0.installations.0.settings.public_url (line 9): has no value; leave the key out to have the default"}},
		"secrets as a list of names": {"channels: {slack: {signing_secret: {a: b}}}", []string{"channels.slack.signing_secret (line 1): must be text or a list of texts; put JSON in quotes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, tc.text)
			wantErrors(t, err, tc.want...)
		})
	}
}

func TestFileThatIsNoConfigurationIsAnError(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"syntax":    "server: {listen",
		"documents": "server: {}\n---\nstore: {}",
		"scalar":    "admitone",
		"list":      "[server]",
	} {
		if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), "admitone.yaml") {
			t.Errorf("%s: Load = %v; want an error that names the file", name, err)
		}
	}
	if _, err := config.Load(filepath.Join(t.TempDir(), "none.yaml"), nil, toys); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load of a file that is not there = %v", err)
	}
}

func TestEmptySectionsSayNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# nothing\n", "server:\nstore:\n  fast:\nchannels:\n  slack:\ntenants:\n"} {
		c := mustLoad(t, text)
		if c.Server.Listen != ":8080" || c.Store.Fast.Driver != "memory" || !c.Enabled("slack") {
			t.Errorf("%q changes defaults", text)
		}
	}
}

func TestAnchorsAndMergeKeysAreFollowed(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
policy: &calm {lease: 5m, max_attempts: 3}
channels:
  slack:
    policy:
      <<: *calm
      lease: 6m
  telegram:
    policy: *calm
`)
	if p := c.PolicyFor("slack", ""); p.Lease != 6*time.Minute || p.MaxAttempts != 3 {
		t.Errorf("slack: lease %s, %d attempts; want 6m, 3", p.Lease, p.MaxAttempts)
	}
	if p := c.PolicyFor("telegram", ""); p.Lease != 5*time.Minute {
		t.Errorf("telegram: lease %s; want 5m", p.Lease)
	}
}

func TestErrorsAreFindingsByKey(t *testing.T) {
	t.Parallel()
	_, err := load(t, "policy: {lease: 1}\nstore: {fats: {}}")
	got := config.Errors(err)
	want := []config.Finding{
		{Key: "policy.lease", Severity: config.SeverityError, Text: "must be a duration above 0, such as 50ms, 90s, 15m or 25h (line 1)"},
		{Key: "store.fats", Severity: config.SeverityError, Text: "unknown key; did you mean fast? (line 2)"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Errors = %v; want %v", got, want)
	}
	_, err = load(t, "[]")
	if got := config.Errors(err); len(got) != 1 || got[0].Key != "" {
		t.Errorf("Errors of a file without keys = %v", got)
	}
	if got := config.Errors(nil); got != nil {
		t.Errorf("Errors(nil) = %v", got)
	}
}

func TestPolicyOfAnInstallationGoesBeforeItsChannelsBeforeTheDefault(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
policy: {lease: 3m, max_attempts: 5, fast_ttl: 26h}
channels: {slack: {policy: {lease: 4m, max_attempts: 6, on_conflict: admit, backoff: {max: 7m}}}}
`+acme+"        policy: {lease: 5m, guarantee: at-least-once, backoff: {initial: 2s}, retention: 800h, payload_retention: 1h, on_store_down: refuse}\n")
	want := domain.DefaultPolicy()
	want.Lease, want.MaxAttempts, want.FastTTL = 3*time.Minute, 5, 26*time.Hour
	if got := c.PolicyFor("telegram", "none"); got != want {
		t.Errorf("telegram has %+v; want the default %+v", got, want)
	}
	want.Lease, want.MaxAttempts, want.OnConflict, want.Backoff.Max = 4*time.Minute, 6, domain.ConflictAdmit, 7*time.Minute
	if got := c.PolicyFor("slack", "kept-in-database"); got != want {
		t.Errorf("slack has %+v; want %+v", got, want)
	}
	want.Lease, want.Guarantee, want.Backoff.Initial = 5*time.Minute, domain.AtLeastOnce, 2*time.Second
	want.Retention, want.PayloadRetention, want.OnStoreDown = 800*time.Hour, time.Hour, domain.StoreDownRefuse
	if got := c.PolicyFor("slack", "acme-slack"); got != want {
		t.Errorf("acme-slack has %+v; want %+v", got, want)
	}
	over := config.Policy{Lease: time.Hour}.Over(domain.DefaultPolicy())
	if want := domain.DefaultPolicy(); over.Lease != time.Hour || over.Retention != want.Retention {
		t.Errorf("Over gives %+v", over)
	}
}
