package line

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/payload"
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
	if events = payload.Member(root, "events"); !events.IsArray() {
		return root, events, fmt.Errorf("%w: there is no list of events", domain.ErrUnreadable)
	}
	return root, events, nil
}

func (endpoint) Extract(r *channels.Request) (channels.Batch, error) {
	root, events, err := parse(r.Body)
	if err != nil {
		return channels.Batch{}, err
	}
	account := domain.StorableID(strings.Clone(payload.TextAt(root, "destination")))
	head := "{" + payload.Without(root, "events") + `"events":[`
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
	if id := payload.TextAt(v, "webhookEventId"); id != "" {
		ev.ID = domain.StorableID(strings.Clone(id))
	} else {
		// No id of LINE's holds a colon.
		ev.ID = "fallback:" + ev.Digest.String()
	}
	if id := payload.TextAt(v, "message", "id"); ev.Kind == domain.MessageCreated && id != "" {
		ev.MessageKey = domain.StorableID("message:" + id)
	}
	// All that LINE tells is whether it is the first time.
	if payload.Member(v, "deliveryContext", "isRedelivery").Type == gjson.True {
		ev.VendorAttempt = 1
	}
	return ev
}

func kind(v gjson.Result) domain.Kind {
	if k, ok := kinds[payload.TextAt(v, "type")]; ok {
		return k
	}
	return domain.Other
}

// conversation returns the group or room, or else the user at the other end.
func conversation(v gjson.Result) string {
	return domain.StorableID(strings.Clone(payload.FirstText(payload.Member(v, "source"), "groupId", "roomId", "userId")))
}

// digest leaves deliveryContext out, the one thing in which LINE's deliveries of an event differ.
func digest(v gjson.Result) domain.Digest {
	if v.IsObject() {
		return domain.DigestOf(payload.Without(v, "deliveryContext"))
	}
	return domain.DigestOf(v.Raw)
}
