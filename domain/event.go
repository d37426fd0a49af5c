package domain

import (
	"encoding/json"
	"time"
)

// A Kind tells what happened on the platform, in the same words for every vendor.
type Kind string

// The kinds of events.
const (
	MessageCreated Kind = "message.created"
	MessageEdited  Kind = "message.edited"
	MessageDeleted Kind = "message.deleted"
	MessageStatus  Kind = "message.status"
	Mention        Kind = "mention"
	Reaction       Kind = "reaction"
	Command        Kind = "command"
	Interaction    Kind = "interaction"
	Membership     Kind = "membership"
	Other          Kind = "other"
)

// An Event is what a channel tells of one event before it is claimed: as much as the
// claim needs and no more. The rest is read from Payload when the event is dispatched.
type Event struct {
	// ID is the event id: unique within the account, the same at every retry. It is empty
	// if the vendor never numbers this kind, and so never repeats it.
	ID string
	// Account is the vendor's own name of the installation the event was sent to. It is
	// empty if the payload does not tell; then it is that of the installation in the path.
	Account string
	// MessageKey is the identity of the message that a MessageCreated event speaks of;
	// empty where there is none, and for every other kind.
	MessageKey string
	Kind       Kind
	// Conversation is the vendor's id of the conversation; empty if it stands in none.
	Conversation string
	// Digest is that of the parts which a retry can't change. Events of equal key and
	// other digest are a conflict.
	Digest Digest
	// VendorAttempt is the vendor's own retry count, 0 at the first delivery. Vendors do
	// not sign it: a hint for logs and metrics, never a decision.
	VendorAttempt int
	Payload       Payload
}

// A Payload is one event as the vendor sent it.
type Payload struct {
	MediaType string // as the channel needs it to read Body again, such as "application/json"
	Body      []byte // the bytes received
}

// Content is what the application is told of an event.
type Content struct {
	Conversation Conversation
	Sender       Sender
	Text         string
	Attachments  []Attachment
	Time         time.Time       // when it happened, by the vendor's clock; zero if the vendor does not say
	Raw          json.RawMessage // the vendor's payload, whole
}

// A Conversation is where an event took place.
type Conversation struct {
	ExternalID string // the vendor's id, such as a Slack channel or a Telegram chat
	Thread     string // the vendor's id of the thread within it; empty if in none
}

// A Sender is who caused an event.
type Sender struct {
	ID   string
	Name string
}

// An Attachment is a file that came with a message. Size is in bytes, 0 if not told.
type Attachment struct {
	URL  string
	Type string
	Name string
	Size int64
}
