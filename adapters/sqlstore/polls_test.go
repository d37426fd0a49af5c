package sqlstore_test

import (
	"testing"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/ports/storetest"
)

func TestSQLiteKeepsThePromisesOfPolls(t *testing.T) {
	t.Parallel()
	storetest.Polls(t, func(t *testing.T) storetest.PollSubject {
		return pollSubject(t, liteConfig(t))
	})
}

func TestPostgresKeepsThePromisesOfPolls(t *testing.T) {
	t.Parallel()
	databases := shelf{owner: t}
	storetest.Polls(t, func(t *testing.T) storetest.PollSubject {
		return pollSubject(t, databases.take(t))
	})
}

func TestPostgresBehindAPoolingProxyKeepsThePromisesOfPolls(t *testing.T) {
	t.Parallel()
	databases, b := shelf{owner: t}, servertest.PgBouncer(t, servertest.Postgres(t))
	storetest.Polls(t, func(t *testing.T) storetest.PollSubject {
		return pollSubject(t, behind(t, b, databases.take(t)))
	})
}

func pollSubject(t *testing.T, c sqlstore.Config) storetest.PollSubject {
	t.Helper()
	return storetest.PollSubject{Store: open(t, c), Other: open(t, c)}
}
