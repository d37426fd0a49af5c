package intake_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

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
