package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A PollSubject is a store on a fresh, empty database. Its clock may differ from the test's by
// less than a minute.
type PollSubject struct {
	Store ports.PollStore
	// Other is a second handle on the same database, as another instance has it; nil if
	// there is none.
	Other ports.PollStore
}

// Polls checks each promise of ports.PollStore with one subtest, each on a store of its own
// from open. Who opens a store closes it. Run it with -race.
func Polls(t *testing.T, open func(t *testing.T) PollSubject) {
	t.Helper()
	try(t, pollPromises, func(t *testing.T, ctx context.Context) *pollTrial {
		s := open(t)
		k := &pollTrial{T: t, ctx: ctx, store: s.Store, other: s.Other}
		if k.other == nil {
			k.other = k.store
		}
		return k
	})
}

// A pollTrial is the check of one promise. Its helpers end it if what they prepare fails.
type pollTrial struct {
	*testing.T
	ctx          context.Context //nolint:containedctx // of this one check
	store, other ports.PollStore
	moments      int // asked for
}

var pollPromises = []promise[*pollTrial]{
	{"EnteredIsDue", "an account that is entered can be taken at once, with the zero checkpoint", enteredIsDue},
	{"EnteringAgainChangesNothing", "an account that is known stays as it is", enteringAgainChangesNothing},
	{"RefusedCredentialsAreTriedWhenEntered", "an account whose credentials were refused is due when it is entered again", refusedAreTriedWhenEntered},
	{"OneTakesAmongMany", "of many that take an account at once one gets it", oneTakesAmongMany},
	{"HeldIsNotTaken", "what is held is taken by nobody, not even by its holder", heldIsNotTaken},
	{"OverIsTakenByAnother", "what is held by one who died is taken by another when the lease is over", overIsTakenByAnother},
	{"OnlyWantedIsTaken", "what is not wanted is not taken, and leaves the places to the others", onlyWantedIsTaken},
	{"TakesTheLongestDueFirst", "of more than the limit those are taken that have been due for longest", takesTheLongestDueFirst},
	{"KeptIsNotTaken", "a lease that is kept lasts", keptIsNotTaken},
	{"FencedChangesNothing", "who does not hold the account any more can change nothing", fencedChangesNothing},
	{"OverChangesNothing", "who let the lease run out can change nothing, though nobody else took the account", overChangesNothing},
	{"CheckpointIsKept", "the next who takes an account goes on where the last one has saved", checkpointIsKept},
	{"CheckpointNeverGoesBack", "a checkpoint before the saved one is refused, compared as numbers", checkpointNeverGoesBack},
	{"EndSaysWhenItIsDue", "an account is due again after the wait that its end says, and not earlier", endSaysWhenItIsDue},
	{"FailuresAreCounted", "failures are counted until a poll works", failuresAreCounted},
	{"CaughtUpIsWhenThePollBegan", "what came after a poll had begun does not count as seen", caughtUpIsWhenThePollBegan},
	{"AccountsApart", "accounts of other tenants, channels and letter case are others", accountsApart},
	{"StatusTells", "the status tells who polls, how it went, and how far it has come", statusTells},
}

func all(ports.PollAccount) bool { return true }

func account(name string) ports.PollAccount {
	return ports.PollAccount{Tenant: "acme", Channel: "gmail", Account: name}
}

// enter makes accounts known.
func (k *pollTrial) enter(names ...string) {
	k.Helper()
	accounts := make([]ports.PollAccount, len(names))
	for i, name := range names {
		accounts[i] = account(name)
	}
	if err := k.store.EnterPolls(k.ctx, accounts); err != nil {
		k.Fatalf("EnterPolls(%q) = %v; want nil", names, err)
	}
}

func (k *pollTrial) take(s ports.PollStore, holder string, limit int, ttl time.Duration) []ports.Poll {
	k.Helper()
	polls, err := s.TakePolls(k.ctx, holder, all, limit, ttl)
	if err != nil {
		k.Fatalf("TakePolls(%s) = %v; want nil", holder, err)
	}
	return polls
}

// takeOne takes the only account that is due, for holder.
func (k *pollTrial) takeOne(s ports.PollStore, ttl time.Duration) ports.Poll {
	k.Helper()
	polls := k.take(s, holder, 10, ttl)
	if len(polls) != 1 {
		k.Fatalf("TakePolls(%s) took %d accounts; want 1", holder, len(polls))
	}
	return polls[0]
}

// takeSoon takes the only account, as soon as it is due.
func (k *pollTrial) takeSoon(s ports.PollStore, holder string) ports.Poll {
	k.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if polls := k.take(s, holder, 10, long); len(polls) == 1 {
			return polls[0]
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			k.Fatalf("after %s nothing is due for %s", patience, holder)
		}
	}
}

func (k *pollTrial) end(p ports.Poll, e ports.PollEnd) {
	k.Helper()
	if err := k.store.EndPoll(k.ctx, p.PollLease, e); err != nil {
		k.Fatalf("EndPoll(%s) = %v; want nil", p.Account, err)
	}
}

func (k *pollTrial) save(p ports.Poll, c domain.Checkpoint) {
	k.Helper()
	if err := k.store.SaveCheckpoint(k.ctx, p.PollLease, c); err != nil {
		k.Fatalf("SaveCheckpoint(%s, %+v) = %v; want nil", p.Account, c, err)
	}
}

func (k *pollTrial) wantErr(what string, err, want error) {
	k.Helper()
	if !errors.Is(err, want) {
		k.Errorf("%s = %v; want %v", what, err, want)
	}
}

// status returns where the account of that name stands, as the other instance sees it.
func (k *pollTrial) status(name string) ports.PollStatus {
	k.Helper()
	statuses, err := k.other.Polls(k.ctx)
	if err != nil {
		k.Fatalf("Polls() = %v; want nil", err)
	}
	i := slices.IndexFunc(statuses, func(s ports.PollStatus) bool { return s.PollAccount == account(name) })
	if i < 0 {
		k.Fatalf("Polls() does not tell of %s", name)
	}
	return statuses[i]
}

// moment returns what time it is for the store: when an account was entered that is not due soon.
func (k *pollTrial) moment() time.Time {
	k.Helper()
	k.moments++
	name := fmt.Sprint("moment-", k.moments)
	k.enter(name)
	k.takeOne(k.other, long)
	return k.status(name).EnteredAt
}

func works(wait time.Duration) ports.PollEnd {
	return ports.PollEnd{CaughtUp: true, Condition: domain.PollWorks, Wait: wait}
}

func enteredIsDue(k *pollTrial) {
	k.enter("desk")
	if p := k.takeOne(k.other, long); p.PollAccount != account("desk") || p.Checkpoint != (domain.Checkpoint{}) || p.Failures != 0 {
		k.Errorf("TakePolls took %+v; want desk with the zero checkpoint and no failures", p)
	}
}

func enteringAgainChangesNothing(k *pollTrial) {
	k.enter("desk", "lab")
	for _, p := range k.take(k.store, holder, 10, long) {
		k.save(p, domain.Checkpoint{Generation: 1, Position: 7, State: "state"})
		if p.Account == "lab" {
			k.end(p, works(long))
		}
	}
	k.enter("desk", "lab")
	if polls := k.take(k.other, another, 10, long); len(polls) != 0 {
		k.Errorf("TakePolls took %d accounts that were entered again; want none", len(polls))
	}
	if got := k.status("lab").Checkpoint; got.Position != 7 {
		k.Errorf("the checkpoint of an account that was entered again is %+v; want position 7", got)
	}
}

func refusedAreTriedWhenEntered(k *pollTrial) {
	k.enter("desk")
	k.end(k.takeOne(k.store, long), ports.PollEnd{Condition: domain.PollRevoked, Reason: "refused", Wait: long})
	if polls := k.take(k.store, holder, 10, long); len(polls) != 0 {
		k.Fatalf("TakePolls took %d accounts before their time; want none", len(polls))
	}
	k.enter("desk")
	if p := k.takeSoon(k.store, another); p.Condition != domain.PollRevoked || p.Failures != 1 {
		k.Errorf("TakePolls took %+v; want condition revoked after 1 failure", p)
	}
}

func oneTakesAmongMany(k *pollTrial) {
	const takers = 16
	k.enter("desk")
	start := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	var got []ports.Poll
	for i := range takers {
		all.Go(func() {
			<-start
			s, who := k.store, holder
			if i%2 == 1 {
				s, who = k.other, another
			}
			polls, err := s.TakePolls(k.ctx, who, func(ports.PollAccount) bool { return true }, 10, long)
			if err != nil && !errors.Is(err, domain.ErrUnavailable) {
				k.Errorf("TakePolls = %v; want nil", err)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, polls...)
		})
	}
	close(start)
	all.Wait()
	if len(got) != 1 {
		k.Errorf("%d of %d took the account; want 1", len(got), takers)
	}
}

func heldIsNotTaken(k *pollTrial) {
	k.enter("desk")
	k.takeOne(k.store, long)
	for _, who := range []string{holder, another} {
		if polls := k.take(k.other, who, 10, long); len(polls) != 0 {
			k.Errorf("%s took an account that %s holds", who, holder)
		}
	}
}

func overIsTakenByAnother(k *pollTrial) {
	k.enter("desk")
	first := k.takeOne(k.store, soon)
	second := k.takeSoon(k.other, another)
	if second.Fence == first.Fence {
		k.Errorf("two takes have the fence %d; want another for each", first.Fence)
	}
}

func onlyWantedIsTaken(k *pollTrial) {
	k.enter("gone-1", "gone-2", "gone-3", "desk")
	polls, err := k.store.TakePolls(k.ctx, holder, func(a ports.PollAccount) bool { return a.Account == "desk" }, 1, long)
	if err != nil || len(polls) != 1 || polls[0].Account != "desk" {
		k.Errorf("TakePolls of desk alone took %+v, %v; want desk", polls, err)
	}
}

func takesTheLongestDueFirst(k *pollTrial) {
	k.enter("first", "second")
	var late ports.Poll
	for _, p := range k.take(k.store, holder, 10, long) {
		if p.Account == "second" {
			k.end(p, works(-time.Minute))
		} else {
			late = p
		}
	}
	k.end(late, works(-time.Second))
	k.enter("third")
	if p := k.take(k.store, holder, 1, long); len(p) != 1 || p[0].Account != "second" {
		k.Errorf("TakePolls of one took %+v; want second, which has been due for longest", p)
	}
	if p := k.take(k.store, holder, 10, long); len(p) != 2 || p[0].Account != "first" || p[1].Account != "third" {
		k.Errorf("TakePolls of the rest took %+v; want first and third", p)
	}
}

func keptIsNotTaken(k *pollTrial) {
	k.enter("desk")
	p := k.takeOne(k.store, time.Minute)
	if err := k.store.KeepPoll(k.ctx, p.PollLease, long); err != nil {
		k.Fatalf("KeepPoll = %v; want nil", err)
	}
	if left := time.Until(k.status("desk").DueAt); left < long-2*time.Minute {
		k.Errorf("a lease that was kept for %s ends in %s", long, left)
	}
	if polls := k.take(k.other, another, 10, long); len(polls) != 0 {
		k.Errorf("an account whose lease was kept was taken")
	}
	if err := k.store.KeepPoll(k.ctx, p.PollLease, soon); err != nil {
		k.Fatalf("KeepPoll = %v; want nil", err)
	}
	k.takeSoon(k.other, another)
	k.wantErr("KeepPoll of a lease that another has", k.store.KeepPoll(k.ctx, p.PollLease, long), domain.ErrFenced)
}

// changes are all that a holder can do, by name.
func (k *pollTrial) changes(p ports.Poll) map[string]error {
	return map[string]error{
		"SaveCheckpoint": k.store.SaveCheckpoint(k.ctx, p.PollLease, domain.Checkpoint{Generation: 5, Position: 1, State: "theirs"}),
		"KeepPoll":       k.store.KeepPoll(k.ctx, p.PollLease, long),
		"EndPoll":        k.store.EndPoll(k.ctx, p.PollLease, works(0)),
	}
}

func fencedChangesNothing(k *pollTrial) {
	k.enter("desk")
	first := k.takeOne(k.store, soon)
	second := k.takeSoon(k.other, another)
	k.save(second, domain.Checkpoint{Generation: 1, Position: 9})
	for what, err := range k.changes(first) {
		k.wantErr(what+" by one whom another followed", err, domain.ErrFenced)
	}
	s := k.status("desk")
	if s.Holder != another || s.Checkpoint.Position != 9 || !s.EndedAt.IsZero() {
		k.Errorf("the status is %+v; want held by %s at position 9, never ended", s, another)
	}
	k.end(second, works(0))
	third := k.takeSoon(k.store, holder)
	for what, err := range k.changes(second) {
		k.wantErr(what+" by one whom another followed", err, domain.ErrFenced)
	}
	k.end(third, works(long))
	for what, err := range k.changes(third) {
		k.wantErr(what+" after the end", err, domain.ErrFenced)
	}
}

func overChangesNothing(k *pollTrial) {
	k.enter("desk")
	p := k.takeOne(k.store, long)
	k.save(p, domain.Checkpoint{Generation: 1, Position: 9})
	if err := k.store.KeepPoll(k.ctx, p.PollLease, -time.Minute); err != nil {
		k.Fatalf("KeepPoll = %v; want nil", err)
	}
	for what, err := range k.changes(p) {
		k.wantErr(what+" after the lease", err, domain.ErrFenced)
	}
	if s := k.status("desk"); s.Holder != "" || s.Checkpoint.Position != 9 {
		k.Errorf("the status is %+v; want held by nobody, at position 9", s)
	}
}

func checkpointIsKept(k *pollTrial) {
	k.enter("desk")
	for _, c := range []domain.Checkpoint{
		{Generation: 1, Position: 1, State: `{"a":"ä' \"\\"}`},
		{Generation: 1, Position: 1<<64 - 1, State: ""},
		{Generation: 2, Position: 0, State: "again"},
	} {
		p := k.takeSoon(k.store, holder)
		k.save(p, c)
		k.end(p, works(0))
		next := k.takeSoon(k.other, another)
		if next.Checkpoint != c {
			k.Errorf("after SaveCheckpoint(%+v) TakePolls tells %+v", c, next.Checkpoint)
		}
		if err := k.other.EndPoll(k.ctx, next.PollLease, works(0)); err != nil {
			k.Fatalf("EndPoll = %v; want nil", err)
		}
	}
}

func checkpointNeverGoesBack(k *pollTrial) {
	k.enter("desk")
	p := k.takeOne(k.store, long)
	for _, step := range []struct {
		to   domain.Checkpoint
		want error
	}{
		{domain.Checkpoint{Generation: 1, Position: 999}, nil},
		{domain.Checkpoint{Generation: 1, Position: 1000}, nil},
		{domain.Checkpoint{Generation: 1, Position: 999}, domain.ErrState},
		{domain.Checkpoint{Generation: 1, Position: 1000, State: "more"}, nil},
		{domain.Checkpoint{Generation: 1, Position: 1<<63 + 5}, nil},
		{domain.Checkpoint{Generation: 1, Position: 1 << 62}, domain.ErrState},
		{domain.Checkpoint{Generation: 2, Position: 3}, nil},
		{domain.Checkpoint{Generation: 1, Position: 1<<64 - 1}, domain.ErrState},
	} {
		err := k.store.SaveCheckpoint(k.ctx, p.PollLease, step.to)
		if !errors.Is(err, step.want) {
			k.Errorf("SaveCheckpoint(%+v) = %v; want %v", step.to, err, step.want)
		}
	}
	if got := k.status("desk").Checkpoint; got.Generation != 2 || got.Position != 3 {
		k.Errorf("the checkpoint is %+v; want generation 2, position 3", got)
	}
}

func endSaysWhenItIsDue(k *pollTrial) {
	k.enter("desk")
	k.end(k.takeOne(k.store, long), works(long))
	if polls := k.take(k.other, another, 10, long); len(polls) != 0 {
		k.Fatal("an account was taken before it was due")
	}
	if left := time.Until(k.status("desk").DueAt); left < long-2*time.Minute || left > long+2*time.Minute {
		k.Errorf("after a wait of %s was said it is due in %s", long, left)
	}
	k.enter("lab")
	k.end(k.takeOne(k.store, long), works(soon))
	k.takeSoon(k.other, another)
}

func failuresAreCounted(k *pollTrial) {
	k.enter("desk")
	for want := range 3 {
		p := k.takeSoon(k.store, holder)
		if p.Failures != want {
			k.Errorf("after %d failures TakePolls tells %d", want, p.Failures)
		}
		k.end(p, ports.PollEnd{Condition: domain.PollFails, Reason: "the vendor is away"})
	}
	p := k.takeSoon(k.store, holder)
	if s := k.status("desk"); s.Condition != domain.PollFails || s.LastError != "the vendor is away" || s.Failures != 3 {
		k.Errorf("the status is %+v; want failing for the third time, with the reason", s)
	}
	k.end(p, works(0))
	if p := k.takeSoon(k.store, holder); p.Failures != 0 || p.Condition != domain.PollWorks {
		k.Errorf("after a poll that worked TakePolls tells %d failures, %s", p.Failures, p.Condition)
	}
	if s := k.status("desk"); s.LastError != "" {
		k.Errorf("after a poll that worked the last error is %q; want none", s.LastError)
	}
}

func caughtUpIsWhenThePollBegan(k *pollTrial) {
	k.enter("desk")
	p := k.takeOne(k.store, long)
	begun := k.status("desk")
	if !begun.CaughtUpAt.IsZero() || begun.EnteredAt.IsZero() {
		k.Errorf("before the first end the status is %+v; want never caught up, entered", begun)
	}
	after := k.moment()
	for !k.moment().After(after) { // until its end is told from its beginning
	}
	k.end(p, works(0))
	first := k.status("desk")
	if first.CaughtUpAt.After(after) {
		k.Errorf("a poll that ended at %s has caught up at %s; want when it began, until %s", first.EndedAt, first.CaughtUpAt, after)
	}
	p = k.takeSoon(k.store, holder)
	for !k.moment().After(first.EndedAt) { // until the second end is told from the first
	}
	k.end(p, ports.PollEnd{Condition: domain.PollWorks})
	if s := k.status("desk"); !s.CaughtUpAt.Equal(first.CaughtUpAt) || !s.EndedAt.After(first.EndedAt) {
		k.Errorf("after a poll that has not seen everything it has caught up at %s; want %s as before", s.CaughtUpAt, first.CaughtUpAt)
	}
}

func accountsApart(k *pollTrial) {
	accounts := []ports.PollAccount{
		account("desk"),
		account("Desk"),
		account("desk "),
		{Tenant: "globex", Channel: "gmail", Account: "desk"},
		{Tenant: "acme", Channel: "imap", Account: "desk"},
	}
	if err := k.store.EnterPolls(k.ctx, accounts); err != nil {
		k.Fatalf("EnterPolls = %v; want nil", err)
	}
	polls := k.take(k.store, holder, 10, long)
	if len(polls) != len(accounts) {
		k.Fatalf("TakePolls took %d accounts; want %d", len(polls), len(accounts))
	}
	for i, p := range polls {
		k.save(p, domain.Checkpoint{Generation: 1, Position: uint64(i)})
		k.end(p, works(0))
	}
	for i, p := range polls {
		statuses, err := k.other.Polls(k.ctx)
		if err != nil {
			k.Fatalf("Polls() = %v; want nil", err)
		}
		at := slices.IndexFunc(statuses, func(s ports.PollStatus) bool { return s.PollAccount == p.PollAccount })
		if at < 0 || statuses[at].Checkpoint.Position != uint64(i) {
			k.Errorf("%+v is not at its own position %d", p.PollAccount, i)
		}
	}
}

func statusTells(k *pollTrial) {
	k.enter("desk")
	if s := k.status("desk"); s.Holder != "" || s.Condition != domain.PollWorks || !s.EndedAt.IsZero() {
		k.Errorf("before the first poll the status is %+v; want held by nobody, ok, never ended", s)
	}
	p := k.takeOne(k.store, long)
	k.save(p, domain.Checkpoint{Generation: 3, Position: 1<<64 - 2, State: "not to be told"})
	s := k.status("desk")
	if s.Holder != holder || s.Checkpoint.Generation != 3 || s.Checkpoint.Position != 1<<64-2 || s.Checkpoint.State != "" {
		k.Errorf("the status is %+v; want held by %s, generation 3, without state", s, holder)
	}
	if lag := s.Lag(s.EnteredAt.Add(time.Minute)); lag != time.Minute {
		k.Errorf("the lag a minute after it was entered is %s; want 1m0s", lag)
	}
	k.end(p, works(long))
	s = k.status("desk")
	if s.Holder != "" || s.EndedAt.IsZero() || s.CaughtUpAt.IsZero() || s.Lag(s.CaughtUpAt.Add(time.Minute)) != time.Minute {
		k.Errorf("after the end the status is %+v; want held by nobody, ended, lag since it caught up", s)
	}
}
