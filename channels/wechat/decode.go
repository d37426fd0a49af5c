package wechat

import (
	"strconv"
	"strings"
	"time"

	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

func decode(e domain.Event) (domain.Content, error) {
	doc, err := parse(e.Payload.Body)
	if err != nil {
		return domain.Content{}, err
	}
	raw, err := doc.raw(e.Payload.Body)
	if err != nil {
		return domain.Content{}, err
	}
	m := read(doc)
	return domain.Content{
		Conversation: domain.Conversation{ExternalID: domain.StorableID(m.from)},
		Sender:       domain.Sender{ID: payload.UTF8(m.from)},
		Text:         payload.UTF8(text(doc, m)),
		Attachments:  attachments(doc, m),
		Time:         when(m.created),
		Raw:          raw,
	}, nil
}

// text returns what a person wrote, said or chose.
func text(doc document, m message) string {
	switch m.msgType {
	case "voice":
		return doc.get("Recognition") // if the account has it switched on
	case "location":
		return doc.get("Label")
	case "link", "file", "miniprogrampage":
		return doc.get("Title")
	case "event":
		return m.eventKey
	}
	return doc.get("Content")
}

// mediaTypes are those of messages with a file, as far as WeChat tells.
var mediaTypes = map[string]string{"image": "image/jpeg", "voice": "audio/amr", "video": "video/mp4", "shortvideo": "video/mp4"}

// attachments returns the file of a message. The URL of a picture can be fetched by anyone;
// that of any other names the file, which media/get gives to the holder of an access token.
func attachments(doc document, m message) []domain.Attachment {
	if m.msgType == "event" {
		return nil
	}
	if m.msgType == "link" {
		return []domain.Attachment{{URL: payload.UTF8(doc.get("Url")), Name: payload.UTF8(doc.get("Title"))}}
	}
	a := domain.Attachment{URL: payload.UTF8(doc.get("PicUrl")), Type: mediaTypes[m.msgType], Name: payload.UTF8(doc.get("Title"))}
	id := payload.UTF8(doc.get("MediaId"))
	switch {
	case m.msgType == "voice" && strings.EqualFold(doc.get("Format"), "speex"):
		a.Type = "audio/speex"
	case m.msgType == "miniprogrampage":
		a = domain.Attachment{URL: payload.UTF8(doc.get("ThumbUrl")), Type: "image/jpeg"}
	}
	if a.URL == "" && id != "" {
		a.URL = "wechat-media:" + id
	}
	if a.URL == "" {
		return nil
	}
	return []domain.Attachment{a}
}

// when reads a time in seconds; zero if it is none, or beyond what RFC 3339 can express.
func when(seconds string) time.Time {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n <= 0 || n > 253402300799 {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}
