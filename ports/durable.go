package ports

import (
	"context"
	"time"

	"github.com/admitone/admitone/domain"
)

// A DurableStore keeps receipts. Its unique indexes are the one arbiter of what is admitted.
// Calls of concurrent goroutines are committed together. Safe for concurrent use.
//
// A change whose commit was sent and not answered is found out, not guessed: the store
// repeats it, which is harmless, until it has the answer or ctx ends. Three errors are told
// apart: domain.ErrUnavailable, certainly nothing was applied; domain.ErrUnknown, it may
// have been; anything else, the store refused the change and applied nothing.
type DurableStore interface {
	// Claim writes each receipt unless its event key or its message key is taken, and
	// commits before it returns. Of all claims of one key, in any number of processes,
	// exactly one is won. Losing is a result, not an error. Each element of the answer
	// belongs to the receipt of the same index and carries an error of its own, so that
	// one that can't be stored does not take the rest with it.
	// State must be Claimed, or Failed for what is to be parked at once.
	//
	// A receipt of kind domain.MessageCreated that wins is recorded as a message with it, in the
	// pending conversation of its tenant, platform, account and conversation, which is opened if
	// there is none. Of all claims that would open it, in any number of processes, one does.
	Claim(ctx context.Context, receipts []domain.Receipt) []Claim
	// Begin commits that the caller's next attempt has begun and returns its number. The lease
	// counts from then, by the store's clock. It returns ErrWaits while an earlier event
	// of the same conversation has not ended its first attempt, and domain.ErrFenced if
	// the receipt is not open or no longer held by ref.Holder with ref.Attempt attempts.
	// ErrWaits with domain.ErrUnknown says that what was sent before it may yet arrive: the
	// next begin of it must say so by ref.Doubt, or it would take its own attempt for another's.
	Begin(ctx context.Context, ref Ref, lease time.Duration) (attempt int, err error)
	// Settle commits where the receipt goes from dispatching. It returns domain.ErrFenced
	// if the lease ran out or the attempt is not the caller's: then nothing is changed.
	Settle(ctx context.Context, s Settlement) error

	// Beat commits that holder is alive for ttl from now.
	Beat(ctx context.Context, holder string, ttl time.Duration) error
	// Leave commits that holder is gone, so that what it has claimed is taken up at once.
	Leave(ctx context.Context, holder string) error
	// TakeUp makes holder the one of at most limit receipts that wait for somebody: claimed
	// ones whose holder is gone, or is this holder and mine says it does not know them, and
	// retrying ones that are due. It returns them with payload and ConversationID, in the
	// order of their claims. reserve is how long a retrying one is left alone by others from then.
	TakeUp(ctx context.Context, holder string, mine func(id string) bool, limit int, reserve time.Duration) ([]domain.Receipt, error)
	// Expired returns at most limit dispatching receipts whose lease ran out, without payload.
	Expired(ctx context.Context, limit int) ([]domain.Receipt, error)
	// Expire commits what follows from the end of the lease of r, as Expired returned it.
	// It returns domain.ErrFenced if the receipt has changed since.
	Expire(ctx context.Context, r domain.Receipt, step domain.Step, reason string) error
	// CountDeliveries adds suppressed duplicates to their receipts. It never waits for a
	// receipt that is just being changed: it returns the counts which it did not add.
	CountDeliveries(ctx context.Context, counts []DeliveryCount) (left []DeliveryCount, err error)

	// AcquireLease makes holder the one that holds the lease called name for ttl, and
	// reports whether it does: nobody else holds it, or it did already.
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)
	// Tenants returns every tenant that has receipts or payloads, quiet ones too.
	Tenants(ctx context.Context) ([]string, error)
	// Prune deletes what is older than scope says: at most limit closed receipts with their
	// history and messages, the conversations whose last message goes with them, and at most
	// limit payloads of closed receipts, oldest first. It returns how many receipts and payloads
	// it deleted, and is a transaction of its own.
	Prune(ctx context.Context, scope PruneScope, limit int) (int, error)

	// Ready returns nil if the store takes claims.
	Ready(ctx context.Context) error
	// Close ends what runs and gives up connections. No call may follow.
	Close() error
}

// A Claim is the answer to one claim.
type Claim struct {
	Won bool
	// Receipt is the caller's own as it stands if Won, with ConversationID, the winner's without
	// payload and ConversationID if not. An
	// own one of which an earlier try was applied may have been taken up by another meanwhile.
	Receipt domain.Receipt
	// SameMessage tells of a lost claim that the event key is new and the message key is taken.
	SameMessage bool
	Err         error
}

// A Ref names an open receipt and how its caller holds it.
type Ref struct {
	Tenant  string
	ID      string
	Holder  string
	Attempt int // attempts begun so far
	// Doubt says that a begin with this ref was answered by ErrWaits and domain.ErrUnknown: so it may
	// have been applied since.
	Doubt bool
}

// A Settlement ends the attempt that Begin numbered.
type Settlement struct {
	Ref    // Attempt is the number that Begin returned
	Step   domain.Step
	Reason string // why, if not handled
}

// A DeliveryCount is how many duplicates of an event were suppressed.
type DeliveryCount struct {
	Tenant        string
	Event         domain.Digest
	N             int
	VendorAttempt int // highest that the vendor told
}

// A PruneScope says which receipts of one tenant are old.
type PruneScope struct {
	Tenant   string
	Only     []string  // installations; nil means all but those that Except names
	Except   []string  // installations
	Receipts time.Time // receipts claimed before are deleted
	Payloads time.Time // payloads of receipts claimed before are deleted
}

// ErrWaits is returned by Begin while an earlier event of the conversation is in its first attempt.
var ErrWaits error = waitsError{}

type waitsError struct{}

func (waitsError) Error() string { return "an earlier event of the conversation has not ended" }
