package teams

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
	a, err := read(e.Payload.Body)
	if err != nil {
		return domain.Content{}, err
	}
	from := payload.Member(a.root, "from")
	c := domain.Content{
		Conversation: domain.Conversation{ExternalID: domain.StorableID(a.conversationID()), Thread: payload.UTF8(thread(a.conversationID()))},
		Sender:       domain.Sender{ID: payload.UTF8(payload.TextAt(from, "id")), Name: payload.UTF8(payload.TextAt(from, "name"))},
		Text:         payload.UTF8(payload.Text(a.text)),
		Attachments:  attachments(payload.Member(a.root, "attachments")),
		Time:         when(payload.Text(a.timestamp)),
		// What is JSON but for its bytes has the bad ones inside of strings.
		Raw: bytes.ToValidUTF8(e.Payload.Body, []byte("\uFFFD")),
	}
	if c.Text == "" {
		c.Text = payload.UTF8(payload.TextAt(a.value, "action", "verb"))
	}
	return c, nil
}

// thread returns the id of the message that a thread in a channel begins with; a conversation
// of another kind has no threads.
func thread(conversation string) string {
	_, root, _ := strings.Cut(conversation, ";messageid=")
	return root
}

// attachments returns the files of a message. What has no address, such as the copy of the
// text as HTML and cards, is in raw alone. A file's own address needs the rights of its reader;
// the one to download it at is good for minutes.
func attachments(list gjson.Result) []domain.Attachment {
	if !list.IsArray() {
		return nil
	}
	var as []domain.Attachment
	list.ForEach(func(_, v gjson.Result) bool {
		content := payload.Member(v, "content")
		a := domain.Attachment{
			URL:  payload.UTF8(payload.TextAt(content, "downloadUrl")),
			Type: payload.UTF8(payload.TextAt(v, "contentType")),
			Name: payload.UTF8(payload.TextAt(v, "name")),
		}
		if a.URL == "" {
			a.URL = payload.UTF8(payload.TextAt(v, "contentUrl"))
		}
		if n, err := strconv.ParseInt(payload.TextAt(content, "fileSize"), 10, 64); err == nil && n > 0 {
			a.Size = n
		}
		if a.URL != "" {
			as = append(as, a)
		}
		return true
	})
	return as
}

// when reads a time; zero if it is none, or one that JSON can't hold in UTC.
func when(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if t = t.UTC(); err != nil || t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
