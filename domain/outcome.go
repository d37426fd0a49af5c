package domain

import "time"

// An Outcome is how one dispatch ended, as far as the dispatcher can know.
type Outcome string

// The outcomes.
const (
	Taken       Outcome = "taken"        // the application has it
	NotReceived Outcome = "not-received" // certainly never reached it: no connection, no name, no handshake
	Declined    Outcome = "declined"     // it expressly asked to come again later
	Ambiguous   Outcome = "ambiguous"    // it may have it: time-out, reset, internal error
	Rejected    Outcome = "rejected"     // it expressly does not want it
)

// A Result is what a dispatcher tells of one dispatch. Reason is for people, holds no
// secret and no message text, and is empty if the event was taken.
type Result struct {
	Outcome Outcome
	Reason  string
}

// A Step is where a receipt goes from Dispatching.
type Step struct {
	State State
	DueAt time.Time // set if State is Retrying
}

// After returns what follows from outcome of attempt number attempt, the first being 1,
// under guarantee g.
func (p ClaimPolicy) After(outcome Outcome, g Guarantee, attempt int, now time.Time) Step {
	switch outcome {
	case Taken:
		return Step{State: Handled}
	case NotReceived, Declined:
		return p.again(attempt, now)
	case Ambiguous:
		if g == AtLeastOnce {
			return p.again(attempt, now)
		}
		return Step{State: Failed}
	case Rejected:
		return Step{State: Failed}
	}
	return Step{State: Failed}
}

// AfterExpiry returns what follows when the lease of attempt number attempt ran out:
// nobody knows whether the application got the event.
func (p ClaimPolicy) AfterExpiry(g Guarantee, attempt int, now time.Time) Step {
	if g == AtLeastOnce {
		return p.again(attempt, now)
	}
	return Step{State: Lost}
}

func (p ClaimPolicy) again(attempt int, now time.Time) Step {
	if attempt >= p.MaxAttempts {
		return Step{State: Failed}
	}
	return Step{State: Retrying, DueAt: now.Add(p.Backoff.Delay(attempt))}
}

// Admits reports whether an event with the key of another and other content is admitted
// as a separate event. Unless the policy says, only mail is: there senders choose the ids.
func (p ClaimPolicy) Admits(platform string) bool {
	if p.OnConflict == "" {
		return platform == "email"
	}
	return p.OnConflict == ConflictAdmit
}

// Apart returns e under the id and message key that tell it from another event of the
// same key, so that its own repeats are duplicates of it.
func Apart(e Event) Event {
	mark := "#" + e.Digest.String()[:16]
	e.ID = StorableID(e.ID + mark)
	if e.MessageKey != "" {
		e.MessageKey = StorableID(e.MessageKey + mark)
	}
	return e
}
