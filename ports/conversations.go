package ports

import (
	"context"
	"time"

	"github.com/admitone/admitone/domain"
)

// Conversations are the messages that claims have recorded and the conversations they stand in,
// for people to read and close. Safe for concurrent use.
type Conversations interface {
	// Conversations returns a page of conversations, those opened last first.
	Conversations(ctx context.Context, f ConversationFilter) (ConversationPage, error)
	// Messages returns a page of the receipts of a conversation's messages, newest first, without
	// payload: at most limit, 0 meaning 100 and 1000 being the most. cursor is Next of the page
	// before. It returns domain.ErrNoConversation.
	Messages(ctx context.Context, conversation string, limit int, cursor string) (Page, error)
	// Payload returns what a receipt's event carried. It returns domain.ErrNotFound if that was pruned.
	Payload(ctx context.Context, tenant, receipt string) (domain.Payload, error)
	// CloseConversation commits that a pending conversation takes no further message: the next one
	// opens another. by tells who asked. It returns domain.ErrNoConversation, or domain.ErrState
	// if it is closed.
	CloseConversation(ctx context.Context, id, by string) error
}

// A Conversation is one that messages were recorded in. It lives as long as one of their receipts.
type Conversation struct {
	ID         string // the receipt id of the message that opened it
	Tenant     string
	Platform   string
	Account    string
	ExternalID string // the vendor's id; of mail, the id of the mail that began the thread
	Status     domain.ConversationStatus
	OpenedAt   time.Time
	ClosedAt   time.Time // zero while it is pending
	ClosedBy   string
}

// A ConversationFilter selects conversations. Zero fields select all.
type ConversationFilter struct {
	Tenant   string
	Platform string
	Status   domain.ConversationStatus
	Limit    int    // at most 1000; 0 means 100
	Cursor   string // Next of the page before
}

// A ConversationPage is part of a list. Next is empty on the last.
type ConversationPage struct {
	Conversations []Conversation
	Next          string
}
