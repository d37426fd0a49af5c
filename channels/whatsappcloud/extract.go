package whatsappcloud

import (
	"net/http"
	"strings"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

const mediaType = "application/json"

func (e endpoint) Extract(r *channels.Request) (channels.Batch, error) {
	if r.Method == http.MethodGet {
		return handshake(r.URL)
	}
	root, err := parse(r.Body)
	if err != nil {
		return channels.Batch{}, err
	}
	var b channels.Batch
	for p := range parts(root) {
		b.Events = append(b.Events, e.event(p))
	}
	return b, nil
}

func (e endpoint) event(p part) domain.Event {
	ev := domain.Event{
		ID:           p.id(),
		Account:      e.account(p),
		Kind:         p.kind(),
		Conversation: p.conversation(),
		// Without what is around the item: a name or a price that has changed meanwhile makes no other event.
		Digest:  domain.DigestOf(p.item.Raw),
		Payload: domain.Payload{MediaType: mediaType, Body: p.payload()},
	}
	if id := payload.TextAt(p.item, "id"); ev.Kind == domain.MessageCreated && id != "" {
		ev.MessageKey = ev.ID
	}
	return ev
}

// account returns the business phone number that p was sent to. What concerns the whole
// business account names none: on the path of an installation it is that installation's, on
// the app-wide path the business account's, for which there may be an installation.
func (e endpoint) account(p part) string {
	account := payload.TextAt(p.value, "metadata", "phone_number_id")
	if account == "" && e.appWide {
		account = payload.TextAt(p.entry, "id")
	}
	return domain.StorableID(strings.Clone(account))
}

// kind tells what happened. A reply by button or list is a message like any other: it stands
// in the chat, and can be quoted and reacted to. So does a message that the API can't show.
func (p part) kind() domain.Kind {
	switch p.list {
	case statuses:
		if payload.TextAt(p.item, "status") != "" {
			return domain.MessageStatus
		}
	case messages:
		switch payload.TextAt(p.item, "type") {
		case "reaction":
			return domain.Reaction
		case "edit":
			return domain.MessageEdited
		case "revoke":
			return domain.MessageDeleted
		case "system", "request_welcome", "":
			return domain.Other
		}
		return domain.MessageCreated
	}
	return domain.Other
}

// id returns the event id. Edits, deletions and reactions have ids of their own and name the
// message that they are about elsewhere. No id and no status holds a colon.
func (p part) id() string {
	id := payload.TextAt(p.item, "id")
	switch {
	case id == "":
	case p.list == messages:
		return domain.StorableID("message:" + id)
	case p.list == statuses:
		status, kind := payload.TextAt(p.item, "status"), payload.TextAt(p.item, "type")
		// A message can be paid for in several attempts, which may end alike.
		if status == "" || kind != "" && kind != "message" {
			break
		}
		key := "status:" + id + ":" + status + ":" + p.recipient()
		if participant := p.participant(); participant != "" {
			key += ":" + participant
		}
		return domain.StorableID(key)
	}
	content := p.item
	if p.list == "" && p.value.Exists() {
		content = p.value
	}
	return "fallback:" + domain.DigestOf(
		payload.TextAt(p.entry, "id"), payload.TextAt(p.whole, "field"), payload.TextAt(p.entry, "time"), p.list, content.Raw).String()
}

// recipient returns whom the message of a status went to: a person or a group.
func (p part) recipient() string {
	return payload.FirstText(p.item, "recipient_id", "recipient_user_id")
}

// participant returns the member of a group whom a status is about. Meta's pages spell it in two ways.
func (p part) participant() string {
	return payload.FirstText(p.item, "recipient_participant_id", "participant_recipient_id", "recipient_participant_user_id")
}

// conversation returns the group, or else the person at the other end. Who hides the number
// behind a user name has an id within the business alone.
func (p part) conversation() string {
	id := ""
	switch p.list {
	case messages:
		id = payload.FirstText(p.item, "group_id", "from", "from_user_id")
	case statuses:
		id = p.recipient()
	}
	return domain.StorableID(strings.Clone(id))
}
