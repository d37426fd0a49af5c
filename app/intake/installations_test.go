package intake_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/admitone/admitone/domain"
)

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

// Who has missed changes is told that there were some: nothing at hand can be relied on then, neither
// what there was nor that there was nothing.
func TestMissedChangesTakeEffectAllTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(three())
		b := newBench(t, setup{kept: k}).start()
		defer b.stop()
		b.wantsAt("three", 200, "admitted", "id=1")
		b.wantsAt("", 200, "admitted", "id=2 to=a9")
		b.wantsAt("four", 404, "", "id=1")
		k.mu.Lock()
		paused, added := three(), three()
		paused.Paused = true
		added.ID, added.Account = "four", "a10"
		k.m["three"], k.m["four"] = paused, added
		k.mu.Unlock()
		k.told <- ""
		synctest.Wait()
		b.wantsAt("three", 503, "refused", "id=3")
		b.wantsAt("", 503, "refused", "id=3 to=a9")
		b.wantsAt("four", 200, "admitted", "id=3")
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
