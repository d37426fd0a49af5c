package intake_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// leaves puts a receipt into the store as an instance that is gone has left it.
func (s *store) leaves(id, room string, g domain.Guarantee, state domain.State) {
	r := domain.Receipt{
		ID: "receipt-" + id, Key: domain.Key{Tenant: "acme", Platform: "toy", Account: "a1", EventID: id}, Channel: "toy", Installation: "one",
		Conversation: room, Guarantee: g, State: domain.Claimed, Holder: "gone", Deliveries: 1, ClaimedAt: time.Now(),
		Payload: domain.Payload{Body: []byte("id=" + id)},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	won := s.claim(r)
	stored := s.find(won.Receipt.ID)
	if stored.State = state; state == domain.Dispatching {
		stored.Attempt, stored.LeaseUntil = 1, time.Now().Add(10*time.Second)
	}
}

func TestWhatOthersLeftIsTakenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.leaves("claimed", "", domain.AtMostOnce, domain.Claimed)
		s.leaves("once", "room", domain.AtMostOnce, domain.Dispatching)
		s.leaves("behind", "room", domain.AtMostOnce, domain.Claimed)
		s.leaves("again", "", domain.AtLeastOnce, domain.Dispatching)
		b := newBench(t, setup{store: s}).start()
		defer b.stop()
		time.Sleep(time.Second)
		if got := b.app.events(); !slices.Equal(got, []string{"claimed"}) {
			t.Errorf("dispatched %v at once; want what was claimed", got)
		}
		time.Sleep(30 * time.Second)
		if got := b.app.events(); !sameSet(got, []string{"claimed", "behind", "again"}) {
			t.Errorf("dispatched %v after the leases; want also what waited, and the one that may come again", got)
		}
		if r := s.by("once"); r.State != domain.Lost || r.LastError == "" {
			t.Errorf("the one that may not is %s (%s); want lost with a reason", r.State, r.LastError)
		}
		if r := s.by("again"); r.State != domain.Handled || r.Attempt != 2 {
			t.Errorf("the one that may is %s after %d attempts; want handled after 2", r.State, r.Attempt)
		}
	})
}

// A vendor's retry wakes what it meets: the sweep does not wait for its time.
func TestCopyOfWhatWasLeftWakesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		time.Sleep(500 * time.Millisecond) // between two sweeps
		b.store.leaves("1", "", domain.AtMostOnce, domain.Claimed)
		b.wants(200, "duplicate", "id=1 try=1")
		time.Sleep(100 * time.Millisecond)
		if got := b.app.events(); !slices.Equal(got, []string{"1"}) {
			t.Errorf("dispatched %v; want what the retry woke", got)
		}
		if got := b.counter("duplicates_of_unhandled_total", "toy"); got != 1 {
			t.Errorf("%v duplicates of unhandled events counted; want 1", got)
		}
	})
}

// A claim whose outcome stayed unknown may stand: then nobody knows of it but the sweep.
func TestClaimThatStoodAfterAllIsBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		b.store.fails(func(call string) error {
			if call == "Claim" {
				return errApplied
			}
			return nil
		})
		b.wants(503, "refused", "id=1")
		b.store.fails(nil)
		b.wants(200, "duplicate", "id=1 try=1")
		time.Sleep(time.Second)
		if got := b.app.events(); !slices.Equal(got, []string{"1"}) {
			t.Errorf("dispatched %v; want it once", got)
		}
	})
}

// What an instance has in its queue it does not take for something left by others.
func TestSweepLeavesAloneWhatWaitsHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{config: intake.Config{Workers: 1}}).start()
		defer b.stop()
		b.app.reacts(takes(20 * time.Second))
		for _, id := range []string{"1", "2", "3"} {
			b.wants(200, "admitted", "id="+id)
			synctest.Wait()
		}
		time.Sleep(2 * time.Minute)
		if got := b.app.events(); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("dispatched %v; want each once", got)
		}
	})
}

// What an instance that is gone has left is older than what comes now. New events that wait for it
// must not keep it out.
func TestWhatOthersLeftFindsRoomInAFullQueue(t *testing.T) {
	t.Parallel()
	const rooms, left, size = 20, 5, 12
	isNew := func(id string) bool { return strings.HasPrefix(id, "new") }
	for name, more := range map[string]int{"that stays full": 3, "into which more comes": 500} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, setup{config: intake.Config{Queue: size, Workers: 4}, alone: true}).start()
				defer b.stop()
				time.Sleep(500 * time.Millisecond) // between two sweeps
				want := map[string][]string{}
				for i := range rooms * left {
					room, id := fmt.Sprint("room", i%rooms), fmt.Sprint("left", i)
					b.store.leaves(id, room, domain.AtMostOnce, domain.Claimed)
					want[room] = append(want[room], id)
				}
				refused := 0
				for i := range rooms * more {
					room, id := fmt.Sprint("room", i%rooms), fmt.Sprint("new", i)
					switch a := b.sends("id=" + id + " in=" + room); a.Verdict {
					case "admitted":
						want[room] = append(want[room], id)
					case "refused":
						refused++
					default:
						t.Fatalf("%s is answered with %v", id, a)
					}
					if more > 10 && i%size == 0 {
						time.Sleep(5 * time.Millisecond)
					}
				}
				if refused == 0 {
					t.Errorf("no event found the queue full")
				}
				if older := len(slices.DeleteFunc(b.app.events(), isNew)); more > 10 && older < rooms*left {
					t.Errorf("%d of %d older events were dispatched while new ones came", older, rooms*left)
				}
				time.Sleep(time.Minute)
				got := map[string][]string{}
				for _, id := range b.app.events() {
					room := b.store.by(id).Conversation
					got[room] = append(got[room], id)
				}
				for room, ids := range want {
					if !slices.Equal(got[room], ids) {
						t.Errorf("dispatched %v of %s; want %v", got[room], room, ids)
					}
				}
			})
		})
	}
}

// Nor is a store that has much to look through kept at it all the time.
func TestStormOfNudgesIsNoStormOfSweeps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		takes       time.Duration
		least, most int // sweeps within ten seconds
	}{
		{0, 100, 600},
		{10 * time.Millisecond, 50, 110},
		{250 * time.Millisecond, 7, 12}, // its period, which is measured from one to the next
	} {
		t.Run(tt.takes.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, setup{}).start()
				defer b.stop()
				b.store.look(func() { b.store.takeUpTakes = tt.takes })
				time.Sleep(2 * time.Second)
				before := b.store.called("TakeUp")
				for range 10_000 {
					b.Nudge()
					time.Sleep(time.Millisecond)
				}
				if got := b.store.called("TakeUp") - before; got < tt.least || got > tt.most {
					t.Errorf("ten thousand nudges within ten seconds made %d sweeps; want %d to %d", got, tt.least, tt.most)
				}
			})
		})
	}
}

// A store that is away is asked again and again; the instance is alive when it is back.
func TestLoopsSurviveAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		b.store.fails(func(string) error { return domain.ErrUnavailable })
		time.Sleep(10 * time.Minute)
		b.store.fails(nil)
		b.store.leaves("1", "", domain.AtMostOnce, domain.Claimed)
		time.Sleep(3 * time.Second)
		b.store.look(func() {
			if !time.Now().Before(b.store.alive[b.Holder()]) {
				t.Error("the instance does not show that it is alive")
			}
		})
		if got := b.app.events(); !slices.Equal(got, []string{"1"}) {
			t.Errorf("dispatched %v; want what was left", got)
		}
	})
}

func TestPruneKeepsToEachInstallationsRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		long := domain.DefaultPolicy()
		long.Retention, long.PayloadRetention = 100*24*time.Hour, 50*24*time.Hour
		short := domain.DefaultPolicy()
		short.PayloadRetention = time.Hour
		b := newBench(t, setup{installations: []intake.Installation{
			{ID: "long", Tenant: "acme", Channel: "toy", Account: "long", Policy: long, Endpoint: toyEndpoint{}},
			{ID: "short", Tenant: "acme", Channel: "toy", Account: "short", Policy: short, Endpoint: toyEndpoint{}},
		}}).start()
		defer b.stop()
		b.store.look(func() { b.store.tenants = []string{"acme", "gone"} }) // of which the configuration knows one
		time.Sleep(90 * time.Second)
		at := time.Now().Add(-30 * time.Second) // the loop is a minute's
		age := func(d time.Duration) time.Time { return at.Add(-d) }
		def := domain.DefaultPolicy()
		want := []ports.PruneScope{
			{Tenant: "acme", Only: []string{"long"}, Receipts: age(long.Retention), Payloads: age(long.PayloadRetention)},
			{Tenant: "acme", Only: []string{"short"}, Receipts: age(short.Retention), Payloads: age(short.PayloadRetention)},
			{Tenant: "acme", Except: []string{"long", "short"}, Receipts: age(def.Retention), Payloads: age(def.PayloadRetention)},
			{Tenant: "gone", Receipts: age(def.Retention), Payloads: age(def.PayloadRetention)},
		}
		var pruned []ports.PruneScope
		b.store.look(func() { pruned = slices.Clone(b.store.pruned) })
		for _, w := range want {
			if !slices.ContainsFunc(pruned, func(got ports.PruneScope) bool {
				return got.Tenant == w.Tenant && slices.Equal(got.Only, w.Only) && slices.Equal(got.Except, w.Except) &&
					got.Receipts.Equal(w.Receipts) && got.Payloads.Equal(w.Payloads)
			}) {
				t.Errorf("%+v was not pruned", w)
			}
		}
		if got := len(pruned); got != len(want) {
			t.Errorf("%d scopes were pruned; want %d: %+v", got, len(want), pruned)
		}
	})
}

// Its policy may say to keep longer than the default does.
func TestNothingIsPrunedOfAnInstallationThatCanNotBeOpened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{
			kept: newKept(ports.Installation{ID: "sealed", Tenant: "acme"}),
			opens: func(ports.Installation) (intake.Installation, error) {
				return intake.Installation{}, errors.New("no key")
			},
		}).start()
		defer b.stop()
		b.store.look(func() { b.store.tenants = []string{"acme"} })
		time.Sleep(90 * time.Second)
		b.store.look(func() {
			if len(b.store.pruned) != 1 || !slices.Equal(b.store.pruned[0].Except, []string{"sealed"}) {
				t.Errorf("pruned %+v; want everything but the installation that can't be opened", b.store.pruned)
			}
		})
	})
}

// A stale is a database whose housekeeping fails.
type stale struct{ *kept }

func (stale) PruneConfined(context.Context) (int, error) { return 0, errors.New("quarantine is away") }

func (stale) ResealInstallations(context.Context, int) (int, error) {
	return 0, errors.New("keys are away")
}

func TestHousekeepingThatFailsIsToldByItsName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{stale: true, kept: newKept()}).start()
		defer b.stop()
		time.Sleep(90 * time.Second)
		for what, err := range map[string]string{
			"old quarantined requests could not be deleted": "quarantine is away",
			"installations could not be encrypted anew":     "keys are away",
		} {
			if !strings.Contains(b.logged(), what) || !strings.Contains(b.logged(), err) {
				t.Errorf("the log does not tell that %s, as %s:\n%s", what, err, b.logged())
			}
		}
		if strings.Contains(b.logged(), "receipts could not be pruned") {
			t.Errorf("the log tells of receipts, which were pruned:\n%s", b.logged())
		}
	})
}

// While the store is away, events whose vendor would not come again go to the journal, and
// from there through an ordinary claim.
func TestJournalTakesWhatWouldNotComeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{size: 3}
		b := newBench(t, setup{journal: j}).start()
		defer b.stop()
		once := func(want string, status int, lines ...string) {
			t.Helper()
			if a := b.sendsTo("shy", "once", lines...); a.Status != status || a.Verdict != want {
				t.Errorf("%v is answered with %d %q; want %d %q", lines, a.Status, a.Verdict, status, want)
			}
		}
		down := func(string) error { return domain.ErrUnavailable }
		b.store.fails(down)
		b.wants(503, "refused", "id=0") // whose vendor comes again
		once("admitted", 200, "id=1 in=room")
		claims := b.store.called("Claim")
		once("admitted", 200, "id=2 in=room")
		once("admitted", 200, "id=2 in=room") // a copy, which nobody can tell yet
		if b.store.called("Claim") != claims {
			t.Error("a store that did not answer is waited for at each event")
		}
		once("refused", 503, "id=3")
		if got := b.counter("refusals_total", "journal_full"); got != 1 {
			t.Errorf("%v refusals for a full journal counted; want 1", got)
		}
		time.Sleep(time.Minute)
		if len(b.app.events()) != 0 || j.Len() != 3 || b.counter("journal_events") != 3 {
			t.Errorf("dispatched %v with %d journalled; want nothing to come from the journal", b.app.events(), j.Len())
		}
		b.store.fails(nil)
		time.Sleep(2 * time.Second)
		if got := b.app.events(); !slices.Equal(got, []string{"1", "2"}) || j.Len() != 0 {
			t.Errorf("dispatched %v with %d journalled; want each once, in order", got, j.Len())
		}
		once("admitted", 200, "id=3")
		once("duplicate", 200, "id=1 in=room")
		synctest.Wait()
	})
}

// A store that refuses an event is not out of reach: it would refuse it again.
func TestWhatTheStoreRefusesIsNotJournalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{size: 3}
		b := newBench(t, setup{journal: j}).start()
		defer b.stop()
		if a := b.sendsTo("shy", "once", "id=1 refuse-me"); a.Status != http.StatusServiceUnavailable || a.Verdict != "refused" {
			t.Errorf("answered with %d %q; want 503 refused", a.Status, a.Verdict)
		}
		if n := j.Len(); n != 0 {
			t.Errorf("%d events are journalled; want none", n)
		}
		if a := b.sendsTo("shy", "once", "id=2"); a.Verdict != "admitted" || b.store.by("2").ID == "" {
			t.Errorf("the next event is answered with %q; want admitted by the store", a.Verdict)
		}
	})
}

// A store that answers and yet does not take what it is given, or does not tell, has nothing: until
// it says that a claim is concluded the journal has the only copy.
func TestJournalKeepsWhatIsNotClaimed(t *testing.T) {
	t.Parallel()
	for _, outcome := range []error{domain.ErrUnavailable, domain.ErrUnknown, errors.New("refused")} {
		t.Run(outcome.Error(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{size: 10}
				b := newBench(t, setup{journal: j}).start()
				defer b.stop()
				b.store.fails(func(string) error { return domain.ErrUnavailable })
				for _, line := range []string{"id=1 in=room", "id=2 in=room"} {
					if a := b.sendsTo("shy", "once", line); a.Verdict != "admitted" {
						t.Errorf("%q is answered with %q; want admitted", line, a.Verdict)
					}
				}
				claims, kept := 0, 2
				b.store.fails(func(call string) error {
					if call != "Claim" {
						return nil
					}
					claims++
					kept = min(kept, j.Len()) // at the moment of the claim
					return outcome
				})
				time.Sleep(10 * time.Second)
				b.store.fails(nil)
				if claims == 0 || kept != 2 || j.Len() != 2 {
					t.Errorf("during %d claims %d were journalled, and %d after them; want some, and 2", claims, kept, j.Len())
				}
				time.Sleep(10 * time.Second)
				if got := b.app.events(); !slices.Equal(got, []string{"1", "2"}) || j.Len() != 0 {
					t.Errorf("dispatched %v with %d journalled; want each once, in order", got, j.Len())
				}
			})
		})
	}
}

// One entry that the store refuses for good holds up none behind it, and is not lost.
func TestJournalIsNotHeldUpByOneEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{size: 10}
		b := newBench(t, setup{journal: j}).start()
		defer b.stop()
		b.store.fails(func(string) error { return domain.ErrUnavailable })
		for _, line := range []string{"id=1", "id=2 content=refuse-me", "id=3"} {
			b.sendsTo("shy", "once", line)
		}
		b.store.fails(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := b.app.events(); !sameSet(got, []string{"1", "3"}) {
			t.Errorf("dispatched %v; want what can be claimed", got)
		}
		if j.Len() != 1 {
			t.Errorf("%d are journalled; want the one that can't be claimed", j.Len())
		}
	})
}

// The journal of a process that was killed is drained by the next one.
func TestJournalOfAnEarlierProcessIsDrained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, s := &journal{size: 10}, newStore()
		first := newBench(t, setup{journal: j, store: s}).start()
		s.fails(func(string) error { return domain.ErrUnavailable })
		if a := first.sendsTo("shy", "once", "id=1"); a.Verdict != "admitted" {
			t.Errorf("verdict %q", a.Verdict)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = first.Drain(ctx)
		_ = first.Close(ctx) // it can't tell the store that it leaves
		s.fails(nil)
		second := newBench(t, setup{journal: j, store: s}).start()
		defer second.stop()
		time.Sleep(2 * time.Second)
		if got := second.app.events(); !slices.Equal(got, []string{"1"}) || j.Len() != 0 {
			t.Errorf("dispatched %v with %d journalled; want it once", got, j.Len())
		}
	})
}

// What was admitted is worked on to its end, though its installation is no more in the configuration.
func TestReceiptOfARemovedInstallationIsWorkedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.leaves("1", "", domain.AtLeastOnce, domain.Dispatching)
		s.look(func() { s.receipts[0].Installation = "removed" })
		b := newBench(t, setup{store: s}).start()
		defer b.stop()
		time.Sleep(time.Minute)
		if r := s.by("1"); r.State != domain.Handled {
			t.Errorf("the receipt is %s; want handled", r.State)
		}
	})
}

func TestDirectoryRefusesTwins(t *testing.T) {
	t.Parallel()
	in := func(id, account string) intake.Installation {
		return intake.Installation{ID: id, Tenant: "acme", Channel: "toy", Account: account}
	}
	for name, twins := range map[string][]intake.Installation{
		"one id": {in("one", "a"), in("one", "b")}, "one account": {in("one", "a"), in("two", "a")},
	} {
		if _, err := intake.NewDirectory(domain.DefaultPolicy(), twins, nil); err == nil {
			t.Errorf("two installations of %s are taken", name)
		}
	}
}
