package intake_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A kept is a database of installations and of quarantined requests, in memory. away, if set,
// is what look-ups return; held, if set, makes them wait after they have read.
type kept struct {
	mu       sync.Mutex
	m        map[string]ports.Installation
	asked    []ports.InstallationRef
	away     error
	held     chan struct{}
	confined []ports.Confined
	told     chan string
}

func newKept(ins ...ports.Installation) *kept {
	k := &kept{m: map[string]ports.Installation{}, told: make(chan string, 100)}
	for _, in := range ins {
		k.m[in.ID] = in
	}
	return k
}

// change makes in what is kept, or forgets it, and tells everybody.
func (k *kept) change(in ports.Installation, remove bool) {
	k.mu.Lock()
	k.m[in.ID] = in
	if remove {
		delete(k.m, in.ID)
	}
	k.mu.Unlock()
	k.told <- in.ID
	synctest.Wait()
}

func (k *kept) lookUps() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.asked)
}

func (k *kept) fails(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = err
}

func (k *kept) FindInstallation(_ context.Context, ref ports.InstallationRef) (ports.Installation, error) {
	k.mu.Lock()
	k.asked = append(k.asked, ref)
	in, ok := k.m[ref.ID]
	for _, other := range k.m {
		if ref.ID == "" && other.Channel == ref.Channel && other.Account == ref.Account {
			in, ok = other, true
		}
	}
	away, held := k.away, k.held
	k.mu.Unlock()
	if held != nil {
		<-held
	}
	switch {
	case away != nil:
		return in, away
	case !ok:
		return in, domain.ErrNotInstalled
	}
	return in, nil
}

func (k *kept) WatchInstallations(ctx context.Context, changed func(string)) {
	for {
		select {
		case id := <-k.told:
			changed(id)
		case <-ctx.Done():
			return
		}
	}
}

func (k *kept) Installations(_ context.Context, f ports.InstallationFilter) (page ports.InstallationPage, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, in := range k.m {
		if in.Channel == f.Channel {
			page.Installations = append(page.Installations, in)
		}
	}
	return page, nil
}

func (*kept) AddInstallation(_ context.Context, in ports.Installation) (ports.Installation, error) {
	return in, nil
}

func (*kept) ChangeInstallation(context.Context, string, func(*ports.Installation) error) (ports.Installation, error) {
	return ports.Installation{}, nil
}
func (*kept) RemoveInstallation(context.Context, string) error           { return nil }
func (*kept) ResealInstallations(context.Context, int) (int, error)      { return 0, nil }
func (*kept) CountConfined(context.Context, string, string) (int, error) { return 0, nil }

func (k *kept) Confine(_ context.Context, c ports.Confined, limit int) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.confined) >= limit {
		return false, nil
	}
	c.Delivery.Body = slices.Clone(c.Delivery.Body)
	k.confined = append(k.confined, c)
	return true, nil
}

func (k *kept) Confined(_ context.Context, tenant, installation, after string, limit int) (page []ports.Confined, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.confined {
		if c.Tenant == tenant && c.Delivery.Installation == installation && c.ID > after && len(page) < limit {
			page = append(page, c)
		}
	}
	return page, nil
}

func (k *kept) Release(_ context.Context, _, id string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.confined = slices.DeleteFunc(k.confined, func(c ports.Confined) bool { return c.ID == id })
	return nil
}

func (k *kept) PruneConfined(context.Context) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := len(k.confined)
	k.confined = slices.DeleteFunc(k.confined, func(c ports.Confined) bool { return !c.Until.After(time.Now()) })
	return before - len(k.confined), nil
}

func (k *kept) inQuarantine() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.confined)
}

// A keyed endpoint is that of a toy whose proof is its secret, "yes" if it has none.
type keyed struct {
	toyEndpoint
	secrets []string
}

func (e keyed) Verify(r *channels.Request) error {
	sent, err := time.Parse(time.RFC3339, r.Header.Get("Sent")) // signed by vendors that sign it
	old := err == nil && r.Now.Sub(sent) > 5*time.Minute
	if old || !slices.Contains(e.secrets, r.Header.Get("Proof")) {
		return domain.ErrUnauthenticated
	}
	return nil
}

// opens makes toys ready, with the policy that edit makes of the default.
func opens(edit func(*domain.ClaimPolicy)) intake.Opener {
	return func(in ports.Installation) (intake.Installation, error) {
		policy := domain.DefaultPolicy()
		if edit != nil {
			edit(&policy)
		}
		secrets := in.Secrets["key"]
		if secrets == nil {
			secrets = []string{"yes"}
		}
		return intake.Installation{
			ID: in.ID, Tenant: in.Tenant, Channel: in.Channel, Account: in.Account, Paused: in.Paused, Policy: policy,
			DispatchURL: in.DispatchURL, Endpoint: keyed{secrets: secrets},
		}, nil
	}
}

func three() ports.Installation {
	return ports.Installation{ID: "three", Tenant: "initech", Channel: "toy", Account: "a9", DispatchURL: "http://three/"}
}

// wantsAt fails the test unless a delivery to the address is answered so.
func (b *bench) wantsAt(installation string, status int, verdict, line string) {
	b.t.Helper()
	if a := b.sendsTo("toy", installation, line); a.Status != status || a.Verdict != verdict {
		b.t.Errorf("%q to %q is answered with %d %q; want %d %q", line, installation, a.Status, a.Verdict, status, verdict)
	}
}

func TestKeptInstallationIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(three())
		b := newBench(t, setup{kept: k}).start()
		defer b.stop()
		for i := range 20 {
			b.wantsAt("three", 200, "admitted", fmt.Sprintf("id=%d", i))
			b.wantsAt("", 200, "admitted", fmt.Sprintf("id=w%d to=a9", i))
			b.wants(200, "admitted", fmt.Sprintf("id=f%d", i)) // of the configuration
		}
		synctest.Wait()
		if n := k.lookUps(); n != 1 {
			t.Errorf("%d look-ups; want 1", n)
		}
		for range 20 {
			b.wantsAt("nobody", 404, "", "id=1")
			b.wantsAt("No.Id", 404, "", "id=1")
			b.wantsAt("", 200, "ignored", "id=1 to=nobody")
		}
		if n := k.lookUps(); n != 3 {
			t.Errorf("%d look-ups of strangers; want one for each", n-1)
		}
		if d := b.app.got[0]; d.Key.Tenant == "initech" && d.URL != "http://three/" {
			t.Errorf("dispatched to %q; want the installation's own address", d.URL)
		}
	})
}

func TestChangeOfAKeptInstallationTakesEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept()
		b := newBench(t, setup{kept: k}).start()
		defer b.stop()
		b.wantsAt("three", 404, "", "id=0")
		b.wantsAt("", 200, "ignored", "id=0 to=a9")
		in := three()
		k.change(in, false)
		b.wantsAt("three", 200, "admitted", "id=1")
		b.wantsAt("", 200, "admitted", "id=2 to=a9")
		in.Paused = true
		k.change(in, false)
		b.wantsAt("three", 503, "refused", "id=3")
		b.wantsAt("", 503, "refused", "id=3 to=a9")
		b.wantsAt("", 503, "admitted=1,refused=1", "id=4 to=a1\nid=3 to=a9")
		in.Paused = false
		k.change(in, false)
		b.wantsAt("three", 200, "admitted", "id=3")
		k.change(in, true)
		b.wantsAt("three", 404, "", "id=5")
		b.wantsAt("", 200, "ignored", "id=5 to=a9")
		in.ID, in.Tenant = "four", "hooli" // the account moves to another tenant
		k.change(in, false)
		b.wantsAt("", 200, "admitted", "id=1 to=a9")
		in.Account = "a10" // it was removed and added again for another account
		k.change(in, false)
		b.wantsAt("", 200, "ignored", "id=2 to=a9")
		synctest.Wait()
		var tenants []string
		for _, d := range b.app.got {
			if d.Key.Account == "a9" {
				tenants = append(tenants, d.Key.Tenant)
			}
		}
		if !sameSet(tenants, []string{"initech", "initech", "initech", "hooli"}) {
			t.Errorf("dispatched for %v", tenants)
		}
		if got := b.counter("refusals_total", "paused"); got != 3 {
			t.Errorf("%v refusals are counted as paused; want 3", got)
		}
	})
}

// What was read before a change must not be kept after it: it would hold for ever.
func TestLookUpThatAChangeOvertakesIsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(three())
		b := newBench(t, setup{kept: k}).start()
		defer b.stop()
		k.held = make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { b.wantsAt("three", 200, "admitted", "id=1") })
		synctest.Wait()
		in := three()
		in.Paused = true
		k.change(in, false)
		close(k.held)
		wg.Wait()
		b.wantsAt("three", 503, "refused", "id=2")
	})
}

func TestFailingLookUpIsNotUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(three())
		b := newBench(t, setup{kept: k}).start()
		defer b.stop()
		k.fails(errors.New("away"))
		route, err := b.Route(t.Context(), "toy", "three", http.MethodPost)
		if !errors.Is(err, domain.ErrUnavailable) || route.RetryAfter != 7*time.Second {
			t.Errorf("Route = %+v, %v; want that it can't be told, and when to come again", route, err)
		}
		b.wantsAt("three", 503, "", "id=1")
		b.wantsAt("", 503, "refused", "id=1 to=a9")
		b.wants(200, "admitted", "id=f") // of the configuration
		k.fails(nil)
		b.wantsAt("three", 200, "admitted", "id=1")
		k.fails(errors.New("away"))
		b.wantsAt("three", 200, "admitted", "id=2") // it is at hand
	})
}

func TestStalledLookUpIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept()
		k.held = make(chan struct{})
		b := newBench(t, setup{kept: k}).start()
		defer b.stop()
		defer close(k.held)
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range 4 { // as many as are looked up at a time
			wg.Go(func() { _ = b.sendsTo("toy", fmt.Sprintf("slow%d", i), "id=1") })
		}
		synctest.Wait()
		b.wantsAt("another", 503, "", "id=1")
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("given up after %s; want 2s", took)
		}
		go func() { k.held <- struct{}{}; k.held <- struct{}{}; k.held <- struct{}{}; k.held <- struct{}{} }()
		wg.Wait()
	})
}

// By another policy, to another address: what can't be told about an installation must not be
// made up behind the acknowledgement either.
func TestReceiptsWaitWhileTheirInstallationCanNotBeLookedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.leaves("1", "", domain.AtLeastOnce, domain.Claimed)
		s.leaves("2", "", domain.AtLeastOnce, domain.Dispatching)
		s.look(func() {
			for _, r := range s.receipts {
				r.Installation = "three"
			}
		})
		k := newKept(three())
		k.away = errors.New("away")
		b := newBench(t, setup{store: s, kept: k}).start()
		defer b.stop()
		time.Sleep(time.Minute)
		if got := b.app.events(); len(got) != 0 {
			t.Errorf("dispatched %v; want nothing", got)
		}
		k.fails(nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for i, url := range b.app.got {
			if url.URL != "http://three/" {
				t.Errorf("number %d went to %q", i, url.URL)
			}
		}
		if got := b.app.events(); !sameSet(got, []string{"1", "2"}) {
			t.Errorf("dispatched %v; want both", got)
		}
	})
}

// However much one installation has left whose secrets can't be decrypted here, what others have
// left is decided on, taken up and tried again.
func TestInstallationThatCanNotBeLookedUpHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		for i := range 150 { // more than are looked at in one go
			s.leaves("stuck"+strconv.Itoa(i), "", domain.AtLeastOnce, domain.Claimed)
		}
		s.leaves("stuck", "", domain.AtLeastOnce, domain.Dispatching)
		s.look(func() {
			for _, r := range s.receipts {
				r.Installation = "three"
			}
		})
		s.leaves("claimed", "", domain.AtLeastOnce, domain.Claimed)
		s.leaves("due", "", domain.AtLeastOnce, domain.Retrying)
		s.leaves("begun", "", domain.AtLeastOnce, domain.Dispatching)
		k := newKept(three())
		k.fails(errors.New("sealed with another key"))
		b := newBench(t, setup{store: s, kept: k}).start()
		defer b.stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.app.events(); !sameSet(got, []string{"claimed", "due", "begun"}) {
			t.Errorf("dispatched %v; want what others left, and that alone", got)
		}
		if n := k.lookUps(); n > 200 {
			t.Errorf("%d look-ups in a minute; want one for all it has left, each time", n)
		}
		k.fails(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := len(b.app.events()); got != 154 {
			t.Errorf("dispatched %d; want all 154", got)
		}
	})
}

func TestJournalIsNotHeldUpByAnInstallationThatCanNotBeLookedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := three()
		in.Channel = "shy"
		j := &journal{size: 10}
		k := newKept(in)
		b := newBench(t, setup{journal: j, kept: k}).start()
		defer b.stop()
		b.store.fails(func(string) error { return domain.ErrUnavailable })
		for i, id := range []string{"three", "once"} {
			if a := b.sendsTo("shy", id, "id="+strconv.Itoa(i)); a.Verdict != "admitted" {
				t.Fatalf("%s: %q", id, a.Verdict)
			}
		}
		k.fails(errors.New("sealed with another key"))
		k.change(in, false) // it is at hand no more
		b.store.fails(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := b.app.events(); !slices.Equal(got, []string{"1"}) || j.Len() != 1 {
			t.Errorf("dispatched %v, %d are journalled; want what can be looked up dispatched, and the other kept", got, j.Len())
		}
		k.fails(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := b.app.events(); !slices.Equal(got, []string{"1", "0"}) || j.Len() != 0 {
			t.Errorf("dispatched %v, %d are journalled; want both dispatched", got, j.Len())
		}
	})
}

// A delivery with more events than deliveries are let in at once is let in whole: it is one.
func TestRateLimitIsOfDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(three())
		b := newBench(t, setup{kept: k, opens: opens(func(p *domain.ClaimPolicy) { p.RateLimit = 2 })}).start()
		defer b.stop()
		const batch = "id=%[1]d1 to=a9\nid=%[1]d2 to=nobody\nid=%[1]d3 to=a9\nid=%[1]d4 to=a1\nid=%[1]d5 to=a9"
		b.wantsAt("", 200, "admitted=4,ignored=1", fmt.Sprintf(batch, 1))
		b.wantsAt("", 200, "admitted=4,ignored=1", fmt.Sprintf(batch, 2))
		b.wantsAt("", 503, "admitted=1,ignored=1,refused=3", fmt.Sprintf(batch, 3))
		time.Sleep(time.Second)
		b.wantsAt("", 200, "admitted=3,duplicate=1,ignored=1", fmt.Sprintf(batch, 3))
	})
}

func TestRateLimitIsOfOneInstallation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(three())
		b := newBench(t, setup{kept: k, opens: opens(func(p *domain.ClaimPolicy) { p.RateLimit = 5 })}).start()
		defer b.stop()
		send := func(from, to int, status int) {
			t.Helper()
			for i := from; i < to; i++ {
				if a := b.sendsTo("toy", "three", "id="+strconv.Itoa(i)); a.Status != status {
					t.Errorf("number %d is answered %d; want %d", i, a.Status, status)
				}
			}
		}
		send(0, 5, 200)
		send(5, 8, 503)
		for i := range 20 {
			b.wants(200, "admitted", fmt.Sprintf("id=%d", i)) // of another
		}
		b.wantsAt("", 503, "refused", "id=9 to=a9")
		d := delivery("toy", "three", "id=1")
		d.Header = http.Header{}
		for range 100 {
			if a := b.Deliver(t.Context(), d); a.Status != 401 {
				t.Fatalf("unproved: %d", a.Status)
			}
		}
		time.Sleep(time.Second) // what is not authentic uses nothing up
		send(5, 10, 200)
		send(10, 11, 503)
		if got := b.counter("refusals_total", "rate_limited"); got != 5 {
			t.Errorf("%v refusals are counted as rate_limited; want 5", got)
		}
	})
}

func TestRateLimitIsToldAsTheVendorUnderstandsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(three())
		b := newBench(t, setup{kept: k, busy: 429, opens: opens(func(p *domain.ClaimPolicy) { p.RateLimit = 1 })}).start()
		defer b.stop()
		b.wantsAt("three", 200, "admitted", "id=1")
		b.wantsAt("three", 429, "refused", "id=2")
		in := three()
		in.Paused = true
		k.change(in, false)
		b.wantsAt("three", 503, "refused", "id=2")
	})
}

// Tenants whose application hangs, and who send more and more, leave room for a quiet one.
func TestFloodOfSomeTenantsLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var many []intake.Installation
		for i := range 4 {
			many = append(many, intake.Installation{
				ID: fmt.Sprintf("in-%d", i), Tenant: fmt.Sprintf("tenant%d", i), Channel: "toy", Account: fmt.Sprintf("t%d", i),
				Policy: domain.DefaultPolicy(), Endpoint: toyEndpoint{},
			})
		}
		b := newBench(t, setup{installations: many, config: intake.Config{Workers: 8, Queue: 100}}).start()
		defer b.stop()
		working := make(chan struct{})
		b.app.reacts(func(context.Context, ports.Dispatch) domain.Result {
			<-working
			return domain.Result{Outcome: domain.Taken}
		})
		defer close(working)
		for i := range 3 {
			for n := 0; ; n++ {
				a := b.sendsTo("toy", fmt.Sprintf("in-%d", i), fmt.Sprintf("id=%d", n))
				synctest.Wait()
				if a.Status == http.StatusServiceUnavailable {
					break
				}
				if n > 100 {
					t.Fatal("a flood is not stopped")
				}
			}
		}
		b.wantsAt("in-3", 200, "admitted", "id=quiet")
		if depth := b.counter("queue_depth"); depth > 100 || depth < 90 {
			t.Errorf("queue depth %v; want most of it used, and no more than there is", depth)
		}
	})
}

func TestOneTenantAloneHasTheWholeQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(three())
		b := newBench(t, setup{kept: k, alone: true, config: intake.Config{Workers: 1, Queue: 10}}).start()
		defer b.stop()
		working := make(chan struct{})
		b.app.reacts(func(context.Context, ports.Dispatch) domain.Result {
			<-working
			return domain.Result{Outcome: domain.Taken}
		})
		for i := range 11 { // one with the worker
			b.wants(200, "admitted", fmt.Sprintf("id=%d", i))
			synctest.Wait()
		}
		b.wants(503, "refused", "id=11")
		close(working)
		synctest.Wait()
		b.wantsAt("three", 200, "admitted", "id=1") // from here on there are two
		synctest.Wait()
		working = make(chan struct{})
		n := 0
		for ; n < 20; n++ {
			if a := b.sends(fmt.Sprintf("id=again%d", n)); a.Status != 200 {
				break
			}
			synctest.Wait()
		}
		if n != 9 {
			t.Errorf("one of two tenants gets %d; want a worker and eight of ten places", n)
		}
		close(working)
	})
}

func TestQuarantinedRequestIsAdmittedByTheRightSecret(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wrong := three()
		wrong.Secrets = map[string][]string{"key": {"mistaken"}}
		k := newKept(wrong)
		b := newBench(t, setup{kept: k, proof: "Proof", opens: opens(func(p *domain.ClaimPolicy) { p.Quarantine = time.Hour })}).start()
		defer b.stop()
		for _, line := range []string{"id=1", "id=2", "id=1", "words"} {
			d := delivery("toy", "three", line)
			d.Header.Set("Sent", time.Now().Format(time.RFC3339))
			if a := b.Deliver(t.Context(), d); a.Status != 401 || a.Verdict != "" {
				t.Errorf("%q is answered with %d %q; want 401", line, a.Status, a.Verdict)
			}
		}
		forged := delivery("toy", "three", "id=forged")
		forged.Header.Set("Proof", "forged")
		bare := delivery("toy", "three", "id=bare")
		bare.Header.Del("Proof")
		large := delivery("toy", "three", "id=1 content="+string(make([]byte, 100_000)))
		for _, d := range []ports.Delivery{forged, bare, large} {
			if a := b.Deliver(t.Context(), d); a.Status != 401 {
				t.Errorf("answered %d; want 401", a.Status)
			}
		}
		if n := k.inQuarantine(); n != 5 || b.counter("quarantined_total") != 5 {
			t.Fatalf("%d are in quarantine, %v counted; want 5: neither what bears no proof nor what is too large", n, b.counter("quarantined_total"))
		}
		if b.store.called("Claim") != 0 {
			t.Error("a key was touched by what is not authentic")
		}
		if r, err := b.Recheck(t.Context(), "three"); err != nil || r != (ports.Recheck{Requests: 5, Refused: 5}) {
			t.Errorf("by the mistaken secret: %+v, %v; want all refused", r, err)
		}
		k.change(three(), false)
		b.wantsAt("three", 200, "admitted", "id=2") // the vendor's retry came first
		time.Sleep(30 * time.Minute)
		if r, err := b.Recheck(t.Context(), "three"); err != nil || r != (ports.Recheck{Requests: 5, Accepted: 4, Refused: 1}) {
			t.Errorf("by the right secret: %+v, %v; want all but the forged", r, err)
		}
		synctest.Wait()
		if got := b.app.events(); !sameSet(got, []string{"1", "2"}) {
			t.Errorf("dispatched %v; want each once", got)
		}
		if r := b.store.by(domain.UnreadableID([]byte("words"))); r.State != domain.Failed {
			t.Errorf("what can't be read is %q; want it parked", r.State)
		}
		time.Sleep(time.Hour)
		if n := k.inQuarantine(); n != 0 {
			t.Errorf("%d are still in quarantine; want none after its time", n)
		}
		if _, err := b.Recheck(t.Context(), "none"); !errors.Is(err, domain.ErrNotInstalled) {
			t.Errorf("Recheck of none = %v; want ErrNotInstalled", err)
		}
		paused := three()
		paused.Paused = true
		k.change(paused, false)
		if _, err := b.Recheck(t.Context(), "three"); !errors.Is(err, domain.ErrState) {
			t.Errorf("Recheck while paused = %v; want ErrState", err)
		}
	})
}

func TestNothingIsQuarantinedUnlessThePolicySays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := three()
		in.Secrets = map[string][]string{"key": {"other"}}
		k := newKept(in)
		b := newBench(t, setup{kept: k, proof: "Proof"}).start()
		defer b.stop()
		b.wantsAt("three", 401, "", "id=1")
		if n := k.inQuarantine(); n != 0 {
			t.Errorf("%d are in quarantine; want none", n)
		}
	})
}
