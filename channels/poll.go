package channels

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/admitone/admitone/domain"
)

// A Poll is how one account of a polled channel is asked for what is new. Loop, lease, stored
// checkpoint, time-out and backoff belong to whoever calls Round.
type Poll struct {
	// Every is the wait between two rounds.
	Every time.Duration
	// Round asks once, and goes on until nothing is left or ctx ends. It reports whether it has
	// seen everything that the vendor shows. It starts nothing that outlives it, and is called
	// for one account by one caller at a time, on any instance, one round after the other.
	//
	// An error says that something is left. It wraps ErrRevoked if only a person can help; a
	// BusyError in its chain says how long to leave the vendor alone. What was saved before
	// stands. Errors hold no secret and no text of a message.
	Round func(ctx context.Context, r Round) (caughtUp bool, err error)
}

// A Round is what one round works with.
type Round struct {
	// Now is when the round begins. A round reads no other clock.
	Now time.Time
	// Checkpoint is what was saved last; the zero one if the account was never polled.
	Checkpoint domain.Checkpoint
	// Accept takes items in, in their order, and returns nil when each is durable or ignored
	// on purpose. It waits where a webhook would be refused. After an error the round must end,
	// and must not save a checkpoint that lies behind the items: a later round offers
	// them again. Payloads are not used after it has returned nil.
	Accept func(ctx context.Context, items []Item) error
	// Save keeps how far the round has come. It returns an error if that is not kept, because
	// the account is polled by another meanwhile or the store is out of reach; then the
	// round must end.
	Save func(ctx context.Context, c domain.Checkpoint) error
}

// An Item is one event that a round has found.
type Item struct {
	Event domain.Event // numbered: its ID is not empty
	// Fault tells why the item can't be understood, so that it is parked with its payload; nil
	// for every other. It wraps domain.ErrUnreadable.
	Fault error
}

// ErrRevoked is returned if the vendor does not accept the credentials any more, or never did.
var ErrRevoked = errors.New("the vendor refuses the credentials")

// A BusyError says that the vendor wants to be left alone for a while.
type BusyError struct {
	After time.Duration // the least wait; 0 if the vendor does not say
	Err   error
}

// Error implements error.
func (b *BusyError) Error() string { return b.Err.Error() }

// Unwrap returns the error that the vendor answered with.
func (b *BusyError) Unwrap() error { return b.Err }

// A Simulator is the vendor of a polled channel, simulated: it answers the rounds of whoever
// holds the credentials that came with it. Safe for concurrent use.
type Simulator interface {
	http.Handler
	// Put places the event of s where the next round finds it. With Retry above 0 the vendor
	// shows the same event once more, under another number of its own.
	Put(s Simulation) error
	// Rounds returns how often somebody was told so far what there is.
	Rounds() int
	// Fetched returns how often events were handed out so far.
	Fetched() int
}
