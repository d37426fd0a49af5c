package sqlstore_test

import (
	"path/filepath"
	"testing"

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
	storetest.Durable(t, func(t *testing.T) storetest.Subject {
		return subject(t, pgConfig(t))
	})
}

// A proxy that pools transactions keeps no prepared statements and no settings of a session.
func TestPostgresBehindAPoolingProxyKeepsThePromises(t *testing.T) {
	t.Parallel()
	storetest.Durable(t, func(t *testing.T) storetest.Subject {
		c := pgConfig(t)
		c.DSN += "&default_query_exec_mode=exec"
		return subject(t, c)
	})
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
