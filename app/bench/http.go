package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/app/bench/load"
	"github.com/admitone/admitone/app/bench/rig"
)

// What is measured over HTTP. L is the limit, O the ordinary handler with the settings that its
// libraries have by default, T the same tuned.
type measure int

const (
	limit measure = iota
	repeatsOrdinary
	repeatsElsewhere // of events that another instance has handled: Redis knows them
	repeatsHere      // of events that this instance has handled: it knows them itself
	firstsOrdinary
	firstsTuned
	firstsOpen // without row-level security
	firsts
	measures
)

func (m measure) String() string {
	return [measures]string{
		"L  no store", "O  duplicates", "duplicates, known to Redis", "duplicates, known in process", "O  first deliveries",
		"T  first deliveries", "first deliveries, tenants not kept apart", "first deliveries",
	}[m]
}

// ordinary returns what m is compared with.
func (m measure) ordinary() (measure, bool) {
	switch m {
	case repeatsElsewhere, repeatsHere:
		return repeatsOrdinary, true
	case firsts:
		return firstsOrdinary, true
	case limit, repeatsOrdinary, firstsOrdinary, firstsTuned, firstsOpen, measures:
	}
	return 0, false
}

const (
	// repeated is how many events are sent again and again.
	repeated = 4096
	// perSecond is more than any contestant takes of events that it has not seen.
	perSecond = 30_000
	// settleTimeout is how long the events of one turn may take to be handled.
	settleTimeout = 2 * time.Minute
)

// An arena is what is measured over HTTP.
type arena struct {
	*bench
	sender   *sender
	limit    *contestant
	ordinary *contestant
	tuned    *contestant
	server   *contestant
	watch    *pgx.Conn // to the server's database
	next     int       // number of the next event that nobody has seen
}

// A sample is one turn.
type sample struct {
	rate, settled float64 // answers with 200 and events handled, per second
	p50, p99      time.Duration
	refused       float64 // answers with another status, of all
	commits       float64 // that wrote anything, per answer with 200
	cost          cost    // per answer with 200
}

// cost is CPU time by who used it.
type cost struct{ server, postgres, redis, sender time.Duration }

func (c cost) total() time.Duration { return c.server + c.postgres + c.redis + c.sender }

func (b *bench) http(ctx context.Context) (err error) {
	a := &arena{bench: b}
	dsn, err := b.postgres.Database(ctx, "admitone")
	if err != nil {
		return err
	}
	ordinaryDSN, err := b.postgres.Database(ctx, "ordinary")
	if err != nil {
		return err
	}
	if a.sender, err = b.startSender(); err != nil {
		return err
	}
	defer a.sender.Stop(syscall.SIGTERM)
	if a.limit, err = b.startChild(ctx, childLimit); err != nil {
		return err
	}
	defer a.limit.Stop(syscall.SIGTERM)
	if a.ordinary, err = b.startChild(ctx, childOrdinary, envDSN+"="+ordinaryDSN, envRedis+"="+b.redis.URL(1)); err != nil {
		return err
	}
	defer a.ordinary.Stop(syscall.SIGTERM)
	if a.tuned, err = b.startChild(ctx, childOrdinary, envDSN+"="+ordinaryDSN, envRedis+"="+b.redis.URL(1), envTuned+"=1"); err != nil {
		return err
	}
	defer a.tuned.Stop(syscall.SIGTERM)
	if a.server, err = b.startServer(ctx, dsn, b.redis.URL(0), ""); err != nil {
		return err
	}
	defer func() { a.server.Stop(syscall.SIGTERM) }()
	if a.watch, err = pgx.Connect(ctx, b.postgres.SuperDSN("admitone")); err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { err = errors.Join(err, a.watch.Close(context.WithoutCancel(ctx))) }()

	// what the first server handles is known to the second by Redis alone
	if err := a.prime(ctx, a.server, 0); err != nil {
		return err
	}
	a.server.Stop(syscall.SIGTERM)
	if a.server, err = b.startServer(ctx, dsn, b.redis.URL(0), ""); err != nil {
		return err
	}
	if err := a.prime(ctx, a.server, repeated); err != nil {
		return err
	}
	if err := a.prime(ctx, a.ordinary, 0); err != nil {
		return err
	}
	a.next = 2 * repeated

	empty, err := a.rounds(ctx)
	if err != nil {
		return err
	}
	b.tellHTTP("few", empty)
	if b.fill > 0 {
		if err := b.fillStores(ctx); err != nil {
			return err
		}
		full, err := a.rounds(ctx)
		if err != nil {
			return err
		}
		b.tellHTTP(fmt.Sprint(b.fill), full)
	}
	return a.audit(ctx)
}

// prime has the events handled that will be repeated.
func (a *arena) prime(ctx context.Context, to *contestant, first int) error {
	r, err := a.sender.do(a.job(to, 16, load.Job{Duration: time.Minute, First: first, Events: repeated}), nil)
	if err != nil {
		return err
	}
	if r.OK() != repeated {
		return fmt.Errorf("%d events were sent and answered with %v", repeated, r.Answers)
	}
	return a.settle(ctx)
}

func (a *arena) job(to *contestant, connections int, j load.Job) load.Job {
	j.Addr, j.Path, j.Secret, j.Account = to.addr, path, secret, account
	j.Connections, j.Conversations = connections, a.conversations
	return j
}

// settle waits until no event is open.
func (a *arena) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		var open bool
		// only these rows are in the index of conversations
		if err := a.watch.QueryRow(ctx, `SELECT EXISTS (SELECT FROM receipts WHERE lane IS NOT NULL)`).Scan(&open); err != nil {
			return fmt.Errorf("look whether all events are handled: %w", err)
		}
		if !open {
			return nil
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("events stay open: %w", err)
		}
	}
}

// audit makes sure that what was measured was done.
func (a *arena) audit(ctx context.Context) error {
	var unhandled int
	if err := a.watch.QueryRow(ctx, `SELECT count(*) FROM receipts WHERE state <> 'handled'`).Scan(&unhandled); err != nil {
		return fmt.Errorf("count what was not handled: %w", err)
	}
	if unhandled > 0 {
		return fmt.Errorf("%d events were admitted and not handled", unhandled)
	}
	return nil
}

// results are samples by connections, measure and round.
type results map[int]*[measures][]sample

func (a *arena) rounds(ctx context.Context) (results, error) {
	all := results{}
	for m := range measures { // warm up
		if _, err := a.turn(ctx, m, 16, a.round/4, ""); err != nil {
			return nil, err
		}
	}
	for _, connections := range a.connections {
		r := &[measures][]sample{}
		all[connections] = r
		for round := range a.bench.rounds {
			for i := range measures {
				m := (i + measure(round)) % measures // whoever follows whom changes
				profile := ""
				if a.profiles != "" && round == 0 {
					profile = fmt.Sprintf("%s-%d.pprof", [measures]string{repeatsElsewhere: "duplicates-redis", repeatsHere: "duplicates", firsts: "firsts"}[m], connections)
				}
				s, err := a.turn(ctx, m, connections, a.round, profile)
				if err != nil {
					return nil, fmt.Errorf("%s at %d connections: %w", m, connections, err)
				}
				r[m] = append(r[m], s)
			}
		}
	}
	return all, nil
}

// turn lets one contestant work for d. A profile of the server is kept if it has a name.
func (a *arena) turn(ctx context.Context, m measure, connections int, d time.Duration, profile string) (s sample, err error) {
	to, j := a.server, load.Job{Duration: d, Events: repeated, Again: true}
	switch m {
	case limit:
		to = a.limit
	case repeatsOrdinary:
		to = a.ordinary
	case repeatsHere:
		j.First = repeated
	case firstsOrdinary, firstsTuned, firstsOpen, firsts:
		to = map[measure]*contestant{firstsOrdinary: a.ordinary, firstsTuned: a.tuned, firstsOpen: a.server, firsts: a.server}[m]
		j.First, j.Events, j.Again = a.next, int(perSecond*d.Seconds()), false
		a.next += j.Events
	case repeatsElsewhere, measures:
	}
	if m == firstsOpen {
		if err := a.secure(ctx, "DISABLE"); err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, a.secure(ctx, "ENABLE")) }()
	}
	done := make(chan error, 1)
	var began func()
	if profile != "" && to.profile != "" {
		began = func() { done <- to.keepProfile(ctx, filepath.Join(a.profiles, profile), d) }
	} else {
		done <- nil
	}
	before, err := a.used(to)
	if err != nil {
		return s, err
	}
	commitsBefore, err := a.commits(ctx)
	if err != nil {
		return s, err
	}
	r, err := a.sender.do(a.job(to, connections, j), began)
	if err != nil {
		return s, err
	}
	ended := r.Elapsed
	if m == firsts || m == firstsOpen {
		if err := a.settle(ctx); err != nil {
			return s, err
		}
		ended = time.Since(r.Start)
	}
	after, err := a.used(to)
	if err != nil {
		return s, err
	}
	commits, err := a.commits(ctx)
	if err != nil {
		return s, err
	}
	if err := <-done; err != nil {
		return s, err
	}
	if err := wrong(m, r); err != nil {
		return s, err
	}
	n := r.OK()
	total := 0
	for _, count := range r.Answers {
		total += count
	}
	each := time.Duration(n)
	switch m { // what a contestant does not use worked on for others
	case limit:
		after.postgres, after.redis = before.postgres, before.redis
	case repeatsOrdinary:
		after.postgres = before.postgres
	case repeatsElsewhere, repeatsHere, firstsOrdinary, firstsTuned, firstsOpen, firsts, measures:
	}
	return sample{
		rate: float64(n) / r.Elapsed.Seconds(), settled: float64(n) / ended.Seconds(), p50: r.P50, p99: r.P99,
		refused: float64(total-n) / float64(total), commits: float64(commits-commitsBefore) / float64(n),
		cost: cost{
			server: (after.server - before.server) / each, postgres: (after.postgres - before.postgres) / each,
			redis: (after.redis - before.redis) / each, sender: r.CPU / each,
		},
	}, nil
}

// secure turns row-level security on or off, under a server that took it to be on when it began.
func (a *arena) secure(ctx context.Context, how string) error {
	rows, err := a.watch.Query(ctx, `SELECT relname FROM pg_class WHERE relforcerowsecurity ORDER BY relname`)
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	for _, t := range tables {
		if _, err := a.watch.Exec(ctx, "ALTER TABLE "+t+" "+how+" ROW LEVEL SECURITY"); err != nil {
			return fmt.Errorf("row-level security of %s: %w", t, err)
		}
	}
	return nil
}

// wrong returns an error if the answers are not those that m is about.
func wrong(m measure, r load.Result) error {
	want := map[measure]string{repeatsElsewhere: "duplicate", repeatsHere: "duplicate", firstsOpen: "admitted", firsts: "admitted"}[m]
	if want == "" {
		want = "200"
	}
	for answer, n := range r.Answers {
		if answer != want && answer != "503" {
			return fmt.Errorf("answer %q came %d times; want %q", answer, n, want)
		}
	}
	if r.Answers[want] == 0 {
		return fmt.Errorf("answers are %v; want %q", r.Answers, want)
	}
	return nil
}

// commits returns how many transactions have written anything so far, in all databases.
func (a *arena) commits(ctx context.Context) (n int64, err error) {
	if err = a.watch.QueryRow(ctx, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&n); err != nil {
		return 0, fmt.Errorf("count commits: %w", err)
	}
	return n, nil
}

func (a *arena) used(by *contestant) (c cost, err error) {
	var errs [3]error
	c.server, errs[0] = rig.CPU(by.PID())
	c.postgres, errs[1] = rig.CPU(a.postgres.PID())
	c.redis, errs[2] = rig.CPU(a.redis.PID())
	return c, errors.Join(errs[:]...)
}

// keepProfile writes a CPU profile over d, in whole seconds, to file.
func (c *contestant) keepProfile(ctx context.Context, file string, d time.Duration) (err error) {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", c.profile, max(1, int(d.Seconds())))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("take a profile: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read only
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("keep a profile: %w", err)
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("keep a profile: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(f, resp.Body)
	return err
}
