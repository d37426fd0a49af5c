package sqlstore_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports/storetest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func TestSQLiteKeepsThePromises(t *testing.T) {
	t.Parallel()
	storetest.Durable(t, func(t *testing.T) storetest.Subject {
		return subject(t, liteConfig(t))
	})
}

func TestPostgresKeepsThePromises(t *testing.T) {
	t.Parallel()
	databases := shelf{owner: t}
	storetest.Durable(t, func(t *testing.T) storetest.Subject {
		return subject(t, databases.take(t))
	})
}

// BR-110: a proxy that pools transactions keeps no prepared statements and no settings of a session.
func TestPostgresBehindAPoolingProxyKeepsThePromises(t *testing.T) {
	t.Parallel()
	databases, b := shelf{owner: t}, servertest.PgBouncer(t, servertest.Postgres(t))
	storetest.Durable(t, func(t *testing.T) storetest.Subject {
		return subject(t, behind(t, b, databases.take(t)))
	})
}

// A shelf holds migrated, empty databases of one test, for its subtests to use one after the
// other: to empty one is ten times quicker than to make one.
type shelf struct {
	owner *testing.T
	mu    sync.Mutex
	free  []servertest.PostgresDatabase
}

func (s *shelf) take(t *testing.T) sqlstore.Config {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var db servertest.PostgresDatabase
	if n := len(s.free); n > 0 {
		db, s.free = s.free[n-1], s.free[:n-1]
	} else {
		db = servertest.Postgres(t).Database(s.owner)
	}
	t.Cleanup(func() { s.giveBack(t, db) })
	return sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true}
}

func (s *shelf) giveBack(t *testing.T, db servertest.PostgresDatabase) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.SuperDSN)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "TRUNCATE tenants, receipts, payloads, conversations, messages, history, instances, leases, polls RESTART IDENTITY"); err != nil {
		t.Error(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, db)
}

// subject opens two handles on one database. The kit closes them.
func subject(t *testing.T, c sqlstore.Config) storetest.Subject {
	t.Helper()
	return storetest.Subject{Store: mustOpen(t, c), Other: mustOpen(t, c)}
}

func mustOpen(t *testing.T, c sqlstore.Config) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

// open opens a store that is closed with the test.
func open(t *testing.T, c sqlstore.Config) *sqlstore.Store {
	t.Helper()
	s := mustOpen(t, c)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func liteConfig(t *testing.T) sqlstore.Config {
	t.Helper()
	return sqlstore.Config{Dialect: migrations.SQLite, DSN: filepath.Join(t.TempDir(), "receipts 100%?.db"), Migrate: true}
}

func pgConfig(t *testing.T) sqlstore.Config {
	t.Helper()
	return sqlstore.Config{Dialect: migrations.Postgres, DSN: servertest.Postgres(t).Database(t).DSN, Migrate: true}
}
