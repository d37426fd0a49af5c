package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An end is what the ledger and the application have of an event in the end.
type end struct {
	state      string
	dispatches int
}

// A crash is one point on the way of an event at which the server is killed.
type crash struct {
	at         string
	stops      stop // where the server stands by itself
	holds      bool // the application has the event and does not answer
	journals   bool // the durable store is out of reach when the event comes
	back       bool // and is back before the kill
	torn       bool // of what was written last the end never reached the journal's file
	terminated bool // the server drains
	answer     string
	retry      string
	once       end // under at-most-once
	least      end // under at-least-once
}

// What the vendor is told: nothing, if its connection ended without an answer.
const (
	none      = ""
	admitted  = "admitted"
	duplicate = "duplicate"
)

var (
	handledAtOnce = end{"handled", 1}
	handledAgain  = end{"handled", 2}
	lost          = end{"lost", 1}
	lostUnseen    = end{"lost", 0}
)

var crashes = []crash{
	{at: "before the claim", stops: beforeClaim, answer: none, retry: admitted, once: handledAtOnce, least: handledAtOnce},
	{at: "after the claim", stops: afterClaim, answer: none, retry: duplicate, once: handledAtOnce, least: handledAtOnce},
	{at: "after the 200", stops: beforeBegin, answer: admitted, retry: duplicate, once: handledAtOnce, least: handledAtOnce},
	{at: "after begin", stops: afterBegin, answer: admitted, retry: duplicate, once: lostUnseen, least: handledAtOnce},
	{at: "during the dispatch", holds: true, answer: admitted, retry: duplicate, once: lost, least: handledAgain},
	{at: "after the application's 200", stops: beforeSettle, answer: admitted, retry: duplicate, once: lost, least: handledAgain},
	{at: "after settle", stops: afterSettle, answer: admitted, retry: duplicate, once: handledAtOnce, least: handledAtOnce},
	{at: "after remember", stops: afterRemember, answer: admitted, retry: duplicate, once: handledAtOnce, least: handledAtOnce},

	{at: "before the journal's write", journals: true, stops: beforeJournalAppend, answer: none, retry: admitted, once: handledAtOnce, least: handledAtOnce},
	{at: "during the journal's write", journals: true, stops: afterJournalAppend, torn: true, answer: none, retry: admitted, once: handledAtOnce, least: handledAtOnce},
	{at: "after the journal's write", journals: true, stops: afterJournalAppend, answer: none, retry: duplicate, once: handledAtOnce, least: handledAtOnce},
	{at: "before the journal is drained", journals: true, answer: admitted, retry: duplicate, once: handledAtOnce, least: handledAtOnce},
	{at: "while the journal is drained", journals: true, back: true, stops: afterClaim, answer: admitted, retry: duplicate, once: handledAtOnce, least: handledAtOnce},
	{at: "while the journal is drained, dispatched already", journals: true, back: true, stops: beforeJournalRemove, holds: true, answer: admitted, retry: duplicate, once: lost, least: handledAgain},

	{at: "while it drains, before begin", terminated: true, stops: beforeBegin, answer: admitted, retry: duplicate, once: handledAtOnce, least: handledAtOnce},
	{at: "while it drains, during the dispatch", terminated: true, holds: true, answer: admitted, retry: duplicate, once: lost, least: handledAgain},
	{at: "while it drains, before settle", terminated: true, stops: beforeSettle, answer: admitted, retry: duplicate, once: lost, least: handledAgain},
}

// Wherever the server is killed, the next one makes of the event what its guarantee says, and
// the vendor's retry changes nothing of it (BR-38).
func TestKilledAnywhereKeepsThePromises(t *testing.T) {
	t.Parallel()
	for _, c := range crashes {
		for guarantee, want := range map[string]end{"at-most-once": c.once, "at-least-once": c.least} {
			t.Run(c.at+"/"+guarantee, func(t *testing.T) {
				t.Parallel()
				extra := leases(settings{"policy": settings{"guarantee": guarantee}})
				if c.journals {
					extra["policy"] = merge(extra["policy"].(settings), settings{"on_store_down": "journal"})
				}
				onBoth(t, extra, func(t *testing.T, d *deployment) { d.crash(c, want) })
			})
		}
	}
}

// crash kills a server at c and checks what the next one makes of the event.
func (d *deployment) crash(c crash, want end) {
	t := d.t
	t.Helper()
	journal := settings{}
	if c.journals {
		journal = journalled(d, "a")
	}
	first := d.serveStopping(c.stops, journal)
	giveBack := func() {}
	if c.journals {
		giveBack = d.takeDurableStoreAway()
		defer giveBack()
	}
	if c.holds {
		defer d.holding()()
	}
	m := d.write(install("acme-slack"))
	answered := make(chan answer, 1)
	go func() { answered <- m.send(t, first) }()
	var got answer
	if c.answer != none {
		got = <-answered
	}
	if c.back {
		giveBack()
	}
	if c.stops != "" {
		first.awaitStop(string(c.stops))
	}
	if c.holds {
		d.app.awaitDispatches(t, 1)
	}
	if c.terminated {
		first.terminate()
		await(t, first.name+" drains", func() bool { return first.probe("/readyz") == http.StatusServiceUnavailable })
	}
	first.kill()
	if c.answer == none {
		got = <-answered
	}
	if wantStatus := map[string]int{admitted: http.StatusOK}[c.answer]; got.status != wantStatus || got.verdict != c.answer {
		t.Errorf("the vendor was answered %v; want %d %s", got, wantStatus, c.answer)
	}
	if c.torn {
		d.tear("journal-a")
	}
	giveBack()
	d.app.reacts(nil)

	second := d.serve(journal)
	d.rest()
	m.again(1).send(t, second).want(t, http.StatusOK, c.retry)
	all := d.rest()
	if len(all) != 1 || all[0].State != want.state {
		t.Errorf("the ledger holds %+v; want one receipt, %s", all, want.state)
	}
	dispatched := d.app.of(m.text)
	if len(dispatched) != want.dispatches {
		t.Errorf("the application got the event %d times; want %d", len(dispatched), want.dispatches)
	}
	for _, got := range dispatched {
		if len(all) == 1 && got.ID != all[0].ID {
			t.Errorf("the application got the event under the id %s; its receipt is %s", got.ID, all[0].ID)
		}
	}
	if len(dispatched) > 0 {
		d.wantOneConversation(second, m.text)
	}
	if n := len(second.conversations("")); n != 1 {
		t.Errorf("%d conversations of one message; want 1", n)
	}
}

// serveStopping starts an instance that stops at a point, and waits until it admits.
func (d *deployment) serveStopping(at stop, own settings) *instance {
	d.t.Helper()
	in := d.launchStopping(at, 0, own)
	in.awaitAdmitting()
	return in
}

// launchStopping starts an instance that stops at a point or before a commit of SQLite, the first
// being 1, and does not wait.
func (d *deployment) launchStopping(at stop, commit int, own settings) *instance {
	d.t.Helper()
	test, err := os.Executable()
	if err != nil {
		d.t.Fatalf("find the test binary: %v", err)
	}
	return d.start(own, func(config string) *exec.Cmd {
		cmd := exec.Command(test) //nolint:noctx // it lives until the clean-up
		cmd.Env = []string{
			stopVariable + "=" + string(at), configVariable + "=" + config, fmt.Sprintf("%s=%d", commitVariable, commit),
		}
		return cmd
	})
}

// awaitStop waits until the instance stands still at a point.
func (in *instance) awaitStop(at string) {
	in.t.Helper()
	await(in.t, in.name+" stops "+at, func() bool { return strings.Contains(in.log.String(), `"stopped","at":"`+at+`"`) })
}

// takeDurableStoreAway lets no change reach the durable store until giveBack is called.
func (d *deployment) takeDurableStoreAway() (giveBack func()) {
	d.t.Helper()
	if d.pg != nil {
		d.pg.Refuse()
		return d.pg.Heal
	}
	tx := d.lockFile()
	return func() { _ = tx.Rollback() } // a second one is no news
}

// lockFile takes the lock that whoever changes the embedded store needs.
func (d *deployment) lockFile() *sql.Tx {
	d.t.Helper()
	db, err := sql.Open("sqlite", "file:"+d.file()+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		d.t.Fatalf("open the embedded store: %v", err)
	}
	d.t.Cleanup(func() { _ = db.Close() })
	tx, err := db.BeginTx(context.WithoutCancel(d.t.Context()), nil)
	if err != nil {
		d.t.Fatalf("lock the embedded store: %v", err)
	}
	return tx
}

// tear takes the last bytes off what was written last to a journal, as if the process had been
// killed before the system had all of them.
func (d *deployment) tear(journal string) {
	d.t.Helper()
	files, err := filepath.Glob(filepath.Join(d.dir, journal, "*.journal"))
	if err != nil || len(files) == 0 {
		d.t.Fatalf("files of the journal: %v, %v", files, err)
	}
	last := files[len(files)-1]
	info, err := os.Stat(last)
	if err == nil {
		err = os.Truncate(last, info.Size()-7)
	}
	if err != nil {
		d.t.Fatalf("tear the journal: %v", err)
	}
}
