package ports

import (
	"context"
	"time"

	"github.com/admitone/admitone/domain"
)

// A Ledger is what people see of the receipts, and the few things that they may do by hand.
// Safe for concurrent use.
type Ledger interface {
	// Receipts returns a page of receipts, newest first, without payload.
	Receipts(ctx context.Context, f Filter) (Page, error)
	// Receipt returns one with its history, oldest first. It returns domain.ErrNotFound.
	Receipt(ctx context.Context, id string) (domain.Receipt, []Entry, error)
	// Replay commits that a closed receipt is to be dispatched again, at once. by tells who
	// asked. It returns domain.ErrNotFound, or domain.ErrState if the receipt is open, is being
	// replayed already or has lost its payload.
	Replay(ctx context.Context, id, by string) error
	// ReplayAll does so for at most f.Limit of the receipts that f selects, and returns how many.
	ReplayAll(ctx context.Context, f Filter, by string) (int, error)
	// Discard closes a failed, lost or retrying receipt by hand. It returns domain.ErrNotFound
	// or domain.ErrState.
	Discard(ctx context.Context, id, by string) error
	// Counts returns how many receipts there are by tenant, platform and state.
	Counts(ctx context.Context) ([]Count, error)
	// OldestOpen returns when the oldest open receipt was claimed; zero if none is open.
	OldestOpen(ctx context.Context) (time.Time, error)
}

// A Filter selects receipts. Zero fields select all.
type Filter struct {
	Tenant   string
	Platform string
	State    domain.State
	Query    string // part of neither payload nor text: an exact receipt id, event id or message key
	Since    time.Time
	Limit    int    // at most 1000; 0 means 100
	Cursor   string // Next of the page before
}

// A Page is part of a list. Next is empty on the last.
type Page struct {
	Receipts []domain.Receipt
	Next     string
}

// An Entry is one thing that happened to a receipt beyond the ordinary.
type Entry struct {
	At      time.Time
	What    string // "attempt", "lost", "replay", "discard"
	Attempt int
	State   domain.State // state after it
	Reason  string
	By      string // who, where a person asked
}

// A Count is how many receipts of a tenant and platform are in a state.
type Count struct {
	Tenant   string
	Platform string
	State    domain.State
	N        int64
}

// An Auditor checks the ledger's balance.
type Auditor interface {
	// Audit reads every receipt. An open one is stuck if nobody took it up for grace after its
	// time; a broken one contradicts itself; a repeated one is not handled although the vendor has
	// sent it again. At most limit of each kind are named. It changes nothing and blocks nobody.
	Audit(ctx context.Context, grace time.Duration, limit int) (Audit, error)
}

// An Audit is the balance and what is wrong with it.
type Audit struct {
	Sums     []Sum
	Findings []Finding
	// Repeated receipts are no fault of the ledger, and the strongest sign of trouble with the
	// application. Newest first.
	Repeated []domain.Receipt
}

// A Sum is the balance of one tenant and platform.
type Sum struct {
	Tenant   string
	Platform string
	Admitted int64 // all receipts
	States   map[domain.State]int64
	Repeated int64 // neither handled nor discarded, and delivered more than once
}

// Balanced reports whether every admitted event is in a state that there is.
func (s Sum) Balanced() bool {
	var n int64
	for _, state := range domain.States {
		n += s.States[state]
	}
	return n == s.Admitted
}

// A Finding is a receipt that is broken or stuck.
type Finding struct {
	Receipt domain.Receipt
	Why     string
}
