package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/cfworker"
	"github.com/admitone/admitone/channels/gmail"
	"github.com/admitone/admitone/channels/gmail/gmailfake"
)

// A gmailDesk is a fake Gmail whose mailbox is that of the relay's desk, and the installations of both.
type gmailDesk struct {
	*gmailfake.Mailbox
	tenants settings
}

func newGmailDesk(t *testing.T) gmailDesk {
	t.Helper()
	box := gmailfake.New()
	google := httptest.NewServer(box)
	t.Cleanup(google.Close)
	_, polled, err := gmail.New().SimulateVendor(google.URL)
	if err != nil {
		t.Fatalf("fake Gmail: %v", err)
	}
	desk := install("acme-desk")
	return gmailDesk{box, settings{"tenants": []settings{{"id": desk.tenant, "installations": []settings{
		{
			"id": desk.id, "channel": desk.channel, "account": desk.account,
			"secrets": settings{desk.secret: desk.value}, "settings": settings{"addresses": desk.addresses},
		},
		{
			"id": "acme-gmail", "channel": "gmail", "account": desk.account,
			"secrets":  settings{"credentials": polled.Secrets["credentials"][0]},
			"settings": settings{"endpoint": google.URL, "poll_interval": "200ms"},
		},
	}}}}}
}

// begun waits until the server knows from where on mail is new.
func (g gmailDesk) begun(t *testing.T) {
	t.Helper()
	await(t, "the mailbox is polled for the first time", func() bool { return g.Told() > 0 })
}

// polledOn waits until the mailbox has been asked twice more, so that what was there is taken in.
func (g gmailDesk) polledOn(t *testing.T) {
	t.Helper()
	before := g.Told()
	await(t, "the mailbox is polled on", func() bool { return g.Told() > before+1 })
}

// A poll is where a mailbox stands, as the admin API shows it.
type pollStatus struct {
	Condition string `json:"condition"`
	Holder    string `json:"holder"`
	Position  string `json:"position"`
	LastError string `json:"last_error"`
}

func (in *instance) poll() pollStatus {
	in.t.Helper()
	var all struct{ Polls []pollStatus }
	if status := in.ask(http.MethodGet, "/api/v1/polls", nil, &all); status != http.StatusOK || len(all.Polls) != 1 {
		in.t.Fatalf("polls: status %d, %+v; want one", status, all)
	}
	return all.Polls[0]
}

func mailOf(name, text string) []byte {
	return fmt.Appendf(nil, "From: Ida <ida@example.org>\r\nTo: desk@example.com\r\nSubject: %s\r\n"+
		"Date: Mon, 30 Nov 2026 12:00:00 +0000\r\nMessage-ID: <%s@example.org>\r\n\r\n%s\r\n", name, name, text)
}

// BR-95: the instance that polls is killed, again and again, while mail comes. Another goes on
// within seconds; each mail has one receipt, is handled, and was dispatched under one id.
func TestKilledPollerLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	box := newGmailDesk(t)
	box.PageSize(20)
	d := onServers(t, merge(leases(settings{"policy": settings{"guarantee": "at-least-once"}}), box.tenants))
	d.serve(nil)
	d.serve(nil)
	box.begun(t)
	var texts []string
	put := func(n int) {
		for range n {
			text := d.text()
			texts = append(texts, text)
			box.Put(mailOf("mail-"+strconv.Itoa(len(texts)), text))
		}
	}
	last := uint64(0)
	for round := range 3 {
		put(100)
		await(t, "some of the mail is taken in", func() bool { return len(d.app.dispatches()) > round*200+20 })
		// whoever polls now, or did last: to kill either must do no harm
		living := d.living()
		victim := living[round%2]
		holder := living[0].poll().Holder
		for _, in := range living {
			if holder != "" && strings.Contains(in.log.String(), holder) {
				victim = in
			}
		}
		victim.kill()
		put(100)
		d.serve(nil)
		position, err := strconv.ParseUint(d.living()[0].poll().Position, 10, 64)
		if err != nil || position < last {
			t.Errorf("the checkpoint is at %d (%v) after %d; want it never to go back", position, err, last)
		}
		last = position
	}
	began := time.Now()
	await(t, "every mail has a receipt", func() bool { return len(d.living()[0].receipts("")) == len(texts) })
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the mail was taken in %s after the last kill; want seconds", took)
	}
	for _, r := range d.rest() {
		if r.State != "handled" || r.Channel != "gmail" {
			t.Errorf("receipt of %s is %s: %s; want handled", r.EventID, r.State, r.LastError)
		}
	}
	for _, text := range texts {
		ids := map[string]bool{}
		for _, got := range d.app.of(text) {
			ids[got.ID] = true
		}
		if len(ids) != 1 {
			t.Errorf("%q was dispatched under %d ids; want one", text, len(ids))
		}
	}
}

// Each sample comes by both paths, in either order: one receipt, handled once, with the same
// text whichever path was first.
func TestEachSampleIsOneMailOnBothPathsInEitherOrder(t *testing.T) {
	t.Parallel()
	for name, gmailFirst := range map[string]bool{"gmail first": true, "relay first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := newGmailDesk(t)
			d := embedded(t, box.tenants)
			in := d.serve(nil)
			box.begun(t)
			all := samples(t)
			want := map[string]bool{}
			for _, s := range all {
				want[s.eventID(t)] = true
			}
			polled := func() {
				for _, s := range all {
					box.Put(s.mail)
				}
				box.polledOn(t)
				await(t, "everything is fetched", func() bool { return len(box.Fetches()) == len(all) })
				box.polledOn(t)
			}
			relayed := func(verdicts ...string) {
				for _, s := range all {
					a := deliver(relayRequest(t, in, s.mail))
					if a.status != http.StatusOK || !slices.Contains(verdicts, a.verdict) {
						t.Errorf("%s is answered %d %s; want %v", s.File, a.status, a.verdict, verdicts)
					}
				}
			}
			if gmailFirst {
				polled()
				relayed("duplicate")
			} else {
				relayed("admitted", "duplicate") // a list's copy is one of another sample
				polled()
			}
			receipts := d.rest()
			if len(receipts) != len(want) {
				t.Errorf("%d receipts; want one for each of %d mails", len(receipts), len(want))
			}
			channel := map[bool]string{true: "gmail", false: "cfworker"}[gmailFirst]
			for _, r := range receipts {
				if !want[r.EventID] || r.State != "handled" || r.Channel != channel || r.Account != "desk@example.com" {
					t.Errorf("receipt of %s by %s is %s; want one of the samples, handled, by %s", r.EventID, r.Channel, r.State, channel)
				}
			}
			got := map[string]int{}
			for _, one := range d.app.dispatches() {
				got[one.EventID]++
			}
			for id := range want {
				if got[id] != 1 {
					t.Errorf("%s was dispatched %d times; want once", id, got[id])
				}
			}
		})
	}
}

// relayRequest returns the genuine request with which a relay delivers a mail to the desk.
func relayRequest(t *testing.T, in *instance, mail []byte) *http.Request {
	t.Helper()
	desk := install("acme-desk")
	r, err := cfworker.New().Simulate(desk.credentials(), channels.Simulation{
		URL: in.public + "/in/cfworker/" + desk.id, PublicURL: publicURL, Account: desk.account, Mail: mail, Now: time.Now(),
	})
	if err != nil {
		t.Fatalf("relay: %v", err)
	}
	return r
}

// A grant that is revoked shows; when it is renewed and the server is started again, what came
// meanwhile is found.
func TestRevokedMailboxShowsAndIsFoundAgain(t *testing.T) {
	t.Parallel()
	box := newGmailDesk(t)
	d := embedded(t, box.tenants)
	in := d.serve(nil)
	box.begun(t)
	box.polledOn(t)
	box.Revoke(true)
	await(t, "the admin API tells that credentials are refused", func() bool { return in.poll().Condition == "revoked" })
	text := d.text()
	box.Put(mailOf("meanwhile", text))
	if lag := in.metric(`admitone_poll_lag_seconds{installation="acme-gmail"}`); lag < 0 || lag > 3600 {
		t.Errorf("the lag of the mailbox is %v; want some seconds", lag)
	}
	in.terminate()
	in.exits()
	box.Revoke(false)
	d.serve(nil)
	await(t, "what came meanwhile is dispatched", func() bool { return len(d.app.of(text)) == 1 })
	d.once(text)
}

// Mail that comes while PostgreSQL is away is claimed when it is back.
func TestPollingWaitsForTheStore(t *testing.T) {
	t.Parallel()
	box := newGmailDesk(t)
	d := onServers(t, box.tenants)
	in := d.serve(nil)
	box.begun(t)
	box.polledOn(t)
	d.pg.Refuse()
	var texts []string
	for i := range 20 {
		text := d.text()
		texts = append(texts, text)
		box.Put(mailOf("away-"+strconv.Itoa(i), text))
	}
	await(t, "what is due was looked for in vain again and again", func() bool {
		return strings.Count(in.log.String(), "what is due could not be polled yet") >= 3
	})
	if n := len(d.app.dispatches()); n != 0 {
		t.Errorf("%d mails were dispatched without a store; want none", n)
	}
	d.pg.Heal()
	await(t, "the mail is dispatched", func() bool { return len(d.app.dispatches()) >= len(texts) })
	d.once(texts...)
}
