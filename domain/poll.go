package domain

// A Checkpoint is how far the polling of one account has come, as its channel tells it. The
// zero Checkpoint is that of an account which was never polled.
type Checkpoint struct {
	// Generation counts how often the vendor's order had to be begun anew: because it forgot
	// where the polling stood, or because the account was made again. 0 before the first poll.
	Generation int64
	// Position is the place in the vendor's order up to which everything is durable. It
	// never falls within a generation.
	Position uint64
	// State is what else the channel needs to go on, in a form of its own.
	State string
}

// Before reports whether c stands before other in the order in which checkpoints are saved.
func (c Checkpoint) Before(other Checkpoint) bool {
	if c.Generation != other.Generation {
		return c.Generation < other.Generation
	}
	return c.Position < other.Position
}

// A PollCondition tells how the last poll of an account ended.
type PollCondition string

// The conditions.
const (
	PollWorks   PollCondition = "ok"
	PollFails   PollCondition = "failing" // it is tried again, ever more rarely
	PollRevoked PollCondition = "revoked" // the vendor does not accept the credentials: a person is needed
)
