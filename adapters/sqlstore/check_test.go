package sqlstore_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/migrations"
)

// As a role that the database can't bind, or that lacks a right, the server neither starts nor
// passes a check; what it prints mends it.
func TestUnfitRoleIsRefusedWithWhatMendsIt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		role    string // what else is said of it when it is made
		prepare string // as superuser, once the tables are there; $ is the role
		migrate bool
		want    []string // of the error; none: it is fit
	}{
		"superuser":              {role: "SUPERUSER", want: []string{`role "unfit`, "is a superuser", "CREATE ROLE admitone LOGIN NOSUPERUSER NOBYPASSRLS", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"}},
		"bypasses":               {role: "BYPASSRLS", want: []string{"bypasses row-level security", "CREATE ROLE admitone"}},
		"may become one":         {role: "IN ROLE postgres", want: []string{"may become", "postgres", "which is a superuser"}},
		"lacks all rights":       {want: []string{"may not read and write", "history, installation_changes, installations, instances, leases", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"}},
		"lacks a right":          {prepare: "GRANT ALL ON ALL TABLES IN SCHEMA public TO $; REVOKE DELETE ON payloads FROM $", want: []string{"may not read and write payloads;"}},
		"may use no schema":      {prepare: "REVOKE USAGE ON SCHEMA public FROM PUBLIC", want: []string{"may use no schema", "GRANT USAGE ON SCHEMA public TO"}},
		"may not make tables":    {migrate: true, prepare: "DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC", want: []string{"may not make the tables", "ALTER DATABASE", "OWNER TO", "store.durable.migrate_dsn"}},
		"has rights and no more": {prepare: "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO $"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servertest.Postgres(t).Database(t)
			if err := mustOpen(t, sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true}).Close(); err != nil {
				t.Fatal(err)
			}
			role := "unfit_" + db.Name
			super := connect(t, db.SuperDSN)
			for _, sql := range []string{"CREATE ROLE $ LOGIN PASSWORD 'pw' " + tt.role, tt.prepare} {
				if _, err := super.Exec(t.Context(), strings.ReplaceAll(sql, "$", role), pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
				defer cancel()
				for _, sql := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
					if _, err := super.Exec(ctx, sql); err != nil {
						t.Error(err)
					}
				}
			})
			c := sqlstore.Config{Dialect: migrations.Postgres, DSN: as(t, db.DSN, role, "pw"), Migrate: tt.migrate}
			s, openErr := sqlstore.Open(t.Context(), c)
			if openErr == nil {
				_ = s.Close()
			}
			for what, err := range map[string]error{"Check": sqlstore.Check(t.Context(), c), "Open": openErr} {
				if (err == nil) != (tt.want == nil) {
					t.Fatalf("%s = %v; want an error: %t", what, err, tt.want != nil)
				}
				for _, want := range tt.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s = %v; want it to tell %q", what, err, want)
					}
				}
			}
		})
	}
}

// What the refusal of a database prints is carried out, and the database is served from again.
func TestWhatARefusalPrintsMendsTheDatabase(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	c := sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true}
	if err := mustOpen(t, c).Close(); err != nil {
		t.Fatal(err)
	}
	owner := connect(t, db.DSN)
	for name, harm := range map[string]string{
		"removed":         "DROP POLICY tenant ON receipts",
		"wide open":       "DROP POLICY tenant ON polls; CREATE POLICY tenant ON polls USING (true)",
		"for reads alone": "DROP POLICY tenant ON history; CREATE POLICY tenant ON history FOR SELECT USING (jsonb_exists((SELECT admitone_tenants()), tenant))",
		"written freely":  "DROP POLICY tenant ON leases; CREATE POLICY tenant ON leases USING (jsonb_exists((SELECT admitone_tenants()), tenant)) WITH CHECK (true)",
		"another":         "CREATE POLICY everybody ON payloads USING (true)",
		"wider look-up":   "DROP POLICY look_up ON installations; CREATE POLICY look_up ON installations FOR SELECT USING (true)",
		"not for owners":  "ALTER TABLE quarantine NO FORCE ROW LEVEL SECURITY",
		"several": `DROP POLICY tenant ON receipts; ALTER TABLE payloads DISABLE ROW LEVEL SECURITY;
			CREATE POLICY everybody ON history USING (true)`,
	} {
		if _, err := owner.Exec(t.Context(), harm, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		refusal := sqlstore.Check(t.Context(), c)
		if refusal == nil {
			t.Errorf("%s: Check = nil; want a refusal", name)
			continue
		}
		_, mend, _ := strings.Cut(refusal.Error(), "mends it by:")
		if _, err := owner.Exec(t.Context(), mend, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Errorf("%s: %v, of what was printed:%s", name, err, mend)
		}
		if err := sqlstore.Check(t.Context(), c); err != nil {
			t.Errorf("%s: Check after what was printed = %v; want nil", name, err)
		}
	}
}

// A proxy that the DSN does not tell of would move statements away from where they were prepared.
func TestProxyThatTheDSNDoesNotTellOfIsRefused(t *testing.T) {
	t.Parallel()
	pg := servertest.Postgres(t)
	db := pg.Database(t)
	for name, settings := range map[string][]string{
		"refuses settings": nil,
		"ignores settings": {"ignore_startup_parameters = enable_seqscan,enable_hashjoin,enable_mergejoin,jit,lock_timeout,plan_cache_mode"},
	} {
		b := servertest.PgBouncer(t, pg, settings...)
		told := sqlstore.Config{Dialect: migrations.Postgres, DSN: b.DSN(db), Migrate: true}
		untold := told
		untold.DSN = strings.ReplaceAll(told.DSN, "default_query_exec_mode=exec&", "")
		if err := sqlstore.Check(t.Context(), untold); err == nil || !strings.Contains(err.Error(), "add default_query_exec_mode=exec") {
			t.Errorf("%s: Check = %v; want it to tell what the DSN lacks", name, err)
		}
		if err := sqlstore.Check(t.Context(), told); err != nil {
			t.Errorf("%s: Check of the DSN that tells = %v; want nil", name, err)
		}
	}
}

// as returns dsn for another role.
func as(t *testing.T, dsn, role, password string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	return u.String()
}
