package teams

import (
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

const (
	mediaType = "application/json"
	// teamsChannel is the channelId of Teams. A bot may be connected to others as well.
	teamsChannel = "msteams"
)

// kinds says what the types of activities mean. What is not listed is of kind other, and may
// come without an id.
var kinds = map[string]domain.Kind{
	"message":            domain.MessageCreated,
	"messageUpdate":      domain.MessageEdited,
	"messageDelete":      domain.MessageDeleted,
	"messageReaction":    domain.Reaction,
	"conversationUpdate": domain.Membership,
	"installationUpdate": domain.Membership,
	"invoke":             domain.Interaction,
}

// An activity holds the values of an activity that tell which it is.
type activity struct {
	root gjson.Result

	kind, id, timestamp, channelID, serviceURL gjson.Result
	conversation, channelData                  gjson.Result
	name, text, value                          gjson.Result
	membersAdded, membersRemoved               gjson.Result
}

// read finds the parts of an activity in body. Keys count in their exact case, and of two
// equal ones the first. The error wraps domain.ErrUnreadable.
func read(body []byte) (activity, error) {
	// Not gjson.Valid: it accepts nesting so deep that encoding/json can't write it again.
	if !json.Valid(body) {
		return activity{}, fmt.Errorf("%w: the body is not JSON", domain.ErrUnreadable)
	}
	a := activity{root: gjson.ParseBytes(body)}
	if !a.root.IsObject() {
		return activity{}, fmt.Errorf("%w: the body is not an object", domain.ErrUnreadable)
	}
	a.root.ForEach(func(name, v gjson.Result) bool {
		if at := a.part(name.Str); at != nil && !at.Exists() {
			*at = v
		}
		return true
	})
	return a, nil
}

// part returns where the value called name is kept; nil if it is not.
func (a *activity) part(name string) *gjson.Result {
	switch name {
	case "type":
		return &a.kind
	case "id":
		return &a.id
	case "timestamp":
		return &a.timestamp
	case "channelId":
		return &a.channelID
	case "serviceUrl":
		return &a.serviceURL
	case "conversation":
		return &a.conversation
	case "channelData":
		return &a.channelData
	case "name":
		return &a.name
	case "text":
		return &a.text
	case "value":
		return &a.value
	case "membersAdded":
		return &a.membersAdded
	case "membersRemoved":
		return &a.membersRemoved
	}
	return nil
}

// Extract returns the activity as one event, or nothing if it is not of Teams.
func (e *endpoint) Extract(r *channels.Request) (channels.Batch, error) {
	a, err := read(r.Body)
	if err != nil {
		return channels.Batch{}, err
	}
	if payload.Text(a.kind) == "" {
		return channels.Batch{}, fmt.Errorf("%w: an activity without a type", domain.ErrUnreadable)
	}
	if payload.Text(a.channelID) != teamsChannel {
		return channels.Batch{}, nil
	}
	ev := domain.Event{
		ID:           a.eventID(e.appID),
		Account:      a.tenant(),
		Kind:         a.eventKind(),
		Conversation: domain.StorableID(a.conversationID()),
		Digest:       a.digest(),
		Payload:      domain.Payload{MediaType: mediaType, Body: r.Body},
	}
	if ev.Kind == domain.MessageCreated && payload.Text(a.id) != "" {
		// The id of a message is the message's own: an edit and a deletion name it too.
		ev.MessageKey = domain.StorableID("message:" + payload.Text(a.id) + ":" +
			domain.DigestOf(e.appID, a.conversationID(), payload.Text(a.id)).String())
	}
	return channels.Batch{Events: []domain.Event{ev}, Reply: a.reply()}, nil
}

// eventID returns the event id; it is empty if a has no number and is of a kind that need not.
// An id of Teams is often the millisecond at which a message was written, which tells nothing
// of the conversation; two bots of one tenant have been sent the same one.
func (a *activity) eventID(appID string) string {
	kind, id := payload.Text(a.kind), payload.Text(a.id)
	if id == "" {
		if _, numbered := kinds[kind]; !numbered {
			return ""
		}
		return "fallback:" + domain.DigestOf(appID, a.conversationID(), kind, payload.Text(a.timestamp),
			payload.TextAt(a.root, "from", "id"), a.text.Raw, a.value.Raw).String()
	}
	parts := []string{appID, a.conversationID(), kind, id}
	switch kind {
	case "messageUpdate", "messageDelete", "messageReaction":
		parts = append(parts, payload.Text(a.timestamp)) // they bear the id of the message
	}
	return domain.StorableID(kind + ":" + id + ":" + domain.DigestOf(parts...).String())
}

func (a *activity) eventKind() domain.Kind {
	kind, ok := kinds[payload.Text(a.kind)]
	switch {
	case !ok:
		return domain.Other
	case kind == domain.MessageCreated && a.value.Exists() && a.value.Type != gjson.Null && payload.Text(a.text) == "":
		return domain.Interaction // Action.Submit of a card: nobody wrote anything
	case payload.Text(a.kind) == "conversationUpdate" && !a.membersAdded.IsArray() && !a.membersRemoved.IsArray():
		return domain.Other // renamed channels and the like
	}
	return kind
}

// tenant returns the Microsoft tenant that the activity comes from.
func (a *activity) tenant() string {
	if id := payload.TextAt(a.channelData, "tenant", "id"); id != "" {
		return domain.StorableID(id)
	}
	return domain.StorableID(payload.TextAt(a.conversation, "tenantId"))
}

func (a *activity) conversationID() string { return payload.TextAt(a.conversation, "id") }

// digest leaves out the times: an activity has been sent again under a new one.
func (a *activity) digest() domain.Digest {
	var stack [64]string
	parts := stack[:0]
	a.root.ForEach(func(name, v gjson.Result) bool {
		switch name.Str {
		case "timestamp", "localTimestamp", "rawTimestamp", "rawLocalTimestamp":
		default:
			parts = append(parts, name.Raw, v.Raw)
		}
		return true
	})
	return domain.DigestOf(parts...)
}

// cardAnswer tells Teams that an action of a card succeeded, and leaves the card as it is. An
// empty answer would be shown to the user as an error.
const cardAnswer = `{"statusCode":200,"type":"application/vnd.microsoft.activity.message","value":""}`

// reply returns the answer to an invoke, where an empty one is not right. The answer to an
// invoke is its result, which the application can't give here; a status such as 501 would say
// so, but be shown as an error and answered with a repeat.
func (a *activity) reply() *channels.Reply {
	if payload.Text(a.kind) != "invoke" || payload.Text(a.name) != "adaptiveCard/action" {
		return nil
	}
	return &channels.Reply{ContentType: mediaType, Body: []byte(cardAnswer)}
}
