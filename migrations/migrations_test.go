package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/migrations"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// A place is an empty database of one dialect.
type place struct {
	dialect migrations.Dialect
	driver  string
	dsn     string
	lock    migrations.Lock
}

func onBoth(t *testing.T, check func(*testing.T, place)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "receipts.db")
		check(t, place{migrations.SQLite, "sqlite", file + "?_pragma=busy_timeout(10000)", fileLock(file + ".migrate")})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := servertest.Postgres(t).Database(t).DSN
		check(t, place{migrations.Postgres, "pgx", dsn, rowLock(dsn)})
	})
	t.Run("postgres behind a pooling proxy", func(t *testing.T) {
		t.Parallel()
		pg := servertest.Postgres(t)
		dsn := servertest.PgBouncer(t, pg).DSN(pg.Database(t))
		check(t, place{migrations.Postgres, "pgx", dsn, rowLock(dsn)})
	})
}

func fileLock(path string) migrations.Lock {
	return func(ctx context.Context) (func(), error) {
		l := flock.New(path)
		if _, err := l.TryLockContext(ctx, 5*time.Millisecond); err != nil {
			return nil, err
		}
		return func() { _ = l.Unlock() }, nil
	}
}

// rowLock is a lock that lives with a transaction, and so with its holder's connection. Who waits
// for it keeps no transaction meanwhile: through a proxy that would take a connection away from
// who has it.
func rowLock(dsn string) migrations.Lock {
	return func(ctx context.Context) (func(), error) {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return nil, err
		}
		unlock := func() { _ = conn.Close(context.WithoutCancel(ctx)) }
		for {
			tx, err := conn.Begin(ctx)
			had := false
			if err == nil {
				err = tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock(7)").Scan(&had)
			}
			if had {
				return unlock, nil
			}
			if err == nil {
				err = tx.Rollback(ctx)
			}
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(5 * time.Millisecond):
			}
			if err != nil {
				unlock()
				return nil, err
			}
		}
	}
}

func (p place) open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open(p.driver, p.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (p place) exec(t *testing.T, statements ...string) {
	t.Helper()
	db := p.open(t)
	defer func() { _ = db.Close() }()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func (p place) up(t *testing.T) {
	t.Helper()
	if err := migrations.Up(t.Context(), p.open(t), p.dialect, p.lock); err != nil {
		t.Errorf("Up = %v; want nil", err)
	}
}

func (p place) state(t *testing.T) migrations.Status {
	t.Helper()
	s, err := migrations.State(p.open(t), p.dialect)
	if err != nil {
		t.Fatalf("State = %v; want nil", err)
	}
	return s
}

// wantCurrent checks that every step is applied, once, and that the tables take rows.
func (p place) wantCurrent(t *testing.T) {
	t.Helper()
	s := p.state(t)
	if s.Dirty || s.Latest == 0 || s.Version != s.Latest {
		t.Errorf("State = %+v; want the latest step, applied", s)
	}
	db := p.open(t)
	var steps, last int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*), max(version) FROM schema_steps").Scan(&steps, &last); err != nil {
		t.Fatal(err)
	}
	if steps != int(s.Latest) || last != int(s.Latest) {
		t.Errorf("%d steps have entered themselves, the last %d; want %d", steps, last, s.Latest)
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO instances (id, alive_until) VALUES ('x', CURRENT_TIMESTAMP)"); err != nil {
		t.Errorf("a row for the new schema: %v", err)
	}
	if _, err := db.ExecContext(t.Context(), "DELETE FROM instances WHERE id = 'x'"); err != nil {
		t.Error(err)
	}
}

func TestUpAppliesEveryStepOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		if s := p.state(t); s.Version != 0 || s.Dirty || s.Latest == 0 {
			t.Errorf("State of an empty database = %+v; want version 0", s)
		}
		p.up(t)
		p.wantCurrent(t)
		p.exec(t, "INSERT INTO instances (id, alive_until) VALUES ('kept', CURRENT_TIMESTAMP)")
		p.up(t) // nothing is left to do, and nothing is lost
		p.wantCurrent(t)
		var kept int
		if err := p.open(t).QueryRowContext(t.Context(), "SELECT count(*) FROM instances").Scan(&kept); err != nil || kept != 1 {
			t.Errorf("%d rows are left, %v; want 1", kept, err)
		}
	})
}

func TestDownTakesTheLastStepBack(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		p.up(t)
		for v := p.state(t).Latest; v > 0; v-- {
			if err := migrations.Down(t.Context(), p.open(t), p.dialect, p.lock); err != nil {
				t.Fatalf("Down from %d = %v; want nil", v, err)
			}
			if s := p.state(t); s.Version != v-1 || s.Dirty {
				t.Fatalf("State after Down from %d = %+v; want %d", v, s, v-1)
			}
		}
		for _, table := range []string{"receipts", "payloads", "history", "instances", "leases", "schema_steps"} {
			if _, err := p.open(t).ExecContext(t.Context(), "SELECT 1 FROM "+table); err == nil {
				t.Errorf("table %s is left over", table)
			}
		}
		p.up(t)
		p.wantCurrent(t)
	})
}

func TestFiveInstancesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		for _, start := range []string{"an empty database", "one that is current"} {
			var wg sync.WaitGroup
			begin := make(chan struct{})
			for range 5 {
				db := p.open(t)
				wg.Go(func() {
					<-begin
					if err := migrations.Up(t.Context(), db, p.dialect, p.lock); err != nil {
						t.Errorf("Up with four others on %s = %v; want nil", start, err)
					}
				})
			}
			close(begin)
			wg.Wait()
			p.wantCurrent(t)
		}
	})
}

// A migrator that was killed marks its step as begun and has applied it, or has not.
func TestStepOfAKilledMigratorIsMended(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		p.state(t) // on SQLite it makes the table that the runner keeps
		p.exec(t, "CREATE TABLE IF NOT EXISTS schema_migrations (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL)",
			"INSERT INTO schema_migrations (version, dirty) VALUES (1, true)")
		if s := p.state(t); !s.Dirty || s.Version != 1 {
			t.Errorf("State of a step begun = %+v; want dirty at 1", s)
		}
		p.up(t) // it was not applied
		p.wantCurrent(t)

		p.exec(t, "INSERT INTO instances (id, alive_until) VALUES ('kept', CURRENT_TIMESTAMP)")
		p.exec(t, "UPDATE schema_migrations SET dirty = true")
		if s := p.state(t); !s.Dirty {
			t.Errorf("State = %+v; want dirty", s)
		}
		p.up(t) // it was applied
		p.wantCurrent(t)
		var kept int
		if err := p.open(t).QueryRowContext(t.Context(), "SELECT count(*) FROM instances WHERE id = 'kept'").Scan(&kept); err != nil || kept != 1 {
			t.Errorf("%d rows are left, %v; want 1: an applied step must not be applied again", kept, err)
		}

		p.exec(t, "UPDATE schema_migrations SET dirty = true")
		var wg sync.WaitGroup
		for range 3 { // all others start at the same time
			db := p.open(t)
			wg.Go(func() {
				if err := migrations.Up(t.Context(), db, p.dialect, p.lock); err != nil {
					t.Errorf("Up with others after a migrator was killed = %v; want nil", err)
				}
			})
		}
		wg.Wait()
		p.wantCurrent(t)
	})
}

// The server ends the migrator's connections in the middle of a step, as its death does.
func TestMigratorKilledInTheMiddleOfAStep(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	p := place{migrations.Postgres, "pgx", db.DSN, rowLock(db.DSN)}
	super, err := pgx.Connect(t.Context(), db.SuperDSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = super.Close(context.WithoutCancel(t.Context())) }()
	// whoever creates the table of this name waits for the end of this transaction
	tx, err := super.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "CREATE TABLE leases (n int)"); err != nil {
		t.Fatal(err)
	}
	migrator := make(chan error, 1)
	victim := p.open(t)
	go func() { migrator <- migrations.Up(t.Context(), victim, p.dialect, p.lock) }()
	killer, err := pgx.Connect(t.Context(), db.SuperDSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = killer.Close(context.WithoutCancel(t.Context())) }()
	for killed := 0; killed == 0; {
		select {
		case err := <-migrator:
			t.Fatalf("Up = %v before it was killed", err)
		case <-time.After(5 * time.Millisecond):
		}
		// whoever waits for the table, and then all its connections
		err := killer.QueryRow(t.Context(), `
			SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND usename = 'app' AND EXISTS (
				SELECT FROM pg_stat_activity WHERE datname = current_database() AND usename = 'app' AND wait_event_type = 'Lock' AND query LIKE '%CREATE TABLE receipts%')`).Scan(&killed)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-migrator; err == nil {
		t.Error("Up of a migrator that was killed = nil; want an error")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := p.state(t); !s.Dirty {
		t.Errorf("State after a migrator was killed = %+v; want dirty", s)
	}
	p.up(t)
	p.wantCurrent(t)
}

func TestLockThatIsNotHadIsAnError(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		unlock, err := p.lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		db := p.open(t)
		if err := migrations.Up(ctx, db, p.dialect, p.lock); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Up while another migrates = %v; want the end of the context", err)
		}
		if err := db.PingContext(t.Context()); err == nil {
			t.Error("the database is left open; want it closed, whatever happens")
		}
		if s := p.state(t); s.Version != 0 || s.Dirty {
			t.Errorf("State = %+v; want nothing applied", s)
		}
	})
}

func TestUnknownDialectIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := migrations.State(nil, "oracle"); err == nil {
		t.Error("State of an unknown dialect = nil; want an error")
	}
}

// Both dialects have the same steps, and each can be taken back.
func TestDialectsHaveTheSameSteps(t *testing.T) {
	t.Parallel()
	steps := map[string][]string{}
	for _, dialect := range []string{"postgres", "sqlite"} {
		files, err := filepath.Glob(dialect + "/*.sql")
		if err != nil || len(files) == 0 {
			t.Fatalf("no steps for %s: %v", dialect, err)
		}
		for _, file := range files {
			name := filepath.Base(file)
			steps[dialect] = append(steps[dialect], name)
			if up, ok := strings.CutSuffix(name, ".up.sql"); ok && !slices.Contains(files, dialect+"/"+up+".down.sql") {
				t.Errorf("%s can't be taken back", file)
			}
		}
	}
	if !slices.Equal(steps["postgres"], steps["sqlite"]) {
		t.Errorf("steps of Postgres %q, of SQLite %q; want the same", steps["postgres"], steps["sqlite"])
	}
	for i, name := range slices.DeleteFunc(slices.Clone(steps["sqlite"]), func(name string) bool { return !strings.HasSuffix(name, ".up.sql") }) {
		if !strings.HasPrefix(name, fmt.Sprintf("%04d_", i+1)) {
			t.Errorf("step %d is called %s; want the number in front", i+1, name)
		}
	}
}

// Receipts that are older than the register of tenants must not drop out of what is swept and pruned.
func TestTenantsOfEarlierReceiptsAreEntered(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		p.up(t)
		for p.state(t).Version > 1 {
			if err := migrations.Down(t.Context(), p.open(t), p.dialect, p.lock); err != nil {
				t.Fatalf("Down = %v; want nil", err)
			}
		}
		for i, tenant := range []string{"acme", "acme", "globex"} {
			id := fmt.Sprintf("00000000-0000-7000-8000-00000000000%d", i)
			p.exec(t, fmt.Sprintf(`INSERT INTO receipts (tenant, id, platform, channel, installation, account, event_id, event_digest,
				message_key, kind, conversation, digest, guarantee, state, attempt, deliveries, vendor_attempt, claimed_at, holder, last_error)
				VALUES ('%[1]s', '%[2]s', '', '', '', '', '', '%[2]s', '', '', '', '%[2]s', '', 'handled', 1, 1, 0, CURRENT_TIMESTAMP, '', '')`, tenant, id))
		}
		p.exec(t, `INSERT INTO payloads (tenant, receipt_id, media_type, body) VALUES ('initech', '00000000-0000-7000-8000-000000000009', '', '')`)
		p.up(t)
		p.wantCurrent(t)
		rows, err := p.open(t).QueryContext(t.Context(), "SELECT tenant FROM tenants ORDER BY tenant")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close() //nolint:errcheck // it was read only
		var got []string
		for rows.Next() {
			var tenant string
			if err := rows.Scan(&tenant); err != nil {
				t.Fatal(err)
			}
			got = append(got, tenant)
		}
		if want := []string{"acme", "globex", "initech"}; !slices.Equal(got, want) || rows.Err() != nil {
			t.Errorf("tenants = %v, %v; want %v", got, rows.Err(), want)
		}
	})
}
