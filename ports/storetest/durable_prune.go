package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

var prunePromises = []promise[*trial]{
	{"PruneDeletesWhatIsOldAndClosed", "closed receipts that are older than the scope says are deleted with their history, and no others", pruneOldClosed},
	{"PrunedKeyIsNewAgain", "an event whose receipt was pruned is new", prunedKeyIsNew},
	{"PrunePayloadsEarlier", "payloads go before their receipts, but never those of open ones", prunePayloads},
	{"PruneObeysLimit", "at most limit receipts and limit payloads are deleted at once, oldest first", pruneLimit},
	{"PruneOnlyInScope", "the installations that the scope names, or all but them, and no other tenant's", pruneScope},
	{"PruneLeavesWhatIsReplayed", "a receipt that is replayed at the moment of pruning keeps its payload or is not replayed", pruneReplayed},
}

const day = 24 * time.Hour

// ago returns a receipt to be claimed as it was drawn some time before now.
func ago(d time.Duration, id string) domain.Receipt {
	r := event(id)
	r.ClaimedAt = r.ClaimedAt.Add(-d)
	r.ID = idAt(r.ClaimedAt)
	return r
}

// prune prunes once and checks how many rows it told of.
func (k *trial) prune(scope ports.PruneScope, limit, want int) {
	k.Helper()
	n, err := k.store.Prune(k.ctx, scope, limit)
	if err != nil || n != want {
		k.Errorf("Prune = %d, %v; want %d rows", n, err, want)
	}
}

// left returns the event ids of all receipts that are left, sorted.
func (k *trial) left() []string {
	k.Helper()
	page, err := k.other.Receipts(k.ctx, ports.Filter{Limit: 1000})
	if err != nil {
		k.Fatalf("Receipts = %v; want nil", err)
	}
	left := eventIDs(page.Receipts)
	slices.Sort(left)
	return left
}

func (k *trial) wantLeft(want ...string) {
	k.Helper()
	if got := k.left(); !slices.Equal(got, want) {
		k.Errorf("%q are left; want %q", got, want)
	}
}

// scopeOf is the scope of all installations of a tenant, with the limits of age.
func scopeOf(tenant string, receipts, payloads time.Duration) ports.PruneScope {
	now := time.Now()
	return ports.PruneScope{Tenant: tenant, Receipts: now.Add(-receipts), Payloads: now.Add(-payloads)}
}

func pruneOldClosed(k *trial) {
	for _, state := range domain.States {
		k.in(state, ago(40*day, "old "+string(state)))
		k.in(state, ago(20*day, "young "+string(state)))
	}
	k.prune(scopeOf("acme", 30*day, 30*day), 100, 4)
	k.wantLeft("old claimed", "old dispatching", "old retrying",
		"young claimed", "young discarded", "young dispatching", "young failed", "young handled", "young lost", "young retrying")
	k.prune(scopeOf("acme", 30*day, 30*day), 100, 0)
	got := k.takeUp(k.other, another, 10)
	slices.SortFunc(got, func(a, b domain.Receipt) int { return a.ClaimedAt.Compare(b.ClaimedAt) })
	k.wantEvents("TakeUp after Prune", got, "old claimed", "old retrying", "young claimed", "young retrying")
	for _, r := range got {
		if len(r.Payload.Body) == 0 {
			k.Errorf("%q has lost its payload, though it is open", r.Key.EventID)
		}
	}
}

func prunedKeyIsNew(k *trial) {
	r := k.in(domain.Failed, ago(40*day, "Ev1"))
	if c := k.tryClaim(k.other, event("Ev1")); c.Won {
		k.Error("Claim before Prune = won; want lost")
	}
	k.prune(scopeOf("acme", 30*day, day), 100, 1)
	if _, _, err := k.other.Receipt(k.ctx, r.ID); !errors.Is(err, domain.ErrNotFound) {
		k.Errorf("Receipt of a pruned one = %v; want ErrNotFound", err)
	}
	again := event("Ev1") // with the same message key
	k.claim(k.other, again)
	if _, noted, err := k.other.Receipt(k.ctx, again.ID); err != nil || len(noted) > 0 {
		k.Errorf("the new receipt has %d entries of history, %v; want none", len(noted), err)
	}
	k.wantEvents("TakeUp", k.takeUp(k.other, another, 10), "Ev1")
}

func prunePayloads(k *trial) {
	closed := k.in(domain.Handled, ago(10*day, "closed"))
	k.in(domain.Claimed, ago(10*day, "open"))
	k.in(domain.Retrying, ago(10*day, "retrying"))
	young := k.in(domain.Failed, ago(5*day, "young"))
	k.prune(scopeOf("acme", 30*day, 7*day), 100, 1)
	k.prune(scopeOf("acme", 30*day, 7*day), 100, 0)
	k.wantLeft("closed", "open", "retrying", "young")
	k.wantErr("Replay without payload", k.store.Replay(k.ctx, closed.ID, "ann"), domain.ErrState)
	k.wantState(closed.ID, domain.Handled, 1)
	if err := k.store.Replay(k.ctx, young.ID, "ann"); err != nil {
		k.Errorf("Replay of one whose payload is young = %v; want nil", err)
	}
	for _, r := range k.takeUp(k.other, another, 10) {
		if len(r.Payload.Body) == 0 {
			k.Errorf("%q has lost its payload, though it is open", r.Key.EventID)
		}
	}
	if c := k.tryClaim(k.other, event("closed")); c.Err != nil || c.Won {
		k.Errorf("Claim after the payload was pruned = won %t, %v; want lost", c.Won, c.Err)
	}
}

func pruneLimit(k *trial) {
	for i := range 5 {
		k.in(domain.Handled, ago(time.Duration(40+i)*day, fmt.Sprint(i)))
		k.in(domain.Handled, ago(time.Duration(20+i)*day, fmt.Sprint("payload ", i)))
	}
	// the two oldest receipts, and as many payloads of those that stay
	k.prune(scopeOf("acme", 30*day, 10*day), 2, 4)
	k.wantLeft("0", "1", "2", "payload 0", "payload 1", "payload 2", "payload 3", "payload 4")
	k.prune(scopeOf("acme", 30*day, 30*day), 2, 3) // two receipts, and the payload of the third
	k.wantLeft("0", "payload 0", "payload 1", "payload 2", "payload 3", "payload 4")
}

func pruneScope(k *trial) {
	fill := func() {
		for _, tenant := range []string{"acme", "umbrella"} {
			for _, installation := range []string{"main", "side", "third"} {
				r := ago(40*day, tenant+" "+installation)
				r.Key.Tenant, r.Installation = tenant, installation
				k.in(domain.Handled, r)
			}
		}
	}
	fill()
	scope := scopeOf("acme", 30*day, 30*day)
	scope.Only = []string{"side", "unknown"}
	k.prune(scope, 100, 1)
	k.wantLeft("acme main", "acme third", "umbrella main", "umbrella side", "umbrella third")
	scope.Only = []string{}
	k.prune(scope, 100, 0)
	scope.Only, scope.Except = nil, []string{"main", "unknown"}
	k.prune(scope, 100, 1)
	k.wantLeft("acme main", "umbrella main", "umbrella side", "umbrella third")
	k.prune(scopeOf("nobody", 30*day, 30*day), 100, 0)
	k.prune(scopeOf("umbrella", 50*day, 30*day), 100, 3) // their payloads alone
	k.wantLeft("acme main", "umbrella main", "umbrella side", "umbrella third")
	k.prune(scopeOf("umbrella", 30*day, 30*day), 100, 3)
	k.wantLeft("acme main")
}

func pruneReplayed(k *trial) {
	const rounds, each = 10, 12
	for round := range rounds {
		all := make([]domain.Receipt, each)
		for i := range all {
			all[i] = k.in(domain.Handled, ago(10*day, fmt.Sprintf("%d-%d", round, i)))
		}
		var wg sync.WaitGroup
		start := make(chan struct{})
		wg.Go(func() {
			<-start
			if _, err := k.other.Prune(k.ctx, scopeOf("acme", 30*day, 7*day), 100); err != nil {
				k.Errorf("Prune = %v; want nil", err)
			}
		})
		for _, r := range all {
			wg.Go(func() {
				<-start
				if err := k.store.Replay(k.ctx, r.ID, "ann"); err != nil && !errors.Is(err, domain.ErrState) {
					k.Errorf("Replay = %v; want nil or ErrState", err)
				}
			})
		}
		close(start)
		wg.Wait()
		for _, r := range k.takeUp(k.store, holder, 100) {
			if len(r.Payload.Body) == 0 {
				k.Fatalf("%q was replayed and has no payload", r.Key.EventID)
			}
			k.settle(k.begin(r, long), domain.Step{State: domain.Handled}, "")
		}
	}
}
