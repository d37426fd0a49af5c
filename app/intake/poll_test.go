package intake_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A polls is a poll store in memory, by the clock of the test's bubble.
type polls struct {
	mu    sync.Mutex
	away  error
	rows  map[ports.PollAccount]*pollRow
	waits []time.Duration // of the ends, in order
}

type pollRow struct {
	ports.PollStatus
	fence int64
	taken time.Time
	state domain.Checkpoint
}

func newPolls() *polls { return &polls{rows: map[ports.PollAccount]*pollRow{}} }

func (s *polls) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *polls) EnterPolls(_ context.Context, accounts []ports.PollAccount) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range accounts {
		if s.rows[a] == nil {
			s.rows[a] = &pollRow{PollStatus: ports.PollStatus{PollAccount: a, DueAt: time.Now(), EnteredAt: time.Now(), Condition: domain.PollWorks}}
		}
	}
	return s.away
}

func (s *polls) TakePolls(_ context.Context, holder string, wanted func(ports.PollAccount) bool, limit int, ttl time.Duration,
) ([]ports.Poll, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return nil, s.away
	}
	var got []ports.Poll
	for a, r := range s.rows {
		if len(got) == limit || time.Now().Before(r.DueAt) || !wanted(a) {
			continue
		}
		r.fence++
		r.Holder, r.DueAt, r.taken = holder, time.Now().Add(ttl), time.Now()
		got = append(got, ports.Poll{
			PollLease: ports.PollLease{PollAccount: a, Fence: r.fence}, Checkpoint: r.state, Condition: r.Condition, Failures: r.Failures,
		})
	}
	return got, nil
}

func (s *polls) held(lease ports.PollLease, f func(*pollRow) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[lease.PollAccount]
	switch {
	case s.away != nil:
		return s.away
	case r.fence != lease.Fence || r.Holder == "" || !time.Now().Before(r.DueAt):
		return domain.ErrFenced
	}
	return f(r)
}

func (s *polls) KeepPoll(_ context.Context, lease ports.PollLease, ttl time.Duration) error {
	return s.held(lease, func(r *pollRow) error {
		r.DueAt = time.Now().Add(ttl)
		return nil
	})
}

func (s *polls) SaveCheckpoint(_ context.Context, lease ports.PollLease, c domain.Checkpoint) error {
	return s.held(lease, func(r *pollRow) error {
		r.state = c
		return nil
	})
}

func (s *polls) EndPoll(_ context.Context, lease ports.PollLease, end ports.PollEnd) error {
	return s.held(lease, func(r *pollRow) error {
		r.Holder, r.DueAt, r.Condition, r.LastError, r.EndedAt = "", time.Now().Add(end.Wait), end.Condition, end.Reason, time.Now()
		if r.Failures++; end.Condition == domain.PollWorks {
			r.Failures = 0
		}
		if end.CaughtUp {
			r.CaughtUpAt = r.taken
		}
		s.waits = append(s.waits, end.Wait)
		return nil
	})
}

func (s *polls) Polls(context.Context) ([]ports.PollStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []ports.PollStatus
	for _, r := range s.rows {
		all = append(all, r.PollStatus)
	}
	return all, s.away
}

// of returns where the account of that name stands.
func (s *polls) of(account string) (row pollRow) {
	s.change(func() {
		for a, r := range s.rows {
			if a.Account == account {
				row = *r
			}
		}
	})
	return row
}

// A feed is the vendor of a polled channel: items by number, which a round takes in from where
// the checkpoint stands. before, if set, is called before each round; its error ends it.
type feed struct {
	mu     sync.Mutex
	items  []channels.Item
	rounds int
	before func(ctx context.Context) error
}

func (f *feed) put(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		f.items = append(f.items, channels.Item{Event: domain.Event{
			ID: id, Kind: domain.Other, Digest: domain.DigestOf(id), Payload: domain.Payload{Body: []byte(id)},
		}})
	}
}

func (f *feed) poison(id string) {
	f.put(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items[len(f.items)-1].Fault = fmt.Errorf("%w: on purpose", domain.ErrUnreadable)
}

func (f *feed) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rounds
}

func (f *feed) fails(before func(ctx context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = before
}

// round takes in what is behind the checkpoint, two at a time.
func (f *feed) round(ctx context.Context, r channels.Round) (bool, error) {
	f.mu.Lock()
	f.rounds++
	before, items := f.before, slices.Clone(f.items)
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return false, err
		}
	}
	c := r.Checkpoint
	c.Generation = 1
	for some := range slices.Chunk(items[c.Position:], 2) {
		if err := r.Accept(ctx, some); err != nil {
			return false, err
		}
		c.Position += uint64(len(some))
		if err := r.Save(ctx, c); err != nil {
			return false, err
		}
	}
	return true, nil
}

// polledAs returns an installation of the polled channel whose account is name.
func polledAs(name string, f *feed) intake.Installation {
	return intake.Installation{
		ID: name, Tenant: "acme", Channel: "fed", Account: name, Policy: domain.DefaultPolicy(),
		Poll: channels.Poll{Every: 10 * time.Second, Round: f.round},
	}
}

// withFeeds returns a bench whose installations poll feeds, by their names.
func withFeeds(t *testing.T, s setup, store *polls, feeds map[string]*feed) *bench {
	t.Helper()
	s.polls = store
	for name, f := range feeds {
		s.installations = append(s.installations, polledAs(name, f))
	}
	return newBench(t, s)
}

func TestPolledEventsAreAdmittedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, store := new(feed), newPolls()
		b := withFeeds(t, setup{}, store, map[string]*feed{"desk": f}).start()
		defer b.stop()
		f.put("1", "2", "1", "3")
		f.poison("broken")
		f.put("4")
		time.Sleep(time.Second)
		got := b.app.events()
		slices.Sort(got) // they stand in no conversation
		if !slices.Equal(got, []string{"1", "2", "3", "4"}) {
			t.Errorf("dispatched are %q; want each event once", got)
		}
		if r := b.store.by("broken"); r.State != domain.Failed || string(r.Payload.Body) != "broken" || !strings.Contains(r.LastError, "on purpose") {
			t.Errorf("the receipt of what can't be understood is %+v; want failed, with its bytes and the reason", r)
		}
		if n := b.counter("deliveries_total", "fed", "admitted") + 10*b.counter("deliveries_total", "fed", "duplicate"); n != 15 {
			t.Errorf("verdicts are counted as %v; want 5 admitted, 1 duplicate", n)
		}
		f.put("5")
		time.Sleep(11 * time.Second)
		if got := b.app.events(); len(got) != 5 || f.asked() != 2 {
			t.Errorf("after %d rounds %d events are dispatched; want 5 after 2", f.asked(), len(got))
		}
		if row := store.of("desk"); row.state.Position != 7 || row.CaughtUpAt.IsZero() || row.Holder != "" {
			t.Errorf("the account is at %+v; want position 7, caught up, held by nobody", row)
		}
	})
}

// A full queue makes a round wait; webhooks still find places, and nothing is lost.
func TestBacklogWaitsForPlacesAndLeavesSomeToWebhooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, store := new(feed), newPolls()
		b := withFeeds(t, setup{config: intake.Config{Queue: 20, Workers: 1}}, store, map[string]*feed{"desk": f}).start()
		defer b.stop()
		free := make(chan struct{})
		b.app.reacts(func(context.Context, ports.Dispatch) domain.Result {
			<-free
			return domain.Result{Outcome: domain.Taken}
		})
		var want []string
		for i := range 100 {
			want = append(want, "mail-"+strconv.Itoa(i))
		}
		f.put(want...)
		time.Sleep(30 * time.Second)
		if n := store.of("desk").state.Position; n == 0 || n > 14 {
			t.Errorf("with a queue of 20 and an application that hangs %d events are taken in; want about half a queue", n)
		}
		b.wants(200, "admitted", "id=webhook")
		close(free)
		time.Sleep(time.Minute)
		got := b.app.events()
		slices.Sort(got)
		if len(slices.Compact(got)) != 101 || len(b.app.events()) != 101 {
			t.Errorf("%d dispatches; want 101 events, each once", len(b.app.events()))
		}
		if n := b.counter("refusals_total", "fed"); n != 0 {
			t.Errorf("%v polled events are counted as refused; want none", n)
		}
	})
}

func TestStoreThatIsAwayHoldsTheCheckpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, store := new(feed), newPolls()
		b := withFeeds(t, setup{}, store, map[string]*feed{"desk": f}).start()
		defer b.stop()
		b.store.fails(func(call string) error {
			if call == "Claim" {
				return domain.ErrUnavailable
			}
			return nil
		})
		f.put("1", "2", "3")
		time.Sleep(time.Minute)
		if n := store.of("desk").state.Position; n != 0 {
			t.Errorf("without a claim the checkpoint is at %d; want 0", n)
		}
		b.store.fails(nil)
		time.Sleep(time.Minute)
		if got := b.app.events(); len(got) != 3 || store.of("desk").state.Position != 3 {
			t.Errorf("dispatched are %q, the checkpoint is at %d; want 3 events", got, store.of("desk").state.Position)
		}
	})
}

// BR-93: one account that fails and one that hangs hold up no other.
func TestFailingAccountsHoldUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		revoked, hangs, fine, store := new(feed), new(feed), new(feed), newPolls()
		revoked.fails(func(context.Context) error { return fmt.Errorf("ask for a token: %w", channels.ErrRevoked) })
		hangs.fails(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		b := withFeeds(t, setup{config: intake.Config{Rounds: 2}}, store, map[string]*feed{"x": revoked, "y": hangs, "z": fine}).start()
		defer b.stop()
		fine.put("1")
		time.Sleep(20 * time.Second)
		if got := b.app.events(); !slices.Equal(got, []string{"1"}) || fine.asked() < 2 {
			t.Errorf("dispatched are %q after %d rounds; want 1, polled on time", got, fine.asked())
		}
		time.Sleep(24 * time.Hour)
		if n := revoked.asked(); n < 10 || n > 50 {
			t.Errorf("refused credentials are tried %d times a day; want about once in an hour or less", n)
		}
		row := store.of("x")
		if row.Condition != domain.PollRevoked || !strings.Contains(row.LastError, "refuses the credentials") {
			t.Errorf("the account with refused credentials is %+v; want revoked, with the reason", row)
		}
		if n := strings.Count(b.logged(), "its credentials are refused"); n != 1 {
			t.Errorf("refused credentials are told %d times; want once", n)
		}
	})
}

func TestBackoffGrowsWithJitterAndEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, store := new(feed), newPolls()
		f.fails(func(context.Context) error { return errors.New("the vendor is away") })
		b := withFeeds(t, setup{}, store, map[string]*feed{"desk": f}).start()
		defer b.stop()
		time.Sleep(time.Hour)
		var waits []time.Duration
		store.change(func() { waits = slices.Clone(store.waits) })
		for i, wait := range waits {
			most := min(time.Second<<min(i, 20), time.Minute)
			if wait < most/2 || wait > most {
				t.Errorf("wait %d is %s; want between half of %s and it", i, wait, most)
			}
		}
		if len(waits) < 60 || len(waits) > 130 {
			t.Errorf("%d rounds in an hour; want some 80", len(waits))
		}
		f.fails(nil)
		f.put("1")
		time.Sleep(5 * time.Minute)
		if got := b.app.events(); len(got) != 1 || store.of("desk").Failures != 0 {
			t.Errorf("after the vendor is back dispatched are %q; want one event, and no failures", got)
		}
		if text := b.logged(); strings.Count(text, "could not be polled") != 1 || strings.Count(text, "can be polled again") != 1 {
			t.Errorf("the log tells of an hour's failures other than once, and of their end: %s", text)
		}
	})
}

func TestBusyVendorIsLeftAloneForAsLongAsItSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, store := new(feed), newPolls()
		f.fails(func(context.Context) error {
			return fmt.Errorf("list: %w", &channels.BusyError{After: time.Minute, Err: errors.New("429")})
		})
		b := withFeeds(t, setup{}, store, map[string]*feed{"desk": f}).start()
		defer b.stop()
		time.Sleep(59 * time.Second)
		if n := f.asked(); n != 1 {
			t.Errorf("a vendor that wants a minute's peace is asked %d times; want once", n)
		}
		time.Sleep(30 * time.Second)
		if n := f.asked(); n != 2 {
			t.Errorf("after its minute it was asked %d times; want twice", n)
		}
	})
}

// BR-95: of two instances one polls; one that stood still can't move the checkpoint afterwards.
func TestLeaseIsKeptWhileARoundLastsAndLostToATakeover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, store := new(feed), newPolls()
		first := true
		stopped := make(chan error, 1)
		f.fails(func(ctx context.Context) error {
			if !first {
				return nil
			}
			first = false
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return ctx.Err()
		})
		b := withFeeds(t, setup{}, store, map[string]*feed{"desk": f}).start()
		defer b.stop()
		time.Sleep(time.Minute)
		if n := f.asked(); n != 1 || store.of("desk").fence != 1 {
			t.Fatalf("during a long round the account was asked %d times; want once", n)
		}
		store.change(func() {
			for _, r := range store.rows { // another instance takes it
				r.fence, r.Holder, r.DueAt = r.fence+1, "another", time.Now().Add(5*time.Second)
			}
		})
		time.Sleep(3 * time.Second)
		if err := <-stopped; !errors.Is(err, domain.ErrFenced) {
			t.Errorf("a round whose lease was lost ends with %v; want %v", err, domain.ErrFenced)
		}
		f.put("1")
		time.Sleep(5 * time.Second)
		if got := b.app.events(); !slices.Equal(got, []string{"1"}) || f.asked() != 2 {
			t.Errorf("after the other's lease is over dispatched are %q in %d rounds; want 1 in 2", got, f.asked())
		}
	})
}

func TestDrainEndsRoundsAndGivesAccountsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, store := new(feed), newPolls()
		f.fails(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		b := withFeeds(t, setup{}, store, map[string]*feed{"desk": f}).start()
		time.Sleep(time.Second)
		b.stop()
		if row := store.of("desk"); row.Holder != "" || row.DueAt.After(time.Now()) || row.Condition != domain.PollWorks {
			t.Errorf("after the drain the account is %+v; want held by nobody, due at once, not failing", row.PollStatus)
		}
	})
}

func TestPanicOfARoundEndsThisRoundAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, store := new(feed), newPolls()
		f.fails(func(context.Context) error { panic("a bug") })
		b := withFeeds(t, setup{}, store, map[string]*feed{"desk": f}).start()
		defer b.stop()
		time.Sleep(time.Second)
		if row := store.of("desk"); row.Condition != domain.PollFails || !strings.Contains(row.LastError, "a bug") {
			t.Errorf("after a panic the account is %+v; want failing, with the reason", row.PollStatus)
		}
		f.fails(nil)
		f.put("1")
		time.Sleep(10 * time.Second)
		if got := b.app.events(); len(got) != 1 {
			t.Errorf("dispatched are %q; want 1", got)
		}
	})
}

func TestManyAccountsArePolledOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const accounts = 300
		store, feeds := newPolls(), map[string]*feed{}
		var mu sync.Mutex
		running, most := 0, 0
		for i := range accounts {
			f := new(feed)
			f.fails(func(context.Context) error {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(200 * time.Millisecond) // as long as calls take
				mu.Lock()
				running--
				mu.Unlock()
				return nil
			})
			f.put(strconv.Itoa(i))
			feeds[fmt.Sprintf("box-%d", i)] = f
		}
		b := withFeeds(t, setup{config: intake.Config{Queue: 1000}}, store, feeds).start()
		defer b.stop()
		time.Sleep(30 * time.Second)
		if got := b.app.events(); len(got) != accounts {
			t.Errorf("%d of %d accounts have been read; want all", len(got), accounts)
		}
		mu.Lock()
		defer mu.Unlock()
		if most > 16 {
			t.Errorf("%d rounds ran at a time; want at most 16", most)
		}
		for name, f := range feeds {
			if f.asked() < 2 {
				t.Errorf("%s was polled %d times in 30 s; want twice at least", name, f.asked())
			}
		}
	})
}

// The list of what is polled is read again after a change alone: what could not be looked up at
// that moment must not be missing until then.
func TestKeptAccountIsPolledThoughItsLookUpFailedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := new(feed)
		f.put("1")
		k := newKept(ports.Installation{ID: "three", Tenant: "initech", Channel: "fed", Account: "a9"})
		k.fails(domain.ErrUnavailable)
		b := newBench(t, setup{polls: newPolls(), kept: k, opens: func(in ports.Installation) (intake.Installation, error) {
			opened := polledAs(in.Account, f)
			opened.ID, opened.Tenant = in.ID, in.Tenant
			return opened, nil
		}}).start()
		defer b.stop()
		time.Sleep(time.Second)
		k.fails(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.app.events(); !slices.Equal(got, []string{"1"}) {
			t.Errorf("dispatched %v; want what the account holds", got)
		}
	})
}

// From when an installation is paused or removed nobody asks its vendor with its credentials.
func TestAccountIsPolledNoMoreOncePausedOrRemoved(t *testing.T) {
	t.Parallel()
	for _, removed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := new(feed)
			in := ports.Installation{ID: "three", Tenant: "initech", Channel: "fed", Account: "a9"}
			k := newKept(in)
			b := newBench(t, setup{polls: newPolls(), kept: k, opens: func(in ports.Installation) (intake.Installation, error) {
				opened := polledAs(in.Account, f)
				opened.ID, opened.Tenant, opened.Paused = in.ID, in.Tenant, in.Paused
				return opened, nil
			}}).start()
			defer b.stop()
			time.Sleep(55 * time.Second) // between two rounds
			before := f.asked()
			in.Paused = true
			k.change(in, removed)
			time.Sleep(10 * time.Minute)
			if after := f.asked(); before < 2 || after != before {
				t.Errorf("polled %d times, and %d times since (removed: %t); want more than once, and never since", before, after-before, removed)
			}
			in.Paused = false
			k.change(in, false)
			time.Sleep(time.Minute)
			if again := f.asked(); again <= before {
				t.Error("what is there again is not polled")
			}
		})
	}
}

func TestWebhookPathOfAPolledChannelIsUnknown(t *testing.T) {
	t.Parallel()
	b := withFeeds(t, setup{}, newPolls(), map[string]*feed{"desk": new(feed)})
	if a := b.sendsTo("fed", "desk", "id=1"); a.Status != 404 {
		t.Errorf("a request to a polled installation is answered %d; want 404", a.Status)
	}
}
