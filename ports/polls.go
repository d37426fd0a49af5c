package ports

import (
	"context"
	"time"

	"github.com/admitone/admitone/domain"
)

// A PollStore keeps, for each account that is polled, who polls it now, how far that has come
// and how it went. Time is that of the store, so that instances need not agree on theirs.
// Safe for concurrent use. Errors are those of DurableStore.
type PollStore interface {
	// EnterPolls makes accounts known that are not, due at once. One that waits because its
	// credentials were refused is due at once too: who enters it may have better ones. So is one
	// that TakePolls has put off.
	EnterPolls(ctx context.Context, accounts []PollAccount) error
	// TakePolls makes holder the one that polls at most limit of the accounts that are due,
	// that nobody holds and that wanted says it wants, the longest due first. Each is held
	// until it is ended or ttl is over. What has been due for a minute and is not wanted may be
	// put off by some minutes.
	TakePolls(ctx context.Context, holder string, wanted func(PollAccount) bool, limit int, ttl time.Duration) ([]Poll, error)
	// KeepPoll makes lease last for ttl from now. It returns domain.ErrFenced if it is over.
	KeepPoll(ctx context.Context, lease PollLease, ttl time.Duration) error
	// SaveCheckpoint commits how far the polling has come. It returns domain.ErrFenced if the
	// lease is over, and domain.ErrState if c stands before what is saved: then nothing is changed.
	SaveCheckpoint(ctx context.Context, lease PollLease, c domain.Checkpoint) error
	// EndPoll gives the account up and commits how the poll ended. It returns domain.ErrFenced
	// if the lease is over: then nothing is changed.
	EndPoll(ctx context.Context, lease PollLease, end PollEnd) error
	// Polls returns where every account stands, in the order of their keys.
	Polls(ctx context.Context) ([]PollStatus, error)
}

// A PollAccount names an account that is polled.
type PollAccount struct {
	Tenant  string
	Channel string
	Account string
}

// A PollLease is the right to poll an account. Fence is another at each take, so that a
// holder whose lease is over can change nothing.
type PollLease struct {
	PollAccount
	Fence int64
}

// A Poll is an account that was taken.
type Poll struct {
	PollLease
	Checkpoint domain.Checkpoint
	Condition  domain.PollCondition // of the poll before
	Failures   int                  // polls before it, one after the other, that failed
}

// A PollEnd tells how a poll ended.
type PollEnd struct {
	// CaughtUp says that everything was seen which the vendor showed when the poll began.
	CaughtUp  bool
	Condition domain.PollCondition
	Reason    string        // why, if it did not work; holds no secret and no text of a message
	Wait      time.Duration // until the account is due again
}

// A PollStatus is where the polling of an account stands.
type PollStatus struct {
	PollAccount
	Holder     string    // instance that polls it now; empty if none does
	DueAt      time.Time // when it is polled next or, while it is, when the lease is over
	EnteredAt  time.Time
	EndedAt    time.Time // when a poll ended last, well or not; zero if none did
	CaughtUpAt time.Time // when a poll began last that saw everything; zero if none did
	Condition  domain.PollCondition
	Failures   int
	LastError  string
	Checkpoint domain.Checkpoint // without State
}

// Lag returns how long ago, at now, everything was known to be seen.
func (s PollStatus) Lag(now time.Time) time.Duration {
	since := s.EnteredAt
	if s.CaughtUpAt.After(since) {
		since = s.CaughtUpAt
	}
	return max(0, now.Sub(since))
}
