package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/fx"
	"modernc.org/sqlite"

	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/app/config"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A stop is where a server stands still for good, so that it can be killed there and nowhere
// else. The test binary is that server: the product knows nothing of it.
type stop string

const (
	beforeClaim         stop = "before claim"
	afterClaim          stop = "after claim" // one that was won
	beforeBegin         stop = "before begin"
	afterBegin          stop = "after begin"
	beforeSettle        stop = "before settle"
	afterSettle         stop = "after settle"
	afterRemember       stop = "after remember"
	beforeJournalAppend stop = "before journal append"
	afterJournalAppend  stop = "after journal append"
	beforeJournalRemove stop = "before journal remove"
	beforePrune         stop = "before prune"
	inPrune             stop = "in prune" // before the commit, on SQLite; elsewhere a lock has to hold it
	afterPrune          stop = "after prune"
)

// Variables of the environment by which the test binary is a server that stops.
const (
	stopVariable   = "E2E_STOP"
	configVariable = "E2E_CONFIG"
	// commitVariable numbers the commit of SQLite before which it stops, the first being 1.
	commitVariable = "E2E_STOP_AT_COMMIT"
)

// serveStopping runs a server to its stop, or until SIGTERM.
func serveStopping(at stop, file string) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	cfg, err := config.Load(file, os.Environ(), app.Channels())
	if err != nil {
		return err
	}
	h := &halter{at: at, log: log}
	if _, err := fmt.Sscan(os.Getenv(commitVariable), &h.commit); err != nil {
		h.commit = 0 // at none
	}
	h.watchCommits()
	a := fx.New(app.Options(cfg, app.Channels(), log), fx.Decorate(
		func(s ports.DurableStore) ports.DurableStore { return stoppingDurable{s, h} },
		func(s ports.FastStore) ports.FastStore { return stoppingFast{s, h} },
		func(j ports.Journal) ports.Journal {
			if j == nil {
				return nil
			}
			return stoppingJournal{j, h}
		},
	))
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := a.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return a.Stop(context.WithoutCancel(ctx))
}

// A halter stands still.
type halter struct {
	at      stop
	log     *slog.Logger
	commit  int64
	commits atomic.Int64
	pruning atomic.Bool
}

// pass returns unless the server is to stop here. Whoever comes here later stops too.
func (h *halter) pass(here stop) {
	if h.at == here {
		h.halt(string(here))
	}
}

func (h *halter) halt(here string) {
	h.log.Info("stopped", "at", here)
	<-make(chan struct{})
}

// watchCommits sees every commit of SQLite before it is made.
func (h *halter) watchCommits() {
	sqlite.RegisterConnectionHook(func(c sqlite.ExecQuerierContext, _ string) error {
		hooks, ok := c.(sqlite.HookRegisterer)
		if !ok {
			return errors.New("this build of SQLite tells of no commits")
		}
		hooks.RegisterCommitHook(func() int32 {
			if n := h.commits.Add(1); n == h.commit {
				h.halt(fmt.Sprintf("commit %d", n))
			}
			if h.pruning.Load() {
				h.pass(inPrune)
			}
			return 0
		})
		return nil
	})
}

type stoppingDurable struct {
	ports.DurableStore
	*halter
}

func (s stoppingDurable) Claim(ctx context.Context, receipts []domain.Receipt) []ports.Claim {
	s.pass(beforeClaim)
	claims := s.DurableStore.Claim(ctx, receipts)
	for _, c := range claims {
		if c.Won {
			s.pass(afterClaim)
		}
	}
	return claims
}

func (s stoppingDurable) Begin(ctx context.Context, ref ports.Ref, lease time.Duration) (int, error) {
	s.pass(beforeBegin)
	n, err := s.DurableStore.Begin(ctx, ref, lease)
	if err == nil {
		s.pass(afterBegin)
	}
	return n, err
}

func (s stoppingDurable) Settle(ctx context.Context, how ports.Settlement) error {
	s.pass(beforeSettle)
	err := s.DurableStore.Settle(ctx, how)
	if err == nil {
		s.pass(afterSettle)
	}
	return err
}

func (s stoppingDurable) Prune(ctx context.Context, scope ports.PruneScope, limit int) (int, error) {
	s.pass(beforePrune)
	s.pruning.Store(true)
	n, err := s.DurableStore.Prune(ctx, scope, min(limit, prunedAtOnce))
	s.pruning.Store(false)
	if n > 0 {
		s.pass(afterPrune)
	}
	return n, err
}

// prunedAtOnce makes a few old receipts several batches.
const prunedAtOnce = 2

// Beat prunes too if the server is to stop at that: of itself it would do so after a minute.
func (s stoppingDurable) Beat(ctx context.Context, holder string, ttl time.Duration) error {
	err := s.DurableStore.Beat(ctx, holder, ttl)
	if err == nil && (s.at == beforePrune || s.at == inPrune || s.at == afterPrune) {
		_, err = s.Prune(ctx, ports.PruneScope{Tenant: quietTenant, Receipts: time.Now().Add(-time.Hour)}, 1000)
	}
	return err
}

type stoppingFast struct {
	ports.FastStore
	*halter
}

func (s stoppingFast) Remember(ctx context.Context, key domain.Digest, content ports.Mark, ttl time.Duration) error {
	err := s.FastStore.Remember(ctx, key, content, ttl)
	s.pass(afterRemember)
	return err
}

type stoppingJournal struct {
	ports.Journal
	*halter
}

func (s stoppingJournal) Append(ctx context.Context, receipts []domain.Receipt) error {
	s.pass(beforeJournalAppend)
	err := s.Journal.Append(ctx, receipts)
	s.pass(afterJournalAppend)
	return err
}

func (s stoppingJournal) Remove(ctx context.Context, entries []ports.JournalEntry) error {
	if len(entries) > 0 {
		s.pass(beforeJournalRemove)
	}
	return s.Journal.Remove(ctx, entries)
}
