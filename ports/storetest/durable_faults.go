package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

var otherPromises = []promise[*trial]{
	{"CanceledClaimTellsTheTruthLater", "a claim whose context ended is claimed or not, and a later claim learns which", canceledClaim},
	{"CanceledProgressTellsTheTruthLater", "a begin or settle whose context ended is carried out or not, never half", canceledProgress},
	{"CanceledChangeIsNotARefusal", "a change whose context ended is not told as one that the store refused", canceledChange},
	{"Concurrent", "whatever is called at once, each event is handled once and nothing is left open", concurrent},
	{"AnySequence", "no sequence of calls begins an event twice at once, leaves a closed receipt but by replay, or loses count", anySequence},
	{"ReadyWhenUp", "a store that takes claims is ready", readyWhenUp},
}

// wantUncertain checks what a context that has ended did to a change.
func (k *trial) wantUncertain(what string, err error) {
	k.Helper()
	if err != nil && !errors.Is(err, domain.ErrUnavailable) && !errors.Is(err, domain.ErrUnknown) {
		k.Errorf("%s with an ended context = %v; want nil, ErrUnavailable or ErrUnknown", what, err)
	}
}

// ended returns a context that has ended.
func (k *trial) ended() context.Context {
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	return ctx
}

func canceledClaim(k *trial) {
	const n = 40
	for i := range n {
		receipts := []domain.Receipt{event(fmt.Sprintf("Ev%d", i))}
		ctx := k.ended()
		if i%2 == 0 { // ended on the way
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(k.ctx, time.Duration(i)*50*time.Microsecond)
			defer cancel()
		}
		c := k.store.Claim(ctx, receipts)[0]
		k.wantUncertain("Claim", c.Err)
		if c.Err == nil && !c.Won {
			k.Errorf("Claim of a new key = lost; want won or an error")
		}
		again := k.store.Claim(k.ctx, receipts)[0] // the very same slice, whatever still runs
		if again.Err != nil || !again.Won || again.Receipt.ID != receipts[0].ID {
			k.Errorf("Claim under the same id later = won %t, %v; want won", again.Won, again.Err)
		}
		if late := k.tryClaim(k.other, event(fmt.Sprintf("Ev%d", i))); late.Err != nil || late.Won || late.Receipt.ID != receipts[0].ID {
			k.Errorf("Claim under another id later = won %t, %v; want lost", late.Won, late.Err)
		}
	}
	want := ports.Count{Tenant: "acme", Platform: "slack", State: domain.Claimed}
	if got := k.counts(); len(got) != 1 || got[want] != n {
		k.Errorf("Counts = %v; want %d claimed", got, n)
	}
}

func canceledProgress(k *trial) {
	for i := range 20 {
		r := k.claim(k.store, event(fmt.Sprintf("Ev%d", i)))
		_, err := k.store.Begin(k.ended(), refOf(r), long)
		k.wantUncertain("Begin", err)
		if n, err := k.store.Begin(k.ctx, refOf(r), long); err == nil && n != 1 || err != nil && !errors.Is(err, domain.ErrFenced) {
			k.Errorf("Begin after one of unknown outcome = %d, %v; want 1 or ErrFenced", n, err)
		}
		k.wantState(r.ID, domain.Dispatching, 1)
		r.Attempt = 1
		handled := ports.Settlement{Ref: refOf(r), Step: domain.Step{State: domain.Handled}}
		k.wantUncertain("Settle", k.store.Settle(k.ended(), handled))
		if err := k.store.Settle(k.ctx, handled); err != nil && !errors.Is(err, domain.ErrFenced) {
			k.Errorf("Settle after one of unknown outcome = %v; want nil or ErrFenced", err)
		}
		k.wantState(r.ID, domain.Handled, 1)
	}
}

func canceledChange(k *trial) {
	over := k.over(k.claim(k.store, event("over")))
	failed := k.in(domain.Failed, event("failed"))
	k.claim(k.store, event("claimed"))
	for what, change := range map[string]func(context.Context) error{
		"Beat":  func(ctx context.Context) error { return k.store.Beat(ctx, holder, long) },
		"Leave": func(ctx context.Context) error { return k.store.Leave(ctx, holder) },
		"TakeUp": func(ctx context.Context) error {
			_, err := k.store.TakeUp(ctx, another, func(string) bool { return false }, 1, soon)
			return err
		},
		"Expire": func(ctx context.Context) error {
			return k.store.Expire(ctx, over, domain.Step{State: domain.Lost}, "")
		},
		"CountDeliveries": func(ctx context.Context) error {
			_, err := k.store.CountDeliveries(ctx, []ports.DeliveryCount{{Tenant: "acme", Event: over.Key.Digest(), N: 1}})
			return err
		},
		"AcquireLease": func(ctx context.Context) error {
			_, err := k.store.AcquireLease(ctx, "prune", holder, long)
			return err
		},
		"Prune": func(ctx context.Context) error {
			_, err := k.store.Prune(ctx, scopeOf("acme", 0, 0), 1)
			return err
		},
		"Replay":  func(ctx context.Context) error { return k.store.Replay(ctx, failed.ID, "ann") },
		"Discard": func(ctx context.Context) error { return k.store.Discard(ctx, failed.ID, "ann") },
		"Expired": func(ctx context.Context) error { _, err := k.store.Expired(ctx, 1); return err },
		"Tenants": func(ctx context.Context) error { _, err := k.store.Tenants(ctx); return err },
		"Ready":   k.store.Ready,
	} {
		k.wantUncertain(what, change(k.ended()))
	}
	if err := k.store.Ready(k.ctx); err != nil {
		k.Errorf("Ready afterwards = %v; want nil", err)
	}
}

func concurrent(k *trial) {
	const workers, each = 12, 8
	var wg sync.WaitGroup
	var mu sync.Mutex
	handled := map[string]int{}
	for w := range workers {
		wg.Go(func() {
			s := k.handles()[w%2]
			me := fmt.Sprintf("worker-%d", w)
			if err := s.Beat(k.ctx, me, long); err != nil {
				k.Errorf("Beat = %v; want nil", err)
			}
			for i := range each {
				r := eventIn(fmt.Sprintf("C%d", i%4), fmt.Sprintf("Ev%d", (w/3)*each+i)) // three workers claim the same
				r.Holder = me
				c := s.Claim(k.ctx, []domain.Receipt{r})[0]
				if c.Err != nil {
					k.Errorf("Claim = %v; want won or lost", c.Err)
				}
				if !c.Won {
					continue
				}
				r = c.Receipt
				for {
					n, err := s.Begin(k.ctx, refOf(r), long)
					if r.Attempt = n; err == nil {
						break
					}
					if r.Attempt = 0; !errors.Is(err, ports.ErrWaits) {
						k.Errorf("Begin = %v; want nil or ErrWaits", err)
						return
					}
				}
				if err := s.Settle(k.ctx, ports.Settlement{Ref: refOf(r), Step: domain.Step{State: domain.Handled}}); err != nil {
					k.Errorf("Settle = %v; want nil", err)
				}
				mu.Lock()
				handled[r.Key.EventID]++
				mu.Unlock()
			}
		})
		wg.Go(func() { // what else goes on meanwhile
			s := k.handles()[w%2]
			for range each {
				_, err1 := s.TakeUp(k.ctx, "idle", func(string) bool { return true }, 5, long)
				_, err2 := s.Expired(k.ctx, 5)
				_, err3 := s.Prune(k.ctx, scopeOf("acme", day, day), 5)
				_, err4 := s.Counts(k.ctx)
				_, err5 := s.Receipts(k.ctx, ports.Filter{Limit: 5})
				_, err6 := s.CountDeliveries(k.ctx, []ports.DeliveryCount{{Tenant: "acme", Event: event("Ev0").Key.Digest(), N: 1}})
				if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
					k.Errorf("meanwhile: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if len(handled) != workers/3*each {
		k.Errorf("%d events were handled; want %d", len(handled), workers/3*each)
	}
	for id, n := range handled {
		if n != 1 {
			k.Errorf("%q was handled %d times; want once", id, n)
		}
	}
	if oldest, err := k.store.OldestOpen(k.ctx); err != nil || !oldest.IsZero() {
		k.Errorf("OldestOpen = %s, %v; want none", oldest, err)
	}
}

func readyWhenUp(k *trial) {
	for _, s := range k.handles() {
		if err := s.Ready(k.ctx); err != nil {
			k.Errorf("Ready() = %v; want nil", err)
		}
	}
}
