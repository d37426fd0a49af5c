package line_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/channeltest"
	"github.com/admitone/admitone/channels/line"
	"github.com/admitone/admitone/domain"
)

const (
	secret = "line-test-channel-secret-acme"
	bot    = "U0000000000000000000000000000aced"
	user   = "U1111111111111111111111111111beef"
	header = "X-Line-Signature"
)

var now = time.Unix(1790001100, 0)

func credentials(secrets ...string) channels.Credentials {
	return channels.Credentials{Account: bot, Secrets: map[string][]string{"channel_secret": secrets}}
}

func open(t testing.TB, secrets ...string) channels.Endpoint {
	t.Helper()
	e, err := line.New().Open(credentials(secrets...))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return e
}

// sign makes r genuine by LINE's rule, computed here anew.
func sign(r *channels.Request) {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(r.Body)
	r.Header.Set(header, base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

func TestChannelKeepsEveryPromise(t *testing.T) {
	channeltest.Run(t, channeltest.Spec{
		Channel:       line.New(),
		Credentials:   credentials(secret),
		Now:           now,
		Refused:       []string{"05-bad-signature"},
		SignedHeaders: []string{header},
		BodySigned:    true,
		Sign:          sign,
	})
}

func extract(t testing.TB, body string) ([]domain.Event, error) {
	t.Helper()
	b, err := open(t, secret).Extract(&channels.Request{Method: http.MethodPost, Body: []byte(body), Now: now})
	if b.Reply != nil {
		t.Fatalf("Extract(%.200s) replies %v; want nothing", body, b.Reply)
	}
	return b.Events, err
}

func mustExtract(t testing.TB, body string) []domain.Event {
	t.Helper()
	events, err := extract(t, body)
	if err != nil {
		t.Fatalf("Extract(%.200s): %v", body, err)
	}
	return events
}

// one returns the only event of a body.
func one(t testing.TB, body string) domain.Event {
	t.Helper()
	events := mustExtract(t, body)
	if len(events) != 1 {
		t.Fatalf("Extract(%.200s) = %d events; want one", body, len(events))
	}
	return events[0]
}

func mustDecode(t testing.TB, ev domain.Event) domain.Content {
	t.Helper()
	c, err := line.New().Decode(ev)
	if err != nil {
		t.Fatalf("Decode(%.200s): %v", ev.Payload.Body, err)
	}
	return c
}

func delivery(events ...string) string {
	return `{"destination":"` + bot + `","events":[` + strings.Join(events, ",") + `]}`
}

// event returns one that comes for the first time.
func event(id, kind, members string) string {
	return fmt.Sprintf(`{"type":%q,%s,"webhookEventId":%q,"deliveryContext":{"isRedelivery":false},"timestamp":1790001000123,"source":{"type":"user","userId":%q},"mode":"active"}`,
		kind, members, id, user)
}

func again(event string) string {
	return strings.Replace(event, `"isRedelivery":false`, `"isRedelivery":true`, 1)
}

func textMessage(id, number, body string) string {
	return event(id, "message", fmt.Sprintf(`"message":{"type":"text","id":%q,"text":%q},"replyToken":"r"`, number, body))
}

func TestSamples(t *testing.T) {
	t.Parallel()
	type want struct {
		id, key       string
		kind          domain.Kind
		vendorAttempt int
	}
	for file, wants := range map[string][]want{
		"01-batch-two-events": {
			{"01K5TEST0000000000000ACME1", "message:600000000000000011", domain.MessageCreated, 0},
			{"01K5TEST0000000000000ACME2", "", domain.Interaction, 0},
		},
		"02-redelivered-one-known-one-new": {
			{"01K5TEST0000000000000ACME2", "", domain.Interaction, 1},
			{"01K5TEST0000000000000ACME3", "", domain.MessageDeleted, 0},
		},
		"03-verify-empty-events": {},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			r := channeltest.Load(t, "testdata/"+file+".http", "", now)
			if err := open(t, secret).Verify(r); err != nil {
				t.Fatalf("Verify: %v", err)
			}
			events := mustExtract(t, string(r.Body))
			if len(events) != len(wants) {
				t.Fatalf("Extract = %d events; want %d", len(events), len(wants))
			}
			for i, ev := range events {
				if got := (want{ev.ID, ev.MessageKey, ev.Kind, ev.VendorAttempt}); got != wants[i] {
					t.Errorf("event %d = %+v; want %+v", i, got, wants[i])
				}
				if ev.Account != bot || ev.Conversation != user {
					t.Errorf("event %d: account %q, conversation %q; want %q, %q", i, ev.Account, ev.Conversation, bot, user)
				}
			}
		})
	}
}

func TestPublishedSignature(t *testing.T) {
	t.Parallel()
	// https://developers.line.biz/en/docs/messaging-api/verify-webhook-signature/
	const body, signature = `{"destination":"U8e742f61d673b39c7fff3cecb7536ef0","events":[]}`, "GhRKmvmHys4Pi8DxkF4+EayaH0OqtJtaZxgTD9fMDLs="
	e := open(t, "8c570fa6dd201bb328f1c1eac23a96d8")
	for s, genuine := range map[string]bool{
		signature:                  true,
		signature[:43] + "t":       false,
		signature[:43]:             false,
		strings.ToLower(signature): false,
		signature[:42] + "t=":      false, // the same bytes to a decoder that forgives
		"sha256=" + signature:      false,
		signature + "\n":           false,
		base64.StdEncoding.EncodeToString(make([]byte, 32)): false,
	} {
		r := &channels.Request{Method: http.MethodPost, Header: http.Header{header: {s}}, Body: []byte(body)}
		if err := e.Verify(r); (err == nil) != genuine {
			t.Errorf("Verify with %q: %v; want genuine %t", s, err, genuine)
		}
	}
}

func TestRedeliveryIsTheSameEvent(t *testing.T) {
	t.Parallel()
	// BR-85: other bytes, other signature, other company.
	first := one(t, delivery(textMessage("01A", "5", "x")))
	events := mustExtract(t, delivery(textMessage("01B", "6", "y"), again(textMessage("01A", "5", "x"))))
	redelivered := events[1]
	if redelivered.ID != first.ID || redelivered.MessageKey != first.MessageKey || redelivered.Digest != first.Digest {
		t.Errorf("redelivered %+v; want %+v", redelivered, first)
	}
	if first.VendorAttempt != 0 || redelivered.VendorAttempt != 1 {
		t.Errorf("vendor's attempts %d and %d; want 0 and 1", first.VendorAttempt, redelivered.VendorAttempt)
	}
	if other := one(t, delivery(textMessage("01A", "5", "z"))); other.ID != first.ID || other.Digest == first.Digest {
		t.Error("other content under the same id has the same digest")
	}
	// isRedelivery does not say that the event was taken in before: new ones bear it too.
	if ev := one(t, delivery(again(textMessage("01C", "7", "x")))); ev.ID != "01C" || ev.Kind != domain.MessageCreated {
		t.Errorf("a redelivered event that is new here: %+v; want a message", ev)
	}
}

func TestEveryItemOfABatchIsAnEvent(t *testing.T) {
	t.Parallel()
	// BR-83: also of an empty list, and of one event that stands in it twice.
	events := mustExtract(t, delivery(textMessage("01A", "5", "a"), textMessage("01B", "6", "b"), textMessage("01A", "5", "a")))
	if len(events) != 3 || events[0].ID != "01A" || events[1].ID != "01B" || events[2].ID != "01A" || events[2].Digest != events[0].Digest {
		t.Fatalf("got %+v; want the events 01A, 01B, 01A", events)
	}
	for i, text := range []string{"a", "b", "a"} {
		if c := mustDecode(t, events[i]); c.Text != text {
			t.Errorf("event %d has the text %q; want %q", i, c.Text, text)
		}
	}
	if got, want := string(events[1].Payload.Body), delivery(textMessage("01B", "6", "b")); got != want {
		t.Errorf("payload %s; want the delivery of that event alone, %s", got, want)
	}
	if events := mustExtract(t, delivery()); len(events) != 0 {
		t.Errorf("the connection test holds %+v; want nothing", events)
	}
}

func TestKindOfEachType(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]domain.Kind{
		"message": domain.MessageCreated, "messageEdited": domain.MessageEdited, "unsend": domain.MessageDeleted,
		"delivery": domain.MessageStatus, "postback": domain.Interaction,
		"follow": domain.Membership, "unfollow": domain.Membership, "join": domain.Membership, "leave": domain.Membership,
		"memberJoined": domain.Membership, "memberLeft": domain.Membership,
		"accountLink": domain.Other, "beacon": domain.Other, "videoPlayComplete": domain.Other, "membership": domain.Other, "module": domain.Other,
		"botSuspended": domain.Other, "type_of_a_later_version": domain.Other, "Message": domain.Other, "": domain.Other,
	} {
		ev := one(t, delivery(event("01A", kind, `"message":{"id":"5","type":"text","text":"x"}`)))
		if ev.Kind != want || ev.ID != "01A" {
			t.Errorf("%s: %+v; want kind %s, id 01A", kind, ev, want)
		}
		if (ev.MessageKey != "") != (want == domain.MessageCreated) {
			t.Errorf("%s: message key %q; only a new message has one", kind, ev.MessageKey)
		}
	}
}

func TestConversation(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`{"type":"user","userId":"U1"}`:                  "U1",
		`{"type":"group","groupId":"C1","userId":"U1"}`:  "C1",
		`{"type":"room","roomId":"R1","userId":"U1"}`:    "R1",
		`{"type":"group","groupId":"C1"}`:                "C1",
		`{"type":"place_of_a_later_version","id":"X1"}`:  "",
		`"{\"userId\":\"U1\"}"`:                          "",
		`null`:                                           "",
		`{"type":"user","userId":null}`:                  "",
		`{"type":"user","userId":"U1","userId":"U2"}`:    "U1",
		`{"type":"user","UserId":"U2","userId":"U1"}`:    "U1",
		`{"type":"user","userId":{"userId":"U1"}}`:       "",
		`{"type":"user","userId":"` + "a\\u0000b" + `"}`: domain.StorableID("a\x00b"),
	} {
		ev := one(t, delivery(`{"type":"message","message":{"id":"5"},"webhookEventId":"01A","source":`+source+`}`))
		if ev.Conversation != want {
			t.Errorf("source %s: conversation %q; want %q", source, ev.Conversation, want)
		}
	}
}

func TestOddEventsAreEvents(t *testing.T) {
	t.Parallel()
	// BR-54.
	for what, item := range map[string]string{
		"scalar": `7`, "null": `null`, "empty": `{}`, "array": `[{"webhookEventId":"01A"}]`, "id null": `{"webhookEventId":null}`,
		"an object inside of text": `"{\"webhookEventId\":\"01A\"}"`,
	} {
		ev := one(t, delivery(item))
		if ev.ID != "fallback:"+ev.Digest.String() || ev.Kind != domain.Other || ev.MessageKey != "" {
			t.Errorf("%s: %+v; want kind other, known by its content", what, ev)
		}
		mustDecode(t, ev)
	}
	// Without an id a redelivery is known by its content too.
	unnumbered := strings.Replace(textMessage("01A", "5", "x"), `"webhookEventId":"01A",`, "", 1)
	first, second := one(t, delivery(unnumbered)), one(t, delivery(again(unnumbered)))
	if first.ID != second.ID || !strings.HasPrefix(first.ID, "fallback:") || first.MessageKey != "message:5" {
		t.Errorf("got %+v and %+v; want one event", first, second)
	}
	if ev := one(t, `{"events":[`+textMessage("01A", "5", "x")+`]}`); ev.Account != "" {
		t.Errorf("without a destination: account %q; want none", ev.Account)
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	for what, body := range map[string]string{
		"empty": "", "form": "events=1", "array": "[]", "scalar": "7", "null": "null", "no events": `{"destination":"x"}`, "events no list": `{"events":{}}`,
		"truncated": delivery()[:30], "two bodies": delivery() + delivery(), "NUL": delivery() + "\x00", "byte order mark": "\ufeff" + delivery(),
		"very deep": strings.Repeat(`{"events":[`, 20000), "deep": `{"events":[],"x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}",
		"capitals": strings.Replace(delivery(), "events", "Events", 1), // BR-77
	} {
		if events, err := extract(t, body); !errors.Is(err, domain.ErrUnreadable) {
			t.Errorf("%s: %+v, %v; want an error that wraps ErrUnreadable", what, events, err)
		}
	}
}

func TestFirstOfDuplicateKeysCounts(t *testing.T) {
	t.Parallel()
	// BR-77: the id claimed is the id that the application is shown.
	item := textMessage("01A", "5", "x")
	for what, body := range map[string]string{
		"events":      strings.Replace(delivery(item), "]}", `],"events":[`+textMessage("01B", "6", "y")+`]}`, 1),
		"destination": strings.Replace(delivery(item), `,"events"`, `,"destination":"U2","events"`, 1),
		"id":          delivery(strings.Replace(item, `"deliveryContext"`, `"webhookEventId":"01B","deliveryContext"`, 1)),
		"case":        delivery(strings.Replace(item, `"webhookEventId"`, `"WebhookEventId":"01B","webhookEventId"`, 1)),
		"message":     delivery(strings.Replace(item, `"replyToken"`, `"message":{"id":"6","text":"y"},"replyToken"`, 1)),
	} {
		ev := one(t, body)
		if ev.ID != "01A" || ev.MessageKey != "message:5" || ev.Account != bot {
			t.Errorf("%s: %+v; want the first", what, ev)
		}
		if c := mustDecode(t, ev); c.Text != "x" {
			t.Errorf("%s: text %q; want that of the first", what, c.Text)
		}
	}
}

func TestIDsAreKeptDigitForDigit(t *testing.T) {
	t.Parallel()
	// BR-57, BR-78: numbers where LINE writes strings.
	events := mustExtract(t, delivery(
		`{"type":"message","message":{"id":9007199254740992},"webhookEventId":9007199254740992}`,
		`{"type":"message","message":{"id":9007199254740993},"webhookEventId":9007199254740993}`))
	for i, digits := range []string{"9007199254740992", "9007199254740993"} {
		if events[i].ID != digits || events[i].MessageKey != "message:"+digits {
			t.Errorf("event %d: id %q, key %q; want those of %s", i, events[i].ID, events[i].MessageKey, digits)
		}
	}
	long := strings.Repeat("Z", 300)
	if ev := one(t, delivery(textMessage(long, long, "x"))); ev.ID != domain.StorableID(long) || ev.MessageKey != domain.StorableID("message:"+long) {
		t.Errorf("id %.80q, key %.80q; want their digests", ev.ID, ev.MessageKey)
	}
}

func TestContent(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		kind, members, text string
		attachments         []domain.Attachment
	}{
		"text":     {"message", `"message":{"type":"text","id":"5","text":"\u5728\u5eab 😮"}`, "在庫 😮", nil},
		"edit":     {"messageEdited", `"message":{"type":"text","id":"5","text":"new"}`, "new", nil},
		"unsend":   {"unsend", `"unsend":{"messageId":"5"}`, "", nil},
		"postback": {"postback", `"postback":{"data":"stock=check&sku=88"}`, "stock=check&sku=88", nil},
		"sticker":  {"message", `"message":{"type":"sticker","id":"5","packageId":"1","stickerId":"2"}`, "", nil},
		"image": {
			"message", `"message":{"type":"image","id":"5","contentProvider":{"type":"line"}}`, "",
			[]domain.Attachment{{URL: "line-content:5"}},
		},
		"video kept elsewhere": {
			"message", `"message":{"type":"video","id":"5","duration":60000,"contentProvider":{"type":"external","originalContentUrl":"https://example.com/a.mp4"}}`, "",
			[]domain.Attachment{{URL: "https://example.com/a.mp4"}},
		},
		"file": {
			"message", `"message":{"type":"file","id":"5","fileName":"a.pdf","fileSize":2138}`, "",
			[]domain.Attachment{{URL: "line-content:5", Name: "a.pdf", Size: 2138}},
		},
		"file of no size": {
			"message", `"message":{"type":"file","id":"5","fileName":"a.pdf","fileSize":-1}`, "",
			[]domain.Attachment{{URL: "line-content:5", Name: "a.pdf"}},
		},
		"file without an id": {"message", `"message":{"type":"file"}`, "", nil},
		"bad bytes":          {"message", "\"message\":{\"type\":\"text\",\"id\":\"5\",\"text\":\"a\xff\\ud83d\"}", "a\uFFFD\uFFFD", nil},
	} {
		body := delivery(event("01A", tt.kind, tt.members))
		got := mustDecode(t, one(t, body))
		want := domain.Content{
			Conversation: domain.Conversation{ExternalID: user}, Sender: domain.Sender{ID: user},
			Text: tt.text, Attachments: tt.attachments, Time: time.UnixMilli(1790001000123).UTC(), Raw: []byte(strings.ToValidUTF8(body, "\uFFFD")),
		}
		if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
			t.Errorf("%s: got %s; want %s", what, g, w)
		}
	}
	far := one(t, delivery(`{"type":"message","webhookEventId":"01A","timestamp":253402300800000}`))
	if c := mustDecode(t, far); !c.Time.IsZero() {
		t.Errorf("time %s; want none beyond what JSON can tell", c.Time)
	}
}

func FuzzExtractAndDecode(f *testing.F) {
	f.Add([]byte(delivery(textMessage("01A", "5", "x"), again(event("01B", "postback", `"postback":{"data":"d"}`)))))
	f.Add([]byte(delivery(`7`, `null`, `{}`, `{"webhookEventId":"\ud800\u0000","source":[]}`)))
	f.Add([]byte("{\"events\":[{\"type\":\"message\",\"message\":{\"type\":\"file\",\"id\":\"\xff\",\"fileSize\":1e9}}]}"))
	f.Add([]byte(`[[[[`))
	e, channel := open(f, secret), line.New()
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := e.Extract(&channels.Request{Method: http.MethodPost, Body: body})
		if err != nil {
			if !errors.Is(err, domain.ErrUnreadable) {
				t.Fatalf("Extract: %v", err)
			}
			return
		}
		for _, ev := range b.Events {
			if ev.ID == "" || ev.Digest.IsZero() {
				t.Fatalf("event %+v has no identity", ev)
			}
			for _, id := range []string{ev.ID, ev.Account, ev.MessageKey, ev.Conversation} {
				if id != domain.StorableID(id) {
					t.Fatalf("%q can't be stored", id)
				}
			}
			c, err := channel.Decode(ev)
			if err != nil {
				t.Fatalf("Decode of what Extract could read: %v", err)
			}
			if !json.Valid(c.Raw) || !utf8.Valid(c.Raw) || !utf8.ValidString(c.Text) || c.Conversation.ExternalID != ev.Conversation {
				t.Fatalf("raw %q or text %q is not UTF-8, or the conversation is not %q", c.Raw, c.Text, ev.Conversation)
			}
			if _, err := json.Marshal(c); err != nil {
				t.Fatalf("content can't be written: %v", err)
			}
			again, err := e.Extract(&channels.Request{Method: http.MethodPost, Body: ev.Payload.Body})
			if err != nil || len(again.Events) != 1 || again.Events[0].ID != ev.ID || again.Events[0].Digest != ev.Digest {
				t.Fatalf("the payload %q as a delivery is %+v, %v; want the event itself", ev.Payload.Body, again.Events, err)
			}
		}
	})
}

func BenchmarkVerifyAndExtract(b *testing.B) {
	var batch []string
	for i := range 100 {
		batch = append(batch, textMessage(fmt.Sprintf("01K5TEST%018d", i), fmt.Sprint(i), "words"))
	}
	for name, body := range map[string]string{
		"message": delivery(textMessage("01K5TEST0000000000000ACME1", "600000000000000011", strings.Repeat("words ", 30))),
		"100":     delivery(batch...),
	} {
		b.Run(name, func(b *testing.B) {
			e := open(b, secret)
			r := &channels.Request{Method: http.MethodPost, Header: http.Header{}, Body: []byte(body), Now: now}
			sign(r)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Verify(r); err != nil {
					b.Fatal(err)
				}
				if batch, err := e.Extract(r); err != nil || len(batch.Events) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}
