package intake_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

func TestRouteTellsWhatMustBeKnownOfAPath(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{})
	for _, tt := range []struct {
		channel, installation, method string
		want                          error
	}{
		{"toy", "one", http.MethodPost, nil},
		{"toy", "", http.MethodPost, nil},
		{"toy", "one", http.MethodGet, ports.ErrMethod},
		{"toy", "once", http.MethodPost, domain.ErrNotFound}, // of another channel
		{"toy", "nobody", http.MethodPost, domain.ErrNotFound},
		{"shy", "", http.MethodPost, domain.ErrNotFound}, // without an app-wide address
		{"none", "one", http.MethodPost, domain.ErrNotFound},
	} {
		got, err := b.Route(t.Context(), tt.channel, tt.installation, tt.method)
		if !errors.Is(err, tt.want) || err == nil && got.MaxBody != 1<<10 {
			t.Errorf("%s %s/%s: %+v, %v; want %v", tt.method, tt.channel, tt.installation, got, err, tt.want)
		}
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		for _, tt := range []struct {
			name    string
			lines   []string
			status  int
			verdict string
		}{
			{"new", []string{"id=1"}, 200, "admitted"},
			{"a copy", []string{"id=1 try=1"}, 200, "duplicate"},
			{"a copy for a named account", []string{"id=1 to=a1"}, 200, "duplicate"},
			{"of another account", []string{"id=1 to=a2"}, 200, "ignored"},
			{"without a number", []string{"in=room"}, 200, "unnumbered"},
			{"nothing to dispatch", []string{"reply=hello"}, 200, "ignored"},
			{"empty", nil, 200, "ignored"},
			{"a batch", []string{"id=1", "id=2", "id=2", "id=3", "to=a2", ""}, 200, "admitted=2,duplicate=2,ignored=1"},
			{"a new event of a known message", []string{"id=4 msg=m", "id=5 msg=m"}, 200, "admitted=1,duplicate=1"},
			{"unreadable", []string{"words"}, 200, "admitted"},
			{"unreadable again", []string{"words"}, 200, "duplicate"},
			{"for nobody", []string{"id=6 to=unknown-recipient"}, 404, "refused"},
		} {
			if a := b.sends(tt.lines...); a.Status != tt.status || a.Verdict != tt.verdict {
				t.Errorf("%s: %d %q; want %d %q", tt.name, a.Status, a.Verdict, tt.status, tt.verdict)
			}
		}
		if a := b.sends("reply=hello"); a.ContentType != "text/x" || string(a.Body) != "hello" {
			t.Errorf("a batch's own reply is %q; want hello", a.Body)
		}
		if a := b.sends("id=1"); string(a.Body) != "ok" {
			t.Errorf("a copy is acknowledged with %q; want ok", a.Body)
		}
		d := delivery("toy", "one", "id=7")
		d.Header = http.Header{}
		if a := b.Deliver(t.Context(), d); a.Status != http.StatusUnauthorized || a.Verdict != "" {
			t.Errorf("an unproved delivery is answered with %d %q", a.Status, a.Verdict)
		}
		synctest.Wait()
		if got, want := b.app.events(), []string{"1", "2", "3", "4", "unnumbered"}; !sameSet(got, want) {
			t.Errorf("dispatched %v; want %v", got, want)
		}
		if r := b.store.by(domain.UnreadableID([]byte("words"))); r.State != domain.Failed || r.LastError == "" {
			t.Errorf("what can't be read is %s (%s); want failed with a reason", r.State, r.LastError)
		}
		if strings.Contains(b.logged(), "hello") {
			t.Error("the log tells what was said")
		}
	})
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// By the app-wide address the payload's account picks the installation; what can't be read
// has none, and nowhere to be kept.
func TestAppWideAddressFindsTheInstallation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		for line, want := range map[string]string{
			"id=1 to=a1": "admitted", "id=1 to=a2": "admitted", "id=1 to=a3": "ignored", "id=1 to=": "ignored", "words": "ignored",
		} {
			if a := b.sendsTo("toy", "", line); a.Status != http.StatusOK || a.Verdict != want {
				t.Errorf("%q: %d %q; want 200 %q", line, a.Status, a.Verdict, want)
			}
		}
		synctest.Wait()
		tenants := []string{b.app.got[0].Key.Tenant, b.app.got[1].Key.Tenant}
		if !sameSet(tenants, []string{"acme", "globex"}) {
			t.Errorf("dispatched for %v; want both tenants", tenants)
		}
	})
}

// A copy of what is not handled must meet the durable store, which knows whether somebody is at it.
func TestOnlyWhatIsHandledIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		kept := func(id string) time.Duration {
			synctest.Wait()
			return b.cache.kept(domain.Key{Tenant: "acme", Platform: "toy", Account: "a1", EventID: id}.Digest())
		}
		answered := make(chan struct{})
		b.app.reacts(func(_ context.Context, d ports.Dispatch) domain.Result {
			<-answered
			if d.Key.EventID == "2" {
				return domain.Result{Outcome: domain.Rejected}
			}
			return domain.Result{Outcome: domain.Taken}
		})
		b.wants(200, "admitted", "id=1")
		b.wants(200, "admitted", "id=2")
		if one, two := kept("1"), kept("2"); one != 0 || two != 0 {
			t.Errorf("while they are dispatched they are remembered for %s and %s; want neither", one, two)
		}
		close(answered)
		if one, two := kept("1"), kept("2"); one != domain.DefaultPolicy().FastTTL || two != 0 {
			t.Errorf("after they ended they are remembered for %s and %s; want the handled one alone, for fast_ttl", one, two)
		}
	})
}

// The fast store is believed only where it knows of equal content; it decides nothing else.
func TestFastStoreOnlySavesWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		b.wants(200, "admitted", "id=1 content=x")
		synctest.Wait()
		key := domain.Key{Tenant: "acme", Platform: "toy", Account: "a1", EventID: "1"}
		if got := b.cache.kept(key.Digest()); got != domain.DefaultPolicy().FastTTL {
			t.Errorf("remembered for %s; want fast_ttl", got)
		}
		claims := b.store.called("Claim")
		b.wants(200, "duplicate", "id=1 content=x")
		if b.store.called("Claim") != claims {
			t.Error("the durable store was asked of what the fast store knows")
		}
		b.wants(200, "duplicate", "id=1 content=other")
		if b.store.called("Claim") == claims || b.counter("conflicts_total") != 1 {
			t.Error("other content under a known key was not looked at")
		}

		b.cache.change(func() { b.cache.away = errors.New("away") })
		b.wants(200, "duplicate", "id=1 content=x")
		b.wants(200, "admitted", "id=2")
		if got := b.counter("fast_store_errors_total"); got < 2 {
			t.Errorf("%v fast store errors are counted; want each", got)
		}
		synctest.Wait()
		b.cache.change(func() {
			b.cache.away = nil
			clear(b.cache.m)
		})
		time.Sleep(time.Hour)
		b.wants(200, "duplicate", "id=1 content=x")
		synctest.Wait()
		if got, want := b.cache.kept(key.Digest()), domain.DefaultPolicy().FastTTL-time.Hour; got > want {
			t.Errorf("a late copy is remembered for %s; want no more than what is left, %s", got, want)
		}
		if got := b.counter("store_disagreements_total"); got != 1 {
			t.Errorf("%v disagreements counted; want 1", got)
		}
	})
}

func TestConflictIsAdmittedApartWherePolicySays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{policy: func(p *domain.ClaimPolicy) { p.OnConflict = domain.ConflictAdmit }}).start()
		defer b.stop()
		b.wants(200, "admitted", "id=1 content=x msg=m")
		b.wants(200, "admitted", "id=1 content=y msg=m")
		b.wants(200, "duplicate", "id=1 content=y msg=m")
		b.wants(200, "duplicate", "id=1 content=x msg=m")
		b.wants(200, "admitted", "id=1 content=z msg=m")
		synctest.Wait()
		mark := "1#" + domain.DigestOf("y").String()[:16]
		if got := b.app.events(); len(got) != 3 || !slices.Contains(got, mark) {
			t.Errorf("dispatched %v; want three, one as %s", got, mark)
		}
	})
}

// Whoever knows a mail can send others under the ids that it would be admitted apart by.
func TestConflictWithTheIDOfAConflictIsAdmittedApartToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{policy: func(p *domain.ClaimPolicy) { p.OnConflict = domain.ConflictAdmit }}).start()
		defer b.stop()
		mark := "#" + domain.DigestOf("y").String()[:16]
		b.wants(200, "admitted", "id=1 content=x")
		b.wants(200, "admitted", "id=1"+mark+" content=c")
		b.wants(200, "admitted", "id=1 content=y")
		b.wants(200, "duplicate", "id=1 content=y")
		synctest.Wait()
		if got := b.app.events(); !sameSet(got, []string{"1", "1" + mark, "1" + mark + mark}) {
			t.Errorf("dispatched %v; want the third apart from both", got)
		}
		for i := range 8 {
			b.wants(200, "admitted", "id=2"+strings.Repeat(mark, i)+" content=c"+strconv.Itoa(i))
		}
		b.wants(200, "duplicate", "id=2 content=y") // there is an end to it
		synctest.Wait()
	})
}

func TestStoreThatIsAwayRefusesWithinTheVendorsPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		b.store.fails(func(call string) error {
			if call == "Claim" {
				return domain.ErrUnavailable
			}
			return nil
		})
		a := b.sends("id=1", "in=room")
		if a.Status != http.StatusServiceUnavailable || a.Verdict != "unnumbered=1,refused=1" || a.RetryAfter != 7*time.Second || a.KeepBody {
			t.Errorf("answer %+v; want 503, the rest done all the same, and when to come again", a)
		}
		b.store.fails(func(call string) error {
			if call == "Claim" {
				return domain.ErrUnknown
			}
			return nil
		})
		if a := b.sends("id=1"); a.Status != http.StatusServiceUnavailable || !a.KeepBody {
			t.Errorf("answer %+v; want 503, and the body kept for the claim that may be on its way", a)
		}
		b.store.fails(nil)
		b.wants(200, "admitted", "id=1")
		synctest.Wait()
		if got := b.app.events(); !sameSet(got, []string{"1", "unnumbered"}) {
			t.Errorf("dispatched %v", got)
		}
	})
}

// What the client does while its request runs decides nothing.
func TestDeliveryIsNoConcernOfTheClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if a := b.Deliver(gone, delivery("toy", "one", "id=1")); a.Verdict != "admitted" {
			t.Errorf("verdict %q; want admitted", a.Verdict)
		}
		synctest.Wait()
		if r := b.store.by("1"); r.State != domain.Handled {
			t.Errorf("the receipt is %s; want handled", r.State)
		}
	})
}

func TestFullQueueRefusesBeforeTheClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		working := make(chan struct{})
		b.app.reacts(func(context.Context, ports.Dispatch) domain.Result {
			<-working
			return domain.Result{Outcome: domain.Taken}
		})
		// eight workers, two tenants: six for one, and three quarters of a hundred places
		for i := range 81 {
			b.wants(200, "admitted", fmt.Sprintf("id=%d", i))
			synctest.Wait()
		}
		claims := b.store.called("Claim")
		b.wants(503, "refused", "id=new")
		b.wants(503, "refused", "in=room")
		b.wants(503, "refused=2", "id=new1", "id=new2")
		if b.store.called("Claim") != claims {
			t.Error("a claim was made for what finds no place")
		}
		if got := b.counter("queue_depth"); got != 75 {
			t.Errorf("queue depth %v; want 75", got)
		}
		close(working)
		synctest.Wait()
		b.wants(200, "admitted", "id=new")
		synctest.Wait()
		if got := len(b.app.events()); got != 82 || b.counter("queue_depth") != 0 {
			t.Errorf("%d dispatched, queue depth %v; want 82 and 0", got, b.counter("queue_depth"))
		}
	})
}

func TestSuppressedDuplicatesAreCountedInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{}).start()
		defer b.stop()
		b.wants(200, "admitted", "id=1")
		synctest.Wait()
		for try := range 5 {
			b.wants(200, "duplicate", fmt.Sprintf("id=1 try=%d", try))
		}
		b.store.fails(func(call string) error {
			if call == "CountDeliveries" {
				return domain.ErrUnavailable
			}
			return nil
		})
		time.Sleep(3 * time.Second)
		if r := b.store.by("1"); r.Deliveries != 1 {
			t.Errorf("%d deliveries; want 1 while the store is away", r.Deliveries)
		}
		b.store.fails(nil)
		time.Sleep(3 * time.Second)
		if r := b.store.by("1"); r.Deliveries != 6 || r.VendorAttempt != 4 {
			t.Errorf("%d deliveries, vendor attempt %d; want 6 and 4", r.Deliveries, r.VendorAttempt)
		}
		before := b.store.called("CountDeliveries")
		time.Sleep(time.Minute)
		if b.store.called("CountDeliveries") != before {
			t.Error("nothing new was written again")
		}
	})
}
