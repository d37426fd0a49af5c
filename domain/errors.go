package domain

import "errors"

// What can be wrong with a delivery. Channels wrap these; one place maps them to an answer.
var (
	// ErrUnauthenticated: the vendor did not send this. Nothing is stored, no key is touched.
	ErrUnauthenticated = errors.New("not authentic")
	// ErrUnreadable: the vendor sent this, but it cannot be understood and no retry can mend it.
	ErrUnreadable = errors.New("not readable")
	// ErrUnknownRecipient: the vendor sent this, for a recipient that no installation lists.
	ErrUnknownRecipient = errors.New("unknown recipient")
)

// What can go wrong in a store, or in what else is asked on the way.
var (
	// ErrUnavailable: it is out of reach and has applied nothing.
	ErrUnavailable = errors.New("out of reach")
	// ErrUnknown: the store may or may not have applied the change, and could not be asked in time.
	ErrUnknown = errors.New("outcome unknown")
	// ErrFenced: the receipt is no longer the caller's to change.
	ErrFenced = errors.New("receipt is held by another or closed")
	// ErrNotFound: there is no such receipt.
	ErrNotFound = errors.New("no such receipt")
	// ErrNoConversation: there is no such conversation.
	ErrNoConversation = errors.New("no such conversation")
	// ErrNotInstalled: there is no such installation.
	ErrNotInstalled = errors.New("no such installation")
	// ErrTaken: the id of an installation, or its account on the channel, is that of another.
	ErrTaken = errors.New("the id or the account is that of another installation")
	// ErrState: the receipt's state does not allow what was asked.
	ErrState = errors.New("not allowed in this state")
)
