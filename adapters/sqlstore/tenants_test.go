package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// speaksForAll makes a session of the server's own role speak for each tenant that is entered.
const speaksForAll = `SELECT set_config('admitone.tenants', (SELECT coalesce(jsonb_object_agg(tenant, 1), '{}')::text FROM tenants), false)`

// tables are all that hold tenants' rows, with a row for the tenant $1.
var tables = map[string]string{
	"receipts": `INSERT INTO receipts (tenant, id, platform, channel, installation, account, event_id, event_digest, message_key, kind,
		conversation, digest, guarantee, state, attempt, deliveries, vendor_attempt, claimed_at, holder, last_error)
		VALUES ($1, gen_random_uuid(), 'slack', 'slack', 'main', 'T1', 'Ev1', gen_random_uuid(), '', 'other', '', gen_random_uuid(),
		'at-most-once', 'handled', 1, 1, 0, now(), 'x', '')`,
	"payloads":      `INSERT INTO payloads (tenant, receipt_id, media_type, body) VALUES ($1, gen_random_uuid(), '', '')`,
	"conversations": `INSERT INTO conversations VALUES ($1, gen_random_uuid(), 'slack', 'T1', '', 'pending', gen_random_uuid(), now())`,
	"messages":      `INSERT INTO messages VALUES ($1, gen_random_uuid(), gen_random_uuid())`,
	"history":       `INSERT INTO history (tenant, receipt_id, at, what, attempt, state, reason, by_whom) VALUES ($1, gen_random_uuid(), now(), '', 1, '', '', '')`,
	"leases":        `INSERT INTO leases (tenant, name, holder, until) VALUES ($1, gen_random_uuid()::text, '', now())`,
	"polls":         `INSERT INTO polls VALUES ($1, 'gmail', gen_random_uuid()::text, '', 0, now(), 0, '', '', '', 0, '', now())`,
	"quarantine":    `INSERT INTO quarantine VALUES ($1, gen_random_uuid(), 'main', now(), '', '')`,
	"installations": `INSERT INTO installations VALUES ($1, gen_random_uuid()::text, 'slack', gen_random_uuid()::text, false, '{}', '', '', '', now(), now())`,
}

const insufficientPrivilege = "42501"

// confinedConn is a session of the role under which the server runs.
func confinedConn(t *testing.T, c sqlstore.Config, spoken string) *pgx.Conn {
	t.Helper()
	conn := connect(t, c.DSN)
	if spoken != "" {
		if _, err := conn.Exec(t.Context(), "SELECT set_config('admitone.tenants', $1, false)", spoken); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

func refused(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == insufficientPrivilege
}

// Whatever a statement says, the server's role sees and changes rows of those tenants alone that
// its transaction speaks for. To have said nothing is an error wherever there is a row that would
// have to be kept back: none that is hidden looks like none at all.
func TestDatabaseKeepsTenantsApart(t *testing.T) {
	t.Parallel()
	c := pgConfig(t)
	open(t, c)
	wantAllTables(t, connect(t, c.DSN))
	for table, insert := range tables {
		t.Run(table, func(t *testing.T) {
			acme, globex := confinedConn(t, c, `{"acme": 1}`), confinedConn(t, c, `{"globex": 1}`)
			both, nobody, silent := confinedConn(t, c, `{"acme": 1, "globex": 1}`), confinedConn(t, c, `{}`), confinedConn(t, c, "")
			ctx := t.Context()
			count := func(conn *pgx.Conn) (n int, err error) {
				err = conn.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&n)
				return n, err
			}
			if _, err := silent.Exec(ctx, insert, "acme"); !refused(err) {
				t.Errorf("a row is written by who said nothing: %v", err)
			}
			if _, err := acme.Exec(ctx, insert, "acme"); err != nil {
				t.Fatalf("a row of its own: %v", err)
			}
			if _, err := acme.Exec(ctx, insert, "globex"); !refused(err) {
				t.Errorf("a row for another tenant is written: %v", err)
			}
			if _, err := count(silent); !refused(err) {
				t.Errorf("a row is read by who said nothing: %v", err)
			}
			for name, who := range map[string]struct {
				conn *pgx.Conn
				rows int
			}{"acme": {acme, 1}, "globex": {globex, 0}, "both": {both, 1}, "nobody": {nobody, 0}} {
				if n, err := count(who.conn); err != nil || n != who.rows {
					t.Errorf("%s sees %d rows, %v; want %d", name, n, err, who.rows)
				}
			}
			for _, statement := range []string{"UPDATE " + table + " SET tenant = tenant", "DELETE FROM " + table} {
				if _, err := silent.Exec(ctx, statement); !refused(err) {
					t.Errorf("%s by who said nothing: %v", statement, err)
				}
				if tag, err := globex.Exec(ctx, statement); err != nil || tag.RowsAffected() != 0 {
					t.Errorf("%s by another tenant: %d rows, %v; want none", statement, tag.RowsAffected(), err)
				}
			}
			if _, err := acme.Exec(ctx, "UPDATE "+table+" SET tenant = 'globex'"); !refused(err) {
				t.Errorf("a row is given to another tenant: %v", err)
			}
			if n, err := count(acme); err != nil || n != 1 {
				t.Errorf("in the end acme has %d rows, %v; want 1", n, err)
			}
		})
	}
}

// wantAllTables checks that no table with a tenant in its rows was left out of the matrix.
func wantAllTables(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT table_name FROM information_schema.columns
		WHERE table_schema = current_schema() AND column_name = 'tenant' AND table_name <> 'tenants'`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if tables[name] == "" {
			t.Errorf("table %s has tenants' rows and is not in the matrix", name)
		}
	}
	if len(names) != len(tables) {
		t.Errorf("%d tables have tenants' rows; the matrix has %d", len(names), len(tables))
	}
}

// What one transaction said must not be heard in the next of the same connection, whether it
// ended well or not.
func TestNextTransactionOfAConnectionSpeaksForNobody(t *testing.T) {
	t.Parallel()
	c := pgConfig(t)
	s := open(t, c)
	if ok, err := s.AcquireLease(t.Context(), "prune", "x", time.Minute); !ok || err != nil {
		t.Fatal(err)
	}
	conn := confinedConn(t, c, "")
	for name, end := range map[string]func(pgx.Tx, context.Context) error{"commit": pgx.Tx.Commit, "rollback": pgx.Tx.Rollback} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `SELECT set_config('admitone.tenants', '{"acme": 1}', true)`); err != nil {
			t.Fatal(err)
		}
		if err := end(tx, t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "SELECT FROM leases"); !refused(err) {
			t.Errorf("after the %s: %v; want a refusal", name, err)
		}
	}
}

// Whose an event is, is looked up before its tenant is known: that reads the one installation that
// is named, and opens nothing else.
func TestLookUpReadsOneInstallationAndNothingElse(t *testing.T) {
	t.Parallel()
	c := pgConfig(t)
	open(t, c)
	all := confinedConn(t, c, `{"acme": 1, "globex": 1}`)
	for _, tenant := range []string{"acme", "globex"} {
		for _, insert := range tables {
			if _, err := all.Exec(t.Context(), insert, tenant); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := all.Exec(t.Context(), `UPDATE installations SET id = $1, account = 'T-' || $1 WHERE tenant = $1`, tenant); err != nil {
			t.Fatal(err)
		}
	}
	for name, setting := range map[string]string{
		"by id":      `SELECT set_config('admitone.installation', 'acme', false)`,
		"by account": `SELECT set_config('admitone.account', 'slack/T-acme', false)`,
	} {
		looking := confinedConn(t, c, `{}`)
		if _, err := looking.Exec(t.Context(), setting); err != nil {
			t.Fatal(err)
		}
		for table := range tables {
			want := 0
			if table == "installations" {
				want = 1
			}
			var n int
			if err := looking.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != want {
				t.Errorf("%s: %d rows of %s, %v; want %d", name, n, table, err, want)
			}
			for _, change := range []string{"UPDATE " + table + " SET tenant = tenant", "DELETE FROM " + table} {
				if tag, err := looking.Exec(t.Context(), change); err != nil || tag.RowsAffected() != 0 {
					t.Errorf("%s: %s: %d rows, %v; want none", name, change, tag.RowsAffected(), err)
				}
			}
		}
	}
}

// A batch holds the rows of several tenants. Each of them is its own tenant's, and one that is
// refused spoils neither the others nor what the connection does next.
func TestBatchOfSeveralTenantsIsKeptApart(t *testing.T) {
	t.Parallel()
	wantBatchKeptApart(t, pgConfig(t))
}

func wantBatchKeptApart(t *testing.T, c sqlstore.Config) {
	t.Helper()
	s := open(t, c)
	var won []domain.Receipt
	for _, spoiled := range []int{-1, 17} { // the first batch is committed whole, the second one by one
		var batch []domain.Receipt
		for i := range 40 {
			r := receipt(fmt.Sprint(spoiled, i))
			r.Key.Tenant = fmt.Sprintf("tenant-%d", i%4)
			if i == spoiled {
				r.Key.Tenant = "no\x00tenant"
			}
			batch = append(batch, r)
		}
		for i, got := range s.Claim(t.Context(), batch) {
			if got.Won == (i == spoiled) {
				t.Errorf("claim %d is won: %t, %v", i, got.Won, got.Err)
			}
			if i != spoiled {
				won = append(won, batch[i])
			}
		}
	}
	conn := confinedConn(t, c, `{"tenant-1": 1}`)
	var n, theirs int
	err := conn.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE tenant = 'tenant-1') FROM receipts`).Scan(&n, &theirs)
	if err != nil || n != 19 || theirs != 19 {
		t.Errorf("tenant-1 sees %d receipts, %d of them its own, %v; want 19", n, theirs, err)
	}
	for _, r := range won {
		foreign := refOf(r)
		foreign.Tenant = "tenant-9"
		if _, err := s.Begin(t.Context(), foreign, time.Minute); !errors.Is(err, domain.ErrFenced) {
			t.Fatalf("begin for another tenant = %v; want fenced", err)
		}
		if _, err := s.Begin(t.Context(), refOf(r), time.Minute); err != nil {
			t.Fatalf("begin = %v; want nil", err)
		}
	}
}

// A database in which somebody has taken a policy away is not served from.
func TestOpenRefusesADatabaseThatDoesNotKeepTenantsApart(t *testing.T) {
	t.Parallel()
	for table := range tables {
		for name, harm := range map[string]string{
			"policy dropped":    "DROP POLICY tenant ON " + table,
			"not enabled":       "ALTER TABLE " + table + " DISABLE ROW LEVEL SECURITY",
			"not for the owner": "ALTER TABLE " + table + " NO FORCE ROW LEVEL SECURITY",
		} {
			t.Run(table+" "+name, func(t *testing.T) {
				t.Parallel()
				db := servertest.Postgres(t).Database(t)
				c := sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true}
				if err := mustOpen(t, c).Close(); err != nil {
					t.Fatal(err)
				}
				if _, err := connect(t, db.SuperDSN).Exec(t.Context(), harm); err != nil {
					t.Fatal(err)
				}
				s, err := sqlstore.Open(t.Context(), c)
				if err == nil {
					_ = s.Close()
				}
				if err == nil || !strings.Contains(err.Error(), table) {
					t.Errorf("Open = %v; want an error that names %s", err, table)
				}
				if err := sqlstore.Check(t.Context(), c); err == nil || !strings.Contains(err.Error(), table) {
					t.Errorf("Check = %v; want an error that names %s", err, table)
				}
			})
		}
	}
}

// What people see of one tenant holds nothing of another, by every call that takes a tenant.
func TestFilterOfATenantShowsNoOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]sqlstore.Config{"sqlite": liteConfig(t), "postgres": pgConfig(t)} {
		t.Run(name, func(t *testing.T) {
			s := open(t, c)
			for i := range 20 {
				r := receipt(fmt.Sprint(i))
				r.Key.Tenant = []string{"acme", "globex"}[i%2]
				if got := claim(t.Context(), s, r); !got.Won {
					t.Fatal(got.Err)
				}
			}
			page, err := s.Receipts(t.Context(), ports.Filter{Tenant: "acme"})
			if err != nil || len(page.Receipts) != 10 {
				t.Fatalf("acme has %d receipts, %v; want 10", len(page.Receipts), err)
			}
			for _, r := range page.Receipts {
				if r.Key.Tenant != "acme" {
					t.Errorf("acme is shown a receipt of %s", r.Key.Tenant)
				}
			}
			if n, err := s.Prune(t.Context(), ports.PruneScope{Tenant: "acme", Receipts: time.Now().Add(time.Hour)}, 100); err != nil || n != 0 {
				t.Errorf("Prune of open receipts = %d, %v; want 0", n, err)
			}
		})
	}
}
