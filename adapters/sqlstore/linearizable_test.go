package sqlstore_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// What is done to a receipt, as far as the model knows.
const (
	opClaim  = "claim"
	opBegin  = "begin"
	opSettle = "settle"
	opExpire = "expire"
	opTakeUp = "take up"
	opReplay = "replay"
	opRead   = "read"
)

// An input is one call that concerns the receipt of one event.
type input struct {
	event   string
	op      string
	id      string
	holder  string // who calls; of an expire, who held the receipt
	attempt int
	over    bool         // a begin's lease is over at once; else it is not over before the test
	to      domain.State // where a settle or expire goes
}

// What came of a call.
const (
	done    = "done"
	lost    = "lost to another" // a claim
	fenced  = "fenced"          // or not allowed in the state
	doubted = "fenced, or applied and overtaken before the answer was had"
	nothing = "not applied" // the store said so
	unknown = "unknown"
)

// An output is what the caller learned.
type output struct {
	came    string
	id      string // of the winner of a claim
	state   domain.State
	holder  string
	attempt int
}

// A row is what the model keeps of a receipt. The zero one is not there.
type row struct {
	id      string
	state   domain.State
	holder  string
	attempt int
	over    bool // the lease of what is being dispatched
}

// receiptModel is a receipt as the promises have it: whatever the stores do at the same time, each
// call takes effect at one moment between its beginning and its end. One whose outcome is
// unknown has no end.
var receiptModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		of := map[string][]porcupine.Operation{}
		for _, o := range history {
			event := o.Input.(input).event
			of[event] = append(of[event], o)
		}
		parts := make([][]porcupine.Operation, 0, len(of))
		for _, p := range of {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() any { return row{} },
	Step: func(state, in, out any) (bool, any) {
		r, o := state.(row), out.(output)
		if o.came == nothing {
			return true, r
		}
		next, applied := r.after(in.(input))
		if o.came == unknown || o.came == doubted {
			return true, next
		}
		return r.fits(in.(input), o, applied), next
	},
}

// after returns the row after a call, and whether the call changed it.
func (r row) after(in input) (next row, applied bool) {
	next = r
	mine := r.id == in.id && r.holder == in.holder && r.attempt == in.attempt
	open := r.state == domain.Claimed || r.state == domain.Retrying
	switch in.op {
	case opClaim:
		if applied = r.id == ""; applied {
			next = row{id: in.id, state: domain.Claimed, holder: in.holder}
		}
	case opBegin:
		if applied = mine && open; applied {
			next.state, next.attempt, next.over = domain.Dispatching, r.attempt+1, in.over
		}
	case opSettle:
		if applied = mine && r.state == domain.Dispatching && !r.over; applied {
			next.state = in.to
		}
	case opExpire:
		if applied = mine && r.state == domain.Dispatching && r.over; applied {
			next.state, next.over = in.to, false
		}
	case opTakeUp:
		if applied = open; applied {
			next.holder = in.holder
		}
	case opReplay:
		if applied = r.id != "" && r.state.Replayable(); applied {
			next.state = domain.Retrying
		}
	}
	return next, applied
}

// fits reports whether the store may answer a call of known outcome so, if it finds r.
func (r row) fits(in input, o output, applied bool) bool {
	asItStands := o.state == r.state && o.attempt == r.attempt
	switch in.op {
	case opClaim:
		// a winner whose answer was lost at first may have been taken up by the time it has it
		return applied && o.came == done || !applied && o.came == lost && o.id == r.id && asItStands
	case opBegin:
		return applied && o.came == done && o.attempt == r.attempt+1 || !applied && o.came == fenced
	case opTakeUp:
		return applied && o.id == r.id && asItStands
	case opRead:
		return o.id == r.id && (r.id == "" || asItStands && o.holder == r.holder)
	}
	return applied == (o.came == done)
}

// A recorder keeps the history. Safe for concurrent use.
type recorder struct {
	began time.Time

	mu      sync.Mutex
	history []porcupine.Operation
}

// call records one call of a client.
func (h *recorder) call(client int, in input, do func() output) output {
	start := time.Since(h.began)
	out := do()
	h.note(client, in, start, out)
	return out
}

func (h *recorder) note(client int, in input, start time.Duration, out output) {
	end := int64(time.Since(h.began))
	if out.came == unknown {
		end = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.history = append(h.history, porcupine.Operation{ClientId: client, Input: in, Call: int64(start), Output: out, Return: end})
}

func (h *recorder) count(came string) (n int) {
	for _, o := range h.history {
		if o.Output.(output).came == came {
			n++
		}
	}
	return n
}

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

// play lets workers on two stores act on a few events at a time, and returns the history.
func play(t *testing.T, seed uint64, rounds int, doubts bool, stores [2]receiptStore) *recorder {
	t.Helper()
	const workers, acts = 6, 12
	h := &recorder{began: time.Now()}
	b := &board{seen: map[string]input{}}
	var all [workers]*worker
	for i := range all {
		all[i] = &worker{n: i, dice: rand.New(rand.NewPCG(seed, uint64(i))), store: stores[i%2], doubts: doubts, history: h, board: b}
		all[i].reborn()
	}
	for round := range rounds {
		events := []string{fmt.Sprintf("%d-%d a", seed, round), fmt.Sprintf("%d-%d b", seed, round)}
		var running sync.WaitGroup
		for _, w := range all {
			running.Go(func() {
				for range acts {
					w.act(t.Context(), events)
				}
			})
		}
		running.Wait()
		for _, event := range events {
			if known, ok := b.look(event); ok {
				all[0].read(t.Context(), known)
			}
		}
	}
	return h
}

// checkTime is how long a history may take to check. One takes far less.
const checkTime = time.Minute

// check tells whether a history is one of receipts, and of the first that is not one its calls.
func check(h *recorder) (porcupine.CheckResult, string) {
	for _, part := range receiptModel.Partition(h.history) {
		result := porcupine.CheckOperationsTimeout(receiptModel, part, checkTime)
		if result == porcupine.Ok {
			continue
		}
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		var b strings.Builder
		for _, o := range part {
			fmt.Fprintf(&b, "%d from %d to %d: %+v %+v\n", o.ClientId, o.Call, o.Return, o.Input, o.Output)
		}
		return result, b.String()
	}
	return porcupine.Ok, ""
}

func wantLinearizable(t *testing.T, h *recorder) {
	t.Helper()
	if result, calls := check(h); result != porcupine.Ok {
		t.Errorf("no order of these calls explains their answers (%s):\n%s", result, calls)
	}
	t.Logf("%d calls: %d done, %d fenced, %d not applied, %d unknown",
		len(h.history), h.count(done), h.count(fenced)+h.count(doubted), h.count(nothing), h.count(unknown))
	if h.count(unknown) == 0 {
		t.Error("every outcome was known: nothing was put to the test")
	}
}

// Claims, begins, settles, expiries, take-ups and replays of two stores on one database take effect
// one after the other, each at once, whatever answers are lost.
func TestReceiptsAreLinearizable(t *testing.T) {
	t.Parallel()
	const rounds = 12
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		c := liteConfig(t)
		stores := [2]receiptStore{open(t, c), open(t, c)}
		defer harm(func(_ int, d *rand.Rand) { lockLite(t, c.DSN, time.Duration(d.IntN(10))*time.Millisecond) })()
		wantLinearizable(t, play(t, 1, rounds, false, stores))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		c := pgConfig(t)
		p := newProxy(t, c.DSN)
		c.DSN = p.DSN
		stores := [2]receiptStore{open(t, c), open(t, c)}
		defer harm(func(i int, d *rand.Rand) {
			if i%2 == 0 {
				up, down, _ := cutsAnswers(1 + d.IntN(3))
				p.set(up, down)
				return
			}
			up, _ := cutsRequests(1 + d.IntN(3))
			p.set(up, nil)
		})()
		wantLinearizable(t, play(t, 2, rounds, true, stores))
	})
}

// harm does one kind of harm after another until stop is called.
func harm(do func(i int, d *rand.Rand)) (stop func()) {
	d := rand.New(rand.NewPCG(1, 2))
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			case <-time.After(time.Duration(30+d.IntN(120)) * time.Millisecond):
				do(i, d)
			}
		}
	})
	return func() {
		close(over)
		running.Wait()
	}
}

// lockLite holds the lock of a file as another process does that writes to it.
func lockLite(t *testing.T, path string, takes time.Duration) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		t.Errorf("open %s: %v", path, err)
		return
	}
	defer db.Close() //nolint:errcheck // it changed nothing
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return // the stores were faster
	}
	<-time.After(takes)
	_ = tx.Rollback() // it changed nothing
}

// An unfenced store settles whatever the receipt has become meanwhile.
type unfenced struct{ *sqlstore.Store }

func (u unfenced) Settle(ctx context.Context, s ports.Settlement) error {
	err := u.Store.Settle(ctx, s)
	if errors.Is(err, domain.ErrFenced) {
		return u.SettleUnfenced(ctx, s)
	}
	return err
}

// A guesser takes a begin of unknown outcome for one that was not applied, and says so.
type guesser struct{ *sqlstore.Store }

func (g guesser) Begin(ctx context.Context, ref ports.Ref, lease time.Duration) (int, error) {
	n, err := g.Store.Begin(ctx, ref, lease)
	if errors.Is(err, domain.ErrUnknown) {
		return n, domain.ErrUnavailable
	}
	return n, err
}

// A renter takes a receipt up without asking what has become of it since it was found.
type renter struct{ *sqlstore.Store }

func (r renter) Expire(ctx context.Context, x domain.Receipt, step domain.Step, reason string) error {
	if err := r.Store.Expire(ctx, x, step, reason); !errors.Is(err, domain.ErrFenced) {
		return err
	}
	return nil
}

// The check sees what it is for: each of these breaks one promise, and is found.
func TestCheckFindsStoresThatAreNotLinearizable(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(*sqlstore.Store) receiptStore{
		"settle without fence":                 func(s *sqlstore.Store) receiptStore { return unfenced{s} },
		"unknown begin taken as not begun":     func(s *sqlstore.Store) receiptStore { return guesser{s} },
		"expire that was fenced taken as done": func(s *sqlstore.Store) receiptStore { return renter{s} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := liteConfig(t)
			stores := [2]receiptStore{broken(open(t, c)), broken(open(t, c))}
			for seed := range uint64(5) {
				if result, _ := check(play(t, seed, 8, false, stores)); result == porcupine.Illegal {
					return
				}
			}
			t.Error("not found in five histories")
		})
	}
}
