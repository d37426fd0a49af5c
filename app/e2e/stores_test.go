package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/app/flaky"
)

// comesAgain are installations of vendors that send an event again after a 503.
var comesAgain = []installation{install("acme-slack"), install("bot-a"), install("acme-desk")}

// BR-32, BR-124: nothing is stored, the vendor is told so, and its retry is handled.
func TestPostgresDownRefusesAndHandlesTheRetry(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) { t.Parallel(); postgresDown(t, false) })
	t.Run("and Redis with it", func(t *testing.T) { t.Parallel(); postgresDown(t, true) })
}

func postgresDown(t *testing.T, redisToo bool) {
	t.Helper()
	d := onServers(t, nil)
	in := d.serve(nil)
	d.pg.Refuse()
	if redisToo {
		d.rd.Refuse()
	}
	await(t, "the instance is not ready", func() bool { return in.probe("/readyz") == http.StatusServiceUnavailable })
	if got := in.probe("/healthz"); got != http.StatusOK {
		t.Errorf("/healthz answers %d without PostgreSQL; want 200", got)
	}
	if strings.Contains(in.metrics(), "\nadmitone_oldest_open_seconds ") {
		t.Errorf("the age of the oldest open receipt is told without an answer of PostgreSQL")
	}
	var sent []message
	var texts []string
	for _, to := range comesAgain {
		m := d.write(to)
		sent, texts = append(sent, m), append(texts, m.text)
	}
	for i, got := range storm(len(sent), func(i int) *http.Request { return sent[i].request(t, in) }) {
		got.want(t, http.StatusServiceUnavailable, "refused")
		if got.body != "" {
			t.Errorf("%s: a refusal has the body %q", sent[i].to.channel, got.body)
		}
	}
	if n := d.keys(); n != 0 {
		t.Errorf("refused events left %d keys in Redis", n)
	}
	d.pg.Heal()
	d.rd.Heal()
	await(t, "the instance is ready again", func() bool { return in.probe("/readyz") == http.StatusOK })
	if got := in.receipts(""); len(got) != 0 {
		t.Errorf("refused events left receipts: %v", got)
	}
	for _, m := range sent {
		m.again(1).send(t, in).want(t, http.StatusOK, "admitted")
	}
	d.once(texts...)
}

// The vendor is answered within its patience. What it is refused may stand all the same when
// the network comes back: then it is dispatched, and the retry is a duplicate.
func TestPostgresOutOfReachLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	in := d.serve(nil)
	warm := d.write(install("acme-slack"))
	warm.send(t, in).want(t, http.StatusOK, "admitted")
	d.rest()
	d.pg.Swallow()
	texts := []string{warm.text}
	sent := make([]message, 5)
	for i := range sent {
		sent[i] = d.write(install("acme-slack"))
		texts = append(texts, sent[i].text)
	}
	for _, got := range storm(len(sent), func(i int) *http.Request { return sent[i].request(t, in) }) {
		got.want(t, http.StatusServiceUnavailable, "refused")
		if got.took > soon {
			t.Errorf("refused after %s; Slack waits 3 s", got.took)
		}
	}
	d.pg.Heal()
	await(t, "the instance is ready again", func() bool { return in.probe("/readyz") == http.StatusOK })
	for i := range sent {
		await(t, "the retry is taken", func() bool { return sent[i].again(1).send(t, in).status == http.StatusOK })
	}
	d.once(texts...)
}

// As after a crash of the database: the connections of the pool are dead, what was committed stands.
func TestPostgresRestartUnderLoadLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t)
	d := embedded(t, settings{"store": settings{"durable": settings{"driver": "postgres", "dsn": server.Database(t).DSN}}})
	a, b := d.two()
	restart := func() { server.Stop(t); server.Start(t) }
	d.disturbed([]*instance{a, b}, restart, restart)
}

// disturbed fails the test unless messages that keep coming to instances, and come again until
// they are taken, are each handled once, though each of harm is done while they come.
func (d *deployment) disturbed(instances []*instance, harm ...func()) {
	d.t.Helper()
	const n = 60
	sent, texts := make([]message, n), make([]string, n)
	for i := range sent {
		sent[i] = d.write(install("acme-slack"))
		texts[i] = sent[i].text
	}
	var through atomic.Int64
	go func() {
		defer through.Store(n)
		for i := range sent {
			for retry := 0; d.t.Context().Err() == nil; retry++ {
				if sent[i].again(retry).send(d.t, instances[(i+retry)%len(instances)]).status == http.StatusOK {
					break
				}
			}
			through.Add(1)
		}
	}()
	for i, do := range harm {
		await(d.t, "some are through", func() bool { return through.Load() >= int64(10*(i+1)) })
		do()
	}
	await(d.t, "all are through", func() bool { return through.Load() >= n })
	d.once(texts...)
}

// BR-36, BR-47: whether a change was applied is found out, not guessed.
func TestLostAnswersOfCommitsAreFoundOut(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"claim", "begin", "handled"} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			d := onServers(t, nil)
			in := d.serve(nil)
			var texts []string
			for _, n := range []int{1, 3} {
				lost := d.pg.Spoiled()
				d.pg.Spoil(flaky.Loss{Statement: statement, Applied: true, Times: n})
				m := d.write(install("acme-slack"))
				texts = append(texts, m.text)
				m.send(t, in).want(t, http.StatusOK, "admitted")
				d.rest()
				if d.pg.Spoiled() == lost {
					t.Errorf("no answer was lost")
				}
				m.again(1).send(t, in).want(t, http.StatusOK, "duplicate")
				d.pg.Heal()
			}
			d.once(texts...)
		})
	}
}

func TestCommitsThatDidNotArriveAreMadeGood(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"claim", "begin", "handled"} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			d := onServers(t, nil)
			in := d.serve(nil)
			m := d.write(install("acme-slack"))
			d.pg.Spoil(flaky.Loss{Statement: statement, Times: 3})
			m.send(t, in).want(t, http.StatusOK, "admitted")
			d.once(m.text)
			if got := d.pg.Spoiled(); got != 3 {
				t.Errorf("%d commits were lost; want 3", got)
			}
		})
	}
	t.Run("never", func(t *testing.T) {
		t.Parallel()
		d := onServers(t, nil)
		in := d.serve(nil)
		m := d.write(install("acme-slack"))
		d.pg.Spoil(flaky.Loss{Statement: "claim", Times: 1 << 30})
		m.send(t, in).want(t, http.StatusServiceUnavailable, "refused")
		d.pg.Heal()
		// what was on its way at the end of Slack's patience may have arrived by now
		if got := m.again(1).send(t, in); got.status != http.StatusOK {
			t.Errorf("the retry got %v; want 200", got)
		}
		d.once(m.text)
	})
}

// BR-106: of overlapping copies the loser waits for the winner's commit, and no longer.
func TestSlowCommitsDelayAndDoNotDouble(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	a, b := d.two()
	d.pg.Slow(100 * time.Millisecond)
	const n = 20
	texts := make([]string, n)
	sent := make([]message, n)
	for i := range sent {
		sent[i] = d.write(install("acme-slack"))
		texts[i] = sent[i].text
	}
	for _, got := range storm(2*n, func(i int) *http.Request { return sent[i/2].request(t, []*instance{a, b}[i%2]) }) {
		if got.status != http.StatusOK || got.took > soon {
			t.Errorf("a copy got %v after %s; want 200, and soon", got, got.took)
		}
	}
	d.pg.Heal()
	d.once(texts...)
}

// BR-47: the outcome is kept while the store is away, and recorded within the lease.
func TestOutcomeIsRecordedWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	in := d.serve(nil)
	answered := make(chan struct{})
	d.app.reacts(func(dispatch) reaction { return reaction{until: answered} })
	m := d.write(install("acme-slack"))
	m.send(t, in).want(t, http.StatusOK, "admitted")
	d.app.awaitDispatches(t, 1)
	d.pg.Refuse()
	close(answered)
	await(t, "the instance has failed to settle", func() bool { return in.metric("admitone_durable_store_errors_total") >= 3 })
	d.pg.Heal()
	d.once(m.text)
}

// BR-47: an outcome that could not be recorded in time shows, and is never guessed.
func TestOutcomeThatCannotBeRecordedShowsAsLost(t *testing.T) {
	t.Parallel()
	d := onServers(t, settings{"policy": settings{"lease": "1500ms"}, "dispatch": settings{"http": settings{"timeout": "1s"}}})
	in := d.serve(nil)
	answered := make(chan struct{})
	d.app.reacts(func(dispatch) reaction { return reaction{until: answered} })
	m := d.write(install("acme-slack"))
	m.send(t, in).want(t, http.StatusOK, "admitted")
	d.app.awaitDispatches(t, 1)
	d.pg.Refuse()
	close(answered)
	await(t, "the instance gives up to settle", func() bool { return strings.Contains(in.log.String(), "could not be recorded within its lease") })
	d.pg.Heal()
	in.awaitStates(map[string]int{"lost": 1})
	m.again(1).send(t, in).want(t, http.StatusOK, "duplicate")
	if got := in.metric(`admitone_duplicates_of_unhandled_total{platform="slack"}`); got != 1 {
		t.Errorf("%v duplicates of unhandled receipts counted; want 1", got)
	}
	d.dispatchedOnce(m.text)
}

// BR-33, BR-124: Redis saves work and nothing else.
func TestRedisDownLeavesTheServerReadyAndEventsOnce(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	a, b := d.two()
	d.redis.Kill()
	var ready struct {
		Ready        bool
		Dependencies []struct {
			Name          string
			Ready, Needed bool
		}
	}
	if got := a.ask(http.MethodGet, "/readyz", nil, &ready); got != http.StatusOK || !ready.Ready {
		t.Errorf("/readyz answers %d, %+v without Redis; want 200", got, ready)
	}
	told := false
	for _, dep := range ready.Dependencies {
		told = told || dep.Name == "fast store" && !dep.Ready && !dep.Needed
	}
	if !told {
		t.Errorf("/readyz does not tell that Redis is away: %+v", ready)
	}
	var texts []string
	for range 10 {
		for _, to := range eachChannel {
			m := d.write(to)
			texts = append(texts, m.text)
			m.send(t, a).want(t, http.StatusOK, "admitted")
			m.again(1).send(t, b).want(t, http.StatusOK, "duplicate")
		}
	}
	d.once(texts...)
	if a.metric("admitone_fast_store_errors_total") == 0 {
		t.Error("nothing is counted of a fast store that is away")
	}
}

// BR-120: a Redis that takes connections and answers nothing is passed by.
func TestStalledRedisIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	in := d.serve(nil)
	d.redis.Stall()
	var texts []string
	var took []time.Duration
	for range 50 {
		m := d.write(install("acme-slack"))
		texts = append(texts, m.text)
		first, again := m.send(t, in), m.again(1).send(t, in)
		first.want(t, http.StatusOK, "admitted")
		again.want(t, http.StatusOK, "duplicate")
		took = append(took, first.took, again.took)
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("half of the answers took more than %s: the stalled Redis was waited for", median)
	}
	d.redis.Resume()
	d.once(texts...)
}

// BR-36: that a command was not answered says nothing of whether it was executed.
func TestLostAnswersOfRedisDoNoHarm(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	a, b := d.two()
	d.rd.LoseAnswers()
	m := d.write(install("acme-slack"))
	m.send(t, a).want(t, http.StatusOK, "admitted")
	m.again(1).send(t, b).want(t, http.StatusOK, "duplicate")
	d.rest()
	d.rd.Heal()
	m.again(2).send(t, a).want(t, http.StatusOK, "duplicate")
	m.again(3).send(t, b).want(t, http.StatusOK, "duplicate")
	d.once(m.text)
}

// BR-121: the fast path works again after each restart, and nothing is lost or doubled meanwhile.
func TestRedisRestartsUnderLoadDoNoHarm(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	a, b := d.two()
	var texts []string
	for range 5 {
		for range 6 {
			m := d.write(install("acme-slack"))
			texts = append(texts, m.text)
			m.send(t, a).want(t, http.StatusOK, "admitted")
			m.again(1).send(t, b).want(t, http.StatusOK, "duplicate")
		}
		d.redis.Restart()
	}
	d.rest()
	await(t, "Redis is used again", func() bool {
		m := d.write(install("acme-slack"))
		texts = append(texts, m.text)
		m.send(t, a).want(t, http.StatusOK, "admitted")
		d.rest()
		return d.keys() > 0
	})
	d.once(texts...)
}

// BR-123: a Redis that is full takes no keys, and that is all.
func TestFullRedisDoesNoHarm(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	in := d.serve(nil)
	if got := d.redis.Do("CONFIG", "SET", "maxmemory", "1"); got != "+OK" {
		t.Fatalf("maxmemory: %s", got)
	}
	var texts []string
	for range 10 {
		m := d.write(install("acme-slack"))
		texts = append(texts, m.text)
		m.send(t, in).want(t, http.StatusOK, "admitted")
		d.rest()
		m.again(1).send(t, in).want(t, http.StatusOK, "duplicate")
	}
	d.once(texts...)
	if in.metric("admitone_fast_store_errors_total") == 0 {
		t.Error("nothing is counted of a fast store that is full")
	}
}

// BR-34: each error of Redis means that it is away, none that the event is.
func TestErrorsOfRedisAreNoVerdict(t *testing.T) {
	t.Parallel()
	var reply atomic.Value
	reply.Store("-LOADING Redis is loading the dataset in memory")
	address := brokenRedis(t, &reply)
	d := embedded(t, settings{"store": settings{"fast": settings{"driver": "redis", "url": "redis://" + address + "/0"}}})
	in := d.serve(nil)
	var texts []string
	for _, text := range []string{
		"-LOADING Redis is loading the dataset in memory", "-READONLY You can't write against a read only replica.",
		"-NOAUTH Authentication required.", "-OOM command not allowed when used memory > 'maxmemory'.", "-MOVED 3999 127.0.0.1:1",
		"-WRONGTYPE Operation against a key holding the wrong kind of value", "-ERR unknown command", "+what", ":1", "*0", "$3\r\nyes",
	} {
		reply.Store(text)
		m := d.write(install("acme-slack"))
		texts = append(texts, m.text)
		if got := m.send(t, in); got.status != http.StatusOK || got.verdict != "admitted" {
			t.Errorf("while Redis says %q: %v; want 200 admitted", text, got)
		}
		if got := m.again(1).send(t, in); got.status != http.StatusOK || got.verdict != "duplicate" {
			t.Errorf("while Redis says %q a retry got %v; want 200 duplicate", text, got)
		}
	}
	d.once(texts...)
}

// brokenRedis answers whatever it is asked with reply and returns its address.
func brokenRedis(t *testing.T, reply *atomic.Value) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	answer := func(c net.Conn) {
		defer c.Close() //nolint:errcheck // nothing is left to be told by it
		in := bufio.NewReader(c)
		for {
			var n int
			if _, err := fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
				return
			}
			for range n {
				var size int64
				if _, err := fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
					return
				}
				if _, err := io.CopyN(io.Discard, in, size+2); err != nil {
					return
				}
			}
			if _, err := fmt.Fprintf(c, "%s\r\n", reply.Load()); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	return l.Addr().String()
}

// BR-02: while the application works no connection to the database is held for it.
func TestNoTransactionIsOpenWhileTheApplicationWorks(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	db := server.Database(t)
	d := embedded(t, settings{"store": settings{"durable": settings{"driver": "postgres", "dsn": db.DSN}}})
	in := d.serve(nil)
	working := make(chan struct{})
	d.app.reacts(func(dispatch) reaction { return reaction{until: working} })
	sent := make([]message, 20)
	texts := make([]string, len(sent))
	for i := range sent {
		sent[i] = d.write(install("bot-a"))
		texts[i] = sent[i].text
	}
	for range 2 {
		for _, got := range storm(len(sent), func(i int) *http.Request { return sent[i].request(t, in) }) {
			if got.status != http.StatusOK || got.took > soon {
				t.Errorf("answered %v after %s", got, got.took)
			}
		}
	}
	d.app.awaitDispatches(t, len(sent))
	conn, err := pgx.Connect(t.Context(), db.SuperDSN)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // it was only read
	await(t, "no transaction is open", func() bool {
		var open int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = $1 AND pid <> pg_backend_pid() AND state <> 'idle'`, db.Name).Scan(&open); err != nil {
			t.Fatalf("pg_stat_activity: %v", err)
		}
		return open == 0
	})
	close(working)
	d.once(texts...)
}
