package flaky_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/app/flaky"
)

// A ledger is a database with a way to it that can be broken.
type ledger struct {
	t     *testing.T
	proxy *flaky.Proxy
	dsn   string // through the proxy
	sound *pgx.Conn
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	direct := servertest.Postgres(t).Database(t).DSN
	dsn, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	p, err := flaky.NewProxy(t.Context(), dsn.Host, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	dsn.Host = p.Address()
	l := &ledger{t: t, proxy: p, dsn: dsn.String()}
	l.sound = l.connect(direct)
	if _, err := l.sound.Exec(t.Context(), "CREATE TABLE entries (n int)"); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *ledger) connect(dsn string) *pgx.Conn {
	l.t.Helper()
	c, err := pgx.Connect(l.t.Context(), dsn)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// enter adds an entry in a transaction of its own, by a prepared statement of that name, and reports
// whether its commit was answered.
func (l *ledger) enter(statement string) bool {
	l.t.Helper()
	c := l.connect(l.dsn)
	if _, err := c.Prepare(l.t.Context(), statement, "INSERT INTO entries VALUES (1)"); err != nil {
		l.t.Fatal(err)
	}
	_, err := c.Exec(l.t.Context(), statement)
	return err == nil
}

func (l *ledger) entries() (n int) {
	l.t.Helper()
	if err := l.sound.QueryRow(l.t.Context(), "SELECT count(*) FROM entries").Scan(&n); err != nil {
		l.t.Fatal(err)
	}
	return n
}

func TestSpoiledCommits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		loss     flaky.Loss
		answered []bool
		entries  int
	}{
		"none":                 {flaky.Loss{}, []bool{true, true}, 2},
		"applied, answer lost": {flaky.Loss{Statement: "enter", Applied: true, Times: 2}, []bool{false, false, true}, 3},
		"never arrived":        {flaky.Loss{Statement: "enter", Times: 2}, []bool{false, false, true}, 1},
		"every other one":      {flaky.Loss{Statement: "enter", Times: 2, EveryOther: true}, []bool{false, true, false, true}, 2},
		"of other statements":  {flaky.Loss{Statement: "leave", Times: 2}, []bool{true, true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.proxy.Spoil(c.loss)
			lost := 0
			for i, want := range c.answered {
				if got := l.enter("enter_one"); got != want {
					t.Errorf("commit %d is answered: %t; want %t", i+1, got, want)
				}
				if !want {
					lost++
				}
			}
			if got := l.entries(); got != c.entries {
				t.Errorf("%d entries are there; want %d", got, c.entries)
			}
			if got := l.proxy.Spoiled(); got != lost {
				t.Errorf("%d commits are told as lost; want %d", got, lost)
			}
		})
	}
}

func TestHeldCommitArrivesLate(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	const takes = 4 * time.Second
	held := make(chan bool, 1)
	go func() { held <- l.proxy.HoldCommit(t.Context(), "enter", takes) }()
	entered, longest := 0, time.Duration(0)
	for waits := true; waits; {
		begun := time.Now()
		if !l.enter("enter_one") {
			t.Fatalf("commit %d is not answered", entered+1)
		}
		entered, longest = entered+1, max(longest, time.Since(begun))
		select {
		case ok := <-held:
			if waits = false; !ok {
				t.Error("no commit was held")
			}
		default:
		}
	}
	if longest < takes {
		t.Errorf("the longest commit took %s; want it held for %s", longest, takes)
	}
	if got := l.entries(); got != entered {
		t.Errorf("%d entries are there; want %d", got, entered)
	}
	if got := l.proxy.Spoiled(); got != 1 {
		t.Errorf("%d commits are told as held; want 1", got)
	}
}

func TestNoCommitIsHeldWhereNoneComes(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	if l.proxy.HoldCommit(t.Context(), "enter", 50*time.Millisecond) {
		t.Error("a commit is told as held that nobody made")
	}
	if !l.enter("enter_one") {
		t.Error("a commit is spoiled after nothing is held any more")
	}
}
