package e2e_test

import (
	"fmt"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/admitone/admitone/channels/gmail"
	"github.com/admitone/admitone/channels/gmail/gmailfake"
)

// beside returns a configuration in which the desk's mail comes by the Worker, and by polling
// the fake Gmail at an address too.
func beside(t *testing.T, address string) settings {
	t.Helper()
	_, polled, err := gmail.New().SimulateVendor(address)
	if err != nil {
		t.Fatalf("fake Gmail: %v", err)
	}
	desk := install("acme-desk")
	return settings{"tenants": []settings{{"id": desk.tenant, "installations": []settings{
		{
			"id": desk.id, "channel": desk.channel, "account": desk.account,
			"secrets": settings{desk.secret: desk.value}, "settings": settings{"addresses": desk.addresses},
		},
		{
			"id": "acme-gmail", "channel": "gmail", "account": desk.account,
			"secrets":  settings{"credentials": polled.Secrets["credentials"][0]},
			"settings": settings{"endpoint": address, "poll_interval": "200ms"},
		},
	}}}}
}

// BR-95: both paths are on, and each mail comes by both, several times and at the same moment.
func TestEachMailIsHandledOnceByWorkerAndGmailTogether(t *testing.T) {
	t.Parallel()
	box := gmailfake.New()
	google := httptest.NewServer(box)
	t.Cleanup(google.Close)
	d := onServers(t, beside(t, google.URL))
	a, b := d.two()
	workers := []*worker{d.worker(a.public, nil), d.worker(b.public, nil)}
	await(t, "Gmail has told from where on mail is new", func() bool { return box.Told() > 0 })

	want := map[string]bool{}
	senders := make(chan struct{}, 16) // as many mails are on their way at the same moment
	var storm sync.WaitGroup
	for i, s := range samples(t) {
		want[s.eventID(t)] = true
		for copies := range 2 {
			m := retried(s.mail, copies)
			senders <- struct{}{}
			storm.Go(func() {
				defer func() { <-senders }()
				o, err := workers[(i+copies)%2].attempt(submission{from: "ida@example.org", to: "desk@example.com", mail: m})
				if err != nil || o.Outcome != "accepted" {
					t.Errorf("%s: the mail is %s (%s), %v; want accepted", s.File, o.Outcome, o.Reason, err)
				}
			})
			storm.Go(func() { box.Put(m) })
		}
	}
	storm.Wait()
	await(t, "the server has taken Gmail's mail", func() bool {
		n := 0.0
		for _, in := range []*instance{a, b} {
			for _, verdict := range []string{"admitted", "duplicate"} {
				n += in.metric(fmt.Sprintf(`admitone_deliveries_total{channel="gmail",verdict=%q}`, verdict))
			}
		}
		return len(box.Fetches()) == 2*len(samples(t)) && n >= float64(2*len(samples(t)))
	})

	for _, r := range d.rest() {
		if !want[r.EventID] || r.State != "handled" || r.Attempt != 1 {
			t.Errorf("receipt of %s by %s is %s at attempt %d; want one handled at 1 for each mail", r.EventID, r.Channel, r.State, r.Attempt)
		}
	}
	got := map[string]int{}
	for _, dispatched := range d.app.dispatches() {
		got[dispatched.EventID]++
	}
	for id := range want {
		if got[id] != 1 {
			t.Errorf("%s was dispatched %d times; want once", id, got[id])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d mails were dispatched; want %d", len(got), len(want))
	}
	verify := exec.CommandContext(t.Context(), program, "verify", "--config", filepath.Join(d.dir, a.name+".yaml"))
	verify.Dir = d.dir
	if out, err := verify.CombinedOutput(); err != nil {
		t.Errorf("verify: %v: %s", err, out)
	}
}
