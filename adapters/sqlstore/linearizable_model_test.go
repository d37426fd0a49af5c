package sqlstore_test

import (
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/admitone/admitone/domain"
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
