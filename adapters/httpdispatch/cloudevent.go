package httpdispatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// contentType is that of a CloudEvent in structured mode.
const contentType = "application/cloudevents+json"

// A cloudEvent is the body of a dispatch, but for data.raw, which appendEvent puts at its end.
type cloudEvent struct {
	SpecVersion     string      `json:"specversion"`
	ID              string      `json:"id"`
	Source          string      `json:"source"`
	Type            string      `json:"type"`
	Subject         string      `json:"subject,omitempty"`
	Time            string      `json:"time,omitempty"`
	DataContentType string      `json:"datacontenttype"`
	Tenant          string      `json:"tenant"`
	Platform        string      `json:"platform"`
	Channel         string      `json:"channel"`
	Account         string      `json:"account"`
	EventID         string      `json:"eventid,omitempty"` // an unnumbered event has none
	Attempt         int         `json:"attempt"`
	Data            messageData `json:"data"` // the last one: see appendEvent
}

type messageData struct {
	Kind         domain.Kind  `json:"kind"`
	MessageKey   string       `json:"message_key"`
	Conversation conversation `json:"conversation"`
	Sender       sender       `json:"sender"`
	Text         string       `json:"text"`
	Attachments  []attachment `json:"attachments"`
}

type conversation struct {
	ID         string `json:"id,omitempty"`
	ExternalID string `json:"external_id"`
	Thread     string `json:"thread"`
}

type sender struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type attachment struct {
	URL  string `json:"url"`
	Type string `json:"type"`
	Name string `json:"name"`
	Size int64  `json:"size"`
}

var errRaw = errors.New("the vendor's payload is not JSON")

// writeEvent writes d to b as a CloudEvent. An error holds nothing of d's content.
func writeEvent(b *bytes.Buffer, d ports.Dispatch) error {
	raw := d.Content.Raw
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	// It is copied as it stands, so whether it fits in is to be asked first. An encoder would
	// compact it, and one of any other language renumber it.
	if !json.Valid(raw) {
		return errRaw
	}
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(eventOf(d)); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	b.Truncate(b.Len() - len("}}\n"))
	b.WriteString(`,"raw":`)
	b.Write(raw)
	b.WriteString("}}")
	return nil
}

func eventOf(d ports.Dispatch) cloudEvent {
	c := d.Content
	e := cloudEvent{
		SpecVersion: "1.0",
		ID:          d.ID,
		Source: "/" + url.PathEscape(d.Key.Tenant) + "/" + url.PathEscape(d.Key.Platform) +
			"/" + url.PathEscape(d.Key.Account),
		Type:            "admitone." + string(d.Kind),
		Subject:         c.Conversation.ExternalID,
		DataContentType: "application/json",
		Tenant:          d.Key.Tenant,
		Platform:        d.Key.Platform,
		Channel:         d.Channel,
		Account:         d.Key.Account,
		EventID:         d.Key.EventID,
		Attempt:         d.Attempt,
		Data: messageData{
			Kind:         d.Kind,
			MessageKey:   d.MessageKey,
			Conversation: conversation{d.ConversationID, c.Conversation.ExternalID, c.Conversation.Thread},
			Sender:       sender(c.Sender),
			Text:         c.Text,
			Attachments:  make([]attachment, len(c.Attachments)),
		},
	}
	at := c.Time
	if at.IsZero() {
		at = d.ReceivedAt
	}
	if !at.IsZero() {
		e.Time = at.UTC().Format(time.RFC3339Nano)
	}
	for i, a := range c.Attachments {
		e.Data.Attachments[i] = attachment(a)
	}
	return e
}
