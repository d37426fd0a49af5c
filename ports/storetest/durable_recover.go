package storetest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

var recoverPromises = []promise[*trial]{
	{"TakeUpOfGoneHolder", "what somebody has claimed who left, whose time is over or who never said that it lives is taken up", takeUpOfGone},
	{"TakeUpLeavesLivingHoldersAlone", "what a living instance has claimed is its own", takeUpLeavesLiving},
	{"TakeUpLeavesRenewedHoldersAlone", "a beat makes the time of an instance longer", takeUpLeavesRenewed},
	{"TakeUpOwnUnknown", "an instance takes up its own claims which it does not know of, and no others of its own", takeUpOwn},
	{"TakeUpDueRetrying", "a retry is taken up by anyone once it is due, not before, and then left alone for the reserve", takeUpDue},
	{"TakeUpHandsOver", "who takes up is the holder from then on, and the one before is fenced", takeUpHandsOver},
	{"TakeUpBringsPayloadInClaimOrder", "receipts are taken up with payload, in the order of their claims, at most limit", takeUpOrder},
	{"TakeUpTakesNothingElse", "what is dispatching or closed is not taken up", takeUpNothingElse},
	{"TwoTakersShareNothing", "whatever waits is taken up by exactly one of all who take up at once", twoTakers},
	{"DeliveriesAreCounted", "suppressed duplicates are added to their receipts, every one of them", countDeliveries},
	{"LeaseHasOneHolder", "a named lease has one holder until it ends or is let run out", leases},
	{"TenantsAreListed", "every tenant that has receipts is told, quiet ones too", tenants},
}

func takeUpOfGone(k *trial) {
	claimAs := func(name string) {
		r := event(name)
		r.Holder = name
		k.claim(k.store, r)
	}
	claimAs("never lived")
	got := k.takeUp(k.other, another, 10)
	k.wantEvents("TakeUp", got, "never lived")
	for _, r := range got {
		k.begin(r, long)
	}

	claimAs("left")
	k.beat("left")
	if got := k.takeUp(k.other, another, 10); len(got) > 0 {
		k.Errorf("TakeUp gave %q although the holder lives", eventIDs(got))
	}
	if err := k.store.Leave(k.ctx, "left"); err != nil {
		k.Fatalf("Leave = %v; want nil", err)
	}
	k.wantEvents("TakeUp after Leave", k.takeUp(k.other, "instance-3", 10), "left")

	claimAs("died")
	if err := k.store.Beat(k.ctx, "died", soon); err != nil {
		k.Fatalf("Beat = %v; want nil", err)
	}
	k.beat("instance-3")
	k.await("what a holder claimed whose time is over is taken up", func() bool {
		return slices.Contains(eventIDs(k.takeUp(k.other, "instance-4", 10)), "died")
	})
	if err := k.store.Leave(k.ctx, "never known"); err != nil {
		k.Errorf("Leave of who never came = %v; want nil", err)
	}
}

func takeUpLeavesLiving(k *trial) {
	k.beat(holder)
	k.beat(another)
	mine := k.claim(k.store, event("Ev1"))
	if got := k.takeUp(k.other, another, 10); len(got) > 0 {
		k.Errorf("TakeUp gave %q of a living instance; want nothing", eventIDs(got))
	}
	// a beat prolongs, and a later one with less time counts
	if err := k.store.Beat(k.ctx, holder, soon); err != nil {
		k.Fatalf("Beat = %v; want nil", err)
	}
	k.beat(holder)
	if err := k.store.Leave(k.ctx, another); err != nil {
		k.Fatalf("Leave = %v; want nil", err)
	}
	if got := k.takeUp(k.other, another, 10); len(got) > 0 {
		k.Errorf("TakeUp gave %q of an instance that has renewed its time; want nothing", eventIDs(got))
	}
	if got := k.receipt(mine.ID); got.Holder != holder {
		k.Errorf("the receipt is held by %q; want %q", got.Holder, holder)
	}
	k.begin(mine, long)
}

func takeUpLeavesRenewed(k *trial) {
	for _, name := range []string{holder, "died"} {
		if err := k.store.Beat(k.ctx, name, soon); err != nil {
			k.Fatalf("Beat = %v; want nil", err)
		}
		r := event(name)
		r.Holder = name
		k.claim(k.store, r)
	}
	k.beat(holder)
	k.await("what an instance claimed whose time is over is taken up", func() bool {
		got := eventIDs(k.takeUp(k.other, another, 10))
		if slices.Contains(got, holder) {
			k.Fatalf("TakeUp gave what an instance claimed that has renewed its time in time")
		}
		return slices.Contains(got, "died")
	})
}

func takeUpOwn(k *trial) {
	k.beat(holder)
	known, unknown := k.claim(k.store, event("known")), k.claim(k.store, event("unknown"))
	if got := k.takeUp(k.store, holder, 10, known.ID, unknown.ID); len(got) > 0 {
		k.Errorf("TakeUp gave %q, which this instance knows of; want nothing", eventIDs(got))
	}
	// a limit counts what is taken up, not what is passed over
	k.wantEvents("TakeUp", k.takeUp(k.store, holder, 1, known.ID), "unknown")
	k.begin(unknown, long)
	asked := map[string]bool{}
	if _, err := k.store.TakeUp(k.ctx, another, func(id string) bool { asked[id] = true; return false }, 10, long); err != nil {
		k.Fatalf("TakeUp = %v; want nil", err)
	}
	k.wantState(known.ID, domain.Claimed, 0)
	if got := k.receipt(known.ID); got.Holder != holder {
		k.Errorf("the receipt is held by %q; want %q", got.Holder, holder)
	}
}

func takeUpDue(k *trial) {
	k.beat(holder)
	k.in(domain.Retrying, event("due"))
	later := k.claim(k.store, event("later"))
	k.settle(k.begin(later, long), domain.Step{State: domain.Retrying, DueAt: time.Now().Add(long)}, "later")
	all := func(string) bool { return true }
	got, err := k.other.TakeUp(k.ctx, another, all, 10, long)
	if err != nil {
		k.Fatalf("TakeUp = %v; want nil", err)
	}
	k.wantEvents("TakeUp", got, "due")
	if len(got) == 0 {
		return
	}
	if got[0].State != domain.Retrying || got[0].Attempt != 1 || got[0].LastError != "not yet" || string(got[0].Payload.Body) != `{"event":"due"}` {
		k.Errorf("TakeUp gave %s, %d attempts, %q, payload %q", got[0].State, got[0].Attempt, got[0].LastError, got[0].Payload.Body)
	}
	for _, who := range []string{holder, another} {
		if again := k.takeUp(k.store, who, 10); len(again) > 0 {
			k.Errorf("TakeUp gave %q again within the reserve; want nothing", eventIDs(again))
		}
	}
	// who took it up may use the reserve
	r := k.settle(k.begin(got[0], long), domain.Step{State: domain.Retrying, DueAt: due()}, "again")
	if got, err = k.other.TakeUp(k.ctx, another, all, 10, soon); err != nil || len(got) != 1 {
		k.Fatalf("TakeUp gave %d, %v; want the one that is due", len(got), err)
	}
	k.await("what was reserved and not begun is taken up by another", func() bool {
		return slices.Equal(ids(k.takeUp(k.store, holder, 10)), []string{r.ID})
	})
}

func takeUpHandsOver(k *trial) {
	before := k.claim(k.store, event("Ev1"))
	got := k.takeUp(k.other, another, 10)
	k.wantEvents("TakeUp", got, "Ev1")
	if len(got) != 1 || got[0].Holder != another || k.receipt(before.ID).Holder != another {
		k.Fatalf("TakeUp did not make %q the holder", another)
	}
	_, err := k.store.Begin(k.ctx, refOf(before), long)
	k.wantErr("Begin of who held it before", err, domain.ErrFenced)
	now := k.begin(got[0], long)
	stale := refOf(before)
	stale.Attempt = 1
	err = k.store.Settle(k.ctx, ports.Settlement{Ref: stale, Step: domain.Step{State: domain.Handled}})
	k.wantErr("Settle of who held it before", err, domain.ErrFenced)
	k.settle(now, domain.Step{State: domain.Handled}, "")
}

func takeUpOrder(k *trial) {
	var want []string
	for i := range 12 {
		id := fmt.Sprintf("Ev%02d", i)
		r := event(id)
		r.Key.Tenant = []string{"b", "a", "c"}[i%3]
		if i%4 == 1 {
			r.Key.EventID = id
			k.in(domain.Retrying, r)
		} else {
			k.claim(k.handles()[i%2], r)
		}
		want = append(want, id)
	}
	got := k.takeUp(k.other, another, 100)
	k.wantEvents("TakeUp", got, want...)
	for _, r := range got {
		if string(r.Payload.Body) != `{"event":"`+r.Key.EventID+`"}` || r.Payload.MediaType != "application/json" {
			k.Errorf("TakeUp gave %q with payload %q (%s)", r.Key.EventID, r.Payload.Body, r.Payload.MediaType)
		}
	}
	if len(got) == len(want) && got[0].Seq >= got[1].Seq {
		k.Errorf("TakeUp gave seq %d before %d; want ascending", got[0].Seq, got[1].Seq)
	}
	for i := range 7 {
		k.claim(k.store, event(fmt.Sprintf("limit %d", i)))
	}
	k.beat(another)
	k.wantEvents("TakeUp(limit 3)", k.takeUp(k.store, "instance-3", 3), "limit 0", "limit 1", "limit 2")
}

func takeUpNothingElse(k *trial) {
	var closed []domain.Receipt
	for _, state := range domain.States {
		if state != domain.Claimed && state != domain.Retrying {
			closed = append(closed, k.in(state, event("Ev "+string(state))))
		}
	}
	k.over(k.claim(k.store, event("over")))
	if got := k.takeUp(k.other, another, 10); len(got) > 0 {
		k.Errorf("TakeUp gave %q; want nothing", eventIDs(got))
	}
	for _, r := range closed {
		if got := k.receipt(r.ID); got.State != r.State || got.Holder != holder {
			k.Errorf("TakeUp made a %s receipt %s, held by %q", r.State, got.State, got.Holder)
		}
	}
}

func twoTakers(k *trial) {
	const n, takers = 60, 6
	for i := range n {
		r := event(fmt.Sprintf("Ev%02d", i))
		if i%3 == 0 {
			k.in(domain.Retrying, r)
		} else {
			k.claim(k.store, r)
		}
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		taken = map[string]string{}
		total atomic.Int64
		begin = make(chan struct{})
	)
	for i := range takers {
		name := fmt.Sprintf("taker-%d", i)
		k.beat(name)
		wg.Go(func() {
			<-begin
			deadline := time.Now().Add(most / 4)
			mine := func(id string) bool { mu.Lock(); defer mu.Unlock(); return taken[id] == name }
			for total.Load() < n && time.Now().Before(deadline) {
				got, err := k.handles()[i%2].TakeUp(k.ctx, name, mine, 7, long)
				if err != nil {
					k.Errorf("TakeUp = %v; want nil", err)
					return
				}
				mu.Lock()
				for _, r := range got {
					if by, ok := taken[r.ID]; ok {
						k.Errorf("%q was taken up by %s and by %s", r.Key.EventID, by, name)
					}
					taken[r.ID] = name
				}
				mu.Unlock()
				total.Add(int64(len(got)))
			}
		})
	}
	close(begin)
	wg.Wait()
	if len(taken) != n {
		k.Errorf("%d of %d waiting receipts were taken up; want all", len(taken), n)
	}
	for id, name := range taken {
		if got := k.receipt(id); got.Holder != name {
			k.Errorf("the receipt that %s took up is held by %q", name, got.Holder)
		}
	}
}

func countDeliveries(k *trial) {
	one, two := k.claim(k.store, event("Ev1")), k.in(domain.Handled, event("Ev2"))
	elsewhere := event("Ev1")
	elsewhere.Key.Tenant = "umbrella"
	k.claim(k.store, elsewhere)
	count := func(counts ...ports.DeliveryCount) []ports.DeliveryCount {
		left, err := k.other.CountDeliveries(k.ctx, counts)
		if err != nil {
			k.Fatalf("CountDeliveries = %v; want nil", err)
		}
		return left
	}
	of := func(r domain.Receipt, n, attempt int) ports.DeliveryCount {
		return ports.DeliveryCount{Tenant: r.Key.Tenant, Event: r.Key.Digest(), N: n, VendorAttempt: attempt}
	}
	unknown := of(event("unknown"), 3, 0)
	left := count(of(one, 2, 1), unknown, of(two, 5, 7))
	if !slices.Equal(left, []ports.DeliveryCount{unknown}) {
		k.Errorf("CountDeliveries left %v; want the one of no receipt", left)
	}
	if left = append(count(of(one, 1, 3)), count(of(one, 4, 2))...); len(left) > 0 {
		k.Errorf("CountDeliveries left %v; want nothing", left)
	}
	if left = count(of(one, 1, 0), of(elsewhere, 2, 0)); len(left) > 0 { // of several tenants
		k.Errorf("CountDeliveries left %v; want nothing", left)
	}
	for left := []ports.DeliveryCount{of(two, 1, 0), of(two, 2, 9)}; len(left) > 0; { // twice in one list
		left = count(left...)
	}
	wrong := of(one, 100, 100)
	wrong.Tenant = "nobody"
	count(wrong)
	if left := count(); len(left) > 0 {
		k.Errorf("CountDeliveries of nothing left %v", left)
	}
	for _, c := range []struct {
		id                 string
		deliveries, vendor int
	}{{one.ID, 9, 3}, {two.ID, 9, 9}, {elsewhere.ID, 3, 0}} {
		if r := k.receipt(c.id); r.Deliveries != c.deliveries || r.VendorAttempt != c.vendor {
			k.Errorf("%s/%s: %d deliveries, vendor attempt %d; want %d, %d", r.Key.Tenant, r.Key.EventID, r.Deliveries, r.VendorAttempt, c.deliveries, c.vendor)
		}
	}

	// many at once, from both sides
	batch := make([]domain.Receipt, 600)
	for i := range batch {
		batch[i] = event(fmt.Sprintf("many %d", i))
	}
	k.store.Claim(k.ctx, batch)
	var wg sync.WaitGroup
	for i := range 2 {
		counts := make([]ports.DeliveryCount, len(batch))
		for j, r := range batch {
			counts[j] = of(r, 1, 0)
		}
		if i == 1 {
			slices.Reverse(counts)
		}
		wg.Go(func() {
			for tries := 0; len(counts) > 0 && tries < 1000; tries++ {
				left, err := k.handles()[i].CountDeliveries(k.ctx, counts)
				if err != nil {
					k.Errorf("CountDeliveries = %v; want nil", err)
					return
				}
				counts = left
			}
		})
	}
	wg.Wait()
	for _, i := range []int{0, 299, 599} {
		if r := k.receipt(batch[i].ID); r.Deliveries != 3 {
			k.Errorf("receipt %d of many: %d deliveries; want 3", i, r.Deliveries)
		}
	}
}

func leases(k *trial) {
	acquire := func(s Store, name, holder string, ttl time.Duration) bool {
		got, err := s.AcquireLease(k.ctx, name, holder, ttl)
		if err != nil {
			k.Errorf("AcquireLease(%s, %s) = %v; want nil", name, holder, err)
		}
		return got
	}
	var wg sync.WaitGroup
	var winners atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			if acquire(k.handles()[i%2], "race", fmt.Sprint(i), long) {
				winners.Add(1)
			}
		})
	}
	wg.Wait()
	if winners.Load() != 1 {
		k.Errorf("%d of 8 hold one lease; want 1", winners.Load())
	}
	for _, which := range []string{"a free lease", "its own lease"} {
		if !acquire(k.store, "prune", holder, long) {
			k.Errorf("AcquireLease of %s = false; want true", which)
		}
	}
	if acquire(k.other, "prune", another, long) {
		k.Error("AcquireLease of a lease that another holds = true; want false")
	}
	if !acquire(k.other, "poll", another, long) {
		k.Error("AcquireLease of another name = false; want true")
	}
	acquire(k.store, "prune", holder, soon)
	k.await("a lease whose time is over is free", func() bool { return acquire(k.other, "prune", another, long) })
	if acquire(k.store, "prune", holder, long) {
		k.Error("AcquireLease of who has lost the lease = true; want false")
	}
}

func tenants(k *trial) {
	list := func(s Store) []string {
		got, err := s.Tenants(k.ctx)
		if err != nil {
			k.Fatalf("Tenants = %v; want nil", err)
		}
		slices.Sort(got)
		return got
	}
	if got := list(k.store); len(got) > 0 {
		k.Errorf("Tenants of an empty store = %q; want none", got)
	}
	want := []string{"ACME", "acme", "acme2", "b c", "umbrella", "\u00fcber"}
	for i := range 9 {
		r := event(fmt.Sprint(i))
		r.Key.Tenant = want[i%len(want)]
		if i < len(want) { // three of them are quiet otherwise
			k.in(domain.Handled, r)
		} else {
			k.claim(k.store, r)
		}
	}
	if got := list(k.other); !slices.Equal(got, want) {
		k.Errorf("Tenants = %q; want %q", got, want)
	}
}
