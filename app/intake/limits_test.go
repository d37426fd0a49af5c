package intake_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

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
