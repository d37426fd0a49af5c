package torture

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/admitone/admitone/domain"
)

// maxKept bounds the violations that are kept; all are counted.
const maxKept = 200

// slack is how far clocks and stores may be behind what was done to them.
const slack = 1500 * time.Millisecond

// reconnect is how long before the end of a lease a store may be back and still be of no use: a
// connection is given up after 2 s, and a dispatch takes its time.
const reconnect = 2*time.Second + dispatchTimeout

// A Violation is something that contradicts a promise.
type Violation struct {
	Promise string    // as DESIGN.md numbers them
	Event   int64     // number of the event; -1 if it is about none
	Receipt uuid.UUID // zero if it is about none
	What    string
}

// seen is what became of one event, as far as can be seen from outside. There may be a million.
type seen struct {
	receipt  uuid.UUID // under which the application got it
	attempts uint64    // one bit for each that the application got, by number modulo 64
	place    uint32    // of its first attempt in the application's log, from 1; 0 if it got none
	claim    uint32    // its place among all claims
	lane     uint16    // its conversation, from 1; 0 if it has none
	accepted uint16    // attempts that the application did not decline
	firstYes uint16    // number of the first of them; 0 if there is none
	last     uint16    // highest number
	admitted uint8     // deliveries answered so
	flags    uint8
	receipts uint8
	in       uint8 // installation
}

const (
	isSent uint8 = 1 << iota
	isPromised
	isTaken         // the application answered 200, or would have
	isRejected      // it answered 400
	isHandledAtOnce // at its first attempt
)

// A checker gathers what the vendors sent and were told, what the application got and what the
// ledger says, and finds what contradicts the promises. Safe for concurrent use until finish.
type checker struct {
	installations []*installation

	mu         sync.Mutex
	events     []seen
	keys       map[domain.Digest]uint32
	violations []Violation
	total      int

	// What was done to whom, and by what names receipts know instances: for receipt.
	incidents []incident
	holders   map[string]*instance
	oneFile   bool              // all instances write to one
	replayed  map[uuid.UUID]int // by hand, after the storm

	begins uint32           // read from the application's log so far
	lanes  map[int64]uint16 // conversations by their number in the stores
}

func newChecker(p *plan, n int) *checker {
	return &checker{
		installations: p.installations, events: make([]seen, n), keys: make(map[domain.Digest]uint32, n),
		replayed: map[uuid.UUID]int{}, lanes: map[int64]uint16{},
	}
}

// accuse notes a violation.
func (c *checker) accuse(promise string, n uint32, format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violate(promise, int64(n), uuid.UUID{}, format, a...)
}

func (c *checker) violate(promise string, n int64, receipt uuid.UUID, format string, a ...any) {
	c.total++
	if len(c.violations) < maxKept {
		c.violations = append(c.violations, Violation{promise, n, receipt, fmt.Sprintf(format, a...)})
	}
}

// send notes that e is about to be sent under a key.
func (c *checker) send(e event, key domain.Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.events[e.n]
	s.flags |= isSent
	for i, in := range c.installations {
		if in == e.in {
			s.in = uint8(i)
		}
	}
	c.keys[key] = e.n
}

// promise notes that a vendor was told that the event is durable.
func (c *checker) promise(n uint32, what uint8, admitted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.events[n]
	before := s.flags & isPromised
	s.flags |= isPromised
	if !admitted {
		return
	}
	s.admitted++
	// events of a vendor that does not come again may lie in the journals of several instances
	if s.admitted > 1 && c.installations[s.in].channel.Vendor.ComesAgain {
		c.violate("P1", int64(n), s.receipt, "%d deliveries were admitted", s.admitted)
	}
	if what == late && before != 0 {
		c.violate("P1", int64(n), s.receipt, "a copy was admitted after the storm, and the event had been before")
	}
}

func (c *checker) promised(n uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events[n].flags&isPromised != 0
}

// begun notes what the application got, in the order in which it did.
func (c *checker) begun(b begin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begins++
	if int(b.event) >= len(c.events) || c.events[b.event].flags&isSent == 0 {
		c.violate("P6", int64(b.event), b.receipt, "the application got an event that nobody sent")
		return
	}
	s := &c.events[b.event]
	switch {
	case s.receipt == uuid.UUID{}:
		s.receipt = b.receipt
	case s.receipt != b.receipt:
		c.violate("P1", int64(b.event), b.receipt, "the application got it under %s too", s.receipt)
		return
	}
	bit := uint64(1) << (b.attempt % 64)
	if s.attempts&bit != 0 {
		c.violate("P3", int64(b.event), b.receipt, "attempt %d reached the application twice", b.attempt)
	}
	s.attempts |= bit
	if b.attempt == 1 {
		s.place = c.begins
	}
	s.last = max(s.last, b.attempt)
	if b.outcome == declined {
		return
	}
	s.accepted++
	if s.firstYes == 0 || b.attempt < s.firstYes {
		s.firstYes = b.attempt
	}
	switch b.outcome {
	case taken, slowly:
		s.flags |= isTaken
	case rejected:
		s.flags |= isRejected
	case declined, broken, cut:
	}
}

// replay notes that a receipt was dispatched again by hand.
func (c *checker) replay(receipt uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replayed[receipt]++
}

// receipt checks one receipt of the ledger, when nothing is on its way any more.
func (c *checker) receipt(r domain.Receipt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, err := uuid.Parse(r.ID)
	if err != nil {
		c.violate("P9", -1, id, "a receipt has the id %q", r.ID)
		return
	}
	n, ok := c.keys[r.Key.Digest()]
	if !ok {
		c.violate("P6", -1, id, "the ledger has a receipt of an event that nobody sent: %s of %s", r.Key.EventID, r.Installation)
		return
	}
	s := &c.events[n]
	if s.receipts++; s.receipts > 1 {
		c.violate("P1", int64(n), id, "the event has %d receipts", s.receipts)
	}
	if s.receipt != id && s.receipt != (uuid.UUID{}) {
		c.violate("P1", int64(n), id, "the application got it as %s", s.receipt)
		return
	}
	replays := c.replayed[id]
	once := r.Guarantee == domain.AtMostOnce
	if once && int(s.accepted) > 1+replays {
		c.violate("P3", int64(n), id, "at-most-once, and begun %d times (attempts %s)", s.accepted, attempts(s.attempts))
	} else if once && replays == 0 && s.firstYes != 0 && s.last > s.firstYes {
		c.violate("P3", int64(n), id, "at-most-once, and begun again after attempt %d (attempts %s)", s.firstYes, attempts(s.attempts))
	}
	if s.last > 0 && int(s.last) > r.Attempt {
		c.violate("P3", int64(n), id, "the application got attempt %d, the ledger has %d", s.last, r.Attempt)
	}
	c.state(n, id, s, r)
	if r.Conversation == "" {
		return
	}
	number := r.Key.Lane(r.Conversation)
	if c.lanes[number] == 0 {
		c.lanes[number] = uint16(len(c.lanes) + 1) //nolint:gosec // few people write to few installations
	}
	s.lane, s.claim = c.lanes[number], uint32(r.Seq) //nolint:gosec // only the order counts, and no run makes that many
	if r.State == domain.Handled && r.Attempt == 1 {
		s.flags |= isHandledAtOnce
	}
}

// order checks that the events of a conversation were begun for the first time in the order of their
// claims. It can be told for certain of one that was handled at its first attempt: it was settled
// before anything that was claimed later could begin. One that was cut off in its first attempt may
// arrive at the application after what came next.
func (c *checker) order() {
	claims := make([]uint32, 0, len(c.events))
	for n := range c.events {
		if s := &c.events[n]; s.lane > 0 && s.place > 0 {
			claims = append(claims, uint32(n))
		}
	}
	slices.SortFunc(claims, func(a, b uint32) int {
		x, y := &c.events[a], &c.events[b]
		return cmp.Or(cmp.Compare(x.lane, y.lane), cmp.Compare(y.claim, x.claim))
	})
	var earliest uint32 // begun, of what was claimed later in the conversation
	for i, n := range claims {
		s := &c.events[n]
		if i == 0 || c.events[claims[i-1]].lane != s.lane {
			earliest = n
			continue
		}
		if first := &c.events[earliest]; first.place > s.place {
			earliest = n
		} else if s.flags&isHandledAtOnce != 0 {
			c.violate("order", int64(n), s.receipt, "event %d of its conversation was claimed later and begun earlier", earliest)
		}
	}
}

// state checks how a receipt ended.
func (c *checker) state(n uint32, id uuid.UUID, s *seen, r domain.Receipt) {
	switch r.State {
	case domain.Handled:
		if s.flags&isTaken == 0 {
			c.violate("P2", int64(n), id, "handled, and the application never took it (attempts %s)", attempts(s.attempts))
		}
		if late := r.HandledAt.Sub(r.BegunAt) - lease; late > 0 && c.replayed[id] == 0 {
			c.violate("P3", int64(n), id, "settled %s after its lease was over", late)
		}
	case domain.Failed:
		if r.Guarantee == domain.AtLeastOnce && s.flags&isRejected == 0 && r.Attempt < maxAttempts {
			c.violate("P4", int64(n), id, "given up at attempt %d of %d: %s", r.Attempt, maxAttempts, r.LastError)
		}
		if r.LastError == "" {
			c.violate("P3", int64(n), id, "given up without a reason")
		}
	case domain.Lost:
		switch {
		case r.Guarantee == domain.AtLeastOnce:
			c.violate("P4", int64(n), id, "at-least-once, and lost")
		case !c.excused(r, s.attempts&(1<<(r.Attempt%64)) != 0):
			c.violate("P3", int64(n), id, "lost, although nothing kept its holder from dispatching and settling (begun %s, attempts %s)",
				r.BegunAt.Format(clock), attempts(s.attempts))
		}
	case domain.Claimed, domain.Dispatching, domain.Retrying:
		c.violate("P8", int64(n), id, "still %s", r.State)
	case domain.Discarded:
		c.violate("P9", int64(n), id, "discarded, and nobody did that")
	default:
		c.violate("P9", int64(n), id, "in state %q", r.State)
	}
}

// excused reports whether something was done to the holder of a lost receipt that kept it from
// settling. It was killed or stood still while it dispatched; or it was cut off from the store,
// until the lease was over or until it was ended. That it was asked to end is no excuse: a
// server that drains settles. And if the application never got the attempt, something must have
// kept the holder from dispatching too: it was cut off from the answer to its begin all the
// while, or the application was not there.
func (c *checker) excused(r domain.Receipt, reached bool) bool {
	holder, known := c.holders[r.Holder]
	if !known {
		return true // it was killed before it could say its name
	}
	begun, end := r.BegunAt, r.BegunAt.Add(lease)
	during := func(from, to time.Time, of func(incident) bool) bool {
		return slices.ContainsFunc(c.incidents, func(i incident) bool {
			return of(i) && i.from.Before(to.Add(slack)) && (i.to.IsZero() || i.to.After(from.Add(-slack)))
		})
	}
	hit := func(i incident) bool { return i.instance == holder && (i.kind == killed || i.kind == halted) }
	ended := func(i incident) bool { return i.instance == holder && (i.kind == killed || i.kind == terminated) }
	gone := func(i incident) bool { return i.kind == applicationGone }
	away := func(i incident) bool {
		mine := i.instance == nil || i.instance == holder
		// one that stands still may hold the lock of a file that all write to
		return mine && i.kind == cutOff || c.oneFile && i.kind == halted
	}
	switch {
	case during(begun, begun.Add(dispatchTimeout), hit):
		return true
	case during(begun, end, ended) && during(begun, end, away):
		return true
	case reached:
		return during(end, end, away)
	}
	unanswered := during(begun, begun, away) && during(end.Add(-reconnect), end, away)
	return unanswered || during(begun, begun.Add(dispatchTimeout), gone) && during(end, end, away)
}

// finish checks what is missing.
func (c *checker) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.events {
		s := &c.events[n]
		switch {
		case s.receipts > 0:
		case s.flags&isPromised != 0:
			c.violate("P2", int64(n), s.receipt, "answered 2xx (%d admitted), and the ledger has no receipt", s.admitted)
		case s.receipt != uuid.UUID{}:
			c.violate("P2", int64(n), s.receipt, "the application got it, and the ledger has no receipt")
		}
	}
	c.order()
}

// attempts lists the numbers whose bits are set.
func attempts(set uint64) string {
	list := []int{}
	for ; set != 0; set &= set - 1 {
		list = append(list, bits.TrailingZeros64(set))
	}
	return fmt.Sprint(list)
}
