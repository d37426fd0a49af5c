package ports

import (
	"context"
	"time"

	"github.com/admitone/admitone/domain"
)

// A Mark is the beginning of the digest of an event's content. A fast store keeps it, so
// that a conflict is found without asking the durable store.
type Mark [4]byte

// MarkOf returns the mark of a content digest.
func MarkOf(d domain.Digest) Mark { return Mark(d[:4]) }

// A FastStore remembers which events are known to be handled. It saves work and decides
// nothing: off, slow, emptied or stale it costs a look at the durable store, never an
// event. Safe for concurrent use.
type FastStore interface {
	// Seen reports whether the event with that key digest is remembered as handled, and
	// with which content. A store that can't answer returns an error, never a guess. It
	// blocks at most for the store's own time-out or until ctx ends.
	Seen(ctx context.Context, key domain.Digest) (content Mark, handled bool, err error)
	// Remember makes Seen report the event as handled for ttl. It is called only after
	// the state handled is committed. A later call for the same key changes neither the
	// content nor the end: the first one counts. An error means that the store may or may
	// not remember; nothing needs to be done about it. It blocks like Seen.
	Remember(ctx context.Context, key domain.Digest, content Mark, ttl time.Duration) error
	// Ready returns nil if the store answers.
	Ready(ctx context.Context) error
	// Close gives up connections. No call may follow.
	Close() error
}
