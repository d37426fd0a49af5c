package line

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

const replacement = "\uFFFD"

func decode(e domain.Event) (domain.Content, error) {
	_, events, err := parse(e.Payload.Body)
	if err != nil {
		return domain.Content{}, err
	}
	var v gjson.Result
	events.ForEach(func(_, first gjson.Result) bool {
		v = first
		return false
	})
	if !v.Exists() {
		return domain.Content{}, fmt.Errorf("%w: a payload without an event", domain.ErrUnreadable)
	}
	c := domain.Content{
		Conversation: domain.Conversation{ExternalID: conversation(v)},
		Sender:       domain.Sender{ID: payload.UTF8(payload.TextAt(v, "source", "userId"))},
		Text:         payload.UTF8(payload.FirstText(payload.Member(v, "message"), "text")),
		Attachments:  attachments(payload.Member(v, "message")),
		Time:         when(payload.Member(v, "timestamp")),
		// What is JSON but for its bytes has the bad ones inside of strings.
		Raw: bytes.ToValidUTF8(e.Payload.Body, []byte(replacement)),
	}
	if c.Text == "" {
		c.Text = payload.UTF8(payload.TextAt(v, "postback", "data"))
	}
	return c, nil
}

// attachments returns the file that message is. LINE tells no media type, and an address
// only of what it does not keep itself: its own files are given by the message's id to the
// holder of a token.
func attachments(message gjson.Result) []domain.Attachment {
	switch payload.TextAt(message, "type") {
	case "image", "video", "audio", "file":
	default:
		return nil
	}
	url := payload.TextAt(message, "contentProvider", "originalContentUrl")
	if url == "" {
		id := payload.TextAt(message, "id")
		if id == "" {
			return nil
		}
		url = "line-content:" + id
	}
	a := domain.Attachment{URL: payload.UTF8(url), Name: payload.UTF8(payload.TextAt(message, "fileName"))}
	if size, err := strconv.ParseInt(payload.TextAt(message, "fileSize"), 10, 64); err == nil && size > 0 {
		a.Size = size
	}
	return []domain.Attachment{a}
}

// when reads milliseconds. The zero time stands for what is none, and for what lies beyond the
// year 9999 and has no form in JSON.
func when(v gjson.Result) time.Time {
	at, err := strconv.ParseInt(payload.Text(v), 10, 64)
	if err != nil || at <= 0 || at >= 253402300800000 {
		return time.Time{}
	}
	return time.UnixMilli(at).UTC()
}
