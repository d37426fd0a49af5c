package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BR-15: events of one conversation are begun in the order of their claims, one at a time,
// over all instances, and no other conversation waits for them.
func TestConversationsAreInOrderOneAtATime(t *testing.T) {
	t.Parallel()
	scenario := func(t *testing.T, d *deployment, instances ...*instance) {
		t.Helper()
		const conversations, each = 3, 8
		d.app.reacts(func(dispatch) reaction { return reaction{after: 60 * time.Millisecond} })
		sent := map[string][]string{}
		for i := range each {
			for c := range conversations {
				who := fmt.Sprintf("15550%03d", c)
				m := d.write(install("acme-slack")).in(who)
				m.send(t, instances[(i+c)%len(instances)]).want(t, http.StatusOK, "admitted")
				sent["D"+who] = append(sent["D"+who], m.text)
			}
		}
		d.rest()
		got := map[string][]string{}
		last := map[string]dispatch{}
		overlap := false
		for _, one := range d.app.dispatches() {
			c := one.Data.Conversation.ExternalID
			if before, ok := last[c]; ok && one.began.Before(before.ended) {
				t.Errorf("conversation %s: %q was begun before %q had ended", c, one.Data.Text, before.Data.Text)
			}
			for other, before := range last {
				overlap = overlap || other != c && one.began.Before(before.ended)
			}
			got[c], last[c] = append(got[c], one.Data.Text), one
		}
		for c, want := range sent {
			if !slices.Equal(got[c], want) {
				t.Errorf("conversation %s came as %v; want %v", c, got[c], want)
			}
		}
		if !overlap {
			t.Error("conversations waited for each other")
		}
	}
	t.Run("over two instances", func(t *testing.T) {
		t.Parallel()
		d := onServers(t, nil)
		a, b := d.two()
		scenario(t, d, a, b)
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		d := embedded(t, nil)
		scenario(t, d, d.serve(nil))
	})
}

// BR-51: an event that is tried again holds up nothing, gets its time between attempts, and
// is given up at last.
func TestRetriesAreSpacedBoundedAndInNobodysWay(t *testing.T) {
	t.Parallel()
	const attempts = 4
	onBoth(t, settings{"policy": settings{"max_attempts": attempts}}, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		poison := d.write(install("acme-slack")).in("15550000")
		d.app.reacts(func(got dispatch) reaction {
			if got.Data.Text == poison.text {
				return reaction{status: http.StatusTooManyRequests}
			}
			return reaction{}
		})
		poison.send(t, in).want(t, http.StatusOK, "admitted")
		var texts []string
		for range 20 {
			m := d.write(install("acme-slack")).in("15550000")
			m.send(t, in).want(t, http.StatusOK, "admitted")
			texts = append(texts, m.text)
		}
		in.awaitStates(map[string]int{"failed": 1, "handled": len(texts)})
		tries := d.app.of(poison.text)
		if len(tries) != attempts {
			t.Fatalf("%d attempts; want %d", len(tries), attempts)
		}
		for i, wait := range []time.Duration{100, 200, 400} {
			if got := tries[i+1].began.Sub(tries[i].began); got < wait*time.Millisecond || got > wait*time.Millisecond+soon {
				t.Errorf("attempt %d came %s after the one before; want %s and little more", i+2, got, wait*time.Millisecond)
			}
		}
		for i, got := range tries {
			if got.ID != tries[0].ID || got.Attempt != i+1 {
				t.Errorf("attempt %d came as %s, attempt %d; want the same id", i+1, got.ID, got.Attempt)
			}
		}
		order := []string{}
		for _, got := range d.app.dispatches() {
			if got.Data.Text != poison.text {
				order = append(order, got.Data.Text)
			}
		}
		if !slices.Equal(order, texts) {
			t.Errorf("the others came as %v; want each once, in order", order)
		}
		r := in.receipts("state=failed")[0]
		if r.LastError == "" || r.Attempt != attempts || len(in.receipt(r.ID).History) != attempts {
			t.Errorf("the failed receipt is %+v; want the reason and a history of %d attempts", in.receipt(r.ID), attempts)
		}
		poison.again(1).send(t, in).want(t, http.StatusOK, "duplicate")
	})
}

// What follows from an answer of the application, under either guarantee.
func TestAnswersOfTheApplicationDecideWhatFollows(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at-most-once", "at-least-once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			d := embedded(t, settings{
				"policy":   settings{"guarantee": guarantee, "max_attempts": 2},
				"dispatch": settings{"http": settings{"timeout": "500ms"}},
			})
			in := d.serve(nil)
			cases := []struct {
				name                string
				does                reaction
				atMostOnce, atLeast string
				tries, triesAtLeast int
			}{
				{"taken", reaction{status: http.StatusNoContent}, "handled", "handled", 1, 1},
				{"asked to come again", reaction{status: http.StatusServiceUnavailable}, "failed", "failed", 2, 2},
				{"error", reaction{status: http.StatusInternalServerError}, "failed", "failed", 1, 2},
				{"hung up", reaction{hangUp: true}, "failed", "failed", 1, 2},
				{"no answer", reaction{after: time.Hour}, "failed", "failed", 1, 2},
				{"not wanted", reaction{status: http.StatusUnprocessableEntity}, "failed", "failed", 1, 1},
				{"redirected", reaction{status: http.StatusFound}, "failed", "failed", 1, 1},
			}
			reactions := map[string]reaction{}
			sent := make([]message, len(cases))
			for i, c := range cases {
				sent[i] = d.write(install("acme-slack"))
				reactions[sent[i].text] = c.does
			}
			d.app.reacts(func(got dispatch) reaction { return reactions[got.Data.Text] })
			for _, m := range sent {
				m.send(t, in).want(t, http.StatusOK, "admitted")
			}
			receipts := d.rest()
			for i, c := range cases {
				state, tries := c.atMostOnce, c.tries
				if guarantee == "at-least-once" {
					state, tries = c.atLeast, c.triesAtLeast
				}
				if r := receipts[i]; r.State != state || r.Attempt != tries || state != "handled" && r.LastError == "" {
					t.Errorf("%s: %s after %d attempts (%s); want %s after %d", c.name, r.State, r.Attempt, r.LastError, state, tries)
				}
				if got := len(d.app.of(sent[i].text)); got != tries {
					t.Errorf("%s: %d dispatches; want %d", c.name, got, tries)
				}
			}
		})
	}
}

// What certainly did not arrive is tried again, under at-most-once too.
func TestApplicationThatIsDownGetsItsEventsLater(t *testing.T) {
	t.Parallel()
	d := embedded(t, nil)
	front := newProxy(t, strings.TrimPrefix(d.app.server.URL, "http://"), false)
	in := d.serve(settings{"dispatch": settings{"http": settings{"url": "http://" + front.Address()}}})
	closed := newProxy(t, front.Address(), false)
	closed.Close()
	gone := d.serve(settings{
		"store":    settings{"durable": settings{"dsn": d.dir + "/other.db"}},
		"dispatch": settings{"http": settings{"url": "http://" + closed.Address()}},
		"policy":   settings{"max_attempts": 3},
	})
	m, n := d.write(install("acme-slack")), d.write(install("bot-a"))
	m.send(t, in).want(t, http.StatusOK, "admitted")
	n.send(t, gone).want(t, http.StatusOK, "admitted")
	gone.awaitStates(map[string]int{"failed": 1})
	if r := gone.receipts("")[0]; r.Attempt != 3 {
		t.Errorf("an application that refuses connections got %d attempts; want 3", r.Attempt)
	}
	in.awaitStates(map[string]int{"handled": 1})
	d.dispatchedOnce(m.text)
}

// BR-52: work that takes nearly as long as its lease is not taken over.
func TestSlowWorkWithinItsLeaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	d := onServers(t, settings{"policy": settings{"lease": "3s", "guarantee": "at-least-once"}, "dispatch": settings{"http": settings{"timeout": "2900ms"}}})
	a, _ := d.two()
	d.app.reacts(func(dispatch) reaction { return reaction{after: 2 * time.Second} })
	m := d.write(install("acme-slack"))
	m.send(t, a).want(t, http.StatusOK, "admitted")
	d.once(m.text)
}

// BR-46: each event either has a 2xx and is dispatched, or has a 503 and its retry is taken.
func TestFullQueueRefusesBeforeTheClaim(t *testing.T) {
	t.Parallel()
	onBoth(t, settings{"dispatch": settings{"workers": 1, "queue": 4}}, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		release := d.holding()
		const n = 40
		texts := make([]string, n)
		sent := make([]message, n)
		for i := range sent {
			sent[i] = d.write(comesAgain[i%len(comesAgain)])
			texts[i] = sent[i].text
		}
		var refused []message
		for i, got := range storm(n, func(i int) *http.Request { return sent[i].request(t, in) }) {
			if got.status == http.StatusServiceUnavailable && got.verdict == "refused" {
				refused = append(refused, sent[i])
			} else if got.status != http.StatusOK || got.verdict != "admitted" {
				t.Errorf("an event got %v; want 200 admitted or 503 refused", got)
			}
		}
		if got, want := len(in.receipts("")), n-len(refused); got != want || want > 5 {
			t.Errorf("%d receipts of %d admitted events; want as many, and no more than queue and worker hold", got, want)
		}
		release()
		for _, m := range refused {
			await(t, "the retry is taken", func() bool {
				got := m.again(1).send(t, in)
				return got.status == http.StatusOK && got.verdict == "admitted"
			})
		}
		d.once(texts...)
	})
}

// BR-01, BR-02: the acknowledgement never waits for the application.
func TestSlowApplicationDoesNotDelayAcknowledgements(t *testing.T) {
	t.Parallel()
	onBoth(t, settings{"dispatch": settings{"workers": 4}}, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		release := d.holding()
		texts := make([]string, 40)
		for i := range texts {
			m := d.write(eachChannel[i%len(eachChannel)])
			texts[i] = m.text
			for retry := range 2 {
				if got := m.again(retry).send(t, in); got.status != http.StatusOK || got.took > soon {
					t.Errorf("answered %v after %s", got, got.took)
				}
			}
		}
		release()
		d.once(texts...)
	})
}

// BR-125: a tenant whose application hangs does not keep another tenant's events waiting.
func TestHangingTenantDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	d := embedded(t, settings{"dispatch": settings{"workers": 8, "http": settings{"timeout": "50s"}}, "policy": settings{"lease": "1m"}})
	in := d.serve(nil)
	working := make(chan struct{})
	d.app.reacts(func(got dispatch) reaction {
		if got.Tenant == "acme" {
			return reaction{until: working}
		}
		return reaction{}
	})
	for range 50 {
		d.write(install("acme-slack")).send(t, in).want(t, http.StatusOK, "admitted")
	}
	var others []message
	for range 10 {
		m := d.write(install("globex-slack"))
		m.send(t, in).want(t, http.StatusOK, "admitted")
		others = append(others, m)
	}
	for _, m := range others {
		await(t, "the other tenant's event is dispatched", func() bool { return len(d.app.of(m.text)) == 1 })
	}
	if got := len(d.app.dispatches()); got > len(others)+6 {
		t.Errorf("%d dispatches of a tenant that hangs came before those of another; want the 6 of its share of 8 workers", got-len(others))
	}
	close(working)
}

// BR-50: of all who replay one receipt at the same moment, one does.
func TestReplaysAtTheSameMomentAreOne(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	a, b := d.two()
	m := d.write(install("acme-slack"))
	m.send(t, a).want(t, http.StatusOK, "admitted")
	r := d.rest()[0]
	var done, conflicts atomic.Int64
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range 16 {
		all.Go(func() {
			<-gate
			in := []*instance{a, b}[i%2]
			switch got := in.ask(http.MethodPost, "/api/v1/receipts/"+r.ID+"/replay", nil, nil); got {
			case http.StatusOK:
				done.Add(1)
			case http.StatusConflict:
				conflicts.Add(1)
			default:
				t.Errorf("a replay answers %d; want 200 or 409", got)
			}
		})
	}
	release := d.holding() // so that no replay comes after the end of another
	close(gate)
	all.Wait()
	var replayed struct{ Replayed int }
	if got := a.ask(http.MethodPost, "/api/v1/receipts/replay", settings{"state": "handled"}, &replayed); got != http.StatusOK || replayed.Replayed != 0 {
		t.Errorf("replay by filter answers %d, %+v while the receipt is open; want none replayed", got, replayed)
	}
	if done.Load() != 1 || conflicts.Load() != 15 {
		t.Errorf("%d replays were done and %d refused; want 1 and 15", done.Load(), conflicts.Load())
	}
	release()
	d.rest()
	if got := len(d.app.of(m.text)); got != 2 {
		t.Errorf("the event was dispatched %d times; want twice, once for the replay", got)
	}
}

func TestReplayAndDiscardByTheAPI(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		d.app.reacts(func(dispatch) reaction { return reaction{status: http.StatusGone} })
		one, two := d.write(install("acme-slack")), d.write(install("globex-slack"))
		one.send(t, in).want(t, http.StatusOK, "admitted")
		two.send(t, in).want(t, http.StatusOK, "admitted")
		in.awaitStates(map[string]int{"failed": 2})
		d.app.reacts(nil)
		id := func(tenant string) string { return in.receipts("tenant=" + tenant)[0].ID }

		if got := in.ask(http.MethodPost, "/api/v1/receipts/"+id("globex")+"/discard", nil, nil); got != http.StatusOK {
			t.Errorf("discard answers %d; want 200", got)
		}
		var replayed struct{ Replayed int }
		if got := in.ask(http.MethodPost, "/api/v1/receipts/replay", settings{"tenant": "acme"}, &replayed); got != http.StatusOK || replayed.Replayed != 1 {
			t.Errorf("replay by filter answers %d, %+v; want 200 and 1", got, replayed)
		}
		in.awaitStates(map[string]int{"handled": 1, "discarded": 1})
		if got := in.ask(http.MethodPost, "/api/v1/receipts/"+id("acme")+"/discard", nil, nil); got != http.StatusConflict {
			t.Errorf("discard of a handled receipt answers %d; want 409", got)
		}
		if got := in.ask(http.MethodPost, "/api/v1/receipts/"+id("globex")+"/replay", nil, nil); got != http.StatusOK {
			t.Errorf("replay of a discarded receipt answers %d; want 200", got)
		}
		in.awaitStates(map[string]int{"handled": 2})
		for _, m := range []message{one, two} {
			m.again(1).send(t, in).want(t, http.StatusOK, "duplicate")
		}
		d.rest()
		for _, m := range []message{one, two} {
			if got := d.app.of(m.text); len(got) != 2 || got[0].ID != got[1].ID {
				t.Errorf("%q came as %v; want twice under one id", m.text, got)
			}
		}
		if got := in.ask(http.MethodPost, "/api/v1/receipts/01890000-0000-7000-8000-000000000000/replay", nil, nil); got != http.StatusNotFound {
			t.Errorf("replay of an unknown receipt answers %d; want 404", got)
		}
	})
}

// BR-53: a parked event holds all that a replay needs; its vendor's secret is not asked for again.
func TestReplayWorksAfterARestartUnderNewSecrets(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		first := d.serve(nil)
		d.app.reacts(func(dispatch) reaction { return reaction{status: http.StatusGone} })
		m := d.write(install("acme-slack"))
		m.send(t, first).want(t, http.StatusOK, "admitted")
		first.awaitStates(map[string]int{"failed": 1})
		first.kill()
		d.app.reacts(nil)
		second := d.serve(settings{"tenants": []settings{{"id": "acme", "installations": []settings{{
			"id": "acme-slack", "channel": "slack", "account": "T0ACME001", "secrets": settings{"signing_secret": "quite-another-secret"},
		}}}}})
		second.ask(http.MethodPost, "/api/v1/receipts/replay", settings{}, nil)
		second.awaitStates(map[string]int{"handled": 1})
		m.again(1).send(t, second).want(t, http.StatusUnauthorized, "")
	})
}
