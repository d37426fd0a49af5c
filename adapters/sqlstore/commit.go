package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// maxBatch bounds the changes of one commit. Beyond some 256 rows a batch gains no more
// throughput and only makes everyone in it wait longer.
const maxBatch = 256

// An op is one change that waits to be committed with others. Exactly one of claim, begin
// and settle is set.
type op struct {
	ctx    context.Context
	claim  *domain.Receipt
	begin  *begin
	settle *ports.Settlement

	won     ports.Claim // answer to claim
	attempt int         // answer to begin
	err     error

	doubt bool // an earlier try may have been applied
	tries int
	done  chan struct{}
}

type begin struct {
	ref   ports.Ref
	lease time.Duration
}

// finish answers the op.
func (o *op) finish(err error) {
	o.err = err
	close(o.done)
}

// A committer commits what has arrived while the last batch was being committed. There is
// no timer: a change that finds the committer idle is committed at once, alone. All batches are
// one goroutine's, whose stack has grown to what they need.
//
// What becomes of a batch is known to apply: it answers each op, or returns those whose
// outcome it can't tell. These are tried again, which is harmless, until their context ends.
type committer struct {
	apply func(ops []*op) (unknown []*op)

	mu      sync.Mutex
	arrived sync.Cond // on mu: something is pending, or closed
	pending []*op
	closed  bool
	ended   chan struct{} // closed when nothing runs any more
}

func newCommitter(apply func([]*op) []*op) *committer {
	c := &committer{apply: apply, ended: make(chan struct{})}
	c.arrived.L = &c.mu
	go c.run()
	return c
}

// submit hands ops over and does not wait.
func (c *committer) submit(ops ...*op) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		for _, o := range ops {
			o.finish(domain.ErrUnavailable)
		}
		return
	}
	c.pending = append(c.pending, ops...)
	c.mu.Unlock()
	c.arrived.Signal()
}

// wait blocks until o is answered or its context has ended. In the latter case the change
// may still be applied later, unless it was not yet taken up.
func (c *committer) wait(o *op) error {
	select {
	case <-o.done:
		return o.err
	case <-o.ctx.Done():
	}
	c.mu.Lock()
	for i, p := range c.pending {
		if p == o {
			c.pending = append(c.pending[:i:i], c.pending[i+1:]...)
			c.mu.Unlock()
			if o.doubt {
				return domain.ErrUnknown
			}
			return domain.ErrUnavailable
		}
	}
	c.mu.Unlock()
	select {
	case <-o.done:
		return o.err
	default:
		return domain.ErrUnknown
	}
}

func (c *committer) run() {
	defer close(c.ended)
	var delay backoff
	for {
		c.mu.Lock()
		for len(c.pending) == 0 && !c.closed {
			c.arrived.Wait()
		}
		n := min(len(c.pending), maxBatch)
		if n == 0 {
			c.mu.Unlock()
			return
		}
		batch := make([]*op, n)
		copy(batch, c.pending)
		c.pending = c.pending[n:]
		if len(c.pending) == 0 {
			c.pending = nil // the array behind it is let go
		}
		c.mu.Unlock()

		unknown := c.apply(batch)
		if len(unknown) == 0 {
			delay = 0
			continue
		}
		again := unknown[:0]
		for _, o := range unknown {
			o.doubt = true
			o.tries++
			if o.ctx.Err() != nil {
				o.finish(domain.ErrUnknown)
				continue
			}
			again = append(again, o)
		}
		c.mu.Lock()
		c.pending = append(append([]*op{}, again...), c.pending...)
		c.mu.Unlock()
		if len(again) > 0 {
			delay.wait(again[0].ctx)
		}
	}
}

// close lets what runs end and refuses what comes. It blocks until that is done.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.arrived.Signal()
	<-c.ended
}

// A backoff spaces the tries of a batch whose outcome is unknown: a store that cuts
// connections is asked again at once first, then ever more rarely.
type backoff time.Duration

func (b *backoff) wait(ctx context.Context) {
	if *b == 0 {
		*b = backoff(5 * time.Millisecond)
		return
	}
	t := time.NewTimer(time.Duration(*b))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	*b = min(*b*2, backoff(200*time.Millisecond))
}

// Claim implements ports.DurableStore.
func (s *Store) Claim(ctx context.Context, receipts []domain.Receipt) []ports.Claim {
	ops := make([]*op, len(receipts))
	for i, r := range receipts {
		// r is a copy: the caller may use its own again while a claim of unknown outcome still runs
		ops[i] = &op{ctx: ctx, claim: &r, done: make(chan struct{})}
	}
	s.claims.submit(ops...)
	answers := make([]ports.Claim, len(ops))
	for i, o := range ops {
		if err := s.claims.wait(o); err != nil {
			answers[i] = ports.Claim{Err: err}
			continue
		}
		answers[i] = o.won
	}
	return answers
}

// Begin implements ports.DurableStore.
func (s *Store) Begin(ctx context.Context, ref ports.Ref, lease time.Duration) (int, error) {
	o := &op{ctx: ctx, begin: &begin{ref, lease}, doubt: ref.Doubt, done: make(chan struct{})}
	s.progress.submit(o)
	if err := s.progress.wait(o); err != nil {
		return 0, err
	}
	return o.attempt, nil
}

// Settle implements ports.DurableStore.
func (s *Store) Settle(ctx context.Context, st ports.Settlement) error {
	o := &op{ctx: ctx, settle: &st, done: make(chan struct{})}
	s.progress.submit(o)
	return s.progress.wait(o)
}

// split parts a batch by what its ops ask for.
func split(ops []*op) (claims, begins, settles []*op) {
	for _, o := range ops {
		switch {
		case o.claim != nil:
			claims = append(claims, o)
		case o.begin != nil:
			begins = append(begins, o)
		default:
			settles = append(settles, o)
		}
	}
	return claims, begins, settles
}

// oneByOne applies each op alone, so that one which spoils a batch does not take the rest
// with it.
func oneByOne(ops []*op, apply func([]*op) []*op) (unknown []*op) {
	for _, o := range ops {
		unknown = append(unknown, apply([]*op{o})...)
	}
	return unknown
}
