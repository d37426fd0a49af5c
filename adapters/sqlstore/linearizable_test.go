package sqlstore_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// play lets workers on two stores act on a few events at a time, and returns the history.
func play(t *testing.T, seed uint64, rounds int, doubts bool, stores [2]receiptStore) *recorder {
	t.Helper()
	const workers, acts = 6, 12
	h := &recorder{began: time.Now()}
	b := &board{seen: map[string]input{}}
	var all [workers]*worker
	for i := range all {
		all[i] = &worker{n: i, dice: rand.New(rand.NewPCG(seed, uint64(i))), store: stores[i%2], doubts: doubts, history: h, board: b}
		all[i].reborn()
	}
	for round := range rounds {
		events := []string{fmt.Sprintf("%d-%d a", seed, round), fmt.Sprintf("%d-%d b", seed, round)}
		var running sync.WaitGroup
		for _, w := range all {
			running.Go(func() {
				for range acts {
					w.act(t.Context(), events)
				}
			})
		}
		running.Wait()
		for _, event := range events {
			if known, ok := b.look(event); ok {
				all[0].read(t.Context(), known)
			}
		}
	}
	return h
}

// checkTime is how long a history may take to check. One takes far less.
const checkTime = time.Minute

// check tells whether a history is one of receipts, and of the first that is not one its calls.
func check(h *recorder) (porcupine.CheckResult, string) {
	for _, part := range receiptModel.Partition(h.history) {
		result := porcupine.CheckOperationsTimeout(receiptModel, part, checkTime)
		if result == porcupine.Ok {
			continue
		}
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		var b strings.Builder
		for _, o := range part {
			fmt.Fprintf(&b, "%d from %d to %d: %+v %+v\n", o.ClientId, o.Call, o.Return, o.Input, o.Output)
		}
		return result, b.String()
	}
	return porcupine.Ok, ""
}

func wantLinearizable(t *testing.T, h *recorder) {
	t.Helper()
	if result, calls := check(h); result != porcupine.Ok {
		t.Errorf("no order of these calls explains their answers (%s):\n%s", result, calls)
	}
	t.Logf("%d calls: %d done, %d fenced, %d not applied, %d unknown",
		len(h.history), h.count(done), h.count(fenced)+h.count(doubted), h.count(nothing), h.count(unknown))
	if h.count(unknown) == 0 {
		t.Error("every outcome was known: nothing was put to the test")
	}
}

// Claims, begins, settles, expiries, take-ups and replays of two stores on one database take effect
// one after the other, each at once, whatever answers are lost.
func TestReceiptsAreLinearizable(t *testing.T) {
	t.Parallel()
	const rounds = 12
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		c := liteConfig(t)
		stores := [2]receiptStore{open(t, c), open(t, c)}
		defer harm(func(_ int, d *rand.Rand) { lockLite(t, c.DSN, time.Duration(d.IntN(10))*time.Millisecond) })()
		wantLinearizable(t, play(t, 1, rounds, false, stores))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		c := pgConfig(t)
		p := newProxy(t, c.DSN)
		c.DSN = p.DSN
		stores := [2]receiptStore{open(t, c), open(t, c)}
		defer harm(func(i int, d *rand.Rand) {
			if i%2 == 0 {
				up, down, _ := cutsAnswers(1 + d.IntN(3))
				p.set(up, down)
				return
			}
			up, _ := cutsRequests(1 + d.IntN(3))
			p.set(up, nil)
		})()
		wantLinearizable(t, play(t, 2, rounds, true, stores))
	})
}

// harm does one kind of harm after another until stop is called.
func harm(do func(i int, d *rand.Rand)) (stop func()) {
	d := rand.New(rand.NewPCG(1, 2))
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			case <-time.After(time.Duration(30+d.IntN(120)) * time.Millisecond):
				do(i, d)
			}
		}
	})
	return func() {
		close(over)
		running.Wait()
	}
}

// lockLite holds the lock of a file as another process does that writes to it.
func lockLite(t *testing.T, path string, takes time.Duration) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		t.Errorf("open %s: %v", path, err)
		return
	}
	defer db.Close() //nolint:errcheck // it changed nothing
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return // the stores were faster
	}
	<-time.After(takes)
	_ = tx.Rollback() // it changed nothing
}

// An unfenced store settles whatever the receipt has become meanwhile.
type unfenced struct{ *sqlstore.Store }

func (u unfenced) Settle(ctx context.Context, s ports.Settlement) error {
	err := u.Store.Settle(ctx, s)
	if errors.Is(err, domain.ErrFenced) {
		return u.SettleUnfenced(ctx, s)
	}
	return err
}

// A guesser takes a begin of unknown outcome for one that was not applied, and says so.
type guesser struct{ *sqlstore.Store }

func (g guesser) Begin(ctx context.Context, ref ports.Ref, lease time.Duration) (int, error) {
	n, err := g.Store.Begin(ctx, ref, lease)
	if errors.Is(err, domain.ErrUnknown) {
		return n, domain.ErrUnavailable
	}
	return n, err
}

// A renter takes a receipt up without asking what has become of it since it was found.
type renter struct{ *sqlstore.Store }

func (r renter) Expire(ctx context.Context, x domain.Receipt, step domain.Step, reason string) error {
	if err := r.Store.Expire(ctx, x, step, reason); !errors.Is(err, domain.ErrFenced) {
		return err
	}
	return nil
}

// The check sees what it is for: each of these breaks one promise, and is found.
func TestCheckFindsStoresThatAreNotLinearizable(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(*sqlstore.Store) receiptStore{
		"settle without fence":                 func(s *sqlstore.Store) receiptStore { return unfenced{s} },
		"unknown begin taken as not begun":     func(s *sqlstore.Store) receiptStore { return guesser{s} },
		"expire that was fenced taken as done": func(s *sqlstore.Store) receiptStore { return renter{s} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := liteConfig(t)
			stores := [2]receiptStore{broken(open(t, c)), broken(open(t, c))}
			for seed := range uint64(5) {
				if result, _ := check(play(t, seed, 8, false, stores)); result == porcupine.Illegal {
					return
				}
			}
			t.Error("not found in five histories")
		})
	}
}
