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
	idle    sync.Cond // on mu: busy has become false
	busy    bool      // something is under way; who set it true sees to what has arrived meanwhile
	closed  bool
	waiting []*call
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
	p := &pipeline{client: client, timeout: timeout}
	p.idle.L = &p.mu
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
	if len(p.waiting) == 0 {
		p.rest()
	} else {
		go p.work()
	}
	p.mu.Unlock()
	return given(ctx, err)
}

// given returns err, marked if it may be due to a caller who left.
func given(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%w: %w", errGivenUp, err)
	}
	return err
}

// work sends what waits until nothing does.
func (p *pipeline) work() {
	batch := make([]*call, 0, maxBatch)
	for {
		p.mu.Lock()
		if len(p.waiting) == 0 {
			p.rest()
			p.mu.Unlock()
			return
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

// rest ends a spell of being busy. p.mu is held.
func (p *pipeline) rest() {
	p.busy = false
	p.idle.Broadcast()
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
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.waiting {
		c.done <- errClosed
	}
	p.waiting = nil
	for p.busy {
		p.idle.Wait()
	}
}
