package cfworker

import (
	"fmt"
	"mime"
	"net/url"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/email"
	"github.com/admitone/admitone/domain"
)

// A payload is the raw mail, and its media type message/rfc822 with two parameters that hold
// the envelope, percent-encoded as in the request:
//
//	message/rfc822; mail-from="ida@example.org"; rcpt-to="desk+billing@example.com"
const (
	mediaType = "message/rfc822"
	paramFrom = "mail-from"
	paramTo   = "rcpt-to"
)

// Extract implements channels.Endpoint.
func (e *endpoint) Extract(r *channels.Request) (channels.Batch, error) {
	env, err := readEnvelope(r.Header)
	if err != nil {
		return channels.Batch{}, fmt.Errorf("%w: %w", domain.ErrUnreadable, err)
	}
	if !e.recipients.include(env.to) {
		return channels.Batch{}, fmt.Errorf("relayed mail: %w", domain.ErrUnknownRecipient)
	}
	ev, err := email.Event(domain.Payload{
		MediaType: mime.FormatMediaType(mediaType, map[string]string{
			paramFrom: url.PathEscape(env.from), paramTo: url.PathEscape(env.to),
		}),
		Body: r.Body,
	}, email.Source{Received: r.Now})
	if err != nil {
		return channels.Batch{}, err
	}
	return channels.Batch{Events: []domain.Event{ev}}, nil
}

func decode(e domain.Event) (domain.Content, error) {
	if len(e.Payload.Body) == 0 {
		return domain.Content{}, fmt.Errorf("relayed mail: empty payload: %w", domain.ErrUnreadable)
	}
	c := email.Content(e.Conversation, e.Payload.Body)
	if c.Sender.ID == "" {
		c.Sender.ID = envelopeSender(e.Payload.MediaType)
	}
	return c, nil
}

// envelopeSender returns the sender that the envelope names, for a mail whose header names
// none; "" for the null sender.
func envelopeSender(mediaType string) string {
	_, params, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return ""
	}
	from, err := url.PathUnescape(params[paramFrom])
	if err != nil {
		return ""
	}
	return email.Clean(from)
}
