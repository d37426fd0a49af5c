package domain

import (
	"slices"
	"time"
)

// A State is where a receipt stands.
type State string

// The states of a receipt. Claimed, Dispatching and Retrying are open: somebody takes
// them up at a known time, whatever dies. The others are closed and left by replay only.
const (
	Claimed     State = "claimed"     // committed, dispatch not begun
	Dispatching State = "dispatching" // begun; a lease says until when its holder counts as alive
	Retrying    State = "retrying"    // ended without success, another try is allowed
	Handled     State = "handled"     // the application took it
	Failed      State = "failed"      // given up, with the reason
	Lost        State = "lost"        // its holder died while dispatching and a second try is forbidden
	Discarded   State = "discarded"   // closed by hand
)

// States lists every state, open ones first.
var States = []State{Claimed, Dispatching, Retrying, Handled, Failed, Lost, Discarded}

var follows = map[State][]State{
	Claimed:     {Dispatching},
	Dispatching: {Handled, Retrying, Failed, Lost},
	Retrying:    {Dispatching, Discarded},
	Handled:     {Retrying},
	Failed:      {Retrying, Discarded},
	Lost:        {Retrying, Discarded},
	Discarded:   {Retrying},
}

// MayBecome reports whether a receipt may go from s to next in one step. A replay makes
// a closed receipt Retrying, due at once.
func (s State) MayBecome(next State) bool {
	return slices.Contains(follows[s], next)
}

// Open reports whether the receipt still waits for its end.
func (s State) Open() bool { return s == Claimed || s == Dispatching || s == Retrying }

// Replayable reports whether an operator may have the event dispatched again.
func (s State) Replayable() bool { return !s.Open() && s.MayBecome(Retrying) }

// Discardable reports whether an operator may close the receipt by hand.
func (s State) Discardable() bool { return s.MayBecome(Discarded) }

// A Receipt is the durable row of one event, committed before the vendor is answered and
// before anything is done with the event.
type Receipt struct {
	ID           string // UUIDv7, drawn by the claimer; doubles as its claim token
	Key          Key
	Channel      string
	Installation string // installation through which the first delivery came
	MessageKey   string
	Kind         Kind
	Conversation string
	// ConversationID is that of the conversation in which the event's message is recorded; empty
	// for what is no message or stands in none, and where it was not asked for.
	ConversationID string
	Digest         Digest // of the event's content
	Guarantee      Guarantee
	State          State
	Attempt        int // dispatches begun
	Deliveries     int // deliveries seen, the first included; counted in batches, so a little late
	VendorAttempt  int // highest retry count that the vendor told
	ClaimedAt      time.Time
	BegunAt        time.Time // last begin; zero if never begun
	HandledAt      time.Time // zero unless handled
	LeaseUntil     time.Time // until when the holder of a dispatching receipt counts as alive
	DueAt          time.Time // when a retrying receipt is to be begun again
	Holder         string    // instance that has claimed or begun it last
	LastError      string
	Seq            int64   // order of claims
	Payload        Payload // empty where it was not asked for, or has been pruned
}

// Expired reports whether an open receipt is one that somebody else may take up at now:
// its lease ran out or its retry is due. A claimed receipt never expires by time, but by
// the end of its holder, which the receipt does not tell.
func (r Receipt) Expired(now time.Time) bool {
	switch r.State {
	case Dispatching:
		return !now.Before(r.LeaseUntil)
	case Retrying:
		return !now.Before(r.DueAt)
	case Claimed, Handled, Failed, Lost, Discarded:
	}
	return false
}

// A Verdict is the end of one event in one delivery.
type Verdict string

// The verdicts, and Refused for a delivery in which an event could not be given one.
const (
	Admitted   Verdict = "admitted"
	Duplicate  Verdict = "duplicate"
	Unnumbered Verdict = "unnumbered" // dispatched without a receipt
	Ignored    Verdict = "ignored"    // nothing to dispatch
	Refused    Verdict = "refused"    // nothing stored; the vendor is made to come again
)

// Verdicts lists the verdicts in the order in which counts are told.
var Verdicts = []Verdict{Admitted, Duplicate, Unnumbered, Ignored, Refused}
