package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// maxBatch is how many commands are sent together. More gain nothing, and delay the
	// first answer.
	maxBatch = 256
	// maxWaiting is how many commands may wait to be sent. Beyond that Redis does not keep up
	// anyway, and the durable store is the better one to ask.
	maxWaiting = 4096
)

var (
	errTimeout = errors.New("no answer in time")
	errFull    = errors.New("too many calls are waiting")
	errClosed  = errors.New("closed")
	// errGivenUp marks a call that its caller did not want any more, which says nothing
	// about Redis. A deadline of the caller's that passes does: there was no answer in time.
	errGivenUp = errors.New("given up by the caller")
)

// A pipeline sends the commands of concurrent callers together: what has arrived while one
// was under way forms the next. It never waits for more to arrive, and a lone caller sends
// its command itself, without a handover to another goroutine that would double its time.
// go-redis' AutoPipeline arms timers between batches and runs them without a deadline, which
// a fast store can't do with.
type pipeline struct {
	client  goredis.UniversalClient
	timeout time.Duration

	mu      sync.Mutex
	batch   sync.Cond // on mu: what waits is work's to send, or closed
	busy    bool      // something is under way; who set it true sees to what has arrived meanwhile
	batched bool      // what waits is work's to send
	closed  bool
	waiting []*call
	ended   chan struct{} // closed when work has ended
}

// A call is one command that waits. It belongs to the pipeline until done tells its error,
// so that one which its caller has left is never used again.
type call struct {
	ctx   context.Context //nolint:containedctx // the batch takes its values from its first call
	cmd   goredis.Cmder
	done  chan error // holds one: the pipeline never waits for a caller who has left
	timer *time.Timer
}

var calls = sync.Pool{New: func() any {
	c := &call{done: make(chan error, 1), timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	return c
}}

func newPipeline(client goredis.UniversalClient, timeout time.Duration) *pipeline {
	p := &pipeline{client: client, timeout: timeout, ended: make(chan struct{})}
	p.batch.L = &p.mu
	go p.work()
	return p
}

// do has cmd executed and returns its error. It blocks for at most the time-out, or until the
// deadline of ctx; then cmd may or may not be executed, and must not be looked at.
func (p *pipeline) do(ctx context.Context, cmd goredis.Cmder) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", errGivenUp, err)
	}
	p.mu.Lock()
	switch {
	case p.closed:
		p.mu.Unlock()
		return errClosed
	case !p.busy:
		p.busy = true
		p.mu.Unlock()
		return p.alone(ctx, cmd)
	case len(p.waiting) >= maxWaiting:
		p.mu.Unlock()
		return errFull
	}
	c, _ := calls.Get().(*call)
	c.ctx, c.cmd = ctx, cmd
	c.timer.Reset(p.timeout)
	p.waiting = append(p.waiting, c)
	p.mu.Unlock()
	select {
	case err := <-c.done:
		c.timer.Stop()
		c.ctx, c.cmd = nil, nil
		calls.Put(c)
		return err
	case <-ctx.Done():
		c.timer.Stop()
		return given(ctx, errTimeout)
	case <-c.timer.C:
		return errTimeout
	}
}

func (p *pipeline) alone(ctx context.Context, cmd goredis.Cmder) error {
	bound, cancel := context.WithTimeout(ctx, p.timeout)
	err := p.client.Process(bound, cmd)
	cancel()
	p.mu.Lock()
	p.busy = len(p.waiting) > 0
	p.batched = p.busy
	p.mu.Unlock()
	p.batch.Signal()
	return given(ctx, err)
}

// given returns err, marked if it may be due to a caller who left.
func given(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%w: %w", errGivenUp, err)
	}
	return err
}

// work sends what waits until the pipeline is closed. It is one goroutine for good: its stack
// has grown to what go-redis needs.
func (p *pipeline) work() {
	defer close(p.ended)
	batch := make([]*call, 0, maxBatch)
	for {
		p.mu.Lock()
		for !p.batched && (!p.closed || p.busy) {
			p.batch.Wait()
		}
		if len(p.waiting) == 0 {
			p.busy, p.batched = false, false
			closed := p.closed
			p.mu.Unlock()
			if closed {
				return
			}
			continue
		}
		n := min(len(p.waiting), maxBatch)
		batch = append(batch[:0], p.waiting[:n]...)
		left := copy(p.waiting, p.waiting[n:])
		clear(p.waiting[left:])
		p.waiting = p.waiting[:left]
		p.mu.Unlock()
		p.send(batch)
	}
}

// send executes batch within the time-out. It outlives the contexts of its callers: one who
// leaves must not take the answers of the others along.
func (p *pipeline) send(batch []*call) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(batch[0].ctx), p.timeout)
	defer cancel()
	pipe := p.client.Pipeline()
	for _, c := range batch {
		_ = pipe.Process(ctx, c.cmd) // it only gathers
	}
	_, _ = pipe.Exec(ctx) // each command bears its own error
	for i, c := range batch {
		batch[i] = nil
		c.done <- c.cmd.Err()
	}
}

// close ends the pipeline: what waits gets errClosed, and what is under way is waited for.
func (p *pipeline) close() {
	p.mu.Lock()
	p.closed = true
	for _, c := range p.waiting {
		c.done <- errClosed
	}
	p.waiting = nil
	p.mu.Unlock()
	p.batch.Signal()
	<-p.ended
}
