package telegram

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

func decode(e domain.Event) (domain.Content, error) {
	u, err := read(e.Payload.Body)
	if err != nil {
		return domain.Content{}, err
	}
	c := domain.Content{
		Conversation: domain.Conversation{
			ExternalID: e.Conversation,
			Thread:     integer(payload.Member(u.message(), "message_thread_id")),
		},
		Sender: sender(u.value),
		Time:   when(u.value),
		// What is JSON but for its bytes has the bad ones inside of strings.
		Raw: bytes.ToValidUTF8(e.Payload.Body, []byte("\uFFFD")),
	}
	// What a person wrote, chose or looked for, in that order.
	for _, key := range []string{"text", "caption", "data", "query"} {
		if c.Text = text(payload.Member(u.value, key)); c.Text != "" {
			break
		}
	}
	if u.kind() != domain.Interaction {
		c.Attachments = attachments(u.value)
	}
	return c, nil
}

// sender returns who caused the event. A chat that speaks comes first: from is then a
// stand-in for older bots, https://core.telegram.org/bots/api#message.
func sender(v gjson.Result) domain.Sender {
	for _, key := range []string{"sender_chat", "from", "user", "actor_chat", "voter_chat"} {
		who := payload.Member(v, key)
		id := integer(payload.Member(who, "id"))
		if id == "" {
			continue
		}
		name := strings.TrimSpace(text(payload.Member(who, "first_name")) + " " + text(payload.Member(who, "last_name")))
		if name == "" {
			name = text(payload.Member(who, "title"))
		}
		if name == "" {
			name = text(payload.Member(who, "username"))
		}
		return domain.Sender{ID: id, Name: name}
	}
	return domain.Sender{}
}

func when(v gjson.Result) time.Time {
	for _, key := range []string{"edit_date", "date"} {
		at, err := strconv.ParseInt(integer(payload.Member(v, key)), 10, 64)
		// Beyond the year 9999 a time has no form in JSON.
		if err == nil && at > 0 && at < 253402300800 {
			return time.Unix(at, 0).UTC()
		}
	}
	return time.Time{}
}

// files lists the members of a message that are one file each, and the media type of those
// that do not tell it.
var files = []struct{ key, mediaType string }{
	{"animation", "video/mp4"},
	{"audio", ""},
	{"document", ""},
	{"video", ""},
	{"video_note", "video/mp4"},
	{"voice", ""},
	{"sticker", "image/webp"},
}

func attachments(v gjson.Result) []domain.Attachment {
	var as []domain.Attachment
	if photo := payload.Member(v, "photo"); photo.IsArray() {
		// One picture in several sizes; the last is the largest.
		var largest gjson.Result
		photo.ForEach(func(_, size gjson.Result) bool {
			largest = size
			return true
		})
		as = attach(as, largest, "image/jpeg")
	}
	for _, f := range files {
		if f.key == "document" && payload.Member(v, "animation").IsObject() {
			continue // the same file once more, for older bots
		}
		as = attach(as, payload.Member(v, f.key), f.mediaType)
	}
	return as
}

// attach adds the file that v describes to as. The URL names the file and can't be fetched:
// a download address is given by getFile only, to the holder of the bot's token.
func attach(as []domain.Attachment, v gjson.Result, mediaType string) []domain.Attachment {
	id := text(payload.Member(v, "file_id"))
	if id == "" {
		return as
	}
	a := domain.Attachment{URL: "telegram-file:" + id, Type: mediaType, Name: text(payload.Member(v, "file_name"))}
	if told := text(payload.Member(v, "mime_type")); told != "" {
		a.Type = told
	}
	if size, err := strconv.ParseInt(integer(payload.Member(v, "file_size")), 10, 64); err == nil && size > 0 {
		a.Size = size
	}
	return append(as, a)
}

// text returns a string, in UTF-8 whatever came, and nothing of any other value.
func text(v gjson.Result) string {
	if v.Type != gjson.String {
		return ""
	}
	return strings.ToValidUTF8(v.Str, "\uFFFD")
}
