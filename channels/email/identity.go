// Package email reads mail: what makes one mail the same as another, and what it says. Every
// channel of platform "email" asks it, so that a mail that came by two paths has one
// identity. It is no channel itself.
//
// The identity is computed here from the bytes of the top header, and from nothing that a
// MIME library returns: libraries differ on what a Message-ID is, and change their minds.
// Text, names and attachments come from a library that forgives much, since most of what
// real mail does wrong harms only how it reads.
//
// The package imports domain and libraries, no transport and no store.
package email

import (
	"fmt"
	"time"

	"github.com/admitone/admitone/domain"
)

// A Source says how a mail came here.
type Source struct {
	// Gmail is true only if Google itself handed over the mail: then what Google wrote
	// into its header can be believed.
	Gmail bool
	// Received is when the mail arrived. It bounds the identity of a mail that has neither
	// id nor date; zero leaves that unbounded.
	Received time.Time
}

// An Identity is what tells a mail from the others of its mailbox.
type Identity struct {
	// MessageID is the sender's id as it stands between the angle brackets, any bytes and
	// any length; empty if the sender gave none.
	MessageID string
	// Key is "m:" and the Message-ID, or "f:" and the Fingerprint of a mail without one,
	// so that no sender can write an id that is another mail's fingerprint. It has been
	// through domain.StorableID. A mail without id and date is often a sensor that says
	// the same every hour: "@" and the hour in which it came, in UTC, is added to its key.
	Key string
	// Conversation is the id of the mail that began the conversation, storable: the first
	// of References, else of In-Reply-To, else the mail's own, else its Key.
	Conversation string
	// Digest tells a mail that reuses another's Message-ID from a copy of that mail. It is
	// made of From and Date: a list changes subject and body of its copies and leaves
	// these two. Where one of them is missing it is made of the Fingerprint.
	Digest domain.Digest
}

// Identify returns the identity of mail, which is a whole mail as received. Equal mail has
// an equal identity under added trace, list and authentication fields, other folding and
// other line ends. The error wraps domain.ErrUnreadable; it is returned if mail has not a
// single header field, which no mail has that has passed a mail server.
func Identify(mail []byte, s Source) (Identity, error) {
	h := readHeader(mail)
	if h.fields == 0 {
		return Identity{}, fmt.Errorf("mail without a header: %w", domain.ErrUnreadable)
	}
	id := Identity{MessageID: h.id(s.Gmail)}
	from, date := flat(h.from), flat(h.date)
	var fingerprint string
	if id.MessageID == "" || len(from) == 0 || len(date) == 0 {
		fingerprint = h.fingerprint()
	}
	if id.MessageID != "" {
		id.Key = domain.StorableID("m:" + id.MessageID)
	} else {
		id.Key = "f:" + fingerprint
		if len(date) == 0 && !s.Received.IsZero() {
			id.Key += "@" + s.Received.UTC().Format("2006-01-02T15")
		}
	}
	if fingerprint != "" {
		id.Digest = domain.DigestOf("mail", fingerprint)
	} else {
		id.Digest = domain.DigestOf("mail", string(from), string(date))
	}
	switch root := h.root(); {
	case root != "":
		id.Conversation = domain.StorableID(root)
	case id.MessageID != "":
		id.Conversation = domain.StorableID(id.MessageID)
	default:
		id.Conversation = id.Key
	}
	return id, nil
}

// Event returns the event of the mail in p, the same on every path but for its payload. Its
// error is that of Identify.
func Event(p domain.Payload, s Source) (domain.Event, error) {
	id, err := Identify(p.Body, s)
	if err != nil {
		return domain.Event{}, err
	}
	return domain.Event{
		ID:           id.Key,
		MessageKey:   domain.StorableID("message:" + id.Key),
		Kind:         domain.MessageCreated,
		Conversation: id.Conversation,
		Digest:       id.Digest,
		Payload:      p,
	}, nil
}
