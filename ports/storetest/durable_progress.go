package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

var progressPromises = []promise[*trial]{
	{"BeginIsCommittedWhenItReturns", "another instance sees a begin as soon as it is answered, and until when its holder counts as alive", beginIsCommitted},
	{"BeginIsFenced", "only the holder begins, only the next attempt and only once", beginIsFenced},
	{"BeginInDoubtIsFoundOut", "who may have begun an attempt is told whether it has", beginInDoubt},
	{"BeginOnceAmongMany", "of many begins of one attempt at once, one of the holder's is answered with its number, and no other", beginOnceAmongMany},
	{"SettleOnceAmongMany", "of many settles of one attempt at once, the one that is carried out is told so, and no other", settleOnceAmongMany},
	{"BeginsOfOneConversationOneAtATime", "an event waits until the earlier ones of its conversation have ended their first attempt", oneAtATime},
	{"WaitingEndsWithTheFirstAttempt", "however the first attempt ends, the next event of the conversation may begin", waitingEnds},
	{"ConversationOrderIsClaimOrder", "events of a conversation begin in the order in which they were claimed, whichever instance claimed them", claimOrder},
	{"ClaimOrderHoldsUnderLoad", "no event begins before an earlier one of its conversation that is claimed at the same moment", claimOrderUnderLoad},
	{"SettleIsFenced", "only the attempt's holder ends it, only once and only within the lease", settleIsFenced},
	{"SettleStates", "a settled receipt is where the step says, with the reason", settleStates},
	{"SettleIsCommittedWhenItReturns", "another instance sees a settle as soon as it is answered", settleIsCommitted},
	{"AttemptsAreCounted", "each begin counts one attempt, and only its holder knows the next", attemptsAreCounted},
	{"ExpiredSeesOnlyWhatIsOver", "expired are dispatching receipts whose lease ran out, and no others", expiredSees},
	{"ExpireCommitsTheStep", "an expired receipt goes where the step says, once", expireCommits},
	{"ExpireIsFenced", "a receipt that has changed since Expired saw it, or whose lease still runs, is left alone", expireIsFenced},
}

func beginIsCommitted(k *trial) {
	r := k.claim(k.store, event("Ev1"))
	before := time.Now()
	r = k.begin(r, 40*time.Minute)
	got := k.receipt(r.ID)
	if got.State != domain.Dispatching || got.Attempt != 1 || got.Holder != holder {
		k.Errorf("after Begin the other instance sees %s, attempt %d, holder %q; want dispatching, 1, %q", got.State, got.Attempt, got.Holder, holder)
	}
	if lease := got.LeaseUntil.Sub(got.BegunAt); lease != 40*time.Minute {
		k.Errorf("the lease is %s; want 40m", lease)
	}
	if d := got.BegunAt.Sub(before); d < -time.Minute || d > time.Minute {
		k.Errorf("begun at %s; want about %s", got.BegunAt, before)
	}

	again := k.over(k.claim(k.store, event("Ev2")))
	if err := k.store.Expire(k.ctx, again, domain.Step{State: domain.Retrying, DueAt: due()}, "lease ran out"); err != nil {
		k.Fatalf("Expire = %v; want nil", err)
	}
	got = k.receipt(k.begin(again, 40*time.Minute).ID)
	if lease := got.LeaseUntil.Sub(got.BegunAt); lease != 40*time.Minute || !got.BegunAt.After(again.BegunAt) {
		k.Errorf("the lease of a second attempt is %s from %s, the first having begun at %s; want 40m from its own begin", lease, got.BegunAt, again.BegunAt)
	}
}

func beginIsFenced(k *trial) {
	r := k.claim(k.store, event("Ev1"))
	right := refOf(r)
	wrong := map[string]ports.Ref{}
	for what, change := range map[string]func(*ports.Ref){
		"of another holder":    func(f *ports.Ref) { f.Holder = another },
		"of a later attempt":   func(f *ports.Ref) { f.Attempt = 1 },
		"of another tenant":    func(f *ports.Ref) { f.Tenant = "umbrella" },
		"of an unknown id":     func(f *ports.Ref) { f.ID = event("").ID },
		"of a negative number": func(f *ports.Ref) { f.Attempt = -1 },
	} {
		ref := right
		change(&ref)
		wrong[what] = ref
	}
	for what, ref := range wrong {
		_, err := k.other.Begin(k.ctx, ref, long)
		k.wantErr("Begin "+what, err, domain.ErrFenced)
	}
	k.wantState(r.ID, domain.Claimed, 0)
	r = k.begin(r, long)
	wrong["again"], wrong["of the attempt that runs"] = right, refOf(r)
	lease := k.receipt(r.ID).LeaseUntil
	for what, ref := range wrong {
		_, err := k.store.Begin(k.ctx, ref, 2*long)
		k.wantErr("Begin "+what, err, domain.ErrFenced)
	}
	if got := k.receipt(r.ID); got.Attempt != 1 || !got.LeaseUntil.Equal(lease) {
		k.Errorf("after fenced begins: attempt %d, lease %s; want 1, %s", got.Attempt, got.LeaseUntil, lease)
	}
	for _, state := range []domain.State{domain.Handled, domain.Failed, domain.Lost, domain.Discarded} {
		r := k.in(state, event("Ev "+string(state)))
		_, err := k.store.Begin(k.ctx, refOf(r), long)
		k.wantErr(fmt.Sprintf("Begin of a %s receipt", state), err, domain.ErrFenced)
	}
}

func beginInDoubt(k *trial) {
	doubted := func(r domain.Receipt, attempts int) ports.Ref {
		ref := refOf(r)
		ref.Attempt, ref.Doubt = attempts, true
		return ref
	}
	for what, r := range map[string]domain.Receipt{
		"it has begun":     k.begin(k.claim(k.store, event("Ev1")), long),
		"it has not begun": k.claim(k.store, event("Ev2")),
	} {
		if n, err := k.other.Begin(k.ctx, doubted(r, 0), long); err != nil || n != 1 {
			k.Errorf("Begin in doubt, while %s, = %d, %v; want its first attempt", what, n, err)
		}
		k.wantState(r.ID, domain.Dispatching, 1)
		stranger := doubted(r, 0)
		stranger.Holder = another
		for what, ref := range map[string]ports.Ref{"of another holder": stranger, "of another attempt": doubted(r, 1)} {
			_, err := k.store.Begin(k.ctx, ref, long)
			k.wantErr("Begin in doubt "+what, err, domain.ErrFenced)
		}
	}
	for _, state := range []domain.State{domain.Handled, domain.Failed, domain.Lost} {
		r := k.in(state, event("Ev "+string(state)))
		_, err := k.store.Begin(k.ctx, doubted(r, 0), long)
		k.wantErr(fmt.Sprintf("Begin in doubt of a %s receipt", state), err, domain.ErrFenced)
	}
	k.claim(k.store, eventIn("C1", "Ev3"))
	waits := k.claim(k.store, eventIn("C1", "Ev4"))
	_, err := k.store.Begin(k.ctx, doubted(waits, 0), long)
	k.wantErr("Begin in doubt behind an earlier event", err, ports.ErrWaits)
	k.wantErr("Begin in doubt behind an earlier event", err, domain.ErrUnknown)
}

func beginOnceAmongMany(k *trial) {
	for round := range 4 {
		r := k.claim(k.store, event(fmt.Sprintf("Ev%d", round)))
		wrong := refOf(r)
		wrong.Holder = another
		// those that must be fenced come first, so that no answer of their neighbours is theirs
		refs := slices.Concat(slices.Repeat([]ports.Ref{wrong}, 8), slices.Repeat([]ports.Ref{refOf(r)}, 8))
		errs := k.atOnce(len(refs), func(s Store, i int) error {
			n, err := s.Begin(k.ctx, refs[i], long)
			if err == nil && n != 1 {
				k.Errorf("Begin = %d; want 1", n)
			}
			return err
		})
		begun := 0
		for i, err := range errs {
			switch {
			case refs[i].Holder == another:
				k.wantErr("Begin of another holder", err, domain.ErrFenced)
			case err == nil:
				begun++
			case !errors.Is(err, domain.ErrFenced) && !errors.Is(err, ports.ErrWaits): // it may be seen between two states
				k.Errorf("Begin = %v; want nil, ErrFenced or ErrWaits", err)
			}
		}
		if begun != 1 {
			k.Errorf("%d begins of one attempt were allowed; want 1", begun)
		}
		k.wantState(r.ID, domain.Dispatching, 1)
	}
}

func settleOnceAmongMany(k *trial) {
	steps := []domain.Step{{State: domain.Failed}, {State: domain.Handled}, {State: domain.Retrying, DueAt: time.Now().Add(long)}}
	for round := range 4 {
		r := k.in(domain.Dispatching, event(fmt.Sprintf("Ev%d", round)))
		settlement := func(i int) ports.Settlement {
			s := ports.Settlement{Ref: refOf(r), Step: steps[i%len(steps)], Reason: fmt.Sprint(i)}
			if i < 8 {
				s.Holder = another
			}
			if s.Step.State == domain.Handled {
				s.Reason = ""
			}
			return s
		}
		var told []ports.Settlement
		for i, err := range k.atOnce(16, func(s Store, i int) error { return s.Settle(k.ctx, settlement(i)) }) {
			if err == nil {
				told = append(told, settlement(i))
			} else {
				k.wantErr("Settle", err, domain.ErrFenced)
			}
		}
		got := k.receipt(r.ID)
		if len(told) != 1 || told[0].Holder != holder || got.State != told[0].Step.State || got.LastError != told[0].Reason {
			k.Errorf("told of settles carried out: %+v; the receipt is %s, %q; want the one that was", told, got.State, got.LastError)
		}
	}
}

// atOnce calls do n times at once, on both handles in turn, and returns what came of each.
func (k *trial) atOnce(n int, do func(s Store, i int) error) []error {
	var wg sync.WaitGroup
	start := make(chan struct{})
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = do(k.handles()[i/2%2], i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// waits checks that the next attempt of r must wait, whoever asks.
func (k *trial) waits(why string, r domain.Receipt) {
	k.Helper()
	for _, s := range k.handles() {
		_, err := s.Begin(k.ctx, refOf(r), long)
		k.wantErr("Begin "+why, err, ports.ErrWaits)
	}
	k.wantState(r.ID, domain.Claimed, 0)
}

func oneAtATime(k *trial) {
	first, second := k.claim(k.store, eventIn("C1", "Ev1")), k.claim(k.other, eventIn("C1", "Ev2"))
	third := k.claim(k.store, eventIn("C1", "Ev3"))
	k.waits("while an earlier event is claimed", second)
	k.begin(k.claim(k.store, eventIn("C2", "Ev4")), long) // another conversation does not wait
	for i, change := range []func(*domain.Receipt){
		func(r *domain.Receipt) { r.Key.Tenant = "umbrella" },
		func(r *domain.Receipt) { r.Key.Account = "T2" },
		func(r *domain.Receipt) { r.Key.Platform = "teams" },
		func(r *domain.Receipt) { r.Conversation = "" },
		func(r *domain.Receipt) { r.Conversation = "" },
		func(r *domain.Receipt) { r.Conversation = "c1" },
	} {
		r := eventIn("C1", fmt.Sprintf("apart %d", i))
		change(&r)
		k.begin(k.claim(k.other, r), long)
	}
	first = k.begin(first, long)
	k.waits("while an earlier event is dispatching", second)
	k.waits("behind one that waits itself", third)
	k.settle(first, domain.Step{State: domain.Handled}, "")
	k.waits("behind one that may begin and has not", third)
	second = k.begin(second, long)
	k.waits("while the second is dispatching", third)
	k.settle(second, domain.Step{State: domain.Handled}, "")
	k.begin(third, long)
}

func waitingEnds(k *trial) {
	for _, state := range []domain.State{domain.Handled, domain.Retrying, domain.Failed, domain.Lost} {
		conversation := "ends " + string(state)
		first := k.claim(k.store, eventIn(conversation, conversation+"1"))
		second := k.claim(k.store, eventIn(conversation, conversation+"2"))
		third := k.claim(k.store, eventIn(conversation, conversation+"3"))
		if state == domain.Lost {
			first = k.over(first)
			k.waits("while the end of an earlier event's lease has not been dealt with", second)
			if err := k.store.Expire(k.ctx, first, domain.Step{State: state}, "lease ran out"); err != nil {
				k.Fatalf("Expire = %v; want nil", err)
			}
		} else {
			first = k.settle(k.begin(first, long), domain.Step{State: state, DueAt: dueOf(state)}, "")
		}
		second = k.begin(second, long)
		if state == domain.Retrying {
			first = k.begin(first, long) // nor does a retry wait for later events
			k.settle(second, domain.Step{State: domain.Handled}, "")
			k.begin(third, long) // nor they for it
			k.settle(first, domain.Step{State: domain.Handled}, "")
		}
	}
}

// dueOf is a due time for a step to a state, where it needs one.
func dueOf(state domain.State) time.Time {
	if state == domain.Retrying {
		return due()
	}
	return time.Time{}
}

func claimOrder(k *trial) {
	const n = 10
	all := make([]domain.Receipt, n)
	for i := range all {
		r := eventIn("C1", fmt.Sprintf("Ev%d", i))
		r.ClaimedAt = r.ClaimedAt.Add(-time.Duration(i) * time.Second) // clocks differ, the order of commits counts
		r.Holder = []string{holder, another}[i%2]
		all[i] = k.claim(k.handles()[i%2], r)
		if i > 0 && all[i].Seq <= all[i-1].Seq {
			k.Errorf("seq %d of a later claim of a conversation after %d; want a greater one", all[i].Seq, all[i-1].Seq)
		}
	}
	for i, r := range all {
		for _, later := range all[i+1:] {
			k.waits("out of the order of claims", later)
		}
		k.settle(k.begin(r, long), domain.Step{State: domain.Handled}, "")
	}
}

func claimOrderUnderLoad(k *trial) {
	const workers, each = 8, 6
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		begun []int64 // seqs in the order of begins
		open  int
	)
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				s := k.handles()[(w+i)%2]
				c := s.Claim(ctx, []domain.Receipt{eventIn("C1", fmt.Sprintf("Ev%d-%d", w, i))})[0]
				if c.Err != nil || !c.Won {
					k.Errorf("Claim = won %t, %v; want won", c.Won, c.Err)
					cancel()
					return
				}
				r := c.Receipt
				for {
					n, err := s.Begin(ctx, refOf(r), long)
					if err == nil {
						r.Attempt = n
						break
					}
					if !errors.Is(err, ports.ErrWaits) {
						k.Errorf("Begin = %v; want nil or ErrWaits", err)
						cancel()
						return
					}
				}
				mu.Lock()
				begun = append(begun, r.Seq)
				if open++; open != 1 {
					k.Errorf("%d events of one conversation are dispatching at once", open)
				}
				mu.Unlock()
				runtime.Gosched()
				mu.Lock()
				open--
				mu.Unlock()
				if err := s.Settle(ctx, ports.Settlement{Ref: refOf(r), Step: domain.Step{State: domain.Handled}}); err != nil {
					k.Errorf("Settle = %v; want nil", err)
					cancel()
					return
				}
			}
		})
	}
	wg.Wait()
	if !slices.IsSorted(begun) {
		k.Errorf("events of one conversation began in the order of claims %v; want ascending", begun)
	}
}

func settleIsFenced(k *trial) {
	handled := domain.Step{State: domain.Handled}
	r := k.claim(k.store, event("Ev1"))
	early := refOf(r)
	early.Attempt = 1
	k.wantErr("Settle before Begin", k.store.Settle(k.ctx, ports.Settlement{Ref: early, Step: handled}), domain.ErrFenced)
	k.wantErr("Settle of a claimed receipt", k.store.Settle(k.ctx, ports.Settlement{Ref: refOf(r), Step: handled}), domain.ErrFenced)
	r = k.begin(r, long)
	wrong := map[string]func(*ports.Ref){
		"of another holder":     func(f *ports.Ref) { f.Holder = another },
		"of an earlier attempt": func(f *ports.Ref) { f.Attempt = 0 },
		"of a later attempt":    func(f *ports.Ref) { f.Attempt = 2 },
		"of another tenant":     func(f *ports.Ref) { f.Tenant = "umbrella" },
		"of an unknown id":      func(f *ports.Ref) { f.ID = event("").ID },
	}
	for what, change := range wrong {
		ref := refOf(r)
		change(&ref)
		k.wantErr("Settle "+what, k.other.Settle(k.ctx, ports.Settlement{Ref: ref, Step: handled}), domain.ErrFenced)
	}
	k.wantState(r.ID, domain.Dispatching, 1)
	k.settle(r, domain.Step{State: domain.Failed}, "rejected")
	err := k.store.Settle(k.ctx, ports.Settlement{Ref: refOf(r), Step: handled})
	k.wantErr("Settle of a settled receipt", err, domain.ErrFenced)
	k.wantState(r.ID, domain.Failed, 1)

	late := k.over(k.claim(k.store, event("Ev2")))
	err = k.store.Settle(k.ctx, ports.Settlement{Ref: refOf(late), Step: handled})
	k.wantErr("Settle after the lease", err, domain.ErrFenced)
	k.wantState(late.ID, domain.Dispatching, 1)
	if _, noted, err := k.store.Receipt(k.ctx, late.ID); err != nil || len(noted) != 0 {
		k.Errorf("a fenced settle left %d entries in the history, %v; want none", len(noted), err)
	}
}

func settleStates(k *trial) {
	for _, c := range []struct {
		step   domain.Step
		reason string
	}{
		{domain.Step{State: domain.Handled}, ""},
		{domain.Step{State: domain.Retrying, DueAt: time.Now().Add(long).Truncate(time.Microsecond)}, "HTTP 503"},
		{domain.Step{State: domain.Failed}, "HTTP 422"},
	} {
		r := k.claim(k.store, event("Ev "+string(c.step.State)))
		r.LastError = ""
		k.settle(k.begin(r, long), c.step, c.reason)
		got := k.receipt(r.ID)
		if got.State != c.step.State || got.Attempt != 1 || got.LastError != c.reason || !got.DueAt.Equal(c.step.DueAt) || !got.LeaseUntil.IsZero() {
			k.Errorf("settled to %s: %s, %d attempts, reason %q, due %s, lease %s; want %s, 1, %q, %s, none",
				c.step.State, got.State, got.Attempt, got.LastError, got.DueAt, got.LeaseUntil, c.step.State, c.reason, c.step.DueAt)
		}
		if (c.step.State == domain.Handled) == got.HandledAt.IsZero() {
			k.Errorf("settled to %s: handled at %s", c.step.State, got.HandledAt)
		}
		if got.BegunAt.IsZero() {
			k.Errorf("settled to %s: the last begin is forgotten", c.step.State)
		}
	}
	if got := k.takeUp(k.other, another, 10); len(got) > 0 {
		k.Errorf("TakeUp gave %q, none of which waits; want nothing", eventIDs(got))
	}
}

func settleIsCommitted(k *trial) {
	for i := range 20 {
		r := k.in(domain.Handled, event(fmt.Sprintf("Ev%d", i)))
		k.wantState(r.ID, domain.Handled, 1)
	}
}

func attemptsAreCounted(k *trial) {
	r := k.claim(k.store, event("Ev1"))
	for n := 1; n <= 5; n++ {
		stale := refOf(r)
		r = k.begin(r, long)
		if r = k.settle(r, domain.Step{State: domain.Retrying, DueAt: due()}, "again"); r.Attempt != n {
			k.Fatalf("attempt %d is numbered %d", n, r.Attempt)
		}
		_, err := k.store.Begin(k.ctx, stale, long)
		k.wantErr("Begin of an attempt that has ended", err, domain.ErrFenced)
		k.wantState(r.ID, domain.Retrying, n)
	}
	k.settle(k.begin(r, long), domain.Step{State: domain.Handled}, "")
	if got := k.receipt(r.ID); got.Attempt != 6 || got.LastError != "" {
		k.Errorf("handled at last: %d attempts, reason %q; want 6 and no reason", got.Attempt, got.LastError)
	}
}

func expiredSees(k *trial) {
	for _, state := range domain.States {
		k.in(state, event("Ev "+string(state)))
	}
	if got := k.expired(); len(got) > 0 {
		k.Errorf("Expired gave %q, of which no lease ran out; want nothing", eventIDs(got))
	}
	first := k.over(k.claim(k.store, event("over 1")))
	retry := k.in(domain.Retrying, event("over 2"))
	retry = k.over(retry) // of a later attempt as well
	k.over(k.claim(k.other, event("over 3")))
	got := k.expired()
	slices.SortFunc(got, func(a, b domain.Receipt) int { return cmp.Compare(a.Seq, b.Seq) })
	k.wantEvents("Expired", got, "over 1", "over 2", "over 3")
	for _, r := range got {
		if len(r.Payload.Body) > 0 || r.State != domain.Dispatching || r.Holder != holder || r.Installation != "main" || r.Guarantee != domain.AtMostOnce {
			k.Errorf("Expired gave %+v; want the whole dispatching receipt without payload", r)
		}
	}
	if first.Attempt != 1 || retry.Attempt != 2 {
		k.Errorf("Expired gave attempts %d and %d; want 1 and 2", first.Attempt, retry.Attempt)
	}
	some, err := k.store.Expired(k.ctx, 2)
	if err != nil || len(some) != 2 {
		k.Errorf("Expired(limit 2) gave %d, %v; want 2", len(some), err)
	}
}

func expireCommits(k *trial) {
	for _, step := range []domain.Step{
		{State: domain.Lost},
		{State: domain.Retrying, DueAt: due()},
		{State: domain.Failed},
	} {
		r := k.over(k.claim(k.store, event("Ev "+string(step.State))))
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { errs[i] = k.handles()[i%2].Expire(k.ctx, r, step, "lease ran out") })
		}
		wg.Wait()
		done := 0
		for _, err := range errs {
			if err == nil {
				done++
			} else {
				k.wantErr("Expire", err, domain.ErrFenced)
			}
		}
		if done != 1 {
			k.Errorf("%d of %d Expire of one receipt at once were carried out; want 1", done, len(errs))
		}
		got := k.receipt(r.ID)
		if got.State != step.State || got.Attempt != 1 || got.LastError != "lease ran out" || !got.DueAt.Equal(step.DueAt) {
			k.Errorf("expired to %s: %s, %d attempts, reason %q, due %s", step.State, got.State, got.Attempt, got.LastError, got.DueAt)
		}
		err := k.store.Settle(k.ctx, ports.Settlement{Ref: refOf(r), Step: domain.Step{State: domain.Handled}})
		k.wantErr("Settle of what has expired", err, domain.ErrFenced)
	}
	if got := k.expired(); len(got) > 0 {
		k.Errorf("Expired gave %q again", eventIDs(got))
	}
	k.wantEvents("TakeUp of what is to be tried again", k.takeUp(k.other, another, 10), "Ev retrying")
}

func expireIsFenced(k *trial) {
	lost := domain.Step{State: domain.Lost}
	running := k.in(domain.Dispatching, event("running"))
	k.wantErr("Expire while the lease runs", k.store.Expire(k.ctx, k.receipt(running.ID), lost, "too early"), domain.ErrFenced)
	k.wantState(running.ID, domain.Dispatching, 1)

	seen := k.receipt(running.ID)
	k.settle(running, domain.Step{State: domain.Handled}, "")
	k.wantErr("Expire after a late settle", k.other.Expire(k.ctx, seen, lost, "too late"), domain.ErrFenced)
	k.wantState(running.ID, domain.Handled, 1)

	// it was taken up and begun again meanwhile, and that attempt's lease ran out too
	stale := k.over(k.claim(k.store, event("again")))
	if err := k.store.Expire(k.ctx, stale, domain.Step{State: domain.Retrying, DueAt: due()}, "lease ran out"); err != nil {
		k.Fatalf("Expire = %v; want nil", err)
	}
	k.wantErr("Expire of what is retrying", k.store.Expire(k.ctx, stale, lost, "stale"), domain.ErrFenced)
	got := k.takeUp(k.other, another, 10)
	k.wantEvents("TakeUp", got, "again")
	now := k.over(got[0])
	k.wantErr("Expire of an earlier attempt", k.store.Expire(k.ctx, stale, lost, "stale"), domain.ErrFenced)
	mixed := now
	mixed.Holder = stale.Holder
	k.wantErr("Expire of another holder's attempt", k.store.Expire(k.ctx, mixed, lost, "stale"), domain.ErrFenced)
	k.wantState(now.ID, domain.Dispatching, 2)
}
