package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/admitone/admitone/adapters/servertest"
)

// configFile writes text as a configuration whose embedded store is in a folder of the test's own.
func configFile(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "admitone.yaml")
	text = strings.ReplaceAll(text, "DIR", dir)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const embedded = `store: {durable: {driver: sqlite, dsn: "DIR/admitone.db"}, journal: {path: "DIR/journal"}}
`

func TestCheckTellsEachFindingByItsKey(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		config string
		code   int
		says   []string
	}{
		"all well": {
			embedded, 0,
			[]string{"ok       store.durable.dsn: the file is not there yet", "no errors\n"},
		},
		"unknown key": {
			embedded + "server: {lisen: ':1'}\n", 1,
			[]string{"error    server.lisen: unknown key; did you mean listen?", "1 error(s)\n"},
		},
		"two errors": {
			embedded + "server: {lisen: ':1'}\ndispatch: {target: htp}\n", 1,
			[]string{"server.lisen", "dispatch.target: must be one of log, http", "2 error(s)\n"},
		},
		"variable that is not set": {
			embedded + "server: {admin_token: '${ADMITONE_TEST_NOBODY_SETS}'}\n", 1,
			[]string{"error    server.admin_token: the environment variable ADMITONE_TEST_NOBODY_SETS is not set"},
		},
		"secret that does not fit": {
			embedded + "tenants: [{id: acme, installations: [{id: a, channel: telegram, account: '7', secrets: {secret_token: 'not/fit'}}]}]\n", 1,
			[]string{"error    tenants: installation a: secret_token"},
		},
		"unreachable Redis": {
			`store: {durable: {driver: sqlite, dsn: "DIR/admitone.db"}, journal: {path: "DIR/journal"}, fast: {driver: redis, url: "redis://:hush@127.0.0.1:1/0"}}`, 1,
			[]string{"error    store.fast.url: ", "connection refused", "1 error(s)\n"},
		},
		"nobody takes the events": {
			embedded + "dispatch: {target: http, http: {url: 'http://127.0.0.1:1/events'}}\n", 1,
			[]string{"error    dispatch.http.url: ", "connection refused"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := admitone("check", "--config", configFile(t, tt.config))
			if got.code != tt.code || got.stderr != "" {
				t.Errorf("code %d, stderr %q; want code %d and nothing", got.code, got.stderr, tt.code)
			}
			for _, say := range tt.says {
				if !strings.Contains(got.stdout, say) {
					t.Errorf("it does not say %q:\n%s", say, got.stdout)
				}
			}
			if strings.Contains(got.stdout, "hush") {
				t.Errorf("it tells a password:\n%s", got.stdout)
			}
		})
	}
}

func TestCheckRefusesARoleThatRowLevelSecurityDoesNotBind(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	for dsn, want := range map[string]struct {
		code int
		says string
	}{
		db.SuperDSN: {1, "error    store.durable.dsn: "},
		db.DSN:      {0, "ok       store.durable.dsn: reached"},
	} {
		got := admitone("check", "--config", configFile(t, `store: {durable: {driver: postgres, dsn: "`+dsn+`"}, journal: {path: "DIR/journal"}}`))
		if got.code != want.code || !strings.Contains(got.stdout, want.says) {
			t.Errorf("check = %+v; want code %d and %q", got, want.code, want.says)
		}
		if want.code != 0 && !strings.Contains(got.stdout, "CREATE ROLE") {
			t.Errorf("the SQL for a proper role is not told:\n%s", got.stdout)
		}
	}
}

func TestServeRefusesWhatCheckFinds(t *testing.T) {
	t.Parallel()
	got := admitone("serve", "--config", configFile(t, "server: {lisen: ':1'}\n"))
	if got.code != 1 || !strings.Contains(got.stderr, "server.lisen") || !strings.Contains(got.stderr, "did you mean listen?") {
		t.Errorf("serve = %+v; want code 1 and the key", got)
	}
}

func TestMigrateBringsTheSchemaUpAndDown(t *testing.T) {
	t.Parallel()
	config := configFile(t, embedded)
	for _, step := range []struct{ do, says string }{
		{"status", "schema at step 0 of "},
		{"up", ": complete\n"},
		{"status", ": complete\n"},
		{"down", ": behind; admitone migrate up completes it\n"},
		{"up", ": complete\n"},
	} {
		got := admitone("migrate", step.do, "--config", config)
		if got.code != 0 || !strings.Contains(got.stdout, step.says) {
			t.Errorf("migrate %s = %+v; want code 0 and %q", step.do, got, step.says)
		}
	}
}
