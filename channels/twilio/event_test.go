package twilio_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/twilio"
	"github.com/admitone/admitone/domain"
)

const ends = "&AccountSid=" + acme + "&From=%2B14155550142&To=%2B14155550101"

func event(t testing.TB, form string) domain.Event {
	t.Helper()
	return one(t, open(t, credentials(token)), post(t, address, form))
}

func TestEachStatusOfAMessageIsAnEvent(t *testing.T) { // BR-16
	t.Parallel()
	seen := make(map[string]string)
	for _, form := range []string{
		"MessageSid=SM1&MessageStatus=sent", "MessageSid=SM1&MessageStatus=delivered", "MessageSid=SM1&MessageStatus=read",
		"MessageSid=SM1&MessageStatus=failed&ErrorCode=30003", "MessageSid=SM1&MessageStatus=failed&ErrorCode=30008",
		"MessageSid=SM1&MessageStatus=failed", "MessageSid=SM2&MessageStatus=sent", "MessageSid=SM1&SmsStatus=received&Body=x",
	} {
		id := event(t, form+ends).ID
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s are both %s", form, other, id)
		}
		seen[id] = form
		if again := event(t, form+ends).ID; again != id {
			t.Errorf("%s: %s, then %s", form, id, again)
		}
	}
}

func TestEverySpellingGivesTheSameKey(t *testing.T) { // BR-17
	t.Parallel()
	for want, forms := range map[string][]string{
		"st:SM1:delivered": {
			"SmsSid=SM1&SmsStatus=delivered", "MessageSid=SM1&MessageStatus=delivered",
			"SmsSid=SM1&SmsStatus=delivered&MessageSid=SM1&MessageStatus=delivered", "MessageStatus=delivered&SmsSid=SM1",
		},
		"st:MM2:sent": {"SmsSid=MM2&SmsStatus=sent", "MessageSid=MM2&MessageStatus=sent", "SmsMessageSid=MM2&SmsStatus=sent"},
		"in:SM3": {
			"MessageSid=SM3&Body=x", "SmsSid=SM3&SmsStatus=received", "SmsMessageSid=SM3&SmsStatus=received&Body=x",
			"MessageSid=SM3&SmsStatus=receiving&Body=", "MessageSid=SM3&MessageStatus=received&Body=x",
		},
	} {
		for _, form := range forms {
			ev := event(t, form+ends)
			if ev.ID != want {
				t.Errorf("%s: %s, want %s", form, ev.ID, want)
			}
			if ev.Kind == domain.MessageCreated && ev.MessageKey != "message:SM3" {
				t.Errorf("%s: message key %s", form, ev.MessageKey)
			}
		}
	}
}

func TestDifferentMessagesOfOneSenderAreApart(t *testing.T) { // BR-25, BR-26
	t.Parallel()
	first, second := event(t, "MessageSid=SM1&Body=yes"+ends), event(t, "MessageSid=SM2&Body=yes"+ends)
	if first.ID == second.ID || first.MessageKey == second.MessageKey {
		t.Errorf("%s %s and %s %s", first.ID, first.MessageKey, second.ID, second.MessageKey)
	}
}

func TestKindsWithTheSameSidAreApart(t *testing.T) { // BR-27
	t.Parallel()
	inbound := event(t, "MessageSid=SM1&SmsStatus=received&Body=x"+ends)
	status := event(t, "MessageSid=SM1&MessageStatus=read"+ends)
	if inbound.ID == status.ID || status.MessageKey != "" {
		t.Errorf("inbound %s, status %s with message key %q", inbound.ID, status.ID, status.MessageKey)
	}
}

func TestFallbackRequestIsTheSameEvent(t *testing.T) {
	t.Parallel()
	const added = "&ErrorCode=11200&ErrorUrl=https%3A%2F%2Fhooks.example.com%2Fin%2Ftwilio%2Facme"
	for _, form := range []string{
		"MessageSid=SM1&SmsStatus=received&Body=x" + ends,
		"SmsStatus=received&Body=without+a+sid" + ends,
	} {
		first, fallback := event(t, form), event(t, form+added)
		if first.ID != fallback.ID || first.MessageKey != fallback.MessageKey || first.Digest != fallback.Digest {
			t.Errorf("first %+v\nfallback %+v", first, fallback)
		}
	}
	get := one(t, open(t, credentials(token)), func() *channels.Request {
		at := address + "?MessageSid=SM1&SmsStatus=received&Body=x" + ends + added
		return request("GET", at, "", "", sign(token, "", at, nil))
	}())
	if first := event(t, "MessageSid=SM1&SmsStatus=received&Body=x"+ends); first.ID != get.ID || first.Digest != get.Digest {
		t.Errorf("by POST %+v\nby GET %+v", first, get)
	}
}

func TestDigestTellsOtherContentAndNoOtherOrder(t *testing.T) {
	t.Parallel()
	first := event(t, "MessageSid=SM1&SmsStatus=received&Body=x"+ends)
	if other := event(t, "MessageSid=SM1&SmsStatus=received&Body=y"+ends); other.Digest == first.Digest {
		t.Error("another text has the same digest")
	}
	if other := event(t, "Body=x&SmsStatus=received&MessageSid=SM1"+ends); other.Digest != first.Digest {
		t.Error("another order of parameters has another digest")
	}
	failed := event(t, "MessageSid=SM1&MessageStatus=failed&ErrorCode=1"+ends)
	if other := event(t, "MessageSid=SM1&MessageStatus=failed&ErrorCode=2"+ends); other.Digest == failed.Digest {
		t.Error("a status with another error code has the same digest")
	}
}

func TestMessageWithoutSidGetsAnIDOfItsContent(t *testing.T) {
	t.Parallel()
	first, again := event(t, "Body=x&SmsStatus=received"+ends), event(t, "SmsStatus=received&Body=x"+ends)
	other := event(t, "Body=y&SmsStatus=received"+ends)
	if !strings.HasPrefix(first.ID, "fallback:") || first.ID != again.ID || first.ID == other.ID {
		t.Errorf("ids %s, again %s, other %s", first.ID, again.ID, other.ID)
	}
	if first.MessageKey != "" {
		t.Errorf("message key %q of a message without a sid", first.MessageKey)
	}
	if call := event(t, "CallSid=CA1&CallStatus=ringing"+ends); call.Kind != domain.Other || !strings.HasPrefix(call.ID, "fallback:") {
		t.Errorf("a call is %s %s", call.Kind, call.ID)
	}
}

func TestStatusesOfAnswersStandInTheConversationOfTheMessage(t *testing.T) {
	t.Parallel()
	const customer, business = "whatsapp%3A%2B447700900123", "whatsapp%3A%2B14155550100"
	inbound := event(t, "MessageSid=SM1&SmsStatus=received&Body=x&From="+customer+"&To="+business)
	status := event(t, "MessageSid=SM2&MessageStatus=sent&From="+business+"&To="+customer)
	if inbound.Conversation == "" || inbound.Conversation != status.Conversation {
		t.Errorf("conversations %q and %q", inbound.Conversation, status.Conversation)
	}
	if none := event(t, "MessageSid=SM2&MessageStatus=queued&From="+business); none.Conversation != "" {
		t.Errorf("without a customer: conversation %q", none.Conversation)
	}
}

func TestEventStreamsReportsTheMessageOfTheWebhook(t *testing.T) {
	t.Parallel()
	e := open(t, credentials(token))
	webhook, stream := one(t, e, load(t, "07-sms")), receive(t, e, load(t, "14-json-bodysha256-two-events")).Events[0]
	if webhook.ID == stream.ID || webhook.MessageKey != stream.MessageKey || webhook.Conversation != stream.Conversation ||
		webhook.Account != stream.Account {
		t.Errorf("webhook %+v\nEvent Streams %+v", webhook, stream)
	}
}

func TestBatchGivesEachItem(t *testing.T) { // BR-83
	t.Parallel()
	e := open(t, credentials(token))
	for body, want := range map[string][]string{
		`[]`:                                 nil,
		`{"id":"EZ1"}`:                       {"es:EZ1"},
		` [{"id":"EZ1"}] `:                   {"es:EZ1"},
		`[{"id":"a"},{"id":"b"},{"id":"c"}]`: {"es:a", "es:b", "es:c"},
		`[{"id":"a"},{"id":"a"}]`:            {"es:a", "es:a"},
	} {
		b := receive(t, e, postJSON(body))
		var got []string
		for _, ev := range b.Events {
			got = append(got, ev.ID)
			if c := decode(t, ev); !json.Valid(c.Raw) {
				t.Errorf("%s: raw %s", body, c.Raw)
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") || b.Reply != nil {
			t.Errorf("%s: %v, want %v; reply %v", body, got, want, b.Reply)
		}
	}
	b := receive(t, e, postJSON(`[{"type":"x"},{"type":"y"},{"type":"x"},7,{"id":""},{"id":{"a":1}}]`))
	seen := make(map[string]int)
	for _, ev := range b.Events {
		seen[ev.ID]++
		if !strings.HasPrefix(ev.ID, "fallback:") || ev.Kind != domain.Other {
			t.Errorf("an item without an id is %s %s", ev.Kind, ev.ID)
		}
	}
	if len(b.Events) != 6 || len(seen) != 5 {
		t.Errorf("%d items with %d ids, want 6 with 5: %v", len(b.Events), len(seen), seen)
	}
}

func TestCloudEventExtensionsDoNotMakeAnotherDigest(t *testing.T) {
	t.Parallel()
	e := open(t, credentials(token))
	first := one(t, e, postJSON(`{"id":"EZ1","type":"x","data":{"a":1}}`))
	if again := one(t, e, postJSON(`{"attempt":2,"id":"EZ1","type":"x","data":{"a":1}}`)); again.Digest != first.Digest {
		t.Error("an attempt counter makes another digest")
	}
	if other := one(t, e, postJSON(`{"id":"EZ1","type":"x","data":{"a":2}}`)); other.Digest == first.Digest {
		t.Error("other data have the same digest")
	}
}

func TestAccountOfACloudEventMayStandInItsSource(t *testing.T) {
	t.Parallel()
	e := open(t, credentials(token))
	for body, want := range map[string]string{
		`{"id":"1","source":"/2010-04-01/Accounts/` + acme + `/Messages/SM1.json"}`: acme,
		`{"id":"1","source":"/` + acme + `/Messages/SM1.json","data":{}}`:           acme,
		`{"id":"1","source":"/x","data":{"accountSid":"AC1"}}`:                      "AC1",
		`{"id":"1","source":"/x/y"}`:                                                "",
	} {
		if got := one(t, e, postJSON(body)).Account; got != want {
			t.Errorf("%s: account %q, want %q", body, got, want)
		}
	}
}

func TestFirstOfDuplicateKeysCountsInItsExactCase(t *testing.T) { // BR-77
	t.Parallel()
	e := open(t, credentials(token))
	for body, want := range map[string]string{
		`{"id":"A","ID":"B"}`:      "es:A",
		`{"ID":"B","id":"A"}`:      "es:A",
		`{"id":"A","id":"B"}`:      "es:A",
		`{"\u0069d":"A","id":"B"}`: "es:A",
	} {
		if got := one(t, e, postJSON(body)).ID; got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	if got := one(t, e, postJSON(`{"Id":"A"}`)).ID; !strings.HasPrefix(got, "fallback:") {
		t.Errorf("id in other case: %s", got)
	}
	ev := one(t, e, postJSON(`{"id":"1","type":"com.twilio.messaging.inbound-message.received","data":{"messageSid":"SM1","messageSid":"SM2"},"data":{"messageSid":"SM3"}}`))
	if ev.MessageKey != "message:SM1" {
		t.Errorf("message key %s", ev.MessageKey)
	}
	if ev := event(t, "MessageSid=SM1&MessageSid=SM2&messagesid=SM3&Body=a&Body=b"+ends); ev.ID != "in:SM1" || decode(t, ev).Text != "a" {
		t.Errorf("form: %s %q", ev.ID, decode(t, ev).Text)
	}
}

func TestNumbersKeepEveryDigit(t *testing.T) { // BR-78, BR-79
	t.Parallel()
	e := open(t, credentials(token))
	for _, number := range []string{"9007199254740992", "9007199254740993", "-9007199254740993", "1e131073", "-0", strings.Repeat("9", 400)} {
		body := `{"id":` + number + `,"data":{"n":` + number + `}}`
		ev := one(t, e, postJSON(body))
		if want := domain.StorableID("es:" + number); ev.ID != want {
			t.Errorf("%s: id %s", number, ev.ID)
		}
		if raw := string(decode(t, ev).Raw); raw != body {
			t.Errorf("raw %s, want %s", raw, body)
		}
	}
}

func TestHostileTextIsDelivered(t *testing.T) { // BR-81
	t.Parallel()
	for form, text := range map[string]string{
		"Body=%00":          "\x00",
		"Body=%E9":          "\uFFFD",
		"Body=caf%E9+%00+x": "caf\uFFFD \x00 x",
		"Body=%ED%A0%80":    "\uFFFD",
		"Body=a&%E9=%FF":    "a",
	} {
		c := decode(t, event(t, "MessageSid=SM1&SmsStatus=received&"+form+ends))
		if c.Text != text {
			t.Errorf("%s: text %q, want %q", form, c.Text, text)
		}
		if !utf8.Valid(c.Raw) || !json.Valid(c.Raw) {
			t.Errorf("%s: raw %q", form, c.Raw)
		}
	}
	e := open(t, credentials(token))
	c := decode(t, one(t, e, postJSON("{\"id\":\"1\",\"data\":{\"body\":\"caf\xe9 \\u0000 \\ud800\",\"from\":\"\xff\"}}")))
	if !utf8.ValidString(c.Text) || !utf8.ValidString(c.Sender.ID) || !utf8.Valid(c.Raw) || !json.Valid(c.Raw) {
		t.Errorf("JSON: text %q of %q, raw %q", c.Text, c.Sender.ID, c.Raw)
	}
}

func TestHostileIDsAreStorable(t *testing.T) { // BR-81, BR-100
	t.Parallel()
	long := strings.Repeat("9", 5000)
	seen := make(map[string]bool)
	for _, sid := range []string{"%00", "%E9", "%FF", long, long + "1", "a%3Ab", "%F0%9F%98%80"} {
		ev := event(t, "MessageSid="+sid+"&Body=x&From="+sid+"&To=1")
		for _, id := range []string{ev.ID, ev.MessageKey, ev.Conversation} {
			if id == "" || domain.StorableID(id) != id {
				t.Errorf("%.20s: %q can't be stored", sid, id)
			}
		}
		if seen[ev.ID] {
			t.Errorf("%.20s: %s is another's", sid, ev.ID)
		}
		seen[ev.ID] = true
	}
}

func TestWhatCannotBeReadIsToldAsSuch(t *testing.T) {
	t.Parallel()
	e := open(t, credentials(token))
	requests := map[string]*channels.Request{
		"an empty form":     post(t, address, ""),
		"only ampersands":   post(t, address, "&&&"),
		"a GET without any": request("GET", address, "", "", sign(token, "", address, nil)),
	}
	for _, body := range []string{
		"", " ", "null", "true", `"x"`, "7", "{", "[", `{"id":}`, "{}{}", "\x00", "\xff", "MessageSid=SM1", "\ufeff{}",
		strings.Repeat("[", 200_000), strings.Repeat(`{"a":`, 200_000) + "1" + strings.Repeat("}", 200_000),
	} {
		requests[body[:min(20, len(body))]] = postJSON(body)
	}
	for what, r := range requests {
		if err := e.Verify(r); err != nil {
			t.Errorf("%q: %v", what, err)
		}
		if b, err := e.Extract(r); !errors.Is(err, domain.ErrUnreadable) {
			t.Errorf("%q: %+v, error %v", what, b, err)
		}
	}
}

func TestPayloadOfAnotherFormIsUnreadable(t *testing.T) {
	t.Parallel()
	for _, p := range []domain.Payload{
		{},
		{MediaType: "text/plain", Body: []byte("x")},
		{MediaType: "application/json", Body: []byte("{")},
		{MediaType: "application/x-www-form-urlencoded"},
	} {
		if c, err := twilio.New().Decode(domain.Event{Payload: p}); !errors.Is(err, domain.ErrUnreadable) {
			t.Errorf("%+v: %+v, error %v", p, c, err)
		}
	}
}

func TestRawHoldsEveryParameter(t *testing.T) {
	t.Parallel()
	c := decode(t, event(t, "MessageSid=SM1&Body=%3Cb%3E&Foo=2&Foo=1&Foo=2&Empty=&Bare"))
	var got map[string]any
	if err := json.Unmarshal(c.Raw, &got); err != nil {
		t.Fatal(err)
	}
	want := `map[Bare: Body:<b> Empty: Foo:[2 1 2] MessageSid:SM1]`
	if s := fmt.Sprint(got); s != want {
		t.Errorf("raw %s, want %s", s, want)
	}
}

func TestAttachmentsFollowTheirNumbers(t *testing.T) {
	t.Parallel()
	form := url.Values{"MessageSid": {"MM1"}, "Body": {""}, "NumMedia": {"999999999"}}
	for _, n := range []string{"0", "2", "10"} {
		form.Set("MediaUrl"+n, "https://m/"+n)
		form.Set("MediaContentType"+n, "image/"+n)
	}
	var got []string
	for _, a := range decode(t, event(t, form.Encode())).Attachments {
		got = append(got, a.URL+" "+a.Type)
	}
	if s := strings.Join(got, ", "); s != "https://m/0 image/0, https://m/2 image/2, https://m/10 image/10" {
		t.Errorf("attachments %s", s)
	}
}
