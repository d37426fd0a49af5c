package sqlstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/ports"
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

func TestAccountsThatNobodyWantsAreNotDueForEver(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c sqlstore.Config) {
		s := open(t, c)
		gone, fresh := ports.PollAccount{Tenant: "acme", Channel: "gmail", Account: "gone"}, ports.PollAccount{Tenant: "acme", Channel: "gmail", Account: "fresh"}
		enter := func(a ports.PollAccount) {
			t.Helper()
			if err := s.EnterPolls(t.Context(), []ports.PollAccount{a}); err != nil {
				t.Fatal(err)
			}
		}
		take := func(wanted bool, ttl time.Duration) (names []string) {
			t.Helper()
			polls, err := s.TakePolls(t.Context(), "one", func(ports.PollAccount) bool { return wanted }, 10, ttl)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range polls {
				names = append(names, p.Account)
			}
			return names
		}
		enter(gone)
		take(true, -time.Hour) // its holder died an hour ago
		enter(fresh)
		take(false, time.Hour)
		if got := take(true, -time.Hour); !slices.Equal(got, []string{"fresh"}) {
			t.Errorf("taken %q; want fresh alone, as nobody has wanted the other for an hour", got)
		}
		take(false, time.Hour)
		if got := take(true, time.Hour); len(got) != 0 {
			t.Errorf("taken %q; want none", got)
		}
		enter(gone) // its installation is resumed
		if got := take(true, time.Hour); !slices.Equal(got, []string{"gone"}) {
			t.Errorf("taken %q after it was entered again; want gone", got)
		}
		enter(gone)
		if got := take(true, time.Hour); len(got) != 0 {
			t.Errorf("taken %q, which is held; want none", got)
		}
	})
}

func pollSubject(t *testing.T, c sqlstore.Config) storetest.PollSubject {
	t.Helper()
	return storetest.PollSubject{Store: open(t, c), Other: open(t, c)}
}
