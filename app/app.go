// Package app puts the server together: it alone knows every part. What each part needs is
// said by its constructor here, and fx finds the order; hooks are appended by the constructor
// of what they start, so that everything ends in the reverse order of its beginning.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/admitone/admitone/adapters/httpdispatch"
	"github.com/admitone/admitone/adapters/journal"
	"github.com/admitone/admitone/adapters/logdispatch"
	"github.com/admitone/admitone/adapters/memory"
	"github.com/admitone/admitone/adapters/redis"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/app/config"
	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// How long the parts may take. Each bounds itself: fx runs no stop hook after a start that
// it had to cut off.
const (
	openTimeout  = 2 * time.Minute // migrations included
	startTimeout = 10 * time.Second
	stopTimeout  = 5 * time.Second // of each part, after the drain
)

// Options returns the whole server for a configuration and a build's channels. Whoever runs
// it gives it to fx.New; extra options may add channels by channels.Module.
func Options(cfg *config.Config, chs []channels.Channel, log *slog.Logger) fx.Option {
	modules := make([]fx.Option, len(chs))
	for i, c := range chs {
		modules[i] = channels.Module(c)
	}
	return fx.Options(
		fx.Supply(cfg, log),
		fx.Options(modules...),
		fx.Provide(
			newRegistry, newDurableStore, newFastStore, newJournal, newDispatcher, newDirectory, newEngine, newPublic, newAdmin,
		),
		fx.Invoke(drainFirst),
		fx.StartTimeout(openTimeout),
		fx.StopTimeout(cfg.Server.DrainTimeout+8*stopTimeout),
		fx.WithLogger(func() fxevent.Logger {
			l := &fxevent.SlogLogger{Logger: log}
			l.UseLogLevel(slog.LevelDebug)
			return l
		}),
	)
}

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// StoreConfig returns where the configuration keeps receipts.
func StoreConfig(cfg *config.Config) sqlstore.Config {
	c := sqlstore.Config{
		Dialect:    migrations.SQLite,
		DSN:        string(cfg.Store.Durable.DSN),
		Migrate:    cfg.Store.Durable.Migrate,
		MigrateDSN: string(cfg.Store.Durable.MigrateDSN),
		SecretKeys: cfg.Store.Durable.SecretKey,
	}
	if cfg.Store.Durable.Driver == config.Postgres {
		c.Dialect = migrations.Postgres
	}
	return c
}

type durable struct {
	fx.Out
	Store         ports.DurableStore
	Ledger        ports.Ledger
	Conversations ports.Conversations
	Polls         ports.PollStore
	Installations ports.Installations
	Quarantine    ports.Quarantine
}

func newDurableStore(lc fx.Lifecycle, cfg *config.Config) (durable, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	s, err := sqlstore.Open(ctx, StoreConfig(cfg))
	if err != nil {
		return durable{}, fmt.Errorf("store.durable: %w", err)
	}
	lc.Append(fx.StopHook(s.Close))
	return durable{Store: s, Ledger: s, Conversations: s, Polls: s, Installations: s, Quarantine: s}, nil
}

// OpenFastStore returns the fast store of the configuration, or nil if it has none.
func OpenFastStore(cfg *config.Config, log *slog.Logger) (ports.FastStore, error) {
	switch cfg.Store.Fast.Driver {
	case config.Memory:
		return memory.New(memory.Config{})
	case config.Redis:
		return redis.New(redis.Config{
			URL: string(cfg.Store.Fast.URL), Timeout: cfg.Store.Fast.Timeout,
			OnError: func(err error) { log.Debug("the fast store did not answer", "error", err) },
		})
	}
	return nil, nil //nolint:nilnil // no fast store is a choice
}

func newFastStore(lc fx.Lifecycle, cfg *config.Config, log *slog.Logger) (ports.FastStore, error) {
	s, err := OpenFastStore(cfg, log)
	if err != nil {
		return nil, fmt.Errorf("store.fast: %w", err)
	}
	if s != nil {
		lc.Append(fx.StopHook(s.Close))
	}
	return s, nil
}

func newJournal(lc fx.Lifecycle, cfg *config.Config, log *slog.Logger) (ports.Journal, error) {
	if cfg.Store.Journal.Path == "" {
		return nil, nil //nolint:nilnil // no journal is a choice
	}
	j, err := journal.Open(journal.Config{
		Path: cfg.Store.Journal.Path, MaxBytes: int64(cfg.Store.Journal.MaxBytes), Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("store.journal.path: %w", err)
	}
	lc.Append(fx.StopHook(j.Close))
	return j, nil
}

func newDispatcher(lc fx.Lifecycle, cfg *config.Config, log *slog.Logger) (ports.Dispatcher, error) {
	d, err := openDispatcher(cfg, log)
	if err != nil {
		return nil, fmt.Errorf("dispatch: %w", err)
	}
	lc.Append(fx.StopHook(d.Close))
	return d, nil
}

func openDispatcher(cfg *config.Config, log *slog.Logger) (ports.Dispatcher, error) {
	if cfg.Dispatch.Target == config.TargetLog {
		return logdispatch.New(log), nil
	}
	return httpdispatch.New(httpdispatch.Config{
		URL: string(cfg.Dispatch.HTTP.URL), Secrets: cfg.Dispatch.HTTP.Secret, Timeout: cfg.Dispatch.HTTP.Timeout,
		Workers: cfg.Dispatch.Workers,
	})
}

type directoryParams struct {
	fx.In
	Config        *config.Config
	Channels      []channels.Channel `group:"channels"`
	Installations ports.Installations
	Log           *slog.Logger
}

func newDirectory(p directoryParams) (*intake.Directory, error) {
	d, err := Directory(p.Config, p.Channels)
	if err != nil {
		return nil, err
	}
	return d, d.Extend(p.Installations, newKept(p.Config, p.Channels).open, p.Log)
}

// Directory opens the endpoint of every installation and app-wide address that the
// configuration has. Its error is the join of all that can't be opened.
func Directory(cfg *config.Config, chs []channels.Channel) (*intake.Directory, error) {
	enabled := make(map[string]channels.Channel, len(chs))
	appWide := map[string]intake.AppWide{}
	var errs []error
	for _, c := range chs {
		if !cfg.Enabled(c.Name) {
			continue
		}
		enabled[c.Name] = c
		cred, ok := cfg.AppWide(c.Name)
		if !ok {
			continue
		}
		ep, err := c.Open(cred)
		if err != nil {
			errs = append(errs, fmt.Errorf("channels.%s: %w", c.Name, err))
			continue
		}
		appWide[c.Name] = intake.AppWide{PublicURL: cfg.PublicURL(cred.Settings), Endpoint: ep}
	}
	var installations []intake.Installation
	for in := range cfg.Installations() {
		c, ok := enabled[in.Channel]
		if !ok {
			continue // switched off
		}
		i, err := ready(cfg, c, in)
		if err != nil {
			errs = append(errs, fmt.Errorf("installation %s: %w", in.ID, err))
			continue
		}
		installations = append(installations, i)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return intake.NewDirectory(cfg.PolicyFor("", ""), installations, appWide)
}

type engineParams struct {
	fx.In
	Lifecycle  fx.Lifecycle
	Config     *config.Config
	Channels   []channels.Channel `group:"channels"`
	Directory  *intake.Directory
	Fast       ports.FastStore
	Durable    ports.DurableStore
	Polls      ports.PollStore
	Quarantine ports.Quarantine
	Journal    ports.Journal
	Dispatcher ports.Dispatcher
	Registry   *prometheus.Registry
	Log        *slog.Logger
}

func newEngine(p engineParams) (*intake.Engine, error) {
	enabled := make([]channels.Channel, 0, len(p.Channels))
	for _, c := range p.Channels {
		if p.Config.Enabled(c.Name) {
			enabled = append(enabled, c)
		}
	}
	e, err := intake.New(intake.Params{
		Config: intake.Config{
			Workers: p.Config.Dispatch.Workers, Queue: p.Config.Dispatch.Queue, MaxBody: int64(p.Config.Server.MaxBody),
			Target: p.Config.Dispatch.Target,
		},
		Channels: enabled, Installations: p.Directory, FastStore: p.Fast, DurableStore: p.Durable, Polls: p.Polls, Quarantine: p.Quarantine,
		Journal: p.Journal, Dispatcher: p.Dispatcher,
		Metrics: intake.NewMetrics(p.Registry), Logger: p.Log,
	})
	if err != nil {
		return nil, err
	}
	p.Lifecycle.Append(fx.StartStopHook(within(startTimeout, e.Start), within(stopTimeout, e.Close)))
	return e, nil
}

// within bounds a hook by a deadline of its own.
func within(d time.Duration, hook func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return hook(ctx)
	}
}

// cutOff stops a listener. A client that does not end its request does not make a drain fail:
// what it asked for is refused or done, and its receipt tells which.
func cutOff(s *web.Server, log *slog.Logger) func(context.Context) {
	return func(ctx context.Context) {
		if err := within(stopTimeout, s.Stop)(ctx); err != nil {
			log.Warn("a listener did not end by itself", "error", err)
		}
	}
}

// Public is the listener that vendors reach.
type Public struct{ *web.Server }

// Admin is the listener for people and monitoring.
type Admin struct{ *web.Server }

func newPublic(lc fx.Lifecycle, cfg *config.Config, e *intake.Engine, log *slog.Logger, stop fx.Shutdowner) Public {
	s := web.NewServer(web.ServerConfig{
		Listen:  cfg.Server.Listen,
		Handler: web.Public(web.PublicConfig{Inbound: e, Log: log, Refused: e.Refused}),
		Log:     log,
		Failed:  failed(stop, log),
	})
	lc.Append(fx.StartStopHook(within(startTimeout, s.Start), cutOff(s, log)))
	return Public{s}
}

type adminParams struct {
	fx.In
	Lifecycle     fx.Lifecycle
	Config        *config.Config
	Channels      []channels.Channel `group:"channels"`
	Engine        *intake.Engine
	Directory     *intake.Directory
	Ledger        ports.Ledger
	Conversations ports.Conversations
	Polls         ports.PollStore
	Kept          ports.Installations
	Quarantine    ports.Quarantine
	Durable       ports.DurableStore
	Fast          ports.FastStore
	Journal       ports.Journal
	Registry      *prometheus.Registry
	Log           *slog.Logger
	Stop          fx.Shutdowner
}

func newAdmin(p adminParams) (Admin, error) {
	p.Registry.MustRegister(newLedgerMetrics(p.Ledger, p.Log), newPollMetrics(p.Polls, p.Directory, p.Log))
	h, err := web.Admin(web.AdminConfig{
		Tokens:        p.Config.Server.AdminToken,
		Ledger:        p.Ledger,
		Conversations: p.Conversations,
		Content:       p.Engine.Content,
		Polls:         p.Polls,
		Ready:         readiness(p.Engine, p.Durable, p.Fast, p.Journal),
		Stats:         func(context.Context) web.Counters { return counters(p.Registry, p.Log) },
		Metrics:       promhttp.HandlerFor(p.Registry, promhttp.HandlerOpts{}),
		Nudge:         p.Engine.Nudge,
		Installations: p.Kept, Quarantine: p.Quarantine, CheckInstallation: newKept(p.Config, p.Channels).check,
		InstallationChanged: p.Directory.Changed, Recheck: p.Engine.Recheck,
		Log: p.Log,
	})
	if err != nil {
		return Admin{}, err
	}
	s := web.NewServer(web.ServerConfig{Listen: p.Config.Server.AdminListen, Handler: h, Log: p.Log, Failed: failed(p.Stop, p.Log)})
	p.Lifecycle.Append(fx.StartStopHook(within(startTimeout, s.Start), cutOff(s, p.Log)))
	return Admin{s}, nil
}

func failed(stop fx.Shutdowner, log *slog.Logger) func(error) {
	return func(err error) {
		log.Error("a listener ended", "error", err)
		_ = stop.Shutdown(fx.ExitCode(1)) // fails only if the application is stopping already
	}
}

// drainFirst is the root of the graph. Its hook is appended last, so that it runs first when
// the server stops: while running dispatches end, vendors and monitoring are still answered.
func drainFirst(lc fx.Lifecycle, cfg *config.Config, e *intake.Engine, public Public, admin Admin, log *slog.Logger) {
	lc.Append(fx.StartStopHook(
		func() {
			log.Info("admitting", "listen", public.Addr(), "admin", admin.Addr(), "instance", e.Holder())
		},
		func(ctx context.Context) error {
			log.Info("draining", "instance", e.Holder())
			ctx, cancel := context.WithTimeout(ctx, cfg.Server.DrainTimeout)
			defer cancel()
			if err := e.Drain(ctx); err != nil {
				log.Warn("dispatches are still running; their receipts show what became of them", "error", err)
			}
			return nil
		},
	))
}
