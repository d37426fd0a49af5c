package whatsappcloud_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/whatsappcloud"
	"github.com/admitone/admitone/domain"
)

func ids(events []domain.Event) string {
	var all []string
	for _, ev := range events {
		all = append(all, ev.ID)
	}
	return strings.Join(all, " ")
}

func TestEveryItemOfABatchIsAnEvent(t *testing.T) {
	t.Parallel()
	// BR-83: entry, changes, messages, statuses and errors are all lists.
	events := mustExtract(t, delivery(
		entry(
			change(number, `"messages":[`+textMessage("wamid.A", "a")+","+textMessage("wamid.B", "b")+"]"),
			change("106000000000002", `"messages":[`+textMessage("wamid.A", "c")+`],"statuses":[`+status("wamid.Z", "read")+`]`),
		),
		entry(change(number, `"statuses":[`+status("wamid.Y", "sent")+","+status("wamid.Y", "read")+`]`)),
		entry(change(number, `"errors":[{"code":130429,"title":"Rate limit hit"}]`)),
	))
	fallback := domain.DigestOf(business, "messages", "", "errors", `{"code":130429,"title":"Rate limit hit"}`).String()
	want := "message:wamid.A message:wamid.B message:wamid.A status:wamid.Z:read:447700900123 " +
		"status:wamid.Y:sent:447700900123 status:wamid.Y:read:447700900123 fallback:" + fallback
	if got := ids(events); got != want {
		t.Errorf("ids %s; want %s", got, want)
	}
	if events[0].Account != number || events[2].Account != "106000000000002" || events[3].Account != "106000000000002" {
		t.Errorf("accounts %s, %s, %s; want each event's own", events[0].Account, events[2].Account, events[3].Account)
	}
	for i, text := range map[int]string{0: "a", 1: "b", 2: "c"} {
		if c := mustDecode(t, events[i]); c.Text != text {
			t.Errorf("event %d has the text %q; want %q", i, c.Text, text)
		}
	}
}

func TestNothingInADeliveryIsNoEvent(t *testing.T) {
	t.Parallel()
	// BR-83.
	for _, body := range []string{
		delivery(), delivery(entry()), delivery(entry(change(number, `"messages":[]`))),
		delivery(entry(change(number, `"messages":[],"statuses":[],"errors":null`))),
	} {
		if events := mustExtract(t, body); len(events) != 0 {
			t.Errorf("%s: %d events; want none", body, len(events))
		}
	}
}

func TestSameIDTwiceInABatch(t *testing.T) {
	t.Parallel()
	// BR-83: the claim of the first makes a duplicate of the second.
	events := mustExtract(t, delivery(entry(change(number, `"messages":[`+textMessage("wamid.A", "a")+","+textMessage("wamid.A", "a")+"]"))))
	if len(events) != 2 || events[0].ID != events[1].ID || events[0].Digest != events[1].Digest {
		t.Errorf("got %+v; want one event twice", events)
	}
}

func TestRedeliveryInOtherCompanyIsTheSameEvent(t *testing.T) {
	t.Parallel()
	// BR-85: a batch that comes again may overlap another only partly, and a profile may have changed meanwhile.
	first := one(t, delivery(entry(change(number, `"contacts":[{"profile":{"name":"Noor"},"wa_id":"447700900123"}],"messages":[`+textMessage("wamid.B", "b")+`]`))))
	later := mustExtract(t, delivery(
		entry(change(number, `"messages":[`+textMessage("wamid.A", "a")+`]`)),
		entry(change(number, `"contacts":[{"profile":{"name":"Noor H."},"wa_id":"447700900123"}],"messages":[`+textMessage("wamid.B", "b")+","+textMessage("wamid.C", "c")+`]`)),
	))
	again := later[1]
	if again.ID != first.ID || again.MessageKey != first.MessageKey || again.Digest != first.Digest || again.Conversation != first.Conversation {
		t.Errorf("again %+v; want the event %+v", again, first)
	}
	other := one(t, single(textMessage("wamid.B", "something else")))
	if other.ID != first.ID || other.Digest == first.Digest {
		t.Error("other content under the same id has the same digest")
	}
}

func TestPayloadIsTheDeliveryOfOneItem(t *testing.T) {
	t.Parallel()
	body := `{"object":"whatsapp_business_account","later":1.0,"entry":[{"id":"204000000000001","time":1790001060,"changes":[{"value":{` +
		`"messaging_product":"whatsapp","metadata":{"display_phone_number":"15550100200","phone_number_id":"106000000000001"},` +
		`"contacts":[{"profile":{"name":"Noor"},"wa_id":"447700900123"},{"profile":{"name":"Jonas"},"user_id":"DE.1"}],` +
		`"messages":[` + textMessage("wamid.A", "a") + `,{"from_user_id":"DE.1","id":"wamid.B","timestamp":"1790001002","type":"text","text":{"body":"b"}}],` +
		`"statuses":[` + status("wamid.Z", "read") + `],"later":1e400},"field":"messages"}]}]}`
	want := func(items string) string {
		return `{"object":"whatsapp_business_account","later":1.0,"entry":[{"id":"204000000000001","time":1790001060,"changes":[{"field":"messages","value":{` +
			`"messaging_product":"whatsapp","metadata":{"display_phone_number":"15550100200","phone_number_id":"106000000000001"},"later":1e400,` + items + `}}]}]}`
	}
	events := mustExtract(t, body)
	for i, w := range []string{
		want(`"contacts":[{"profile":{"name":"Noor"},"wa_id":"447700900123"}],"messages":[` + textMessage("wamid.A", "a") + `]`),
		want(`"contacts":[{"profile":{"name":"Jonas"},"user_id":"DE.1"}],"messages":[{"from_user_id":"DE.1","id":"wamid.B","timestamp":"1790001002","type":"text","text":{"body":"b"}}]`),
		want(`"contacts":[{"profile":{"name":"Noor"},"wa_id":"447700900123"}],"statuses":[` + status("wamid.Z", "read") + `]`),
	} {
		if got := string(events[i].Payload.Body); got != w {
			t.Errorf("payload %d: %s; want %s", i, got, w)
		}
		// So an application can read raw with what reads Meta's own requests.
		again := one(t, string(events[i].Payload.Body))
		if again.ID != events[i].ID || again.Digest != events[i].Digest || string(again.Payload.Body) != w {
			t.Errorf("payload %d as a delivery is %+v; want the same event", i, again)
		}
	}
}

func TestPayloadsOfALargeBatchAreSmall(t *testing.T) {
	t.Parallel()
	const n = 1000
	var items, contacts []string
	for i := range n {
		items = append(items, fmt.Sprintf(`{"from":"4477009%05d","id":"wamid.%d","timestamp":"1790001000","type":"text","text":{"body":"x"}}`, i, i))
		contacts = append(contacts, fmt.Sprintf(`{"profile":{"name":"Person %d"},"wa_id":"4477009%05d"}`, i, i))
	}
	body := delivery(entry(change(number, `"contacts":[`+strings.Join(contacts, ",")+`],"messages":[`+strings.Join(items, ",")+`]`)))
	events, total := mustExtract(t, body), 0
	for _, ev := range events {
		total += len(ev.Payload.Body)
	}
	if len(events) != n || total > 5*len(body) {
		t.Errorf("%d events with payloads of %d bytes from a body of %d; want %d and no more than five times the body", len(events), total, len(body), n)
	}
	if c := mustDecode(t, events[n-1]); c.Sender.Name != "Person 999" {
		t.Errorf("sender %+v; want Person 999", c.Sender)
	}
}

func TestKindOfEachMessage(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]domain.Kind{
		"text": domain.MessageCreated, "image": domain.MessageCreated, "audio": domain.MessageCreated, "video": domain.MessageCreated,
		"document": domain.MessageCreated, "sticker": domain.MessageCreated, "location": domain.MessageCreated, "contacts": domain.MessageCreated,
		"interactive": domain.MessageCreated, "button": domain.MessageCreated, "order": domain.MessageCreated, "unsupported": domain.MessageCreated,
		"type_of_a_later_version": domain.MessageCreated,
		"reaction":                domain.Reaction, "edit": domain.MessageEdited, "revoke": domain.MessageDeleted,
		"system": domain.Other, "request_welcome": domain.Other, "": domain.Other,
	} {
		ev := one(t, single(message("wamid.A", kind, `"x":1`)))
		if ev.Kind != want || ev.ID != "message:wamid.A" || ev.Conversation != "447700900123" {
			t.Errorf("%s: %+v; want kind %s, id message:wamid.A", kind, ev, want)
		}
		if (ev.MessageKey != "") != (want == domain.MessageCreated) {
			t.Errorf("%s: message key %q; only a new message has one", kind, ev.MessageKey)
		}
	}
}

func TestEventsAboutOneMessageAreApart(t *testing.T) {
	t.Parallel()
	const reaction = `"reaction":{"message_id":"wamid.A","emoji":"\ud83d\udc4d"}`
	group := func(member string) string {
		return `{"id":"wamid.A","status":"read","timestamp":"1790001001","recipient_id":"Y2FwaV9ncm91cDox","recipient_type":"group",` + member + `}`
	}
	list := func(items ...string) string {
		return delivery(entry(change(number, `"statuses":[`+strings.Join(items, ",")+`]`)))
	}
	seen := map[string]string{}
	for what, body := range map[string]string{
		"message":           single(textMessage("wamid.A", "x")),
		"reaction":          single(message("wamid.R1", "reaction", reaction)),
		"reaction removed":  single(message("wamid.R2", "reaction", `"reaction":{"message_id":"wamid.A"}`)),
		"edit":              single(message("wamid.E", "edit", `"edit":{"original_message_id":"wamid.A","message":{"type":"text","text":{"body":"y"}}}`)),
		"deletion":          single(message("wamid.D", "revoke", `"revoke":{"original_message_id":"wamid.A"}`)),
		"sent":              list(status("wamid.A", "sent")),
		"delivered":         list(status("wamid.A", "delivered")),
		"read":              list(status("wamid.A", "read")),
		"another recipient": list(strings.Replace(status("wamid.A", "read"), "447700900123", "447700900124", 1)),
		"a member":          list(group(`"recipient_participant_id":"447700900123"`)),
		"another member":    list(group(`"participant_recipient_id":"447700900124"`)),
		"a hidden member":   list(group(`"recipient_participant_user_id":"GB.1"`)),
		"payment failed":    list(`{"id":"wamid.A","type":"payment","status":"failed","recipient_id":"1","payment":{"transaction":{"id":"1"}}}`),
		"failed again":      list(`{"id":"wamid.A","type":"payment","status":"failed","recipient_id":"1","payment":{"transaction":{"id":"2"}}}`),
	} {
		ev := one(t, body)
		if other, ok := seen[ev.ID]; ok {
			t.Errorf("%s and %s share the id %s", what, other, ev.ID)
		}
		seen[ev.ID] = what
	}
	ev := one(t, list(group(`"recipient_participant_id":"447700900123"`)))
	if ev.ID != "status:wamid.A:read:Y2FwaV9ncm91cDox:447700900123" || ev.Conversation != "Y2FwaV9ncm91cDox" {
		t.Errorf("status in a group: id %q, conversation %q", ev.ID, ev.Conversation)
	}
	if ev := one(t, single(message("wamid.A", "text", `"group_id":"Y2FwaV9ncm91cDox"`))); ev.Conversation != "Y2FwaV9ncm91cDox" {
		t.Errorf("message in a group: conversation %q; want the group", ev.Conversation)
	}
}

func TestWhatHasNoIDIsKnownByItsContent(t *testing.T) {
	t.Parallel()
	template := func(business, field, at, value string) string {
		return fmt.Sprintf(`{"object":"whatsapp_business_account","entry":[{"id":%q,"time":%s,"changes":[{"value":%s,"field":%q}]}]}`, business, at, value, field)
	}
	first := one(t, template(business, "account_update", "1790001060", `{"event":"VERIFIED"}`))
	again := one(t, template(business, "account_update", "1790001060", `{"event":"VERIFIED"}`))
	if first.ID != again.ID || first.Digest != again.Digest || first.Kind != domain.Other || first.MessageKey != "" {
		t.Errorf("again %+v; want %+v", again, first)
	}
	for what, body := range map[string]string{
		"another account": template("204000000000002", "account_update", "1790001060", `{"event":"VERIFIED"}`),
		"another field":   template(business, "account_alerts", "1790001060", `{"event":"VERIFIED"}`),
		"another time":    template(business, "account_update", "1790001061", `{"event":"VERIFIED"}`),
		"another value":   template(business, "account_update", "1790001060", `{"event":"DISABLED"}`),
	} {
		if ev := one(t, body); ev.ID == first.ID {
			t.Errorf("%s: the id is the same", what)
		}
	}
	if c := mustDecode(t, first); !c.Time.Equal(time.Unix(1790001060, 0)) {
		t.Errorf("time %s; want that of the entry", c.Time)
	}
}

func TestWhatNamesNoNumberBelongsToThePath(t *testing.T) {
	t.Parallel()
	template := delivery(`{"id":"` + business + `","time":1,"changes":[{"value":{"event":"APPROVED"},"field":"message_template_status_update"}]}`)
	for what, tt := range map[string]struct {
		cred channels.Credentials
		body string
		want string
	}{
		"a message, app-wide":            {appWide(), single(textMessage("wamid.A", "x")), number},
		"a message, to an installation":  {of("106000000000002"), single(textMessage("wamid.A", "x")), number},
		"a template, app-wide":           {appWide(), template, business},
		"a template, to an installation": {of(number), template, ""},
	} {
		b, err := open(t, tt.cred).Extract(&channels.Request{Method: http.MethodPost, Body: []byte(tt.body)})
		if err != nil || len(b.Events) != 1 || b.Events[0].Account != tt.want {
			t.Errorf("%s: %+v, %v; want the account %q", what, b.Events, err, tt.want)
		}
	}
}

func TestUnknownShapesAreEvents(t *testing.T) {
	t.Parallel()
	// BR-54: what could be a later version's is handed on, never refused for seven days.
	for what, body := range map[string]string{
		"entry without changes":  delivery(`{"id":"1","messaging":[{}]}`),
		"entry of another type":  delivery(`7`),
		"changes no list":        delivery(`{"id":"1","changes":{}}`),
		"change of another type": delivery(entry(`"x"`)),
		"no field":               delivery(entry(`{"value":{"messages":[{"id":"wamid.A"}]}}`)),
		"value no object":        delivery(entry(`{"field":"messages","value":[{"messages":[]}]}`)),
		"value a text":           delivery(entry(`{"field":"messages","value":"{\"messages\":[{\"id\":\"wamid.A\"}]}"}`)),
		"another list":           delivery(entry(change(number, `"holograms":[{}]`))),
		"messages no list":       delivery(entry(change(number, `"messages":{"id":"wamid.A"}`))),
		"message of a scalar":    delivery(entry(change(number, `"messages":[7]`))),
		"message null":           delivery(entry(change(number, `"messages":[null]`))),
		"message without a type": delivery(entry(change(number, `"messages":[{"id":"wamid.A"}]`))),
		"id an object":           delivery(entry(change(number, `"messages":[{"id":{"id":1}}]`))),
		"status of a scalar":     delivery(entry(change(number, `"statuses":["read"]`))),
	} {
		ev := one(t, body)
		if ev.Kind != domain.Other || ev.ID == "" || ev.MessageKey != "" || ev.Digest.IsZero() {
			t.Errorf("%s: %+v; want an event of kind other with an id", what, ev)
		}
		mustDecode(t, ev)
		if again := one(t, string(ev.Payload.Body)); again.ID != ev.ID {
			t.Errorf("%s: its payload is another event", what)
		}
	}
	ev := one(t, delivery(entry(change(number, `"messages":[{"type":"text","text":{"body":"x"}}]`))))
	if ev.Kind != domain.MessageCreated || ev.MessageKey != "" || !strings.HasPrefix(ev.ID, "fallback:") {
		t.Errorf("message without an id: %+v; want a new message known by its content", ev)
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	for what, body := range map[string]string{
		"empty": "", "form": "entry=1", "array": "[]", "scalar": "7", "null": "null", "no entry": `{"object":"x"}`, "entry no list": `{"entry":{}}`,
		"truncated": delivery()[:30], "two bodies": delivery() + delivery(), "NUL": delivery() + "\x00", "byte order mark": "\ufeff" + delivery(),
		"very deep": strings.Repeat(`{"entry":[`, 20000), "deep": `{"entry":[],"x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}",
		"capitals": strings.Replace(delivery(), "entry", "Entry", 1), // BR-77
	} {
		if events, err := extract(t, body); !errors.Is(err, domain.ErrUnreadable) {
			t.Errorf("%s: %+v, %v; want an error that wraps ErrUnreadable", what, events, err)
		}
	}
}

func TestFirstOfDuplicateKeysCounts(t *testing.T) {
	t.Parallel()
	// BR-77: the id claimed is the id that the application is shown.
	const a, b = `"messages":[{"from":"1","id":"wamid.A","type":"text","text":{"body":"a"}}]`, `"messages":[{"from":"2","id":"wamid.B","type":"text","text":{"body":"b"}}]`
	for what, body := range map[string]string{
		"messages": delivery(entry(change(number, a+","+b))),
		"case":     delivery(entry(change(number, a+","+strings.Replace(b, "m", "M", 1)))),
		"escaped":  delivery(entry(change(number, a+","+strings.Replace(b, "m", `\u006d`, 1)))),
		"value":    delivery(entry(strings.Replace(change(number, a), `"field"`, `"value":{`+b+`},"field"`, 1))),
		"id":       delivery(entry(change(number, strings.Replace(a, `"type"`, `"id":"wamid.B","from":"2","type"`, 1)))),
		"number":   delivery(entry(change(number, `"metadata":{"phone_number_id":"2"},`+a))),
	} {
		ev := one(t, body)
		if ev.ID != "message:wamid.A" || ev.Conversation != "1" || ev.Account != number {
			t.Errorf("%s: %+v; want the first", what, ev)
		}
		if c := mustDecode(t, ev); c.Text != "a" {
			t.Errorf("%s: text %q; want that of the first", what, c.Text)
		}
	}
}

func TestIDsAreKeptDigitForDigit(t *testing.T) {
	t.Parallel()
	// BR-57, BR-78: numbers where Meta writes strings.
	events := mustExtract(t, delivery(entry(`{"value":{"metadata":{"phone_number_id":9007199254740993},"messages":[`+
		`{"from":9007199254740993,"id":9007199254740992,"type":"text"},{"from":9007199254740993,"id":9007199254740993,"type":"text"}]},"field":"messages"}`)))
	if got, want := ids(events), "message:9007199254740992 message:9007199254740993"; got != want {
		t.Errorf("ids %s; want %s", got, want)
	}
	if events[1].Account != "9007199254740993" || events[1].Conversation != "9007199254740993" {
		t.Errorf("account %s, conversation %s; want the digits as they came", events[1].Account, events[1].Conversation)
	}
	long := "wamid." + strings.Repeat("A", 300)
	if ev := one(t, single(textMessage(long, "x"))); ev.ID != domain.StorableID("message:"+long) || ev.MessageKey != ev.ID {
		t.Errorf("a long wamid has the id %.80q, key %.80q; want its digest", ev.ID, ev.MessageKey)
	}
}

func TestContent(t *testing.T) {
	t.Parallel()
	const image = `"mime_type":"image/jpeg","sha256":"x","id":"990000000000011"`
	file := func(mediaType, name string) []domain.Attachment {
		return []domain.Attachment{{URL: "whatsapp-media:990000000000011", Type: mediaType, Name: name}}
	}
	for what, tt := range map[string]struct {
		kind, members, text string
		attachments         []domain.Attachment
	}{
		"text":          {"text", `"text":{"body":"Ol\u00e1 \ud83d\ude2e"}`, "Olá 😮", nil},
		"image":         {"image", `"image":{"caption":"look",` + image + `}`, "look", file("image/jpeg", "")},
		"document":      {"document", `"document":{"filename":"a.pdf","id":"990000000000011","mime_type":"application/pdf"}`, "", file("application/pdf", "a.pdf")},
		"button":        {"button", `"button":{"payload":"yes-1","text":"Yes"}`, "Yes", nil},
		"list":          {"interactive", `"interactive":{"type":"list_reply","list_reply":{"id":"7","title":"Friday","description":"x"}}`, "Friday", nil},
		"flow":          {"interactive", `"interactive":{"type":"nfm_reply","nfm_reply":{"body":"Sent","response_json":"{}"}}`, "Sent", nil},
		"reaction":      {"reaction", `"reaction":{"message_id":"wamid.Z","emoji":"\ud83d\udc4d"}`, "👍", nil},
		"no reaction":   {"reaction", `"reaction":{"message_id":"wamid.Z"}`, "", nil},
		"edit":          {"edit", `"edit":{"original_message_id":"wamid.Z","message":{"type":"text","text":{"body":"new"}}}`, "new", nil},
		"edit of image": {"edit", `"edit":{"original_message_id":"wamid.Z","message":{"type":"image","image":{"caption":"new",` + image + `}}}`, "new", file("image/jpeg", "")},
		"deletion":      {"revoke", `"revoke":{"original_message_id":"wamid.Z"}`, "", nil},
		"location":      {"location", `"location":{"latitude":1.50,"longitude":2}`, "", nil},
		"unsupported":   {"unsupported", `"errors":[{"code":131051}]`, "", nil},
		"a path":        {"@this", `"text":{"body":"x"}`, "", nil},
		"bad bytes":     {"text", "\"text\":{\"body\":\"a\xff\\ud83d\"}", "a\uFFFD\uFFFD", nil},
	} {
		body := delivery(entry(change(number, `"contacts":[{"profile":{"name":"Noor"},"wa_id":"447700900123"}],"messages":[`+message("wamid.A", tt.kind, tt.members)+`]`)))
		got := mustDecode(t, one(t, body))
		want := domain.Content{
			Conversation: domain.Conversation{ExternalID: "447700900123"}, Sender: domain.Sender{ID: "447700900123", Name: "Noor"},
			Text: tt.text, Attachments: tt.attachments, Time: time.Unix(1790001000, 0).UTC(), Raw: got.Raw,
		}
		if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
			t.Errorf("%s: got %s; want %s", what, g, w)
		}
		if !strings.Contains(string(got.Raw), strings.ToValidUTF8(tt.members, "\uFFFD")) {
			t.Errorf("%s: raw %s; want it to hold %s", what, got.Raw, tt.members)
		}
	}
	read := mustDecode(t, one(t, delivery(entry(change(number, `"statuses":[`+status("wamid.A", "read")+`]`)))))
	if read.Conversation.ExternalID != "447700900123" || read.Sender != (domain.Sender{}) || read.Text != "" || !read.Time.Equal(time.Unix(1790001001, 0)) {
		t.Errorf("status: %+v; want the recipient's conversation and nobody's words", read)
	}
}

func TestSenderBehindAUserName(t *testing.T) {
	t.Parallel()
	ev := one(t, delivery(entry(change(number, `"contacts":[{"profile":{"username":"noor.h"},"user_id":"GB.1349"}],`+
		`"messages":[{"from_user_id":"GB.1349","id":"wamid.A","timestamp":"1790001000","type":"text","text":{"body":"x"}}]`))))
	if c := mustDecode(t, ev); ev.Conversation != "GB.1349" || c.Sender != (domain.Sender{ID: "GB.1349", Name: "noor.h"}) {
		t.Errorf("conversation %q, sender %+v; want the id within the business", ev.Conversation, c.Sender)
	}
	ev = one(t, delivery(entry(change(number, `"statuses":[{"id":"wamid.Z","status":"read","recipient_user_id":"GB.1349"}]`))))
	if ev.ID != "status:wamid.Z:read:GB.1349" || ev.Conversation != "GB.1349" {
		t.Errorf("status: id %q, conversation %q; want the id within the business", ev.ID, ev.Conversation)
	}
	// wa_id may be another spelling of the number than from is.
	ev = one(t, delivery(entry(change(number, `"contacts":[{"profile":{"name":"Noor"},"wa_id":"5511987654321"}],`+
		`"messages":[{"from":"551187654321","id":"wamid.A","type":"text","text":{"body":"x"}}]`))))
	if c := mustDecode(t, ev); c.Sender != (domain.Sender{ID: "551187654321", Name: "Noor"}) {
		t.Errorf("sender %+v; want the only contact's name", c.Sender)
	}
}

func FuzzExtractAndDecode(f *testing.F) {
	f.Add([]byte(single(textMessage("wamid.A", "x"))))
	f.Add([]byte(delivery(entry(change(number, `"contacts":[{"wa_id":"1"},7],"statuses":[`+status("wamid.A", "read")+`,{}],"errors":[1]`)))))
	f.Add([]byte(delivery(`{"id":1,"changes":[{"field":"x","value":null}]}`, `{}`, `[]`)))
	f.Add([]byte("{\"entry\":[{\"changes\":[{\"field\":\"messages\",\"value\":{\"contacts\":\"\xff\",\"messages\":[{\"id\":\"\\ud800\\u0000\",\"type\":\"\\u0000\"}]}}]}]}"))
	f.Add([]byte(`[[[[`))
	e, channel := open(f, appWide()), whatsappcloud.New()
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
		batch = append(batch, entry(change(number, `"contacts":[{"profile":{"name":"Noor"},"wa_id":"447700900123"}],"messages":[`+textMessage(fmt.Sprintf("wamid.%d", i), "words")+`]`)))
	}
	for name, body := range map[string]string{
		"message": single(textMessage("wamid.A", strings.Repeat("words ", 30))),
		"100":     delivery(batch...),
	} {
		b.Run(name, func(b *testing.B) {
			e := open(b, appWide())
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
