package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/app/config"
	"github.com/admitone/admitone/channels"
)

// installations returns the YAML of one tenant with these installations.
func installations(each ...string) string {
	return "tenants:\n- id: acme\n  installations:\n  - " + strings.Join(each, "\n  - ") + "\n"
}

func TestValuesThatDoNotFitAreErrors(t *testing.T) {
	t.Parallel()
	const url = "must be an http:// or https:// URL"
	const public = url + " of a host and, where a proxy takes one away, a path prefix, without user, query and fragment"
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"addresses of listeners": {"server: {listen: localhost, admin_listen: \"127.0.0.1:99999\"}", []string{
			"server.listen (line 1): must be host:port or :port",
			"server.admin_listen (line 1): must be host:port or :port",
		}},
		"one address for two listeners": {"server: {listen: \"127.0.0.1:1\", admin_listen: \"127.0.0.1:1\"}", []string{
			"server.admin_listen (line 1): is the same as server.listen; vendors must not reach the admin API",
		}},
		"admin listener in reach of others without token": {"server:\n  admin_listen: \":8081\"", []string{
			"server.admin_token (line 1): needed, since server.admin_listen is reached from other machines",
		}},
		"admin listener by name in reach of others": {"server: {admin_listen: \"admin.example.com:1\"}", []string{
			"server.admin_token (line 1): needed, since server.admin_listen is reached from other machines",
		}},
		"journal without a place": {
			"policy: {on_store_down: journal}\nchannels: {slack: {policy: {on_store_down: journal}}}\nstore: {journal: {path: \"\"}}\n" +
				installations("{id: a, channel: slack, account: T1, secrets: {signing_secret: x}, policy: {on_store_down: journal}}"),
			[]string{
				"policy.on_store_down (line 1): journal needs store.journal.path, which is empty",
				"channels.slack.policy.on_store_down (line 2): journal needs store.journal.path, which is empty",
				"tenants.0.installations.0.policy.on_store_down (line 7): journal needs store.journal.path, which is empty",
			},
		},
		"nats is not offered yet":      {"dispatch: {target: nats}", []string{"dispatch.target (line 1): nats is not offered by this version; log and http are"}},
		"kafka is not offered yet":     {"dispatch: {target: kafka}", []string{"dispatch.target (line 1): kafka is not offered by this version; log and http are"}},
		"http without address":         {"dispatch: {target: http, http: {url: \"\"}}", []string{"dispatch.http.url (line 1): " + url}},
		"http to what is no URL":       {"dispatch: {http: {url: \"localhost:9000\"}}", []string{"dispatch.http.url (line 1): " + url}},
		"postgres without its dsn":     {"store: {durable: {driver: postgres}}", []string{"store.durable.dsn (line 1): must be postgres://… for driver postgres"}},
		"postgres by words":            {"store: {durable: {driver: postgres, dsn: \"host=db\"}}", []string{"store.durable.dsn (line 1): must be postgres://… for driver postgres"}},
		"other role by words":          {"store: {durable: {driver: postgres, dsn: \"postgresql://db/x\", migrate_dsn: \"user=o\"}}", []string{"store.durable.migrate_dsn (line 1): must be postgres://… for driver postgres"}},
		"sqlite with postgres's dsn":   {"store: {durable: {dsn: \"postgres://db/x\"}}", []string{"store.durable.dsn (line 1): must be a file for driver sqlite"}},
		"empty dsn":                    {"store: {durable: {dsn: \"\"}}", []string{"store.durable.dsn (line 1): must not be empty"}},
		"redis without address":        {"store: {fast: {driver: redis, url: \"\"}}", []string{"store.fast.url (line 1): must be redis://…, rediss://…, redis+cluster://… or redis+sentinel://… for driver redis"}},
		"unknown kind of redis":        {"store: {fast: {driver: redis, url: \"http://h\"}}", []string{"store.fast.url (line 1): must be redis://…, rediss://…, redis+cluster://… or redis+sentinel://… for driver redis"}},
		"size that is none":            {"server: {max_body: 0}", []string{"server.max_body (line 1): is no size in bytes; write 1MiB, 500kB or 1048576"}},
		"app-wide secrets incomplete":  {"channels: {twilio: {shared_key: x}}", []string{"channels.twilio.auth_token (line 1): needed by channel twilio"}},
		"section's setting is unknown": {"channels: {teams: {settings: {app_ip: x}}}", []string{"channels.teams.settings.app_ip (line 1): unknown setting of channel teams; did you mean app_id?"}},
		"form of ids": {
			"tenants: [{id: Acme, installations: [{id: a b, channel: telegram, account: \"1\", secrets: {secret_token: x}}]}, {id: _a}, {id: " + strings.Repeat("a", 64) + "}, {}]",
			[]string{
				"tenants.0.id (line 1): must be of the form [a-z0-9][a-z0-9_-]{0,62}",
				"tenants.0.installations.0.id (line 1): must be of the form [a-z0-9][a-z0-9_-]{0,62}",
				"tenants.1.id (line 1): must be of the form [a-z0-9][a-z0-9_-]{0,62}",
				"tenants.2.id (line 1): must be of the form [a-z0-9][a-z0-9_-]{0,62}",
				"tenants.3.id (line 1): needed",
			},
		},
		"taken ids and accounts": {
			installations(
				"{id: a, channel: telegram, account: \"1\", secrets: {secret_token: x}}",
				"{id: a, channel: telegram, account: \"2\", secrets: {secret_token: x}}",
				"{id: b, channel: gmail, account: \"1\", secrets: {credentials: x}}",
			) + "- id: acme\n- id: globex\n  installations:\n  - {id: c, channel: telegram, account: \"1\", secrets: {secret_token: x}}\n",
			[]string{
				"tenants.0.installations.1.id (line 5): a is taken by tenants.0.installations.0.id",
				"tenants.1.id (line 7): acme is taken by tenants.0.id",
				"tenants.2.installations.0.account (line 10): is that of tenants.0.installations.0 already; an account belongs to one installation of a channel",
			},
		},
		"installation that lacks everything": {installations("{}"), []string{
			"tenants.0.installations.0.id (line 4): needed",
			"tenants.0.installations.0.account (line 4): needed: the vendor's own name of the installation",
			"tenants.0.installations.0.channel (line 4): needed",
		}},
		"unknown channel": {installations("{id: a, channel: slak, account: T1}"), []string{
			"tenants.0.installations.0.channel (line 4): unknown channel; did you mean slack?",
		}},
		"account that can't be stored": {installations("{id: a, channel: telegram, account: \"a\\0\", secrets: {secret_token: x}}"), []string{
			"tenants.0.installations.0.account (line 4): must be UTF-8 of at most 255 bytes",
		}},
		"unknown secret": {installations("{id: a, channel: telegram, account: \"1\", secrets: {secret_tokn: x}}"), []string{
			"tenants.0.installations.0.secrets.secret_tokn (line 4): unknown secret of channel telegram; did you mean secret_token?",
			"tenants.0.installations.0.secrets.secret_token (line 4): needed by channel telegram",
		}},
		"secret of a channel that has none": {installations("{id: a, channel: teams, account: x, secrets: {app_id: x}}"), []string{
			"tenants.0.installations.0.secrets.app_id (line 4): unknown secret of channel teams",
		}},
		"no secrets, and the section has none either": {"channels: {slack: {}}\n" + installations("{id: a, channel: slack, account: T1}"), []string{
			"tenants.0.installations.0.secrets.signing_secret (line 5): needed by channel slack",
		}},
		"no secrets, and the channel has no app-wide address": {
			"channels: {telegram: {secret_token: x}}\n" + installations("{id: a, channel: telegram, account: \"1\"}"),
			[]string{"tenants.0.installations.0.secrets.secret_token (line 5): needed by channel telegram"},
		},
		"some of the secrets": {
			"channels: {twilio: {auth_token: x}}\n" + installations("{id: a, channel: twilio, account: AC1, secrets: {shared_key: x}}"),
			[]string{"tenants.0.installations.0.secrets.auth_token (line 5): needed by channel twilio"},
		},
		"settings": {installations("{id: a, channel: telegram, account: \"1\", secrets: {secret_token: x}, settings: {public_url: \"hooks.example.com\", addresses: []}}"), []string{
			"tenants.0.installations.0.settings.addresses (line 4): unknown setting of channel telegram; did you mean public_url?",
			"tenants.0.installations.0.settings.public_url (line 4): " + public,
		}},
		"dispatch.url": {installations("{id: a, channel: telegram, account: \"1\", secrets: {secret_token: x}, dispatch: {url: \"/events\"}}"), []string{
			"tenants.0.installations.0.dispatch.url (line 4): " + url,
		}},
		"a wrong secret is told once": {"channels: {slack: {signing_secret: \"\"}}\n" + installations("{id: a, channel: slack, account: T1}"), []string{
			"channels.slack.signing_secret (line 1): must not be empty",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, tc.text)
			wantErrors(t, err, tc.want...)
		})
	}
}

func TestPublicURLIsAbsolute(t *testing.T) {
	t.Parallel()
	for url, good := range map[string]bool{
		"https://hooks.example.com": true, "http://10.0.0.1:8080": true, "https://h/prefix": true, "https://[::1]:8443/": true,
		"hooks.example.com": false, "//hooks.example.com": false, "ftp://h": false, "https://": false, "https:///x": false,
		"https://u@h": false, "https://h?x=1": false, "https://h/?": false, "https://h#f": false, "https://h:x": false, "https://h:": false, "https://h:99999": false,
	} {
		_, err := load(t, "server: {public_url: \""+url+"\"}")
		if good != (err == nil) {
			t.Errorf("%s: Load = %v", url, err)
		}
	}
}

func TestWhatMayBeLeftOut(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"secrets where the section has them":        "channels: {slack: {signing_secret: x}}\n" + installations("{id: a, channel: slack, account: T1}"),
		"secrets where the channel has none":        installations("{id: a, channel: teams, account: x, settings: {app_id: y}}"),
		"optional secrets":                          installations("{id: a, channel: twilio, account: AC1, secrets: {auth_token: x}}"),
		"token where admin_listen is loopback":      "server: {admin_listen: \"[::1]:8081\"}",
		"token where admin_listen is localhost":     "server: {admin_listen: \"localhost:8081\"}",
		"address of http where it is not used":      "dispatch: {http: {url: \"\"}}",
		"journal, which is refused otherwise":       "policy: {on_store_down: refuse}",
		"public_url":                                installations("{id: a, channel: twilio, account: AC1, secrets: {auth_token: x}}"),
		"lease's check where nothing is waited":     "policy: {lease: 5s}",
		"retention of channels that are off":        "policy: {retention: 25h}\nchannels: {cfworker: {enabled: false, signing_key: x}}",
		"retention of channels that are not used":   "policy: {retention: 25h}",
		"ports, which the system chooses then":      "server: {listen: \"127.0.0.1:0\", admin_listen: \"127.0.0.1:0\"}",
		"one account in two channels":               installations("{id: a, channel: gmail, account: x, secrets: {credentials: x}}", "{id: b, channel: cfworker, account: x, secrets: {signing_key: x}}"),
		"installations of a tenant":                 "tenants: [{id: acme}]",
		"letters of an id up to sixty-three":        "tenants: [{id: " + strings.Repeat("a", 63) + "}]",
		"driver's other address for the same thing": "store: {durable: {driver: postgres, dsn: \"postgresql:///x?host=/run/pg\"}}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustLoad(t, text)
		})
	}
}

func TestPolicyThatDoesNotHoldIsToldByTheKeyThatSaysIt(t *testing.T) {
	t.Parallel()
	const slack = "{id: a, channel: slack, account: T1, secrets: {signing_secret: x}"
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"by default": {"policy:\n  retention: 24h\n  payload_retention: 24h", []string{
			"policy.retention (line 2): 24h0m0s is shorter than fast_ttl (25h0m0s): the fast store would outlive what it speaks of",
		}},
		"lease": {"dispatch: {target: http, http: {timeout: 2m}}", []string{
			"policy.lease: 2m0s is not longer than the dispatch timeout (2m0s): a slow dispatch would count as dead",
		}},
		"window of a channel with a section": {"policy: {retention: 100h}\nchannels: {cfworker: {signing_key: x}}", []string{
			"policy.retention (line 1): 100h0m0s is shorter than the vendor's retry window (120h0m0s): its last retry would count as new (channel cfworker)",
		}},
		"window of an installation's channel": {"policy: {retention: 24h, fast_ttl: 1h}\n" + installations(slack+"}"), []string{
			"policy.retention (line 1): 24h0m0s is shorter than the vendor's retry window (24h6m0s): its last retry would count as new (channel slack)",
		}},
		"said by the section": {"channels:\n  slack:\n    policy: {retention: 24h, fast_ttl: 1h}\n" + installations(slack+"}"), []string{
			"channels.slack.policy.retention (line 3): 24h0m0s is shorter than the vendor's retry window (24h6m0s): its last retry would count as new (channel slack)",
		}},
		"said by the installation": {installations(slack+", policy: {lease: 1s, backoff: {max: 1ms}}}") + "dispatch: {target: http}", []string{
			"tenants.0.installations.0.policy.lease (line 4): 1s is not longer than the dispatch timeout (10s): a slow dispatch would count as dead (installation a)",
			"tenants.0.installations.0.policy.backoff.max (line 4): 1ms is shorter than backoff.initial (1s) (installation a)",
		}},
		"said by both, of which one is the cause": {"policy: {retention: 30h}\n" + installations(slack+", policy: {fast_ttl: 31h}}"), []string{
			"policy.retention (line 1): 30h0m0s is shorter than fast_ttl (31h0m0s): the fast store would outlive what it speaks of (installation a)",
		}},
		"mended by the installation": {"policy: {retention: 100h}\n" + installations("{id: a, channel: cfworker, account: x, secrets: {signing_key: x}, policy: {retention: 200h}}"), []string{
			"policy.retention (line 1): 100h0m0s is shorter than the vendor's retry window (120h0m0s): its last retry would count as new (channel cfworker)",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, tc.text)
			wantErrors(t, err, tc.want...)
		})
	}
}

func TestInstallationKeptElsewhereObeysTheSameRules(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "dispatch: {target: http}\nchannels: {slack: {signing_secret: x}}")
	good := config.Installation{Tenant: "acme", ID: "bot", Channel: "telegram", Account: "1", Secrets: config.Secrets{"secret_token": {"x"}}}
	if err := c.CheckInstallation(good); err != nil {
		t.Errorf("CheckInstallation = %v", err)
	}
	if err := c.CheckInstallation(config.Installation{Tenant: "acme", ID: "s", Channel: "slack", Account: "T1"}); err != nil {
		t.Errorf("CheckInstallation without secrets where the section has them = %v", err)
	}
	err := c.CheckInstallation(config.Installation{
		Tenant: "Acme", ID: "", Channel: "telegram", Secrets: config.Secrets{"secret_token": {" "}, "x": {"y"}},
		Settings: channels.Settings{"z": 1}, Policy: config.Policy{Lease: time.Second, OnStoreDown: "journal"},
		Dispatch: config.Override{URL: "x"},
	})
	wantErrors(t, err,
		"tenant: must be of the form [a-z0-9][a-z0-9_-]{0,62}",
		"id: needed",
		"account: needed: the vendor's own name of the installation",
		"secrets.secret_token: must not be empty",
		"secrets.x: unknown secret of channel telegram; did you mean secret_token?",
		"settings.z: unknown setting of channel telegram; did you mean public_url?",
		"policy.lease: 1s is not longer than the dispatch timeout (10s): a slow dispatch would count as dead",
		"dispatch.url: must be an http:// or https:// URL",
	)
	wantErrors(t, c.CheckInstallation(config.Installation{Tenant: "acme", ID: "a", Account: "b", Channel: "telgram"}),
		"channel: unknown channel; did you mean telegram?")
}

func TestFindingsTellWhatIsValidAndWorthALook(t *testing.T) {
	t.Parallel()
	keys := func(c *config.Config) (keys []string) {
		for _, f := range c.Findings() {
			keys = append(keys, string(f.Severity)+" "+f.Key)
			if strings.Contains(f.Text, "s3cret") || f.Text == "" {
				t.Errorf("the text of %s is %q", f.Key, f.Text)
			}
		}
		return keys
	}
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"defaults": {"", []string{"note server.admin_token"}},
		"nothing": {
			"server: {admin_token: s3cret, public_url: \"https://h\"}\ndispatch: {target: http, http: {secret: s3cret}}\n" +
				installations("{id: a, channel: slack, account: T1, secrets: {signing_secret: s3cret}}"), nil,
		},
		"twilio without public_url": {
			"server: {admin_token: x}\ndispatch: {target: http, http: {secret: x}}\n" + installations(
				"{id: a, channel: twilio, account: AC1, secrets: {auth_token: x}}",
				"{id: b, channel: twilio, account: AC2, secrets: {auth_token: x}, settings: {public_url: \"https://h\"}}"),
			[]string{"warning server.public_url"},
		},
		"dispatch": {
			"server: {admin_token: x, drain_timeout: 5s}\ndispatch: {target: http}",
			[]string{"warning server.drain_timeout", "warning dispatch.http.secret"},
		},
		"the log as target": {
			"server: {admin_token: x}\n" + installations(
				"{id: a, channel: slack, account: T1, secrets: {signing_secret: x}}",
				"{id: b, channel: slack, account: T2, secrets: {signing_secret: x}, dispatch: {url: \"http://h\"}}"),
			[]string{"warning dispatch.target", "warning tenants.0.installations.1.dispatch.url"},
		},
		"policy and stores": {
			"server: {admin_token: x}\nstore: {durable: {driver: postgres, dsn: \"postgres://h/x\"}, journal: {path: j}}\npolicy: {guarantee: at-least-once, payload_retention: 1000h}",
			[]string{"note store.fast.driver", "note policy.guarantee", "note policy.payload_retention"},
		},
		"twilio that neither comes again nor is journalled": {
			"server: {admin_token: x, public_url: \"https://x.example\"}\nstore: {journal: {path: \"\"}}\ndispatch: {target: http, http: {secret: x}}\n" +
				installations("{id: a, channel: twilio, account: AC1, secrets: {auth_token: x}}"),
			[]string{"warning policy.on_store_down"},
		},
		"channels": {
			"server: {admin_token: x}\ndispatch: {target: http, http: {secret: x}}\nchannels: {telegram: {secret_token: x, policy: {guarantee: at-least-once}}, slack: {enabled: false}}\n" + installations(
				"{id: a, channel: slack, account: T1, secrets: {signing_secret: x}, policy: {guarantee: at-least-once}}"),
			[]string{
				"warning channels.telegram", "note channels.telegram.policy.guarantee",
				"warning tenants.0.installations.0.channel", "note tenants.0.installations.0.policy.guarantee",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := keys(mustLoad(t, tc.text)); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("findings are %q; want %q", got, tc.want)
			}
		})
	}
}

func TestKeptPolicyIsReadByTheRulesOfTheFile(t *testing.T) {
	t.Parallel()
	p, err := config.ParsePolicy([]byte(`{"fast_ttl":"30h","backoff":{"max":"1m"},"rate_limit":5}`))
	if err != nil || p.FastTTL != 30*time.Hour || p.Backoff.Max != time.Minute || p.RateLimit != 5 {
		t.Errorf("ParsePolicy = %+v, %v", p, err)
	}
	if p, err := config.ParsePolicy(nil); err != nil || p != (config.Policy{}) {
		t.Errorf("ParsePolicy of nothing = %+v, %v", p, err)
	}
	for text, key := range map[string]string{
		`{"fast_tll":"1h"}`: "policy.fast_tll", `{"lease":"0s"}`: "policy.lease", `[1]`: "policy", `{"guarantee":"twice"}`: "policy.guarantee", `{`: "policy",
	} {
		if _, err := config.ParsePolicy([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), key) {
			t.Errorf("ParsePolicy(%s) = %v; want an error about %s", text, err, key)
		}
	}
}

func TestQuarantineNeedsAKeyAndAnEnd(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"policy: {quarantine: 1h}":                                     "store.durable.secret_key",
		"store: {durable: {secret_key: k}}\npolicy: {quarantine: 25h}": "at most 24h",
		"store: {durable: {secret_key: k}}\npolicy: {quarantine: 1h}":  "",
	} {
		_, err := load(t, text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q = %v; want %q", text, err, want)
		}
	}
}
