package whatsappcloud

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

const replacement = "\uFFFD"

func decode(e domain.Event) (domain.Content, error) {
	root, err := parse(e.Payload.Body)
	if err != nil {
		return domain.Content{}, err
	}
	for p := range parts(root) {
		// What is JSON but for its bytes has the bad ones inside of strings.
		raw := bytes.ToValidUTF8(e.Payload.Body, []byte(replacement))
		return p.content(raw), nil
	}
	return domain.Content{}, fmt.Errorf("%w: a payload without an event", domain.ErrUnreadable)
}

func (p part) content(raw []byte) domain.Content {
	c := domain.Content{
		Conversation: domain.Conversation{ExternalID: p.conversation()},
		Time:         p.time(),
		Raw:          raw,
	}
	if p.list != messages {
		return c
	}
	c.Sender = p.sender()
	message := p.item
	if payload.TextAt(message, "type") == "edit" {
		message = payload.Member(message, "edit", "message")
	}
	// What the message is stands under the name of its type.
	body := payload.Member(message, payload.TextAt(message, "type"))
	c.Text = payload.UTF8(payload.FirstText(body, "body", "caption", "text", "emoji"))
	if c.Text == "" {
		answer := payload.Member(body, payload.TextAt(body, "type"))
		c.Text = payload.UTF8(payload.FirstText(answer, "title", "body"))
	}
	// The URL names the file and can't be fetched: a download address is given to the holder
	// of a token, for some minutes.
	if id := payload.TextAt(body, "id"); id != "" && payload.Member(body, "mime_type").Exists() {
		c.Attachments = []domain.Attachment{{
			URL:  "whatsapp-media:" + payload.UTF8(id),
			Type: payload.UTF8(payload.TextAt(body, "mime_type")),
			Name: payload.UTF8(payload.TextAt(body, "filename")),
		}}
	}
	return c
}

func (p part) sender() domain.Sender {
	s := domain.Sender{ID: payload.UTF8(payload.FirstText(p.item, "from", "from_user_id"))}
	people := p.people()
	all := payload.Member(p.value, "contacts")
	if !all.IsArray() {
		return s
	}
	list := all.Array()
	for _, c := range list {
		its := slices.Contains(people, payload.TextAt(c, "wa_id")) || slices.Contains(people, payload.TextAt(c, "user_id"))
		if its || len(list) == 1 {
			s.Name = payload.UTF8(payload.FirstText(payload.Member(c, "profile"), "name", "username"))
			break
		}
	}
	return s
}

// time returns when the item took place or, where it does not tell, when Meta told of it.
func (p part) time() time.Time {
	for _, v := range []gjson.Result{payload.Member(p.item, "timestamp"), payload.Member(p.entry, "time")} {
		at, err := strconv.ParseInt(payload.Text(v), 10, 64)
		// Beyond the year 9999 a time has no form in JSON.
		if err == nil && at > 0 && at < 253402300800 {
			return time.Unix(at, 0).UTC()
		}
	}
	return time.Time{}
}
