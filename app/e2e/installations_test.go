package e2e_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// secretKey encrypts what deployments of these tests keep.
const secretKey = "c2VjcmV0LWtleS1vZi1lMmUtdGVzdHMtMzItYnl0ZXM="

// keeping lets a deployment keep installations in its database.
var keeping = settings{"store": settings{"durable": settings{"secret_key": secretKey}}}

// within is how soon every instance must know of a change.
const within = time.Second

// keptSlack is an installation that no configuration has.
func keptSlack(d *deployment, id, account string) installation {
	in := installation{id: id, tenant: "initech", channel: "slack", account: account, secret: "signing_secret", value: "slack-secret-kept-of-" + id}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.texts = append(d.texts, in.value) // which no log may repeat
	return in
}

// keep adds an installation by an instance's admin API.
func (in *instance) keep(i installation) {
	in.t.Helper()
	body := settings{
		"id": i.id, "tenant": i.tenant, "channel": i.channel, "account": i.account, "secrets": settings{i.secret: i.value},
	}
	if status := in.ask(http.MethodPost, "/api/v1/installations", body, nil); status != http.StatusCreated {
		in.t.Fatalf("add %s: status %d", i.id, status)
	}
}

// change asks the admin API for something about an installation.
func (in *instance) change(method, path string, body any) {
	in.t.Helper()
	if status := in.ask(method, "/api/v1/installations/"+path, body, nil); status != http.StatusOK {
		in.t.Fatalf("%s %s: status %d", method, path, status)
	}
}

// A change of an installation by one instance holds on every other within a second, be it told by
// the database or, behind a proxy where it can't tell, asked for.
func TestKeptInstallationsAreKnownEverywhereWithinASecond(t *testing.T) {
	t.Parallel()
	t.Run("told", func(t *testing.T) {
		t.Parallel()
		wantKnownEverywhere(t, onServers(t, keeping))
	})
	t.Run("asked for", func(t *testing.T) {
		t.Parallel()
		d, _ := pooled(t, keeping)
		wantKnownEverywhere(t, d)
	})
}

func wantKnownEverywhere(t *testing.T, d *deployment) {
	t.Helper()
	a, b := d.two()
	kept := keptSlack(d, "initech-slack", "T0INITECH1")
	var texts []string
	send := func(to *instance) answer {
		m := d.write(kept)
		got := m.send(t, to)
		if got.status == http.StatusOK {
			texts = append(texts, m.text)
		}
		return got
	}
	var took []time.Duration
	soonOn := func(to *instance, what string, status int) {
		t.Helper()
		begun := time.Now()
		await(t, what, func() bool { return send(to).status == status })
		took = append(took, time.Since(begun))
	}
	for range 3 { // both know by now that there is none
		send(a).want(t, http.StatusNotFound, "")
		send(b).want(t, http.StatusNotFound, "")
	}
	a.keep(kept)
	send(a).want(t, http.StatusOK, "admitted")
	soonOn(b, "an added installation is received for elsewhere", http.StatusOK)
	b.change(http.MethodPatch, kept.id, settings{"state": "paused"})
	send(b).want(t, http.StatusServiceUnavailable, "refused")
	soonOn(a, "a paused installation is refused elsewhere", http.StatusServiceUnavailable)
	a.change(http.MethodPatch, kept.id, settings{"state": "active"})
	send(a).want(t, http.StatusOK, "admitted")
	soonOn(b, "a resumed installation is received for elsewhere", http.StatusOK)
	a.change(http.MethodDelete, kept.id, nil)
	send(a).want(t, http.StatusNotFound, "")
	soonOn(b, "a removed installation is unknown elsewhere", http.StatusNotFound)
	// a busy machine may be late with one of them
	slices.Sort(took)
	if took[len(took)/2] > within {
		t.Errorf("the changes took %v; want them within %s", took, within)
	}
	d.once(texts...)
}

// While messages come, an installation is paused, resumed and given a new secret, to which the
// vendor changes over at a moment of its own. The vendor repeats what is refused: each message
// is handled once, and by the rotation none is refused.
func TestPauseAndRotationUnderLoadLoseNothing(t *testing.T) {
	t.Parallel()
	d := onServers(t, keeping)
	a, b := d.two()
	kept := keptSlack(d, "initech-slack", "T0INITECH1")
	fresh := keptSlack(d, "initech-fresh", "T0INITECH1")
	fresh.id = kept.id
	a.keep(kept)

	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	sender, texts, refused := kept, []string{}, map[int]int{}
	var answered [4]int // requests of each sender
	var senders sync.WaitGroup
	for i := range answered {
		to := []*instance{a, b}[i%2]
		senders.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				m := d.write(sender)
				mu.Unlock()
				for n := 0; ; n++ {
					mu.Lock()
					m.to = sender
					mu.Unlock()
					got := m.again(n).send(t, to)
					mu.Lock()
					refused[got.status]++
					answered[i]++
					mu.Unlock()
					if got.status == http.StatusOK {
						break
					}
					if n > 2000 {
						t.Errorf("%s is never taken: %v", m.text, got)
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
				mu.Lock()
				texts = append(texts, m.text)
				mu.Unlock()
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	taken := func(more int) {
		t.Helper()
		mu.Lock()
		from := len(texts)
		mu.Unlock()
		await(t, "messages are taken", func() bool { mu.Lock(); defer mu.Unlock(); return len(texts) >= from+more })
	}
	// asked waits until each sender was answered n times more.
	asked := func(n int) {
		t.Helper()
		mu.Lock()
		from := answered
		mu.Unlock()
		await(t, "each sender is answered", func() bool {
			mu.Lock()
			defer mu.Unlock()
			for i := range answered {
				if answered[i] < from[i]+n {
					return false
				}
			}
			return true
		})
	}
	taken(40)
	a.change(http.MethodPatch, kept.id, settings{"state": "paused"})
	await(t, "both refuse", func() bool {
		return d.write(kept).send(t, a).status == http.StatusServiceUnavailable && d.write(kept).send(t, b).status == http.StatusServiceUnavailable
	})
	asked(1) // what had been let in before is committed now
	before := len(a.receipts("tenant=initech"))
	asked(20)
	if after := len(a.receipts("tenant=initech")); after != before {
		t.Errorf("%d receipts were written while it was paused", after-before)
	}
	b.change(http.MethodPatch, kept.id, settings{"state": "active"})
	taken(40)
	mu.Lock()
	if refused[http.StatusUnauthorized] > 0 || refused[http.StatusServiceUnavailable] == 0 {
		t.Errorf("answers %v; want some 503 and no 401", refused)
	}
	mu.Unlock()
	a.change(http.MethodPost, kept.id+"/rotate", settings{"secrets": settings{"signing_secret": fresh.value}})
	await(t, "both know the new secret", func() bool { // while the vendor still uses the old one
		return d.write(fresh).send(t, a).status == http.StatusOK && d.write(fresh).send(t, b).status == http.StatusOK
	})
	asked(5)
	mu.Lock()
	sender = fresh
	mu.Unlock()
	taken(40)
	mu.Lock()
	if refused[http.StatusUnauthorized] > 0 {
		t.Errorf("%d requests were refused by the rotation; want none", refused[http.StatusUnauthorized])
	}
	mu.Unlock()
	b.change(http.MethodPost, kept.id+"/rotate", settings{"drop_old": true})
	taken(20)
	old := d.write(kept)
	await(t, "the old secret is refused", func() bool { return old.send(t, a).status == http.StatusUnauthorized })
	stop()
	senders.Wait()
	d.rest()
	d.dispatchedAtMostOnce(t)
	count := map[string]bool{}
	for _, got := range d.app.dispatches() {
		count[got.Data.Text] = true
	}
	for _, text := range texts {
		if !count[text] {
			t.Errorf("%q was acknowledged and not dispatched", text)
		}
	}
	d.noSecretInTheDatabase(t)
}

// dispatchedAtMostOnce fails the test if the application got a text twice.
func (d *deployment) dispatchedAtMostOnce(t *testing.T) {
	t.Helper()
	count := map[string]int{}
	for _, got := range d.app.dispatches() {
		if count[got.Data.Text]++; count[got.Data.Text] == 2 {
			t.Errorf("%q was dispatched twice", got.Data.Text)
		}
	}
}

// noSecretInTheDatabase fails the test if what the database keeps of installations tells a secret.
func (d *deployment) noSecretInTheDatabase(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsnOf(d.extra))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), `SELECT set_config('admitone.tenants', '{"initech": 1}', false)`); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), `
		SELECT concat_ws(' ', i::text, encode(i.sealed, 'escape')) FROM installations i
		UNION ALL SELECT concat_ws(' ', q::text, encode(q.sealed, 'escape')) FROM quarantine q`)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(texts) == 0 {
		t.Fatalf("%d rows, %v; want what is kept", len(texts), err)
	}
	for _, word := range append(d.confidential(), secretKey) {
		for _, text := range texts {
			if strings.Contains(text, word) {
				t.Errorf("the database tells %q", word)
			}
		}
	}
}

// Whether there is such an installation can't be told without the database: then it is 503, and
// the vendor's retry is taken. What is at hand is received for all the while.
func TestLookUpWithoutADatabaseIsNotUnknown(t *testing.T) {
	t.Parallel()
	d := onServers(t, keeping)
	a, b := d.two()
	kept := keptSlack(d, "initech-slack", "T0INITECH1")
	a.keep(kept)
	known := d.write(kept)
	known.send(t, a).want(t, http.StatusOK, "admitted")
	d.rest()
	// a may hear only now of the change that it made itself, and drops then what it has at hand
	atHand := false
	for try := 1; try <= 3 && !atHand; try++ {
		d.pg.Heal()
		await(t, "the installation is looked up", func() bool { return known.again(try).send(t, a).status == http.StatusOK })
		d.pg.Refuse()
		atHand = known.again(try).send(t, a).status == http.StatusOK
	}
	m := d.write(kept)
	await(t, "the database is out of reach", func() bool { return m.send(t, b).status == http.StatusServiceUnavailable })
	for range 5 {
		m.send(t, b).want(t, http.StatusServiceUnavailable, "")
	}
	known.again(4).send(t, a).want(t, http.StatusOK, "duplicate") // at hand, and the fast store knows the event
	d.pg.Heal()
	await(t, "the vendor's retry is taken", func() bool { return m.again(1).send(t, b).status == http.StatusOK })
	await(t, "the ledger can be read", func() bool { return a.probe("/api/v1/receipts") == http.StatusOK })
	d.once(known.text, m.text)
}

// A secret is changed by mistake; what was refused meanwhile is admitted when it is mended.
func TestQuarantineMendsAMistakenRotation(t *testing.T) {
	t.Parallel()
	d := onServers(t, merge(keeping, settings{"policy": settings{"quarantine": "10m"}}))
	a, b := d.two()
	kept := keptSlack(d, "initech-slack", "T0INITECH1")
	wrong := keptSlack(d, "initech-wrong", "T0INITECH1")
	wrong.id = kept.id
	a.keep(wrong)
	m, n := d.write(kept), d.write(kept)
	for _, each := range []message{m, m.again(1), n} {
		each.send(t, b).want(t, http.StatusUnauthorized, "")
	}
	d.noSecretInTheDatabase(t)
	var shown struct{ Quarantined int }
	if a.ask(http.MethodGet, "/api/v1/installations/"+kept.id, nil, &shown); shown.Quarantined != 3 {
		t.Errorf("%d are quarantined; want 3", shown.Quarantined)
	}
	a.change(http.MethodPatch, kept.id, settings{"secrets": settings{"signing_secret": kept.value}})
	var r struct{ Requests, Accepted, Refused int }
	if status := a.ask(http.MethodPost, "/api/v1/installations/"+kept.id+"/recheck", nil, &r); status != http.StatusOK || r.Accepted != 3 {
		t.Errorf("recheck = %d %+v; want 3 accepted", status, r)
	}
	d.once(m.text, n.text)
}
