package e2e_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/admitone/admitone/adapters/servertest"
)

// pooled returns a deployment whose database is reached through a proxy that pools transactions.
func pooled(t *testing.T, extra settings) (*deployment, *servertest.PgBouncerServer) {
	t.Helper()
	d := onServers(t, nil)
	b := servertest.PgBouncer(t, servertest.Postgres(t))
	d.extra = merge(merge(d.extra, settings{"store": settings{"durable": settings{"dsn": b.DSN(d.db)}}}), extra)
	return d, b
}

// BR-110: through a proxy that pools transactions, with fewer connections than two instances have
// of their own, everything works that works without: start, claims at the same moment, retries,
// failure and replay, a kill, upkeep and the balance.
func TestServersWorkThroughAPoolingProxy(t *testing.T) {
	t.Parallel()
	d, _ := pooled(t, nil)
	a, b := d.launch(nil), d.launch(nil) // both find an empty database
	a.awaitAdmitting()
	b.awaitAdmitting()

	const events, copies = 100, 2
	var sent []message
	var texts []string
	for i := range events {
		m := d.write(eachChannel[i%len(eachChannel)])
		sent, texts = append(sent, m), append(texts, m.text)
	}
	for _, got := range storm(events*copies, func(i int) *http.Request {
		return sent[i/copies].request(t, []*instance{a, b}[i%2])
	}) {
		if got.status != http.StatusOK {
			t.Errorf("a copy got %v; want 200", got)
		}
	}
	d.once(texts...)
	for _, m := range sent[:8] {
		m.again(1).send(t, b).want(t, http.StatusOK, duplicate)
	}

	d.app.reacts(func(dispatch) reaction { return reaction{status: http.StatusBadRequest} })
	declined := d.write(install("globex-slack"))
	declined.send(t, a).want(t, http.StatusOK, admitted)
	a.awaitStates(map[string]int{"handled": events, "failed": 1})
	d.app.reacts(nil)
	if status := b.ask(http.MethodPost, "/api/v1/receipts/"+b.receipts("state=failed")[0].ID+"/replay", nil, nil); status != http.StatusOK {
		t.Errorf("replay: status %d", status)
	}
	a.awaitStates(map[string]int{"handled": events + 1})

	release := d.holding()
	cut := d.write(install("acme-slack"))
	cut.send(t, a).want(t, http.StatusOK, admitted)
	d.app.awaitDispatches(t, events+3) // with the declined one, which came twice
	a.kill()
	release()
	b.awaitStates(map[string]int{"handled": events + 1, "lost": 1})
	cut.again(1).send(t, b).want(t, http.StatusOK, duplicate)

	const old = 5
	d.leaveOld(old)
	pruner := d.launchStopping(afterPrune, 0, nil)
	pruner.awaitStop(string(afterPrune))
	pruner.kill()
	d.wantOld(old - prunedAtOnce)

	d.wantBalance(b)
	for _, in := range []*instance{a, b, pruner} {
		if log := in.log.String(); strings.Contains(log, "prepared statement") {
			t.Errorf("%s met a prepared statement:\n%s", in.name, log)
		}
	}
}

// wantBalance fails the test unless the ledger of an instance's configuration adds up.
func (d *deployment) wantBalance(in *instance) {
	d.t.Helper()
	verify := exec.CommandContext(d.t.Context(), program, "verify", "--config", filepath.Join(d.dir, in.name+".yaml"))
	verify.Dir = d.dir
	if out, err := verify.CombinedOutput(); err != nil {
		d.t.Errorf("verify: %v: %s", err, out)
	}
}

// While messages come, the proxy takes new connections to the database and dies twice.
func TestResetsOfThePoolUnderLoadLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	d, pool := pooled(t, nil)
	a, b := d.two()
	reconnect := func() { pool.Do("RECONNECT") }
	d.disturbed([]*instance{a, b}, reconnect, pool.Restart, reconnect, pool.Restart)
	d.wantBalance(a)
}
