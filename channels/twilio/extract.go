package twilio

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

// emptyTwiML answers an inbound message with nothing. Any other body, or plain text, would be
// sent to the person as a message: https://www.twilio.com/docs/messaging/twiml#mime-types.
func emptyTwiML() *channels.Reply {
	return &channels.Reply{
		ContentType: "text/xml",
		Body:        []byte(`<?xml version="1.0" encoding="UTF-8"?><Response/>`),
	}
}

// Extract reads a form as one event and a JSON document as one event per CloudEvent.
func (*endpoint) Extract(r *channels.Request) (channels.Batch, error) {
	switch {
	case r.Method == http.MethodGet:
		return extractForm([]byte(query(r.URL)))
	case isForm(r.Header):
		return extractForm(r.Body)
	}
	return extractStream(r.Body)
}

func extractForm(body []byte) (channels.Batch, error) {
	s := newScratch()
	defer s.done()
	s.params = parse(s.params, body)
	if len(s.params) == 0 {
		return channels.Batch{}, unreadable("a form without parameters")
	}
	m := s.params.message()
	k := m.kind()
	s.params = s.params.canonical()
	d := s.digest(func(name string) bool {
		// What a request to the fallback URL has beyond the first.
		return k != domain.MessageStatus && (name == "ErrorCode" || name == "ErrorUrl")
	})
	ev := domain.Event{
		ID:           m.eventID(k, d),
		Account:      domain.StorableID(m.account),
		Kind:         k,
		Conversation: m.conversation(k),
		Digest:       d,
		Payload:      domain.Payload{MediaType: formType, Body: body},
	}
	if k == domain.MessageStatus {
		return channels.Batch{Events: []domain.Event{ev}}, nil
	}
	if k == domain.MessageCreated {
		ev.MessageKey = m.key()
	}
	return channels.Batch{Events: []domain.Event{ev}, Reply: emptyTwiML()}, nil
}

func extractStream(body []byte) (channels.Batch, error) {
	// json.Valid bounds the depth of nesting, which gjson's own check does not.
	if !json.Valid(body) {
		return channels.Batch{}, unreadable("neither a form nor JSON")
	}
	root := gjson.ParseBytes(body)
	if root.IsObject() {
		return channels.Batch{Events: []domain.Event{streamEvent(root)}}, nil
	}
	if !root.IsArray() {
		return channels.Batch{}, unreadable("JSON that is neither an object nor an array")
	}
	var b channels.Batch
	root.ForEach(func(_, item gjson.Result) bool {
		b.Events = append(b.Events, streamEvent(item))
		return true
	})
	return b, nil
}

// inboundReceived is the type of the CloudEvent that reports an inbound message.
const inboundReceived = "com.twilio.messaging.inbound-message.received"

// streamEvent returns the event that item, a CloudEvent, tells of. An item that is none is an
// event too: its bytes identify it.
func streamEvent(item gjson.Result) domain.Event {
	m := streamMessage(item)
	ev := domain.Event{
		Account: domain.StorableID(m.account),
		Kind:    streamKind(item),
		Payload: domain.Payload{MediaType: jsonType, Body: []byte(item.Raw)},
	}
	if id := payload.Text(item.Get("id")); id != "" {
		ev.ID = domain.StorableID("es:" + id)
		ev.Digest = domain.DigestOf(item.Get("type").Raw, item.Get("source").Raw, item.Get("time").Raw, item.Get("data").Raw)
	} else {
		ev.Digest = domain.DigestOf(item.Raw)
		ev.ID = "fallback:" + ev.Digest.String()
	}
	ev.Conversation = m.conversation(ev.Kind)
	if ev.Kind == domain.MessageCreated {
		ev.MessageKey = m.key()
	}
	return ev
}

func streamKind(item gjson.Result) domain.Kind {
	switch t := payload.Text(item.Get("type")); {
	case t == inboundReceived:
		return domain.MessageCreated
	case strings.HasPrefix(t, "com.twilio.messaging.message."):
		return domain.MessageStatus
	}
	return domain.Other
}

// streamMessage reads what a CloudEvent tells of a message, in the names of the messaging
// schemas at https://www.twilio.com/docs/events/event-types.
func streamMessage(item gjson.Result) message {
	data := item.Get("data")
	m := message{
		account: payload.Text(data.Get("accountSid")),
		sid:     payload.Text(data.Get("messageSid")),
		from:    payload.Text(data.Get("from")),
		to:      payload.Text(data.Get("to")),
	}
	if m.account == "" {
		m.account = accountOf(payload.Text(item.Get("source")))
	}
	return m
}

// accountOf returns the account in source, a path such as "/2010-04-01/Accounts/AC…/Messages/SM…".
func accountOf(source string) string {
	for segment := range strings.SplitSeq(source, "/") {
		if len(segment) == 34 && strings.HasPrefix(segment, "AC") {
			return segment
		}
	}
	return ""
}

func unreadable(what string) error {
	return fmt.Errorf("twilio: %w: %s", domain.ErrUnreadable, what)
}
