// Package torture puts the server to the test on somebody's own machine: several instances as
// processes of their own, vendors that send by their own rules, an application that fails, and a
// storm of kills, halts and broken networks around them. When the storm is over it compares what
// the vendors were told, what the application got and what the ledger says, and names every
// contradiction of the promises.
//
// What is sent, how the application takes it and which harm is done follow from a seed; how the
// processes and the machine interleave does not.
package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// tenantPrefix begins the name of every tenant of every run.
const tenantPrefix = "torture-"

const (
	// settlePatience is how long the instances may take to bring everything to its end after the storm.
	settlePatience = 60 * time.Second
	// maxReplays is how many receipts of each tenant are dispatched again by hand after the storm.
	maxReplays = 20
	// auditGrace is how long after its time an open receipt counts as stuck.
	auditGrace = 10 * time.Second
)

// A Crash ends a store's server at once, as kill -9 does, and returns what starts it again at the same
// address. That returns when the server can be used, and fails if that takes too long.
type Crash func() (restart func(context.Context) error, err error)

// Options say how the servers are put to the test.
type Options struct {
	Postgres  string // URL of a database; empty: embedded stores, in one file for all instances
	Redis     string // URL of a server; empty: each instance's memory
	Instances int
	Events    int
	Seed      uint64
	TimeScale float64       // by how much the vendors' deadlines and waits are divided
	Duration  time.Duration // of the storm, at least: it lasts until all events have been sent
	Channels  []channels.Channel
	Out       io.Writer
	Live      bool // Out is a terminal, on which a line can be overwritten

	// What whoever started the stores lets be killed: Postgres must come back with all that it has
	// committed, and Redis may come back empty. A store without is left running.
	CrashPostgres, CrashRedis Crash
}

// A Report is what came of a run.
type Report struct {
	Sums       []ports.Sum
	Violations []Violation // at most some hundred
	Total      int         // of violations
}

// Run tortures servers until all is sent, waits until they have brought it to its end, and checks
// the promises. Its error says that the test itself could not be carried out.
func Run(ctx context.Context, o Options) (report Report, err error) {
	dir, err := os.MkdirTemp("", "admitone-torture-")
	if err != nil {
		return Report{}, fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &run{Options: o, dir: dir, began: time.Now(), screen: &screen{w: o.Out, live: o.Live}}
	if err := r.prepare(ctx); err != nil {
		return Report{}, errors.Join(err, r.close())
	}
	defer func() { err = errors.Join(err, r.close()) }()
	return r.play(ctx)
}

// A run is one torture.
type run struct {
	Options
	dir    string
	began  time.Time
	screen *screen

	plan        *plan
	checker     *checker
	store       *sqlstore.Store
	application *application
	fleet       *fleet
	vendors     *vendors
	storm       *storm
}

func (r *run) prepare(ctx context.Context) error {
	var err error
	name := strconv.FormatInt(time.Now().UnixMilli(), 36)
	if r.plan, err = newPlan(r.Seed, name, r.Channels); err != nil {
		return err
	}
	r.checker = newChecker(r.plan, r.Events)
	accuse := func(format string, a ...any) {
		r.checker.mu.Lock()
		defer r.checker.mu.Unlock()
		r.checker.violate("run", -1, uuid.UUID{}, format, a...)
	}
	st := stores{postgres: r.Postgres, redis: r.Redis}
	cfg := sqlstore.Config{Dialect: migrations.Postgres, DSN: r.Postgres, Migrate: true}
	if r.Postgres == "" {
		st.sqlite = filepath.Join(r.dir, "admitone.db")
		cfg.Dialect, cfg.DSN = migrations.SQLite, st.sqlite
	}
	if r.store, err = sqlstore.Open(ctx, cfg); err != nil {
		return fmt.Errorf("durable store: %w", err)
	}
	if err := r.alone(ctx); err != nil {
		return err
	}
	if r.application, err = startApplication(ctx, r.Seed, filepath.Join(r.dir, "begins"), accuse); err != nil {
		return err
	}
	if r.fleet, err = newFleet(ctx, r.dir, r.Instances, st, r.plan, r.application.url(), accuse); err != nil {
		return err
	}
	r.vendors = newVendors(r.plan, r.fleet, r.checker, r.TimeScale)
	r.storm = &storm{
		fleet: r.fleet, application: r.application, sqlite: st.sqlite,
		crashPostgres: r.CrashPostgres, crashRedis: r.CrashRedis, counts: map[string]int{},
	}
	if r.Redis != "" {
		o, err := goredis.ParseURL(r.Redis)
		if err != nil {
			return errors.New("--redis: must be the URL of one server") // the library's error would show it
		}
		r.storm.redis = goredis.NewClient(o)
	}
	return nil
}

// alone refuses a database that is in use: instances would take up what waits there.
func (r *run) alone(ctx context.Context) error {
	counts, err := r.store.Counts(ctx)
	if err != nil {
		return fmt.Errorf("durable store: %w", err)
	}
	tenants, err := r.store.Tenants(ctx)
	if err != nil {
		return fmt.Errorf("durable store: %w", err)
	}
	for _, t := range tenants {
		if !strings.HasPrefix(t, tenantPrefix) {
			return fmt.Errorf("--postgres: the database holds receipts of tenant %s; torture needs one of its own", t)
		}
	}
	for _, c := range counts {
		if c.State.Open() {
			return fmt.Errorf("--postgres: the database holds open receipts of a run that was broken off (tenant %s); use another database", c.Tenant)
		}
	}
	return nil
}

func (r *run) close() error {
	var errs []error
	if r.vendors != nil {
		r.vendors.client.CloseIdleConnections()
	}
	if r.fleet != nil {
		r.fleet.close()
	}
	if r.storm != nil && r.storm.redis != nil {
		errs = append(errs, r.storm.redis.Close())
	}
	if r.application != nil {
		errs = append(errs, r.application.close())
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	return errors.Join(errs...)
}

func (r *run) play(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()

	r.screen.say("Admitone torture: %d instances, %d events by %d channels, seed %d.", r.Instances, r.Events, len(r.Channels), r.Seed)
	for _, in := range r.fleet.instances {
		if err := in.start(); err != nil {
			return Report{}, err
		}
	}
	if err := r.fleet.ready(ctx, r.vendors.client); err != nil {
		return Report{}, err
	}
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	var watch sync.WaitGroup
	watch.Go(func() { r.fleet.watch(watching, r.vendors.client) })
	background.Go(watch.Wait)
	r.vendors.began = time.Now()
	background.Go(func() { r.vendors.run(ctx) })
	background.Go(func() { r.screen.progress(ctx, r.line) })

	r.application.mood.Store(uint32(usual))
	harm, calmDown := context.WithCancel(ctx)
	defer calmDown()
	var harming sync.WaitGroup
	harming.Go(func() { r.storm.run(harm, r.Seed) })
	err := r.vendors.storm(ctx, r.Events, r.Duration)
	calmDown()
	harming.Wait()
	if err != nil {
		return Report{}, err
	}
	r.screen.say("%s", r.line())
	if err := r.quiet(ctx); err != nil {
		return Report{}, err
	}
	unwatch()
	watch.Wait()
	r.fleet.stop()
	report, err := r.check(ctx)
	cancel() // the progress line ends
	return report, err
}

// quiet lets everything come to its end: the vendors' retries, late copies, replays.
func (r *run) quiet(ctx context.Context) error {
	if err := r.fleet.ready(ctx, r.vendors.client); err != nil {
		return err
	}
	if err := r.vendors.done(ctx); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	r.vendors.late(r.Events)
	if err := r.vendors.done(ctx); err != nil {
		return err
	}
	if err := r.replay(ctx); err != nil {
		return err
	}
	return r.settle(ctx)
}

// settle waits until no receipt is open and no journal holds anything. What is open after that
// is told by the check.
func (r *run) settle(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	err := poll(limited, 250*time.Millisecond, func() (bool, error) {
		n, err := r.fleet.journalled(limited, r.vendors.client)
		if err != nil || n > 0 {
			return false, nil //nolint:nilerr // an instance that does not tell is asked again
		}
		counts, err := r.store.Counts(limited)
		if err != nil {
			return false, fmt.Errorf("durable store: %w", err)
		}
		return !slices.ContainsFunc(counts, func(c ports.Count) bool { return c.State.Open() }), nil
	})
	if limited.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// replay dispatches some failed receipts again, as an operator would. Lost ones stay as they are,
// so that the check can ask why.
func (r *run) replay(ctx context.Context) error {
	for _, tenant := range r.tenants() {
		page, err := r.store.Receipts(ctx, ports.Filter{Tenant: tenant, State: domain.Failed, Limit: maxReplays})
		if err != nil {
			return fmt.Errorf("durable store: %w", err)
		}
		for _, x := range page.Receipts {
			id, err := uuid.Parse(x.ID)
			if err != nil {
				return fmt.Errorf("receipt %q: %w", x.ID, err)
			}
			r.checker.replay(id)
			if err := r.store.Replay(ctx, x.ID, "torture"); err != nil {
				return fmt.Errorf("replay %s: %w", x.ID, err)
			}
		}
	}
	return nil
}

func (r *run) mine(tenant string) bool {
	return slices.ContainsFunc(r.plan.installations, func(in *installation) bool { return in.tenant == tenant })
}

// check compares everything with everything.
func (r *run) check(ctx context.Context) (Report, error) {
	c := r.checker
	var err error
	if c.holders, err = r.fleet.names(); err != nil {
		return Report{}, err
	}
	c.incidents, c.oneFile = r.fleet.incidents, r.storm.sqlite != ""
	if err := r.application.log.read(c.begun); err != nil {
		return Report{}, err
	}
	for _, tenant := range r.tenants() {
		for cursor := ""; ; {
			page, err := r.store.Receipts(ctx, ports.Filter{Tenant: tenant, Limit: 1000, Cursor: cursor})
			if err != nil {
				return Report{}, fmt.Errorf("durable store: %w", err)
			}
			for _, x := range page.Receipts {
				c.receipt(x)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
	}
	c.finish()
	audit, err := r.store.Audit(ctx, auditGrace, maxKept)
	if err != nil {
		return Report{}, fmt.Errorf("durable store: %w", err)
	}
	report := r.balance(audit)
	r.print(ctx, report)
	return report, nil
}

// balance checks the sums of the ledger and makes the report.
func (r *run) balance(audit ports.Audit) (report Report) {
	c := r.checker
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range audit.Sums {
		if !r.mine(s.Tenant) {
			continue
		}
		report.Sums = append(report.Sums, s)
		if !s.Balanced() {
			c.violate("P9", -1, uuid.UUID{}, "the receipts of tenant %s, platform %s, do not add up", s.Tenant, s.Platform)
		}
	}
	for _, f := range audit.Findings {
		if id, err := uuid.Parse(f.Receipt.ID); err == nil && r.mine(f.Receipt.Key.Tenant) {
			c.violate("P8", -1, id, "%s", f.Why)
		}
	}
	report.Violations, report.Total = c.violations, c.total
	return report
}

func (r *run) tenants() []string {
	of := map[string]bool{}
	for _, in := range r.plan.installations {
		of[in.tenant] = true
	}
	return slices.Sorted(maps.Keys(of))
}
