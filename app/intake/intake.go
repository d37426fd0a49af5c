// Package intake is the way of an event: it takes deliveries in, claims their events, hands
// them on, records how that ended, takes up what others left, and prunes.
//
// It knows the domain, the ports and the contract of a channel, and no adapter.
//
// The order for each delivery is: verify, extract, resolve the installation, ask the fast
// store, claim in the durable store, acknowledge; then, behind the acknowledgement, begin,
// dispatch, settle, remember. The acknowledgement never waits for the application, and
// nothing behind it uses the context of the request.
package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// Config is what an operator decided for the intake.
type Config struct {
	Workers int   // dispatches at a time
	Queue   int   // events admitted and not yet begun on this instance
	MaxBody int64 // bytes, for channels that say nothing
	Target  string
	// Rounds is how many accounts are polled at a time; 0 means 16.
	Rounds int
	// DispatchTimeout bounds one dispatch, with what the dispatcher needs besides.
	DispatchTimeout time.Duration
}

// Params are what an Engine works with. FastStore and Journal may be nil.
type Params struct {
	Config        Config
	Channels      []channels.Channel
	Installations *Directory
	Quarantine    ports.Quarantine // nil if there is none
	FastStore     ports.FastStore
	DurableStore  ports.DurableStore
	Polls         ports.PollStore // nil: nothing is polled
	Journal       ports.Journal
	Dispatcher    ports.Dispatcher
	Metrics       *Metrics
	Logger        *slog.Logger
}

// How often the loops behind the acknowledgement look around. An instance counts as gone
// when it has missed several beats; what it has claimed is then taken up by others.
const (
	beatEvery  = time.Second
	aliveFor   = 4 * time.Second
	sweepEvery = time.Second
	countEvery = 2 * time.Second
	pruneEvery = time.Minute
	breath     = 20 * time.Millisecond
	// rest is how many times as long as the last look round took a nudge waits: so no more than a
	// tenth of the time is spent by nudges, however much there is to look at.
	rest = 9
)

// An Engine is one instance's intake. Deliver is safe for concurrent use between Start and Close.
type Engine struct {
	Params
	holder   string // this instance, as receipts name it
	channels map[string]channels.Channel

	queue  *queue
	counts *deliveryCounts
	poller *poller // nil if nothing is polled

	confined chan struct{} // a place for each request that is being quarantined

	draining  atomic.Bool
	storeDown atomic.Bool   // the durable store did not answer of late
	nudged    chan struct{} // the sweep is wanted before its time
	pruneDue  chan struct{}
	settled   atomic.Int64
	stuck     map[string]time.Time // of the sweep alone: claimed receipts that it leaves alone, until when

	life     context.Context //nolint:containedctx // the loops' and the workers', ended by Close
	end      context.CancelFunc
	loops    sync.WaitGroup
	running  sync.WaitGroup // workers
	settling sync.WaitGroup
	settles  chan attempt  // ended, and yet to be recorded
	late     chan struct{} // a place for each late reminder of the fast store under way
	ended    sync.Once
}

var _ ports.Inbound = (*Engine)(nil)

// New returns an engine that does nothing yet.
func New(p Params) (*Engine, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("intake: draw an instance id: %w", err)
	}
	e := &Engine{
		Params:   p,
		holder:   id.String(),
		channels: make(map[string]channels.Channel, len(p.Channels)),
		counts:   newDeliveryCounts(),
		nudged:   make(chan struct{}, 1),
		pruneDue: make(chan struct{}, 1),
		confined: make(chan struct{}, confining),
		settles:  make(chan attempt),
		late:     make(chan struct{}, p.Config.Workers),
		stuck:    map[string]time.Time{},
	}
	e.queue = newQueue(p.Config.Queue, p.Config.Workers, p.Installations.Several, e.Nudge)
	for _, c := range p.Channels {
		e.channels[c.Name] = c
	}
	e.poller = newPoller(e)
	p.Metrics.gauge("queue_depth", "Events admitted and not yet begun on this instance.", e.queue.depth)
	journalled := func() int { return 0 }
	if p.Journal != nil {
		journalled = p.Journal.Len
	}
	p.Metrics.gauge("journal_events", "Events in the local journal of this instance.", journalled)
	return e, nil
}

// Holder returns the name of this instance in receipts.
func (e *Engine) Holder() string { return e.holder }

// Start makes the instance known and begins to work. It blocks until the durable store has
// committed the instance's first beat or ctx ends.
func (e *Engine) Start(ctx context.Context) error {
	if err := e.DurableStore.Beat(ctx, e.holder, aliveFor); err != nil {
		return fmt.Errorf("intake: first beat: %w", err)
	}
	e.life, e.end = context.WithCancel(context.WithoutCancel(ctx))
	for range e.Config.Workers {
		e.running.Go(e.work)
	}
	// Several to a worker, which goes on while its last outcome is committed. They stay: a
	// goroutine for each outcome would grow its stack anew each time.
	for range 4 * e.Config.Workers {
		e.settling.Go(e.settleAll)
	}
	e.settling.Go(func() {
		e.running.Wait()
		close(e.settles)
	})
	e.loops.Go(func() { e.Installations.watch(e.life) })
	e.loops.Go(func() { e.every(beatEvery, nil, e.beat) })
	e.loops.Go(func() { e.every(sweepEvery, e.nudged, e.sweep) })
	e.loops.Go(func() { e.every(countEvery, nil, e.flushCounts) })
	e.loops.Go(func() { e.every(pruneEvery, e.pruneDue, e.prune) })
	if e.Journal != nil {
		e.loops.Go(func() { e.every(drainEvery, nil, e.drainJournal) })
	}
	if e.poller != nil {
		e.poller.start(e.life, &e.loops)
	}
	e.Nudge()
	return nil
}

// every calls do each period, and soon when nudged, until Close.
func (e *Engine) every(period time.Duration, nudged <-chan struct{}, do func(context.Context)) {
	t := time.NewTicker(period)
	defer t.Stop()
	for took := time.Duration(0); ; {
		select {
		case <-t.C:
		case <-nudged:
			// a storm of nudges makes no storm of looking round
			select {
			case <-time.After(min(max(breath, rest*took), period)):
			case <-e.life.Done():
				return
			}
		case <-e.life.Done():
			return
		}
		begun := time.Now()
		do(e.life)
		took = time.Since(begun)
	}
}

// Nudge makes the instance look for what waits to be taken up, now.
func (e *Engine) Nudge() {
	select {
	case e.nudged <- struct{}{}:
	default:
	}
}

// Draining reports whether the instance has stopped admitting.
func (e *Engine) Draining() bool { return e.draining.Load() }

// Drain stops admitting, finishes what is running, and blocks until that is done or ctx ends.
// Deliveries are answered all the while: they are refused. What was not begun stays claimed.
func (e *Engine) Drain(ctx context.Context) error {
	e.draining.Store(true)
	e.queue.close()
	done := make(chan struct{})
	go func() {
		e.poller.end()
		e.running.Wait()
		e.settling.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("intake: drain: %w", ctx.Err())
	}
}

// Close ends the loops and tells the other instances that this one is gone, so that they
// take up at once what it has claimed. It follows Drain and the end of all deliveries.
func (e *Engine) Close(ctx context.Context) error {
	var err error
	e.ended.Do(func() {
		e.draining.Store(true)
		e.queue.close()
		if e.end == nil {
			return
		}
		e.end()
		e.poller.end()
		e.loops.Wait()
		e.flushCounts(ctx)
		if n := e.queue.depth(); n > 0 {
			e.Logger.Info("handed back events that were not begun", "events", n)
		}
		err = e.DurableStore.Leave(ctx, e.holder)
	})
	return err
}

func (e *Engine) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, aliveFor)
	defer cancel()
	if err := e.DurableStore.Beat(ctx, e.holder, aliveFor); err != nil && ctx.Err() == nil {
		e.Metrics.DurableStoreErrors.Inc()
		e.Logger.Warn("this instance could not show that it is alive", "error", err)
	}
}

func (e *Engine) flushCounts(ctx context.Context) {
	counts := e.counts.take()
	if len(counts) == 0 {
		return
	}
	left, err := e.DurableStore.CountDeliveries(ctx, counts)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			e.Metrics.DurableStoreErrors.Inc()
			e.Logger.Warn("suppressed duplicates could not be counted yet", "error", err)
		}
		left = counts
	}
	e.counts.putBack(left)
}

// installationOf returns the installation through which r came; nil if it is gone. It returns
// an error if that can't be told: then nothing must be done with r, which would go elsewhere
// and by other rules.
func (e *Engine) installationOf(ctx context.Context, r domain.Receipt) (*Installation, error) {
	in, err := e.Installations.ByID(ctx, r.Installation)
	if errors.Is(err, domain.ErrNotInstalled) {
		return nil, nil //nolint:nilnil // that it is gone is an answer
	}
	return in, err
}

// policyOf returns the policy under which events of in are worked on; the default if it is gone.
func (e *Engine) policyOf(in *Installation) domain.ClaimPolicy {
	if in == nil {
		return e.Installations.Default
	}
	return in.Policy
}
