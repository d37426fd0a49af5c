package intake_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// takes lets the application work for d on each dispatch.
func takes(d time.Duration) func(context.Context, ports.Dispatch) domain.Result {
	return func(context.Context, ports.Dispatch) domain.Result {
		time.Sleep(d)
		return domain.Result{Outcome: domain.Taken}
	}
}

func answers(outcome domain.Outcome) func(context.Context, ports.Dispatch) domain.Result {
	return func(context.Context, ports.Dispatch) domain.Result {
		return domain.Result{Outcome: outcome, Reason: "on purpose"}
	}
}

func TestEventsOfAConversationAreBegunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		b.app.reacts(takes(time.Second))
		start := time.Now()
		for i := range 4 {
			b.wants(200, "admitted", fmt.Sprintf("id=a%d in=a", i))
			b.wants(200, "admitted", fmt.Sprintf("id=b%d in=b", i))
		}
		b.wants(200, "admitted", "id=alone")
		time.Sleep(time.Minute)
		for i, id := range b.app.events() {
			want := 0
			if id != "alone" {
				want = int(id[1] - '0')
			}
			if got := b.app.times()[i].Sub(start); got != time.Duration(want)*time.Second {
				t.Errorf("%s was begun after %s; want %d s", id, got, want)
			}
		}
		if got := len(b.app.events()); got != 9 {
			t.Errorf("%d were dispatched; want 9", got)
		}
	})
}

// An instance that is told to wait asks again soon, and has the rest of its work done meanwhile.
func TestEventWaitsForEarlierOnesOfOtherInstances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := newStore()
		a, b := newBench(t, setup{store: shared}).start(), newBench(t, setup{store: shared, config: intake.Config{Workers: 1}}).start()
		defer a.stop()
		defer b.stop()
		a.app.reacts(takes(5 * time.Second))
		start := time.Now()
		a.wants(200, "admitted", "id=1 in=room")
		b.wants(200, "admitted", "id=2 in=room")
		b.wants(200, "admitted", "id=3 in=room")
		b.wants(200, "admitted", "id=4 in=other")
		time.Sleep(time.Minute)
		if got := b.app.events(); !slices.Equal(got, []string{"4", "2", "3"}) {
			t.Fatalf("dispatched %v; want the other conversation first, and its own in order", got)
		}
		if got := b.app.times()[1].Sub(start); got < 5*time.Second || got > 5*time.Second+300*time.Millisecond {
			t.Errorf("the second was begun after %s; want soon after the 5 s of the first", got)
		}
	})
}

func TestOneTenantDoesNotTakeAllWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		b.app.reacts(func(ctx context.Context, d ports.Dispatch) domain.Result {
			if d.Key.Tenant == "acme" {
				return takes(10*time.Second)(ctx, d)
			}
			return domain.Result{Outcome: domain.Taken}
		})
		for i := range 20 {
			b.wants(200, "admitted", fmt.Sprintf("id=%d", i))
			b.wants(200, "unnumbered", "in=room")
		}
		synctest.Wait()
		if got := len(b.app.events()); got != 6 {
			t.Errorf("%d of one tenant are at work on eight workers; want 6", got)
		}
		if a := b.sendsTo("toy", "two", "id=x"); a.Verdict != "admitted" {
			t.Errorf("verdict %q", a.Verdict)
		}
		synctest.Wait()
		if got := b.app.events(); got[len(got)-1] != "x" {
			t.Error("the other tenant's event waits")
		}
		time.Sleep(10 * time.Minute)
		if got := len(b.app.events()); got != 41 {
			t.Errorf("%d were dispatched in the end; want 41", got)
		}
	})
}

func TestRetriesFollowTheBackoffUntilAttemptsAreUsedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{policy: func(p *domain.ClaimPolicy) {
			p.MaxAttempts, p.Backoff = 5, domain.Backoff{Initial: 10300 * time.Millisecond, Max: 30300 * time.Millisecond}
		}}).start()
		defer b.stop()
		b.app.reacts(answers(domain.Declined))
		b.wants(200, "admitted", "id=1 in=room")
		time.Sleep(time.Second)
		b.app.reacts(func(ctx context.Context, d ports.Dispatch) domain.Result {
			if d.Key.EventID == "2" {
				return domain.Result{Outcome: domain.Taken}
			}
			return answers(domain.Declined)(ctx, d)
		})
		b.wants(200, "admitted", "id=2 in=room") // which does not wait
		synctest.Wait()
		if r := b.store.by("2"); r.State != domain.Handled {
			t.Errorf("an event behind one that is retried is %s; want handled", r.State)
		}
		time.Sleep(10 * time.Minute)
		var gaps []time.Duration
		var last time.Time
		for i, id := range b.app.events() {
			if id == "1" {
				if !last.IsZero() {
					gaps = append(gaps, b.app.times()[i].Sub(last).Round(100*time.Millisecond))
				}
				last = b.app.times()[i]
			}
		}
		if want := []time.Duration{10300 * time.Millisecond, 20600 * time.Millisecond, 30300 * time.Millisecond, 30300 * time.Millisecond}; !slices.Equal(gaps, want) {
			t.Errorf("waits between attempts %v; want %v", gaps, want)
		}
		if r := b.store.by("1"); r.State != domain.Failed || r.Attempt != 5 || r.LastError != "on purpose" {
			t.Errorf("the receipt is %s after %d attempts (%s); want failed after 5", r.State, r.Attempt, r.LastError)
		}
	})
}

// A retry is no first attempt: it waits for nobody in its conversation, and nobody for it.
func TestRetryDoesNotWaitForItsConversation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		b.app.reacts(func(ctx context.Context, d ports.Dispatch) domain.Result {
			if d.Key.EventID == "1" && d.Attempt == 1 {
				return answers(domain.Declined)(ctx, d)
			}
			return takes(30*time.Second)(ctx, d)
		})
		start := time.Now()
		b.wants(200, "admitted", "id=1 in=room")
		b.wants(200, "admitted", "id=2 in=room")
		b.wants(200, "admitted", "id=3 in=room")
		time.Sleep(5 * time.Minute)
		if got := b.app.events(); !slices.Equal(got, []string{"1", "2", "1", "3"}) {
			t.Fatalf("dispatched %v; want the retry of the first while the second is worked on", got)
		}
		if got := b.app.times()[2].Sub(start); got > 2*time.Second {
			t.Errorf("the retry came after %s; want after the backoff", got)
		}
		if got := b.app.times()[3].Sub(start); got > 31*time.Second {
			t.Errorf("the third came after %s; want when the second has ended", got)
		}
	})
}

// However long the store is away, an event that was not begun is not lost by it.
func TestBeginIsTriedUntilTheStoreIsBack(t *testing.T) {
	t.Parallel()
	for _, away := range []time.Duration{30 * time.Second, 10 * domain.DefaultPolicy().Lease} {
		t.Run(away.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, setup{}).start()
				defer b.stop()
				b.store.fails(func(call string) error {
					if call == "Begin" {
						return domain.ErrUnavailable
					}
					return nil
				})
				b.wants(200, "admitted", "id=1")
				time.Sleep(away)
				seconds := int(away / time.Second)
				if n := b.store.called("Begin"); n < seconds/3 || n > 2*seconds {
					t.Errorf("begin was tried %d times in %s; want ever more rarely, about once a second", n, away)
				}
				b.store.fails(nil)
				time.Sleep(2 * time.Second)
				if r := b.store.by("1"); r.State != domain.Handled || r.Attempt != 1 {
					t.Errorf("the receipt is %s after %d attempts; want handled after one", r.State, r.Attempt)
				}
			})
		})
	}
}

// A begin whose answer comes when the lease is nearly over is not dispatched: that it was not is
// certain, so that it is tried again, under at-most-once too.
func TestEventWhoseBeginIsAnsweredLateIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		lease := domain.DefaultPolicy().Lease
		b.store.look(func() { b.store.beginTakes = lease - time.Second })
		b.wants(200, "admitted", "id=1")
		time.Sleep(lease - time.Second/2)
		b.store.look(func() { b.store.beginTakes = 0 })
		if got := b.app.events(); len(got) > 0 {
			t.Errorf("dispatched %v; want nothing at the end of a lease", got)
		}
		time.Sleep(time.Minute)
		if r := b.store.by("1"); r.State != domain.Handled || r.Attempt != 2 {
			t.Errorf("the receipt is %s after %d attempts; want handled after two", r.State, r.Attempt)
		}
	})
}

// What was sent on a connection that was given up arrives when the network is back, after the store
// has said that the event waits: it is the instance's own begin, and no other's.
func TestBeginThatArrivesLateIsItsOwn(t *testing.T) {
	t.Parallel()
	lease := domain.DefaultPolicy().Lease
	for _, tt := range []struct {
		late     time.Duration // how long the answer that it waits took
		attempts int           // until it is handled
	}{{time.Second, 1}, {lease * 3 / 4, 2}} {
		t.Run(tt.late.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, setup{}).start()
				defer b.stop()
				begins := 0
				b.store.fails(func(call string) error {
					if call != "Begin" {
						return nil
					}
					switch begins++; begins {
					case 1:
						b.store.beginTakes = 0
						return fmt.Errorf("%w: %w", ports.ErrWaits, domain.ErrUnknown)
					case 2:
						r := b.store.receipts[0]
						r.State, r.Attempt, r.BegunAt, r.LeaseUntil = domain.Dispatching, 1, time.Now(), time.Now().Add(lease)
					}
					return nil
				})
				b.store.look(func() { b.store.beginTakes = tt.late })
				b.wants(200, "admitted", "id=1")
				time.Sleep(tt.late + time.Minute)
				if r := b.store.by("1"); r.State != domain.Handled || r.Attempt != tt.attempts {
					t.Errorf("the receipt is %s after %d attempts; want handled after %d", r.State, r.Attempt, tt.attempts)
				}
				if got := b.app.events(); !slices.Equal(got, []string{"1"}) {
					t.Errorf("dispatched %v; want it once", got)
				}
			})
		})
	}
}

func TestSettleIsTriedUntilTheLeaseIsOver(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		away time.Duration
		want domain.State
	}{{20 * time.Second, domain.Handled}, {3 * time.Minute, domain.Lost}} {
		t.Run(tt.away.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, setup{}).start()
				defer b.stop()
				b.store.fails(func(call string) error {
					if call == "Settle" || call == "Expired" {
						return domain.ErrUnavailable
					}
					return nil
				})
				b.wants(200, "admitted", "id=1 in=room")
				b.wants(200, "admitted", "id=2 in=room") // begun when it is known how the first ended
				time.Sleep(tt.away)
				if got := b.app.events(); !slices.Equal(got, []string{"1"}) {
					t.Errorf("dispatched %v; want the first alone", got)
				}
				settles := b.store.called("Settle")
				if tt.want == domain.Lost {
					time.Sleep(time.Minute)
					if b.store.called("Settle") != settles {
						t.Error("it is settled after the lease")
					}
				}
				b.store.fails(nil)
				time.Sleep(5 * time.Second)
				if r := b.store.by("1"); r.State != tt.want {
					t.Errorf("the receipt is %s; want %s", r.State, tt.want)
				}
				if r := b.store.by("2"); r.State != domain.Handled {
					t.Errorf("the next of the conversation is %s; want handled", r.State)
				}
			})
		})
	}
}

// A dispatcher is given until the end of the lease and no longer, however late the answer to the
// begin came: the store has counted it since the begin.
func TestDispatchEndsWithItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		const late = 10 * time.Second
		b.store.look(func() { b.store.beginTakes = late })
		took := make(chan time.Duration, 1)
		b.app.reacts(func(ctx context.Context, _ ports.Dispatch) domain.Result {
			start := time.Now()
			<-ctx.Done()
			took <- time.Since(start)
			return domain.Result{Outcome: domain.Ambiguous, Reason: "no answer"}
		})
		b.wants(200, "admitted", "id=1")
		time.Sleep(5 * time.Minute)
		if got, want := <-took, domain.DefaultPolicy().Lease-late; got != want {
			t.Errorf("the dispatch was ended after %s; want after %s, at the end of the lease", got, want)
		}
		if r := b.store.by("1"); r.State != domain.Lost && r.State != domain.Failed {
			t.Errorf("the receipt is %s; want it closed", r.State)
		}
	})
}

// The application may be done when its lease is over. By then others have decided on the event, so
// nothing may follow from it, least of all that copies are told from the fast store.
func TestOutcomeAfterTheLeaseCountsForNothing(t *testing.T) {
	t.Parallel()
	for guarantee, want := range map[domain.Guarantee]domain.State{domain.AtMostOnce: domain.Lost, domain.AtLeastOnce: domain.Retrying} {
		t.Run(string(guarantee), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, setup{policy: func(p *domain.ClaimPolicy) {
					p.Guarantee, p.Backoff = guarantee, domain.Backoff{Initial: time.Hour, Max: time.Hour}
				}}).start()
				defer b.stop()
				b.app.reacts(takes(domain.DefaultPolicy().Lease + 10*time.Second))
				b.wants(200, "admitted", "id=1")
				time.Sleep(domain.DefaultPolicy().Lease + time.Minute)
				r := b.store.by("1")
				if r.State != want || r.Attempt != 1 {
					t.Errorf("the receipt is %s after %d attempts; want %s after one", r.State, r.Attempt, want)
				}
				if got := b.cache.kept(r.Key.Digest()); got != 0 {
					t.Errorf("it is remembered as handled for %s", got)
				}
				if !strings.Contains(b.logged(), "could not be recorded within its lease") {
					t.Error("nothing tells that the application took it")
				}
			})
		})
	}
}

// An application tells attempts of one event from two events by the id, whoever begins them.
func TestEachAttemptHasTheIDOfTheReceipt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.leaves("left", "", domain.AtLeastOnce, domain.Dispatching)
		b := newBench(t, setup{store: s}).start()
		defer b.stop()
		b.app.reacts(func(ctx context.Context, d ports.Dispatch) domain.Result {
			if d.Attempt < 3 {
				return answers(domain.Declined)(ctx, d)
			}
			return domain.Result{Outcome: domain.Taken}
		})
		b.wants(200, "admitted", "id=new")
		time.Sleep(time.Minute)
		synctest.Wait()
		attempts := map[string][]int{}
		for _, d := range b.app.got {
			attempts[d.ID] = append(attempts[d.ID], d.Attempt)
		}
		for event, want := range map[string][]int{"left": {2, 3}, "new": {1, 2, 3}} {
			if got := attempts[s.by(event).ID]; !slices.Equal(got, want) {
				t.Errorf("under the id of the receipt of %s came attempts %v; want %v", event, got, want)
			}
		}
		if len(attempts) != 2 {
			t.Errorf("dispatched under %d ids; want 2", len(attempts))
		}
	})
}

func TestUndecodableEventIsGivenUpWithAReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{policy: func(p *domain.ClaimPolicy) { p.Guarantee = domain.AtLeastOnce }}).start()
		defer b.stop()
		b.wants(200, "admitted", "id=1 content=undecodable")
		b.app.reacts(func(context.Context, ports.Dispatch) domain.Result { panic(strings.Repeat("long\x00é", 1000)) })
		b.wants(200, "admitted", "id=2")
		b.wants(200, "unnumbered", "in=room")
		synctest.Wait()
		for _, id := range []string{"1", "2"} {
			r := b.store.by(id)
			if r.State != domain.Failed || r.LastError == "" || len(r.LastError) > 500 || strings.Contains(r.LastError, "\x00") {
				t.Errorf("receipt %s is %s with a reason of %d bytes; want failed with one that fits", id, r.State, len(r.LastError))
			}
		}
		if !strings.Contains(b.logged(), "it leaves no receipt") {
			t.Error("nothing tells of an unnumbered event that was not handled")
		}
	})
}

// What runs is finished, what was not begun is handed back, and events that nobody else could
// take up are dispatched to the end.
func TestDrainFinishesHandsBackAndRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := newStore()
		b := newBench(t, setup{store: shared, config: intake.Config{Workers: 1}}).start()
		b.app.reacts(takes(3 * time.Second))
		b.wants(200, "admitted", "id=1")
		synctest.Wait()
		b.wants(200, "admitted", "id=2")
		b.wants(200, "admitted", "id=3 in=room")
		b.wants(200, "unnumbered", "in=room")
		b.wants(200, "unnumbered", "in=room")
		done := make(chan error)
		go func() { done <- b.Drain(t.Context()) }()
		synctest.Wait()
		if !b.Draining() {
			t.Error("it does not say that it drains")
		}
		b.wants(503, "refused", "id=4")
		b.wants(503, "refused", "in=room")
		b.wants(200, "ignored", "id=4 to=a2")
		if got := b.counter("refusals_total", "toy", "draining"); got != 2 {
			t.Errorf("%v refusals for the drain counted; want 2", got)
		}
		start := time.Now()
		if err := <-done; err != nil {
			t.Errorf("drain: %v", err)
		}
		if took := time.Since(start); took != 9*time.Second {
			t.Errorf("the drain took %s; want three dispatches' 9 s", took)
		}
		if got := b.app.events(); !slices.Equal(got, []string{"1", "unnumbered", "unnumbered"}) {
			t.Errorf("dispatched %v; want what ran and what has no receipt", got)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		if !slices.Equal(shared.left, []string{b.Holder()}) {
			t.Errorf("%v have left; want this instance", shared.left)
		}
		other := newBench(t, setup{store: shared}).start()
		defer other.stop()
		time.Sleep(2 * time.Second)
		if got := other.app.events(); !sameSet(got, []string{"2", "3"}) {
			t.Errorf("the other instance took up %v; want 2 and 3, at once", got)
		}
	})
}

func TestDrainEndsWithItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		b.app.reacts(func(ctx context.Context, _ ports.Dispatch) domain.Result {
			<-ctx.Done()
			return domain.Result{Outcome: domain.Ambiguous, Reason: "cut off"}
		})
		b.wants(200, "admitted", "id=1")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain: %v; want the end of its time", err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		synctest.Wait()
		if r := b.store.by("1"); r.State != domain.Dispatching && r.State != domain.Failed {
			t.Errorf("the receipt is %s; want it to show that nobody knows", r.State)
		}
	})
}

func TestEngineThatCannotBeatDoesNotStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{})
		b.store.fails(func(string) error { return domain.ErrUnavailable })
		if err := b.Start(t.Context()); !errors.Is(err, domain.ErrUnavailable) {
			t.Errorf("start: %v; want the store's error", err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Errorf("close without a start: %v", err)
		}
	})
}
