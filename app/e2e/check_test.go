package e2e_test

import (
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/servertest"
)

// BR-115: as a role that row-level security does not bind, or on a database that somebody has
// opened, the server does not start; check says why, by which key, and which SQL mends it.
func TestCheckAndServeRefuseWhatDoesNotKeepTenantsApart(t *testing.T) {
	t.Parallel()
	const role = "unfit_of_check"
	for name, tt := range map[string]struct {
		role string   // what the role is besides; empty: the owner is asked as
		harm string   // done as superuser to a database with its tables
		says []string // none: there is nothing to refuse
	}{
		"owner":             {},
		"superuser":         {role: "SUPERUSER", says: []string{`role "` + role + `" is a superuser`, "CREATE ROLE admitone LOGIN NOSUPERUSER NOBYPASSRLS", "GRANT USAGE ON SCHEMA public TO admitone"}},
		"BYPASSRLS":         {role: "BYPASSRLS", says: []string{`role "` + role + `" bypasses row-level security`, "CREATE ROLE admitone LOGIN NOSUPERUSER NOBYPASSRLS"}},
		"member of one":     {role: "IN ROLE postgres", says: []string{`may become "postgres", which is a superuser`}},
		"without rights":    {role: "INHERIT", says: []string{"may not read and write", `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "public" TO "` + role + `"`}},
		"policy removed":    {harm: "DROP POLICY tenant ON receipts", says: []string{"row-level security is not what the migrations made it", "CREATE POLICY tenant ON receipts"}},
		"policy widened":    {harm: "CREATE POLICY support ON payloads USING (true)", says: []string{"DROP POLICY support ON payloads"}},
		"owner not bound":   {harm: "ALTER TABLE history NO FORCE ROW LEVEL SECURITY", says: []string{"ALTER TABLE history ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"}},
		"proxy not told of": {says: []string{"add default_query_exec_mode=exec"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.NewPostgres(t) // roles belong to all databases of one
			d := embedded(t, nil)
			d.db = server.Database(t)
			onDatabase := func(dsn string) settings {
				return settings{"store": settings{"durable": settings{"driver": "postgres", "dsn": dsn}}}
			}
			d.extra = onDatabase(d.db.DSN)
			d.serve(nil).kill()

			super, err := pgx.Connect(t.Context(), d.db.SuperDSN)
			if err != nil {
				t.Fatal(err)
			}
			defer super.Close(t.Context()) //nolint:errcheck // it was only told
			asSuper := func(sql string) {
				t.Helper()
				if _, err := super.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
			}
			dsn, err := url.Parse(d.db.DSN)
			if err != nil {
				t.Fatal(err)
			}
			if tt.role != "" {
				asSuper("CREATE ROLE " + role + " LOGIN PASSWORD 'of-the-role' " + tt.role)
				dsn.User = url.UserPassword(role, "of-the-role")
			}
			if tt.harm != "" {
				asSuper(tt.harm)
			}
			if name == "proxy not told of" {
				proxy, err := url.Parse(servertest.PgBouncer(t, server).DSN(d.db))
				if err != nil {
					t.Fatal(err)
				}
				dsn.Host = proxy.Host
			}
			d.extra = onDatabase(dsn.String())

			config := d.configure("asked", nil)
			run := func(command string) (string, bool) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), program, command, "--config", config)
				cmd.Dir = d.dir
				out, err := cmd.CombinedOutput()
				return string(out), err == nil
			}
			told, fit := run("check")
			if fit != (tt.says == nil) {
				t.Fatalf("check passes: %t; want %t: %s", fit, tt.says == nil, told)
			}
			if fit {
				return
			}
			started, _ := run("serve")
			for _, say := range tt.says {
				if !strings.Contains(told, say) || !strings.Contains(told, "error    store.durable.dsn: ") {
					t.Errorf("check does not tell %q under store.durable.dsn:\n%s", say, told)
				}
				if !strings.Contains(started, strings.ReplaceAll(say, `"`, `\"`)) && !strings.Contains(started, say) {
					t.Errorf("serve does not tell %q:\n%s", say, started)
				}
			}
			if strings.Contains(told+started, "of-the-role") {
				t.Error("a password is told")
			}
			if tt.harm == "" {
				return
			}
			var mend strings.Builder
			for line := range strings.Lines(told) {
				if strings.HasPrefix(line, "    ") {
					mend.WriteString(line)
				}
			}
			asSuper(mend.String())
			if told, fit := run("check"); !fit {
				t.Errorf("check after what was printed: %s", told)
			}
		})
	}
}
