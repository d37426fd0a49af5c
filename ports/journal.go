package ports

import (
	"context"
	"errors"

	"github.com/admitone/admitone/domain"
)

// ErrFull is returned by a journal that would outgrow its bound.
var ErrFull = errors.New("the journal is full")

// A Journal keeps events on this instance's own disk while the durable store is out of reach.
// Nothing is dispatched from it: its entries go through an ordinary claim when the store is
// back. It belongs to one process at a time. Safe for concurrent use.
type Journal interface {
	// Append writes receipts, as they are to be claimed, with payload, and syncs them to disk
	// before it returns. Calls of concurrent goroutines are synced together. It returns ErrFull,
	// and keeps none of them, if the journal would outgrow its bound.
	Append(ctx context.Context, receipts []domain.Receipt) error
	// Oldest returns at most limit entries in the order in which they were appended, those of
	// an earlier process too.
	Oldest(ctx context.Context, limit int) ([]JournalEntry, error)
	// Remove forgets entries for good. An entry whose removal was not synced when the process
	// died comes again; its claim then finds its own receipt.
	Remove(ctx context.Context, entries []JournalEntry) error
	// Len returns how many entries there are. It does not block.
	Len() int
	// Close ends what runs and gives the journal up to others. No call may follow.
	Close() error
}

// A JournalEntry is one receipt in a journal. Seq is its place in it.
type JournalEntry struct {
	Seq     uint64
	Receipt domain.Receipt
}
