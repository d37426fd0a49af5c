package ports

import (
	"context"
	"time"

	"github.com/admitone/admitone/domain"
)

// A Dispatcher hands events to the application. Safe for concurrent use.
type Dispatcher interface {
	// Dispatch hands d over once and tells how it ended; it does not retry. It blocks until
	// the application has answered, the dispatcher's own time-out is over or ctx ends, and
	// returns a valid outcome in each case.
	Dispatch(ctx context.Context, d Dispatch) domain.Result
	// Close gives up connections. No call may follow.
	Close() error
}

// A Dispatch is one attempt to hand one event over.
type Dispatch struct {
	ID         string // the receipt's, the same at every attempt; for an unnumbered event one of its own
	Key        domain.Key
	Channel    string
	Kind       domain.Kind
	MessageKey string
	Attempt    int
	// ConversationID is Admitone's own id of the conversation; empty where there is none.
	ConversationID string
	// ReceivedAt stands for Content.Time where the vendor tells none.
	ReceivedAt time.Time
	Content    domain.Content
	// URL is where to, if the installation has an address of its own.
	URL string
}
