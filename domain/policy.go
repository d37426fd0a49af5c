package domain

import (
	"errors"
	"fmt"
	"time"
)

// A Guarantee says what happens to an event whose holder died while dispatching it.
type Guarantee string

// The guarantees.
const (
	AtMostOnce  Guarantee = "at-most-once"  // never begun twice; may end as Lost, and shows it
	AtLeastOnce Guarantee = "at-least-once" // begun until handled or out of attempts
)

// StoreDown says what to do with events while the durable store is out of reach.
type StoreDown string

// The choices for StoreDown.
const (
	StoreDownAuto    StoreDown = "auto" // as the channel knows its vendor
	StoreDownRefuse  StoreDown = "refuse"
	StoreDownJournal StoreDown = "journal"
)

// OnConflict says what to do with an event that has the key of another and other content.
type OnConflict string

// The choices for OnConflict. The empty one leaves it to the platform.
const (
	ConflictSuppress OnConflict = "suppress"
	ConflictAdmit    OnConflict = "admit"
)

// A Backoff spaces the attempts of one event.
type Backoff struct {
	Initial time.Duration
	Max     time.Duration
}

// Delay returns how long to wait after attempt attempts, the first being 1: Initial,
// doubled with each attempt, at most Max.
func (b Backoff) Delay(attempt int) time.Duration {
	d := b.Initial
	for i := 1; i < attempt; i++ {
		if d >= b.Max/2 {
			return b.Max
		}
		d *= 2
	}
	return min(d, b.Max)
}

// A ClaimPolicy is what an operator decided for the events of one installation.
type ClaimPolicy struct {
	Guarantee        Guarantee
	FastTTL          time.Duration // how long the fast store remembers a handled event
	Retention        time.Duration // of receipts: how long a duplicate is recognised
	PayloadRetention time.Duration
	Lease            time.Duration // how long one dispatch may take before its holder counts as gone
	MaxAttempts      int
	Backoff          Backoff
	OnStoreDown      StoreDown
	OnConflict       OnConflict
	RateLimit        int           // deliveries a second that one instance takes; 0: any number
	Quarantine       time.Duration // how long requests with a wrong signature are kept; 0: not at all
}

// MaxQuarantine is the longest that a request with a wrong signature may be kept: long enough
// to notice that a secret was changed by mistake, and no store of what strangers send.
const MaxQuarantine = 24 * time.Hour

// DefaultPolicy is the policy of an operator who says nothing.
func DefaultPolicy() ClaimPolicy {
	return ClaimPolicy{
		Guarantee:        AtMostOnce,
		FastTTL:          25 * time.Hour, // Slack's last delayed retry comes 24 h 6 min after the first
		Retention:        30 * 24 * time.Hour,
		PayloadRetention: 7 * 24 * time.Hour,
		Lease:            2 * time.Minute,
		MaxAttempts:      8,
		Backoff:          Backoff{Initial: time.Second, Max: 5 * time.Minute},
		OnStoreDown:      StoreDownAuto,
	}
}

// Journals reports whether an event that the durable store can't take goes to the local journal.
// comesAgain says that the vendor sends it again if it is refused.
func (p ClaimPolicy) Journals(comesAgain bool) bool {
	switch p.OnStoreDown {
	case StoreDownJournal:
		return true
	case StoreDownRefuse:
		return false
	case StoreDownAuto:
	}
	return !comesAgain
}

// Validate returns what is wrong with p for a vendor that repeats for retryWindow and a
// dispatch that may take dispatchTimeout. Each error begins with the key it is about.
func (p ClaimPolicy) Validate(retryWindow, dispatchTimeout time.Duration) error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if p.Guarantee != AtMostOnce && p.Guarantee != AtLeastOnce {
		bad("guarantee: %q is neither %s nor %s", p.Guarantee, AtMostOnce, AtLeastOnce)
	}
	switch p.OnStoreDown {
	case StoreDownAuto, StoreDownRefuse, StoreDownJournal:
	default:
		bad("on_store_down: %q is none of auto, refuse, journal", p.OnStoreDown)
	}
	switch p.OnConflict {
	case "", ConflictSuppress, ConflictAdmit:
	default:
		bad("on_conflict: %q is neither suppress nor admit", p.OnConflict)
	}
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"fast_ttl", p.FastTTL},
		{"retention", p.Retention},
		{"payload_retention", p.PayloadRetention},
		{"lease", p.Lease},
		{"backoff.initial", p.Backoff.Initial},
		{"backoff.max", p.Backoff.Max},
	} {
		if d.value <= 0 {
			bad("%s: must be positive, is %s", d.key, d.value)
		}
	}
	if p.RateLimit < 0 {
		bad("rate_limit: must not be negative, is %d", p.RateLimit)
	}
	if p.Quarantine < 0 || p.Quarantine > MaxQuarantine {
		bad("quarantine: must be at most %s, is %s", MaxQuarantine, p.Quarantine)
	}
	if p.MaxAttempts < 1 {
		bad("max_attempts: must be at least 1, is %d", p.MaxAttempts)
	}
	if p.Retention < p.FastTTL {
		bad("retention: %s is shorter than fast_ttl (%s): the fast store would outlive what it speaks of", p.Retention, p.FastTTL)
	}
	if p.Retention < retryWindow {
		bad("retention: %s is shorter than the vendor's retry window (%s): its last retry would count as new", p.Retention, retryWindow)
	}
	if p.Lease <= dispatchTimeout {
		bad("lease: %s is not longer than the dispatch timeout (%s): a slow dispatch would count as dead", p.Lease, dispatchTimeout)
	}
	if p.Backoff.Max < p.Backoff.Initial {
		bad("backoff.max: %s is shorter than backoff.initial (%s)", p.Backoff.Max, p.Backoff.Initial)
	}
	return errors.Join(errs...)
}
