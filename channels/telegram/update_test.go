package telegram_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/channeltest"
	"github.com/admitone/admitone/channels/telegram"
	"github.com/admitone/admitone/domain"
)

// update returns the body of an Update with one member.
func update(id, member, value string) string {
	return fmt.Sprintf("{\"update_id\":%s,\n%q:%s}", id, member, value)
}

// message returns a message in a private chat.
func message(chat, id, text string) string {
	return fmt.Sprintf(`{"message_id":%s,"from":{"id":%[2]s},"chat":{"id":%[2]s,"type":"private"},"date":1790001000,"text":%[3]q}`, id, chat, text)
}

func TestKindOfEachMember(t *testing.T) {
	t.Parallel()
	for member, want := range map[string]domain.Kind{
		"message": domain.MessageCreated, "channel_post": domain.MessageCreated, "business_message": domain.MessageCreated,
		"edited_message": domain.MessageEdited, "edited_channel_post": domain.MessageEdited, "edited_business_message": domain.MessageEdited,
		"deleted_business_messages": domain.MessageDeleted,
		"message_reaction":          domain.Reaction, "message_reaction_count": domain.Reaction,
		"callback_query": domain.Interaction, "inline_query": domain.Interaction, "chosen_inline_result": domain.Interaction,
		"shipping_query": domain.Interaction, "pre_checkout_query": domain.Interaction, "poll_answer": domain.Interaction,
		"my_chat_member": domain.Membership, "chat_member": domain.Membership, "chat_join_request": domain.Membership,
		"poll": domain.Other, "chat_boost": domain.Other, "business_connection": domain.Other, "guest_message": domain.Other,
		"purchased_paid_media": domain.Other, "member_of_a_later_release": domain.Other, "Message": domain.Other,
	} {
		ev := mustExtract(t, update("7", member, message("1", "5", "x")))
		if ev.Kind != want {
			t.Errorf("kind of %s = %s; want %s", member, ev.Kind, want)
		}
		if (ev.MessageKey != "") != (want == domain.MessageCreated) {
			t.Errorf("message key of %s = %q; only a new message has one", member, ev.MessageKey)
		}
	}
}

func TestOddUpdateIsAnEvent(t *testing.T) {
	t.Parallel()
	// BR-54: what can't be understood is never refused, or Telegram holds back its chat for a day.
	for what, body := range map[string]string{
		"unknown member":           update("1", "telepathy", `{"thought":"x"}`),
		"no member":                `{"update_id":1}`,
		"only a scalar":            `{"update_id":1,"flag":true}`,
		"message of another type":  update("1", "message", `"hello"`),
		"message an array":         update("1", "message", `[{"message_id":5}]`),
		"message null":             update("1", "message", `null`),
		"an object inside of text": update("1", "message", `"{\"chat\":{\"id\":5},\"message_id\":6}"`),
	} {
		ev := mustExtract(t, body)
		if ev.ID != "1" || ev.Kind != domain.Other || ev.MessageKey != "" || ev.Conversation != "" {
			t.Errorf("%s: %+v; want id 1, kind other and nothing else", what, ev)
		}
		if _, err := telegram.New().Decode(ev); err != nil {
			t.Errorf("%s: Decode: %v", what, err)
		}
	}
	later := update("1", "message", `{"message_id":5,"chat":{"id":9,"type":"private"},"hologram":{"file_id":"x"},"text":"hi"}`)
	if ev := mustExtract(t, later); ev.MessageKey != "message:9:5" {
		t.Errorf("a message with a field of a later release has the key %q; want message:9:5", ev.MessageKey)
	}
}

func TestNoUpdateIsUnreadable(t *testing.T) {
	t.Parallel()
	for what, body := range map[string]string{
		"empty": "", "not JSON": "update_id=7", "truncated": `{"update_id":7`, "array": `[{"update_id":7}]`, "scalar": "7", "null": "null",
		"no update_id": `{"message":{}}`, "a string": `{"update_id":"7"}`, "a fraction": `{"update_id":7.5}`, "an exponent": `{"update_id":7e3}`,
		"negative": `{"update_id":-7}`, "null id": `{"update_id":null}`, "nested": `{"message":{"update_id":7}}`, "two bodies": `{"update_id":7}{"update_id":8}`,
		"byte order mark": "\ufeff" + `{"update_id":7}`, "NUL": "{\"update_id\":7}\x00",
		"too deep":  `{"update_id":7,"message":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
		"very deep": strings.Repeat("[", 1<<20),
		// BR-77: keys in another case are other keys.
		"capitals": `{"UPDATE_ID":7}`, "one capital": `{"Update_id":7}`,
		"first of two unfit": `{"update_id":"x","update_id":7}`,
	} {
		if ev, err := extract(t, body); !errors.Is(err, domain.ErrUnreadable) {
			t.Errorf("%s: Extract = %+v, %v; want an error that wraps ErrUnreadable", what, ev, err)
		}
	}
}

func TestFirstOfDuplicateKeysCounts(t *testing.T) {
	t.Parallel()
	// BR-77: the id claimed is the id that the application is shown.
	for what, body := range map[string]string{
		"id":      `{"update_id":1,"update_id":2,"message":{"message_id":5,"chat":{"id":9}}}`,
		"case":    `{"update_id":1,"Update_Id":2,"message":{"message_id":5,"chat":{"id":9}}}`,
		"chat":    `{"update_id":1,"message":{"message_id":5,"chat":{"id":9},"chat":{"id":8}}}`,
		"chat id": `{"update_id":1,"message":{"message_id":5,"chat":{"id":9,"id":8}}}`,
		"message": `{"update_id":1,"message":{"message_id":5,"chat":{"id":9}},"message":{"message_id":6,"chat":{"id":8}}}`,
		"members": `{"update_id":1,"message":{"message_id":5,"chat":{"id":9}},"edited_message":{"message_id":6,"chat":{"id":8}}}`,
		"escaped": `{"update_id":1,"update\u005fid":2,"message":{"message_id":5,"chat":{"id":9}}}`,
	} {
		ev := mustExtract(t, body)
		if ev.ID != "1" || ev.MessageKey != "message:9:5" || ev.Conversation != "9" {
			t.Errorf("%s: id %q, key %q, conversation %q; want those of the first", what, ev.ID, ev.MessageKey, ev.Conversation)
		}
	}
	// A first one of another type is no reason to look at the second.
	ev := mustExtract(t, `{"update_id":1,"message":{"message_id":5,"chat":7,"chat":{"id":8}}}`)
	if ev.Conversation != "" || ev.MessageKey != "" {
		t.Errorf("chat 7 before chat {id: 8}: conversation %q, key %q; want none", ev.Conversation, ev.MessageKey)
	}
}

func TestIDsAreKeptDigitForDigit(t *testing.T) {
	t.Parallel()
	// BR-57, BR-78.
	ids := make(map[string]bool)
	for _, id := range []string{"2147483648", "9007199254740992", "9007199254740993", "18446744073709551617"} {
		ev := mustExtract(t, update(id, "message", message("-1009007199254740993", "9007199254740993", "x")))
		if ev.ID != id || ids[ev.ID] {
			t.Errorf("update_id %s: id %q", id, ev.ID)
		}
		ids[ev.ID] = true
		if want := "message:-1009007199254740993:9007199254740993"; ev.MessageKey != want || ev.Conversation != "-1009007199254740993" {
			t.Errorf("key %q, conversation %q; want %q and its chat", ev.MessageKey, ev.Conversation, want)
		}
	}
	c := mustDecode(t, update("7", "message", message("-1001234567890123", "5", "x")))
	if !strings.Contains(string(c.Raw), `"id":-1001234567890123`) || c.Sender.ID != "-1001234567890123" {
		t.Errorf("raw %s, sender %q; want the numbers as they came", c.Raw, c.Sender.ID)
	}
	long := strings.Repeat("9", 200_000) // BR-79
	if ev := mustExtract(t, update(long, "message", message("1", "5", "x"))); ev.ID != domain.StorableID(long) {
		t.Errorf("an update_id of 200000 digits has the id %.80q; want its digest", ev.ID)
	}
}

func TestNumbersThatNoDatabaseHoldsAreCarried(t *testing.T) {
	t.Parallel()
	// BR-79.
	for _, n := range []string{"1e131073", "1E400", "-0", strings.Repeat("7", 200_000), "0.1e-999999"} {
		body := update("7", "message", `{"message_id":5,"chat":{"id":`+n+`},"date":`+n+`,"document":{"file_id":"f","file_size":`+n+`},"x":`+n+`}`)
		ev := mustExtract(t, body)
		if ev.ID != "7" || ev.Conversation != domain.StorableID(ev.Conversation) {
			t.Errorf("with %.20s: id %q, conversation %.80q", n, ev.ID, ev.Conversation)
		}
		c := mustDecode(t, body)
		if string(c.Raw) != body {
			t.Errorf("with %.20s: raw is not the body", n)
		}
	}
}

func TestEventsApart(t *testing.T) {
	t.Parallel()
	type pair struct{ one, other string }
	click := `{"id":"1","from":{"id":1},"message":` + message("1", "5", "x") + `,"data":"yes"}`
	for what, p := range map[string]pair{
		// BR-26: the same text twice.
		"same text again": {update("10", "message", message("1", "5", "yes")), update("11", "message", message("1", "6", "yes"))},
		// BR-25: the same sender in the same second.
		"same second": {update("10", "message", message("1", "5", "a")), update("11", "message", message("1", "6", "b"))},
		// BR-27: the same message_id in other kinds.
		"message and edit":      {update("10", "message", message("1", "5", "x")), update("11", "edited_message", message("1", "5", "x"))},
		"message and click":     {update("10", "message", message("1", "5", "x")), update("11", "callback_query", click)},
		"message and reaction":  {update("10", "message", message("1", "5", "x")), update("11", "message_reaction", message("1", "5", "x"))},
		"two clicks":            {update("10", "callback_query", click), update("11", "callback_query", click)},
		"two chats":             {update("10", "message", message("1", "5", "x")), update("11", "message", message("2", "5", "x"))},
		"digits moved":          {update("10", "message", message("1", "15", "x")), update("11", "message", message("11", "5", "x"))},
		"business and own chat": {update("10", "message", message("1", "5", "x")), update("11", "business_message", strings.Replace(message("1", "5", "x"), "{", `{"business_connection_id":"c",`, 1))},
		"business ids with colons": {
			update("10", "business_message", strings.Replace(message("1", "5", "x"), "{", `{"business_connection_id":"c:1",`, 1)),
			update("11", "business_message", strings.Replace(message("1", "5", "x"), "{", `{"business_connection_id":"c",`, 1)),
		},
	} {
		one, other := mustExtract(t, p.one), mustExtract(t, p.other)
		if one.ID == other.ID {
			t.Errorf("%s: both have the id %q", what, one.ID)
		}
		if one.MessageKey != "" && one.MessageKey == other.MessageKey {
			t.Errorf("%s: both have the message key %q", what, one.MessageKey)
		}
	}
}

func TestReissuedMessageHasItsKey(t *testing.T) {
	t.Parallel()
	// BR-14.
	one := mustExtract(t, update("10", "message", message("1", "5", "x")))
	again := mustExtract(t, update("11", "message", message("1", "5", "x")))
	if one.ID == again.ID || one.MessageKey != again.MessageKey || one.Digest != again.Digest {
		t.Errorf("got %+v and %+v; want other ids, one message key and one digest", one, again)
	}
	other := mustExtract(t, update("12", "message", message("1", "5", "y")))
	if other.Digest == one.Digest {
		t.Error("other text has the same digest")
	}
}

func TestIDsHaveNoOrder(t *testing.T) {
	t.Parallel()
	// BR-21, BR-23: after a pause the numbers go on anywhere. One endpoint sees them all.
	e := open(t, botA)
	for _, id := range []string{"900000000", "12", "1001", "1000"} {
		b, err := e.Extract(&channels.Request{Body: []byte(update(id, "message", message("1", id, "x")))})
		if err != nil || len(b.Events) != 1 || b.Events[0].ID != id {
			t.Errorf("update %s after higher ones: %+v, %v; want one event", id, b.Events, err)
		}
	}
}

func TestOtherBotHasTheSameNumbers(t *testing.T) {
	t.Parallel()
	// BR-19: the account of the path keeps the bots apart, for the payload names none.
	a := channeltest.Load(t, "testdata/01-message-text.http", "", now)
	b := channeltest.Load(t, "testdata/15-bot-b-same-update-id.http", "", now)
	if err := open(t, botA).Verify(b); !errors.Is(err, domain.ErrUnauthenticated) {
		t.Errorf("bot B's request at bot A: %v; want one that wraps ErrUnauthenticated", err)
	}
	evA, evB := mustExtract(t, string(a.Body)), mustExtract(t, string(b.Body))
	keyA := domain.Key{Tenant: "acme", Platform: "telegram", Account: "7000000001", EventID: evA.ID}
	keyB := domain.Key{Tenant: "acme", Platform: "telegram", Account: "7000000002", EventID: evB.ID}
	if keyA.Digest() == keyB.Digest() || keyA.Message(evA.MessageKey) == keyB.Message(evB.MessageKey) {
		t.Error("two bots share an event or a message")
	}
}

func TestContent(t *testing.T) {
	t.Parallel()
	at := time.Unix(1790001000, 0).UTC()
	for what, tt := range map[string]struct {
		body string
		want domain.Content
	}{
		"text in a topic": {
			update("1", "message", `{"message_id":5,"message_thread_id":77,"from":{"id":3,"first_name":"Ines","last_name":"M"},"chat":{"id":-1009},"date":1790001000,"text":"Ol\u00e1 \ud83d\ude2e"}`),
			domain.Content{Conversation: domain.Conversation{ExternalID: "-1009", Thread: "77"}, Sender: domain.Sender{ID: "3", Name: "Ines M"}, Text: "Olá 😮", Time: at},
		},
		"chat that speaks": {
			update("1", "message", `{"message_id":5,"from":{"id":1087968824,"is_bot":true,"first_name":"Group"},"sender_chat":{"id":-1009,"title":"Team"},"chat":{"id":-1009},"date":1790001000,"text":"x"}`),
			domain.Content{Conversation: domain.Conversation{ExternalID: "-1009"}, Sender: domain.Sender{ID: "-1009", Name: "Team"}, Text: "x", Time: at},
		},
		"edit": {
			update("1", "edited_message", `{"message_id":5,"from":{"id":3,"username":"ines"},"chat":{"id":3},"date":1789990000,"edit_date":1790001000,"text":"x"}`),
			domain.Content{Conversation: domain.Conversation{ExternalID: "3"}, Sender: domain.Sender{ID: "3", Name: "ines"}, Text: "x", Time: at},
		},
		"photo with caption": {
			update("1", "message", `{"message_id":5,"from":{"id":3},"chat":{"id":3},"date":1790001000,"caption":"look","photo":[{"file_id":"s","file_size":9},{"file_id":"L","file_size":900}]}`),
			domain.Content{
				Conversation: domain.Conversation{ExternalID: "3"}, Sender: domain.Sender{ID: "3"}, Text: "look", Time: at,
				Attachments: []domain.Attachment{{URL: "telegram-file:L", Type: "image/jpeg", Size: 900}},
			},
		},
		"document": {
			update("1", "message", `{"message_id":5,"from":{"id":3},"chat":{"id":3},"date":1790001000,"document":{"file_id":"d","file_name":"a.pdf","mime_type":"application/pdf","file_size":4294967296}}`),
			domain.Content{
				Conversation: domain.Conversation{ExternalID: "3"}, Sender: domain.Sender{ID: "3"}, Time: at,
				Attachments: []domain.Attachment{{URL: "telegram-file:d", Type: "application/pdf", Name: "a.pdf", Size: 4294967296}},
			},
		},
		"animation, which comes as a document too": {
			update("1", "message", `{"message_id":5,"from":{"id":3},"chat":{"id":3},"date":1790001000,"animation":{"file_id":"a"},"document":{"file_id":"a"}}`),
			domain.Content{
				Conversation: domain.Conversation{ExternalID: "3"}, Sender: domain.Sender{ID: "3"}, Time: at,
				Attachments: []domain.Attachment{{URL: "telegram-file:a", Type: "video/mp4"}},
			},
		},
		"click on a business message": {
			update("1", "callback_query", `{"id":"9","from":{"id":3},"message":{"message_id":5,"business_connection_id":"c","chat":{"id":4},"date":1790001000,"text":"Sure?"},"data":"yes"}`),
			domain.Content{Conversation: domain.Conversation{ExternalID: "c:4"}, Sender: domain.Sender{ID: "3"}, Text: "yes"},
		},
		"click on an inline message": {
			update("1", "callback_query", `{"id":"9","from":{"id":3},"inline_message_id":"i","data":"yes"}`),
			domain.Content{Sender: domain.Sender{ID: "3"}, Text: "yes"},
		},
		"inline query": {
			update("1", "inline_query", `{"id":"9","from":{"id":3},"query":"cats","offset":""}`),
			domain.Content{Sender: domain.Sender{ID: "3"}, Text: "cats"},
		},
		"date beyond what JSON can tell": {
			update("1", "message", `{"message_id":5,"chat":{"id":3},"date":253402300800,"text":"x"}`),
			domain.Content{Conversation: domain.Conversation{ExternalID: "3"}, Text: "x"},
		},
		"bytes that are not UTF-8 and half a pair": {
			update("1", "message", "{\"message_id\":5,\"chat\":{\"id\":3},\"text\":\"a\xff\\ud83d\"}"),
			domain.Content{Conversation: domain.Conversation{ExternalID: "3"}, Text: "a\uFFFD\uFFFD"},
		},
	} {
		got := mustDecode(t, tt.body)
		if want := strings.ToValidUTF8(tt.body, "\uFFFD"); string(got.Raw) != want {
			t.Errorf("%s: raw %s; want %s", what, got.Raw, want)
		}
		got.Raw = nil
		if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", tt.want); g != w {
			t.Errorf("%s: got %s; want %s", what, g, w)
		}
	}
}

func TestOtherBotIsTold(t *testing.T) {
	t.Parallel()
	// BR-12: messages of other bots are messages; raw alone says whose they are.
	body := update("1", "message", `{"message_id":5,"from":{"id":3,"is_bot":true},"chat":{"id":-4},"date":1790001000,"text":"beep"}`)
	if ev := mustExtract(t, body); ev.Kind != domain.MessageCreated {
		t.Errorf("kind %s; want %s", ev.Kind, domain.MessageCreated)
	}
	if c := mustDecode(t, body); !strings.Contains(string(c.Raw), `"is_bot":true`) {
		t.Errorf("raw %s does not tell that a bot wrote it", c.Raw)
	}
}

func FuzzExtractAndDecode(f *testing.F) {
	f.Add([]byte(update("7", "message", message("1", "5", "x"))))
	f.Add([]byte(`{"update_id":7,"callback_query":{"message":{"chat":{"id":1},"business_connection_id":"c"},"data":"d"}}`))
	f.Add([]byte(`{"update_id":7,"message":{"photo":[{"file_id":"a","file_size":1e9}],"date":-1,"chat":"{\"id\":1}"}}`))
	f.Add([]byte("{\"update_id\":7,\"message\":{\"text\":\"\xff\\ud800\\u0000\"}}"))
	f.Add([]byte(`[[[[`))
	e, channel := open(f, botA), telegram.New()
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := e.Extract(&channels.Request{Body: body})
		if err != nil {
			if !errors.Is(err, domain.ErrUnreadable) {
				t.Fatalf("Extract: %v", err)
			}
			return
		}
		for _, ev := range b.Events {
			if ev.ID == "" || ev.Digest.IsZero() || ev.ID != domain.StorableID(ev.ID) ||
				ev.MessageKey != domain.StorableID(ev.MessageKey) || ev.Conversation != domain.StorableID(ev.Conversation) {
				t.Fatalf("event %+v can't be stored", ev)
			}
			c, err := channel.Decode(ev)
			if err != nil {
				t.Fatalf("Decode of what Extract could read: %v", err)
			}
			if !json.Valid(c.Raw) || !utf8.Valid(c.Raw) || !utf8.ValidString(c.Text) {
				t.Fatalf("raw %q or text %q is not UTF-8", c.Raw, c.Text)
			}
			if _, err := json.Marshal(c); err != nil {
				t.Fatalf("content can't be written: %v", err)
			}
		}
	})
}
