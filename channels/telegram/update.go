package telegram

import (
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

// kinds says what the members of an Update mean, https://core.telegram.org/bots/api#update.
// Each release of the Bot API adds some; those that are not listed are events too, of kind other.
var kinds = map[string]domain.Kind{
	"message":                   domain.MessageCreated,
	"channel_post":              domain.MessageCreated,
	"business_message":          domain.MessageCreated,
	"edited_message":            domain.MessageEdited,
	"edited_channel_post":       domain.MessageEdited,
	"edited_business_message":   domain.MessageEdited,
	"deleted_business_messages": domain.MessageDeleted,
	"message_reaction":          domain.Reaction,
	"message_reaction_count":    domain.Reaction,
	"callback_query":            domain.Interaction,
	"inline_query":              domain.Interaction,
	"chosen_inline_result":      domain.Interaction,
	"shipping_query":            domain.Interaction,
	"pre_checkout_query":        domain.Interaction,
	"poll_answer":               domain.Interaction,
	"my_chat_member":            domain.Membership,
	"chat_member":               domain.Membership,
	"chat_join_request":         domain.Membership,
}

// An update is one Update, as far as it has been looked at.
type update struct {
	id    string       // the digits of update_id
	name  string       // of the member that says what happened; empty if there is none
	value gjson.Result // that member
	whole gjson.Result
}

// read finds the parts of an Update in body. Keys count in their exact case, and of two
// equal ones the first. It returns an error that wraps domain.ErrUnreadable if there is no
// update_id: inventing one would make one event of many, or many of one.
func read(body []byte) (update, error) {
	// Not gjson.Valid: it accepts nesting so deep that encoding/json can't write it again.
	if !json.Valid(body) {
		return update{}, fmt.Errorf("%w: the body is not JSON", domain.ErrUnreadable)
	}
	u := update{whole: gjson.ParseBytes(body)}
	if !u.whole.IsObject() {
		return update{}, fmt.Errorf("%w: the body is not an object", domain.ErrUnreadable)
	}
	numbered, known := false, false
	u.whole.ForEach(func(key, value gjson.Result) bool {
		_, listed := kinds[key.Str]
		switch {
		case key.Str == "update_id":
			if !numbered {
				u.id, numbered = integer(value), true
			}
		case listed && !known:
			u.name, u.value, known = key.Str, value, true
		case u.name == "" && value.IsObject():
			u.name, u.value = key.Str, value
		}
		return true
	})
	if u.id == "" || u.id[0] == '-' {
		return update{}, fmt.Errorf("%w: there is no update_id", domain.ErrUnreadable)
	}
	return u, nil
}

func (u update) kind() domain.Kind {
	if kind, ok := kinds[u.name]; ok && u.value.IsObject() {
		return kind
	}
	return domain.Other
}

// message returns the part that holds a chat: that of a click is the message clicked on.
func (u update) message() gjson.Result {
	if u.name == "callback_query" {
		return payload.Member(u.value, "message")
	}
	return u.value
}

// conversation returns the chat. Every account that is connected to a bot for business has
// chats of its own, whose ids may be those of another account's.
func (u update) conversation() string {
	m := u.message()
	chat := integer(payload.Member(m, "chat", "id"))
	if chat == "" {
		return ""
	}
	if connection := payload.Member(m, "business_connection_id"); connection.Str != "" {
		chat = connection.Str + ":" + chat
	}
	return domain.StorableID(chat)
}

func (u update) messageKey() string {
	if u.kind() != domain.MessageCreated {
		return ""
	}
	chat, id := integer(payload.Member(u.value, "chat", "id")), integer(payload.Member(u.value, "message_id"))
	if chat == "" || id == "" {
		return ""
	}
	key := chat + ":" + id
	// Neither number holds a colon, so no two lists of parts are written alike.
	if connection := payload.Member(u.value, "business_connection_id"); connection.Str != "" {
		key = connection.Str + ":" + key
	}
	return domain.StorableID("message:" + key)
}

// digest leaves update_id out: Telegram has been seen to send one message under two of them.
func (u update) digest() domain.Digest {
	if u.name == "" {
		return domain.DigestOf(u.whole.Raw)
	}
	return domain.DigestOf(u.name, u.value.Raw)
}

// integer returns the digits of an integer as they stand there, however many there are, and
// nothing of any other value. Ids go beyond 32 bits, and beyond what a float can hold.
func integer(v gjson.Result) string {
	if v.Type != gjson.Number {
		return ""
	}
	for i, c := range []byte(v.Raw) {
		if (c < '0' || c > '9') && (i > 0 || c != '-') {
			return ""
		}
	}
	return v.Raw
}
