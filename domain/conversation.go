package domain

// A ConversationStatus tells whether a recorded conversation takes messages.
type ConversationStatus string

// The statuses. Of the recorded conversations that are one at the vendor at most one is pending.
const (
	ConversationPending ConversationStatus = "pending" // takes every message of the vendor's conversation
	ConversationClosed  ConversationStatus = "closed"  // by hand: the next message opens another
)
