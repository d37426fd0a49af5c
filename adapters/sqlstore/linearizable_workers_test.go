package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A receiptStore is what the clients call.
type receiptStore interface {
	ports.DurableStore
	ports.Ledger
}

// A worker is an instance of the server, as far as stores can tell: it has a name of its own, acts
// on what it holds and on what it has held, and is gone after an outcome that it does not learn.
type worker struct {
	n       int
	dice    *rand.Rand
	store   receiptStore
	doubts  bool // answers of the database are lost, and asked for again by the store
	history *recorder
	board   *board

	name string
	refs map[string][]input // by event: what it began, or could begin
}

// A board is what all know: the receipts of events, and who was seen to hold them.
type board struct {
	mu   sync.Mutex
	seen map[string]input
}

func (b *board) post(event, id, holder string, attempt int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[event] = input{event: event, id: id, holder: holder, attempt: attempt}
}

func (b *board) look(event string) (input, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in, ok := b.seen[event]
	return in, ok
}

// reborn gives the worker another name: the one before is that of an instance which is gone.
func (w *worker) reborn() {
	w.name = fmt.Sprintf("worker %d, %d", w.n, w.dice.Uint64())
	w.refs = map[string][]input{}
}

// act does one thing to one of the events.
func (w *worker) act(ctx context.Context, events []string) {
	if w.dice.IntN(6) == 0 { // the caller may not have the time to learn the outcome
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(w.dice.IntN(4000))*time.Microsecond)
		defer cancel()
	}
	event := events[w.dice.IntN(len(events))]
	known, ok := w.board.look(event)
	switch throw := w.dice.IntN(100); {
	case !ok || throw < 10:
		w.claim(ctx, event)
	case throw < 30:
		w.begin(ctx, event)
	case throw < 60:
		w.settle(ctx, event)
	case throw < 75:
		w.expire(ctx, known)
	case throw < 85:
		w.takeUp(ctx, events)
	case throw < 92:
		w.replay(ctx, known)
	default:
		w.read(context.WithoutCancel(ctx), known)
	}
}

func (w *worker) claim(ctx context.Context, event string) {
	r := receipt(event)
	r.Holder = w.name
	in := input{event: event, op: opClaim, id: r.ID, holder: w.name}
	out := w.history.call(w.n, in, func() output {
		c := w.store.Claim(ctx, []domain.Receipt{r})[0]
		out := output{came: came(c.Err), id: c.Receipt.ID, state: c.Receipt.State, holder: c.Receipt.Holder, attempt: c.Receipt.Attempt}
		if c.Err == nil && !c.Won {
			out.came = lost
		}
		return out
	})
	switch out.came {
	case done, lost:
		w.board.post(event, out.id, out.holder, out.attempt)
	case unknown:
		w.reborn()
	}
	if out.came == done {
		w.refs[event] = append(w.refs[event], input{event: event, id: r.ID})
	}
}

// ref returns one of those with which the worker has held an event, most often the last.
func (w *worker) ref(event string) (input, bool) {
	refs := w.refs[event]
	if len(refs) == 0 {
		return input{}, false
	}
	at := len(refs) - 1
	if w.dice.IntN(4) == 0 {
		at = w.dice.IntN(len(refs))
	}
	return refs[at], true
}

func (w *worker) begin(ctx context.Context, event string) {
	in, ok := w.ref(event)
	if !ok {
		return
	}
	in.op, in.holder, in.over = opBegin, w.name, w.dice.IntN(2) == 0
	lease := time.Hour
	if in.over {
		lease = time.Nanosecond // less than a store can tell from nothing
	}
	out := w.history.call(w.n, in, func() output {
		n, err := w.store.Begin(ctx, in.portsRef(), lease)
		return output{came: w.fencing(err), attempt: n}
	})
	switch out.came {
	case done:
		w.drop(in)
		w.refs[event] = append(w.refs[event], input{event: event, id: in.id, attempt: out.attempt})
		w.board.post(event, in.id, w.name, out.attempt)
	case unknown:
		w.reborn()
	}
}

func (w *worker) settle(ctx context.Context, event string) {
	in, ok := w.ref(event)
	if !ok {
		return
	}
	// Never where an expire goes: a settle that is tried twice can't tell the two apart, and need not.
	in.op, in.holder, in.to = opSettle, w.name, []domain.State{domain.Handled, domain.Failed}[w.dice.IntN(2)]
	out := w.history.call(w.n, in, func() output {
		return output{came: w.fencing(w.store.Settle(ctx, ports.Settlement{Ref: in.portsRef(), Step: domain.Step{State: in.to}}))}
	})
	switch out.came {
	case done:
		w.drop(in)
	case unknown:
		w.reborn()
	}
}

// fencing is what came of a begin or settle.
func (w *worker) fencing(err error) string {
	if c := came(err); c != fenced || !w.doubts {
		return c
	}
	return doubted
}

// drop forgets a ref that was good for one call, which a store takes for the same call again.
func (w *worker) drop(used input) {
	w.refs[used.event] = slices.DeleteFunc(w.refs[used.event], func(in input) bool {
		return in.id == used.id && in.attempt == used.attempt
	})
}

func (w *worker) expire(ctx context.Context, in input) {
	in.op, in.to = opExpire, []domain.State{domain.Lost, domain.Retrying}[w.dice.IntN(2)]
	r := domain.Receipt{ID: in.id, Key: domain.Key{Tenant: "acme"}, Holder: in.holder, Attempt: in.attempt}
	w.history.call(w.n, in, func() output {
		return output{came: came(w.store.Expire(ctx, r, domain.Step{State: in.to, DueAt: time.Now()}, "over"))}
	})
}

// takeUp is one call and concerns what it returns; of unknown outcome it may concern any event.
func (w *worker) takeUp(ctx context.Context, events []string) {
	start := time.Since(w.history.began)
	nobody := func(string) bool { return false }
	receipts, err := w.store.TakeUp(ctx, w.name, nobody, 1+w.dice.IntN(2), 0)
	for _, r := range receipts {
		in := input{event: r.Key.EventID, op: opTakeUp, id: r.ID, holder: w.name}
		w.history.note(w.n, in, start, output{came: done, id: r.ID, state: r.State, attempt: r.Attempt})
		w.refs[in.event] = append(w.refs[in.event], input{event: in.event, id: r.ID, attempt: r.Attempt})
		w.board.post(in.event, r.ID, w.name, r.Attempt)
	}
	if came(err) == unknown {
		for _, event := range events {
			w.history.note(w.n, input{event: event, op: opTakeUp, holder: w.name}, start, output{came: unknown})
		}
		w.reborn()
	}
}

func (w *worker) replay(ctx context.Context, in input) {
	w.history.call(w.n, input{event: in.event, op: opReplay, id: in.id}, func() output {
		return output{came: came(w.store.Replay(ctx, in.id, "somebody"))}
	})
}

func (w *worker) read(ctx context.Context, in input) {
	w.history.call(w.n, input{event: in.event, op: opRead, id: in.id}, func() output {
		r, _, err := w.store.Receipt(ctx, in.id)
		if err != nil {
			return output{came: nothing} // a read that fails says nothing
		}
		return output{came: done, id: r.ID, state: r.State, holder: r.Holder, attempt: r.Attempt}
	})
}

func (in input) portsRef() ports.Ref {
	return ports.Ref{Tenant: "acme", ID: in.id, Holder: in.holder, Attempt: in.attempt}
}

// came tells what an error says of a change. One that the ports don't name is kept in words,
// which no model allows.
func came(err error) string {
	switch {
	case err == nil:
		return done
	case errors.Is(err, domain.ErrUnknown):
		return unknown
	case errors.Is(err, domain.ErrUnavailable), errors.Is(err, ports.ErrWaits):
		return nothing
	case errors.Is(err, domain.ErrFenced), errors.Is(err, domain.ErrState):
		return fenced
	}
	return err.Error()
}
