package wechat

import (
	"fmt"
	"net/http"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// The media types of the two forms of a message, as Payload.MediaType has them.
const (
	mediaXML  = "text/xml"
	mediaJSON = "application/json"
)

// kinds says what the types of messages and the names of events mean. What is not listed is
// of kind other.
var (
	kinds = map[string]domain.Kind{
		"text":            domain.MessageCreated,
		"image":           domain.MessageCreated,
		"voice":           domain.MessageCreated,
		"video":           domain.MessageCreated,
		"shortvideo":      domain.MessageCreated,
		"location":        domain.MessageCreated,
		"link":            domain.MessageCreated,
		"file":            domain.MessageCreated,
		"miniprogrampage": domain.MessageCreated,
	}
	eventKinds = map[string]domain.Kind{
		"subscribe":                 domain.Membership,
		"unsubscribe":               domain.Membership,
		"SCAN":                      domain.Interaction,
		"CLICK":                     domain.Interaction,
		"VIEW":                      domain.Interaction,
		"view_miniprogram":          domain.Interaction,
		"scancode_push":             domain.Interaction,
		"scancode_waitmsg":          domain.Interaction,
		"pic_sysphoto":              domain.Interaction,
		"pic_photo_or_album":        domain.Interaction,
		"pic_weixin":                domain.Interaction,
		"location_select":           domain.Interaction,
		"subscribe_msg_popup_event": domain.Interaction,
		"MASSSENDJOBFINISH":         domain.MessageStatus,
		"TEMPLATESENDJOBFINISH":     domain.MessageStatus,
		"subscribe_msg_sent_event":  domain.MessageStatus,
	}
)

// success is what WeChat wants to hear, in this form and with status 200, in safe mode too.
// Anything else would be shown to the person as a fault, or sent as an answer.
func success() *channels.Reply {
	return &channels.Reply{ContentType: "text/plain", Body: []byte("success")}
}

// Extract decrypts the message again rather than keep it from Verify: an endpoint has no memory.
func (e *endpoint) Extract(r *channels.Request) (channels.Batch, error) {
	q, err := query(r.URL)
	if err != nil {
		return channels.Batch{}, fmt.Errorf("%w: the query can't be read", domain.ErrUnreadable)
	}
	if r.Method == http.MethodGet {
		if echo := q.Get("echostr"); echo != "" {
			return channels.Batch{Reply: &channels.Reply{ContentType: "text/plain", Body: []byte(echo)}}, nil
		}
		return channels.Batch{}, nil
	}
	body := r.Body
	if e.encrypted(r, q) {
		text, err := envelope(body)
		if err != nil {
			return channels.Batch{}, err
		}
		if body, err = e.decrypt(text); err != nil {
			return channels.Batch{}, fmt.Errorf("%w: %w", domain.ErrUnreadable, err)
		}
	}
	doc, err := parse(body)
	if err != nil {
		return channels.Batch{}, err
	}
	m := read(doc)
	switch {
	case m.probe:
		return channels.Batch{Reply: success()}, nil
	case m.msgType == "" && doc.get("Encrypt") != "":
		return channels.Batch{}, fmt.Errorf("%w: an encrypted message, and no key is configured", domain.ErrUnreadable)
	}
	ev := domain.Event{
		Account:      domain.StorableID(m.to),
		Kind:         m.kind(),
		Conversation: domain.StorableID(m.from),
		// Of the message itself: a repeat may be encrypted anew.
		Digest:  domain.DigestOf(string(body)),
		Payload: domain.Payload{MediaType: mediaXML, Body: body},
	}
	if doc.xml == nil {
		ev.Payload.MediaType = mediaJSON
	}
	if ev.ID = m.id(); ev.ID == "" {
		ev.ID = "fallback:" + ev.Digest.String()
	} else if ev.Kind == domain.MessageCreated {
		ev.MessageKey = domain.StorableID("message:" + m.from + ":" + m.msgID)
	}
	return channels.Batch{Events: []domain.Event{ev}, Reply: success()}, nil
}

// A message holds the values that tell which message or event it is.
type message struct {
	to, from, created, msgType, msgID string
	event, eventKey                   string
	more                              [4]string // what tells apart events of one user, second and name
	probe                             bool      // the check of a path that WeChat's cloud hosting makes
}

func read(doc document) message {
	m := message{
		to:      doc.get("ToUserName"),
		from:    doc.get("FromUserName"),
		created: doc.get("CreateTime"),
		msgType: doc.get("MsgType"),
		msgID:   doc.get("MsgId"),
		probe:   doc.get("action") == "CheckContainerPath",
	}
	if m.msgID == "" {
		m.msgID = doc.get("MsgID")
	}
	if m.msgType == "event" {
		m.event, m.eventKey = doc.get("Event"), doc.get("EventKey")
		m.more = [4]string{doc.get("MenuId"), doc.get("CardId"), doc.get("UserCardCode"), doc.get("Ticket")}
	}
	return m
}

// id returns the event id, empty if m lacks what it is made of. WeChat's documents take a
// MsgId alone, and of an event the user and the second. But one MsgId has been given to
// fifteen people (github.com/binarywang/WxJava/issues/333), and opening a menu makes two
// events in one second (github.com/chanjarster/weixin-java-tools/issues/66). An OpenID holds
// no colon, so no two lists of parts are written alike.
func (m message) id() string {
	switch {
	case m.from == "":
		return ""
	case m.msgType != "event" && m.msgID != "":
		return domain.StorableID("msg:" + m.from + ":" + m.msgID)
	case m.msgType != "event" || m.created == "" || m.event == "":
		return ""
	}
	id := "event:" + m.from + ":" + m.created + ":" + m.event
	if m.eventKey != "" || m.msgID != "" || m.more != [4]string{} {
		id += ":" + domain.DigestOf(m.eventKey, m.msgID, m.more[0], m.more[1], m.more[2], m.more[3]).String()
	}
	return domain.StorableID(id)
}

func (m message) kind() domain.Kind {
	known := kinds[m.msgType]
	if m.msgType == "event" {
		known = eventKinds[m.event]
	}
	if known == "" {
		return domain.Other
	}
	return known
}
