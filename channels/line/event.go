package line

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

const mediaType = "application/json"

// kinds says what the types of webhook events mean,
// https://developers.line.biz/en/reference/messaging-api/#webhook-event-objects. Those that
// are not listed are events too, of kind other: among them membership, which is of paid plans.
var kinds = map[string]domain.Kind{
	"message":       domain.MessageCreated,
	"messageEdited": domain.MessageEdited,
	"unsend":        domain.MessageDeleted,
	"delivery":      domain.MessageStatus,
	"postback":      domain.Interaction,
	"follow":        domain.Membership,
	"unfollow":      domain.Membership,
	"join":          domain.Membership,
	"leave":         domain.Membership,
	"memberJoined":  domain.Membership,
	"memberLeft":    domain.Membership,
}

// parse returns body as a delivery, and its list of events. Keys count in their exact case,
// and of two equal ones the first.
func parse(body []byte) (root, events gjson.Result, err error) {
	// Not gjson.Valid: it accepts nesting so deep that encoding/json can't write it again.
	if !json.Valid(body) {
		return root, events, fmt.Errorf("%w: the body is not JSON", domain.ErrUnreadable)
	}
	root = gjson.ParseBytes(body)
	if events = member(root, "events"); !events.IsArray() {
		return root, events, fmt.Errorf("%w: there is no list of events", domain.ErrUnreadable)
	}
	return root, events, nil
}

func (endpoint) Extract(r *channels.Request) (channels.Batch, error) {
	root, events, err := parse(r.Body)
	if err != nil {
		return channels.Batch{}, err
	}
	account := domain.StorableID(strings.Clone(text(member(root, "destination"))))
	head := "{" + others(root, "events") + `"events":[`
	var b channels.Batch
	events.ForEach(func(_, v gjson.Result) bool {
		ev := event(v)
		ev.Account = account
		// The delivery as LINE would have sent it for this event alone.
		ev.Payload = domain.Payload{MediaType: mediaType, Body: []byte(head + v.Raw + "]}")}
		b.Events = append(b.Events, ev)
		return true
	})
	return b, nil
}

func event(v gjson.Result) domain.Event {
	ev := domain.Event{Kind: kind(v), Conversation: conversation(v), Digest: digest(v)}
	if id := text(member(v, "webhookEventId")); id != "" {
		ev.ID = domain.StorableID(strings.Clone(id))
	} else {
		// No id of LINE's holds a colon.
		ev.ID = "fallback:" + ev.Digest.String()
	}
	if id := text(member(v, "message", "id")); ev.Kind == domain.MessageCreated && id != "" {
		ev.MessageKey = domain.StorableID("message:" + id)
	}
	// All that LINE tells is whether it is the first time.
	if member(v, "deliveryContext", "isRedelivery").Type == gjson.True {
		ev.VendorAttempt = 1
	}
	return ev
}

func kind(v gjson.Result) domain.Kind {
	if k, ok := kinds[text(member(v, "type"))]; ok {
		return k
	}
	return domain.Other
}

// conversation returns the group or room, or else the user at the other end.
func conversation(v gjson.Result) string {
	return domain.StorableID(strings.Clone(firstText(member(v, "source"), "groupId", "roomId", "userId")))
}

// digest leaves deliveryContext out, the one thing in which LINE's deliveries of an event differ.
func digest(v gjson.Result) domain.Digest {
	if v.IsObject() {
		return domain.DigestOf(others(v, "deliveryContext"))
	}
	return domain.DigestOf(v.Raw)
}

// others returns the members of object but for the one named, each followed by a comma.
func others(object gjson.Result, but string) string {
	var b strings.Builder
	b.Grow(len(object.Raw))
	object.ForEach(func(key, value gjson.Result) bool {
		if key.Str != but {
			b.WriteString(key.Raw)
			b.WriteByte(':')
			b.WriteString(value.Raw)
			b.WriteByte(',')
		}
		return true
	})
	return b.String()
}

// member returns the value at the end of keys. It looks into objects only, and at the first of
// equal keys.
func member(v gjson.Result, keys ...string) gjson.Result {
	for _, key := range keys {
		if !v.IsObject() {
			return gjson.Result{}
		}
		v = v.Get(key)
	}
	return v
}

// text returns a string, or a number digit for digit, and nothing of any other value.
func text(v gjson.Result) string {
	switch v.Type {
	case gjson.String:
		return v.Str
	case gjson.Number:
		return v.Raw
	case gjson.Null, gjson.False, gjson.True, gjson.JSON:
	}
	return ""
}

// firstText returns the first text that is not empty of the members of v with those names.
func firstText(v gjson.Result, names ...string) string {
	for _, name := range names {
		if s := text(member(v, name)); s != "" {
			return s
		}
	}
	return ""
}
