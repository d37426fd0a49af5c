package e2e_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// leases are short, so that a test need not wait long for the end of one.
func leases(extra settings) settings {
	return merge(settings{"policy": settings{"lease": "2500ms"}, "dispatch": settings{"http": settings{"timeout": "2s"}}}, extra)
}

// holding makes the application work on dispatches until release is called, on all that begin
// until then.
func (d *deployment) holding() (release func()) {
	working := make(chan struct{})
	d.app.reacts(func(dispatch) reaction { return reaction{until: working} })
	return sync.OnceFunc(func() {
		d.app.reacts(nil)
		close(working)
	})
}

// BR-38: what was claimed and not begun is taken up at once, by the instance that is left or
// by the one that is started again, and is never lost.
func TestKilledBetweenClaimAndBeginIsTakenUp(t *testing.T) {
	t.Parallel()
	scenario := func(t *testing.T, d *deployment, first *instance, next func() *instance) {
		t.Helper()
		defer d.holding()()
		busy := d.write(install("acme-slack"))
		busy.send(t, first).want(t, http.StatusOK, "admitted")
		d.app.awaitDispatches(t, 1)
		texts := []string{busy.text}
		var queued []message
		for _, to := range eachChannel {
			m := d.write(to)
			m.send(t, first).want(t, http.StatusOK, "admitted")
			queued, texts = append(queued, m), append(texts, m.text)
		}
		first.kill()
		d.app.reacts(nil)
		second := next()
		for _, m := range queued {
			m.again(1).send(t, second).want(t, http.StatusOK, "duplicate")
		}
		second.awaitStates(map[string]int{"lost": 1, "handled": len(queued)})
		d.dispatchedOnce(texts...)
	}
	extra := leases(settings{"dispatch": settings{"workers": 1}})
	t.Run("by another instance", func(t *testing.T) {
		t.Parallel()
		d := onServers(t, extra)
		a, b := d.serve(nil), d.serve(nil)
		scenario(t, d, a, func() *instance { return b })
	})
	t.Run("after a restart", func(t *testing.T) {
		t.Parallel()
		onBoth(t, extra, func(t *testing.T, d *deployment) {
			scenario(t, d, d.serve(nil), func() *instance { return d.serve(nil) })
		})
	})
}

// BR-38: under at-most-once an event that was being dispatched is shown as lost; a person may
// have it dispatched again, a vendor may not.
func TestKilledWhileDispatchingIsLostUnderAtMostOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, leases(nil), func(t *testing.T, d *deployment) {
		first := d.serve(nil)
		defer d.holding()()
		var sent []message
		var texts []string
		for _, to := range eachChannel {
			m := d.write(to)
			m.send(t, first).want(t, http.StatusOK, "admitted")
			sent, texts = append(sent, m), append(texts, m.text)
		}
		d.app.awaitDispatches(t, len(sent))
		first.kill()
		d.app.reacts(nil)
		second := d.serve(nil)
		second.awaitStates(map[string]int{"lost": len(sent)})
		for _, m := range sent {
			m.again(1).send(t, second).want(t, http.StatusOK, "duplicate")
		}
		d.dispatchedOnce(texts...)

		for _, r := range second.receipts("state=lost") {
			if got := second.ask(http.MethodPost, "/api/v1/receipts/"+r.ID+"/replay", nil, nil); got != http.StatusOK {
				t.Errorf("replay of a lost receipt answers %d; want 200", got)
			}
		}
		second.awaitStates(map[string]int{"handled": len(sent)})
		for _, m := range sent {
			m.again(2).send(t, second).want(t, http.StatusOK, "duplicate")
			ids := map[string]bool{}
			got := d.app.of(m.text)
			for _, one := range got {
				ids[one.ID] = true
			}
			if len(got) != 2 || len(ids) != 1 || got[1].Attempt != 2 {
				t.Errorf("%q came %d times under %d ids; want twice under one", m.text, len(got), len(ids))
			}
		}
		if n := len(d.app.dispatches()); n != 2*len(sent) {
			t.Errorf("%d dispatches; want %d", n, 2*len(sent))
		}
		for _, r := range second.receipts("") {
			var what []string
			for _, h := range second.receipt(r.ID).History {
				what = append(what, h.What)
			}
			if !slices.Equal(what, []string{"lost", "replay"}) {
				t.Errorf("history %v; want lost and replay", what)
			}
		}
	})
}

func TestKilledWhileDispatchingComesAgainUnderAtLeastOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, leases(settings{"policy": settings{"guarantee": "at-least-once"}}), func(t *testing.T, d *deployment) {
		first := d.serve(nil)
		defer d.holding()()
		var sent []message
		for _, to := range eachChannel {
			m := d.write(to)
			m.send(t, first).want(t, http.StatusOK, "admitted")
			sent = append(sent, m)
		}
		d.app.awaitDispatches(t, len(sent))
		first.kill()
		d.app.reacts(nil)
		second := d.serve(nil)
		for _, m := range sent {
			m.again(1).send(t, second).want(t, http.StatusOK, "duplicate")
		}
		second.awaitStates(map[string]int{"handled": len(sent)})
		for _, m := range sent {
			got := d.app.of(m.text)
			if len(got) != 2 || got[0].ID != got[1].ID || got[0].Attempt != 1 || got[1].Attempt != 2 {
				t.Errorf("%q came as %v; want twice under one id, as attempts 1 and 2", m.text, got)
			}
		}
	})
}

// BR-52: an instance that stood still for longer than its leases changes nothing of what
// others made of its work, and goes on.
func TestInstanceThatStoodStillDoesNoHarm(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at-most-once", "at-least-once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			d := onServers(t, leases(settings{"policy": settings{"guarantee": guarantee}, "dispatch": settings{"workers": 1}}))
			a := d.serve(nil)
			release := d.holding()
			busy, queued := d.write(install("acme-slack")), d.write(install("bot-a"))
			busy.send(t, a).want(t, http.StatusOK, "admitted")
			d.app.awaitDispatches(t, 1)
			queued.send(t, a).want(t, http.StatusOK, "admitted")
			a.halt()
			release()
			b := d.serve(nil)
			want := map[string]int{"handled": 2}
			if guarantee == "at-most-once" {
				want = map[string]int{"lost": 1, "handled": 1}
			}
			b.awaitStates(want)
			a.resume()
			after := d.write(install("acme-slack"))
			after.send(t, a).want(t, http.StatusOK, "admitted")
			want["handled"]++
			a.awaitStates(want)
			await(t, "the application is at rest", func() bool { return d.app.working() == 0 })
			for _, m := range []message{busy, queued, after} {
				n := 1
				if m.text == busy.text && guarantee == "at-least-once" {
					n = 2
				}
				if got := d.app.of(m.text); len(got) != n {
					t.Errorf("%q was dispatched %d times; want %d", m.text, len(got), n)
				}
			}
		})
	}
}

// BR-42, BR-43, BR-44: deliveries are answered to the end, what runs is finished, what was not
// begun is the other instance's, and the exit code is 0.
func TestDrainUnderLoadLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	a, b := d.two()
	d.app.reacts(func(dispatch) reaction { return reaction{after: 30 * time.Millisecond} })
	const senders, each = 8, 30
	texts := make([]string, senders*each)
	sent := make([]message, len(texts))
	for i := range sent {
		sent[i] = d.write(install("acme-slack")).in("1555000" + string(rune('0'+i/each)))
		texts[i] = sent[i].text
	}
	var through, refused atomic.Int64
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for _, m := range sent[s*each : (s+1)*each] {
				if got := m.send(t, a); got.status != http.StatusOK {
					refused.Add(1)
					if got.status != http.StatusServiceUnavailable && a.runs() && got.status != 0 {
						t.Errorf("a draining instance answers %v; want 503", got)
					}
					m.again(1).send(t, b).want(t, http.StatusOK, "admitted")
				}
				through.Add(1)
			}
		})
	}
	await(t, "the load has begun", func() bool { return through.Load() >= 80 })
	a.terminate()
	all.Wait()
	a.exits()
	if refused.Load() == 0 {
		t.Error("the drain came after the load")
	}
	d.once(texts...)
}

func TestWhatWasHandedBackIsTakenOver(t *testing.T) {
	t.Parallel()
	d := onServers(t, settings{"dispatch": settings{"workers": 1}})
	a := d.serve(nil)
	release := d.holding()
	texts := make([]string, 6)
	for i := range texts {
		m := d.write(install("acme-slack"))
		texts[i] = m.text
		m.send(t, a).want(t, http.StatusOK, "admitted")
		d.app.awaitDispatches(t, 1)
	}
	a.terminate()
	await(t, "the instance drains", func() bool { return a.probe("/readyz") == http.StatusServiceUnavailable })
	d.write(install("acme-slack")).send(t, a).want(t, http.StatusServiceUnavailable, "refused")
	release()
	a.exits()
	if got := len(d.app.dispatches()); got != 1 {
		t.Errorf("a draining instance began %d dispatches; want the one that ran", got)
	}
	b := d.serve(nil)
	b.awaitStates(map[string]int{"handled": len(texts)})
	d.once(texts...)
}

// BR-42: what was acknowledged just before the end is handled, here or by the next process.
func TestAcknowledgedEventsSurviveASIGTERM(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		first := d.serve(nil)
		d.app.reacts(func(dispatch) reaction { return reaction{after: time.Second} })
		sent := make([]message, 20)
		texts := make([]string, len(sent))
		for i := range sent {
			sent[i] = d.write(install("acme-slack"))
			texts[i] = sent[i].text
		}
		for _, got := range storm(len(sent), func(i int) *http.Request { return sent[i].request(t, first) }) {
			got.want(t, http.StatusOK, "admitted")
		}
		first.terminate()
		first.exits()
		d.serve(nil)
		d.once(texts...)
	})
}

// BR-42: an application that does not answer holds up no shutdown, and what becomes of its
// event shows.
func TestDrainTimeoutEndsTheProcessAndShowsWhatWasCutOff(t *testing.T) {
	t.Parallel()
	d := onServers(t, merge(leases(nil), settings{"server": settings{"drain_timeout": "500ms"}}))
	first := d.serve(nil)
	defer d.holding()()
	m := d.write(install("acme-slack"))
	m.send(t, first).want(t, http.StatusOK, "admitted")
	d.app.awaitDispatches(t, 1)
	first.terminate()
	first.exits()
	if !strings.Contains(first.log.String(), "dispatches are still running") {
		t.Error("the log does not tell that a dispatch was cut off")
	}
	second := d.serve(nil)
	await(t, "the receipt is closed", func() bool {
		states := second.states()
		return states["lost"]+states["failed"] == 1
	})
	m.again(1).send(t, second).want(t, http.StatusOK, "duplicate")
	d.dispatchedOnce(m.text)
}

// BR-40: a key in Redis has an end at each moment, whenever a process is killed.
func TestKeysInRedisEnd(t *testing.T) {
	t.Parallel()
	d := onServers(t, settings{"policy": settings{"fast_ttl": "1h"}})
	var texts []string
	for range 2 {
		in := d.serve(nil)
		var through atomic.Int64
		var all sync.WaitGroup
		sent := make([]message, 40)
		for i := range sent {
			sent[i] = d.write(install("acme-slack"))
			texts = append(texts, sent[i].text)
		}
		for i := range 4 {
			all.Go(func() {
				for _, m := range sent[i*10 : (i+1)*10] {
					m.send(t, in)
					through.Add(1)
				}
			})
		}
		await(t, "half is through", func() bool { return through.Load() >= 20 })
		in.kill()
		all.Wait()
	}
	if d.keys() == 0 {
		t.Error("no key was set")
	}
	const without = `local n = 0
		for _, k in ipairs(redis.call('keys', '*')) do
			local ttl = redis.call('pttl', k)
			if ttl <= 0 or ttl > 3600000 then n = n + 1 end
		end
		return n`
	if got := d.redis.Do("EVAL", without, "0"); got != ":0" {
		t.Errorf("keys without an end, or with one beyond fast_ttl: %s", got)
	}
	for _, text := range texts {
		if n := len(d.app.of(text)); n > 1 {
			t.Errorf("%q was dispatched %d times", text, n)
		}
	}
}
