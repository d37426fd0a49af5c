package twilio_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/channeltest"
	"github.com/admitone/admitone/channels/twilio"
	"github.com/admitone/admitone/domain"
)

const (
	acme      = "AC0000000000000000000000000000a001"
	token     = "twilio-test-token-acme"
	subToken  = "twilio-test-token-acme-sub"
	sharedKey = "twilio-test-sharedkey-acme"
	public    = "https://hooks.example.com"
	address   = public + "/in/twilio/acme"
	formType  = "application/x-www-form-urlencoded; charset=utf-8"
	jsonType  = "application/json; charset=utf-8"
	settings  = "key=webhooks_sharedkey_01k5test0shared0key0acme01,algorithm=HMAC_SHA256"
)

var signedAt = time.Date(2026, 9, 21, 14, 32, 0, 0, time.UTC)

func credentials(tokens ...string) channels.Credentials {
	return channels.Credentials{Account: acme, Secrets: map[string][]string{"auth_token": tokens}}
}

func withSharedKey() channels.Credentials {
	c := credentials(token)
	c.Secrets["shared_key"] = []string{sharedKey}
	return c
}

func open(t testing.TB, c channels.Credentials) channels.Endpoint {
	t.Helper()
	e, err := twilio.New().Open(c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return e
}

// sign follows Twilio's description step by step and shares nothing with the channel, so
// that one mistake is not made twice.
func sign(secret, algorithm, address string, form url.Values) string {
	text := address
	for _, name := range slices.Sorted(maps.Keys(form)) {
		values := slices.Clone(form[name])
		slices.Sort(values)
		for _, v := range slices.Compact(values) {
			text += name + v
		}
	}
	mac := hmac.New(sha1.New, []byte(secret))
	if algorithm == "HMAC_SHA256" {
		mac = hmac.New(sha256.New, []byte(secret))
	}
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// post returns the form POST of body, signed with token, as Twilio sends it.
func post(t testing.TB, address, body string) *channels.Request {
	t.Helper()
	form, err := url.ParseQuery(body)
	if err != nil {
		t.Fatalf("form %q: %v", body, err)
	}
	return request(http.MethodPost, address, formType, body, sign(token, "", address, form))
}

// postJSON returns the POST of body, signed with token, at the address that holds its hash.
func postJSON(body string) *channels.Request {
	sum := sha256.Sum256([]byte(body))
	at := address + "/events?bodySHA256=" + hex.EncodeToString(sum[:])
	return request(http.MethodPost, at, jsonType, body, sign(token, "", at, nil))
}

func request(method, address, contentType, body, signature string) *channels.Request {
	h := http.Header{"X-Twilio-Signature": {signature}}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	return &channels.Request{Method: method, URL: address, Header: h, Body: []byte(body), Now: signedAt}
}

func load(t *testing.T, fixture string) *channels.Request {
	t.Helper()
	return channeltest.Load(t, filepath.Join("testdata", fixture+".http"), public, signedAt)
}

// receive verifies and extracts r.
func receive(t testing.TB, e channels.Endpoint, r *channels.Request) channels.Batch {
	t.Helper()
	if err := e.Verify(r); err != nil {
		t.Fatalf("Verify(%s): %v", r.URL, err)
	}
	b, err := e.Extract(r)
	if err != nil {
		t.Fatalf("Extract(%s): %v", r.URL, err)
	}
	return b
}

// one returns the one event in r.
func one(t testing.TB, e channels.Endpoint, r *channels.Request) domain.Event {
	t.Helper()
	b := receive(t, e, r)
	if len(b.Events) != 1 {
		t.Fatalf("Extract(%s): %d events, want 1", r.URL, len(b.Events))
	}
	return b.Events[0]
}

func decode(t testing.TB, ev domain.Event) domain.Content {
	t.Helper()
	c, err := twilio.New().Decode(ev)
	if err != nil {
		t.Fatalf("Decode(%s): %v", ev.ID, err)
	}
	return c
}

func mustRefuse(t testing.TB, e channels.Endpoint, r *channels.Request, what string) {
	t.Helper()
	switch err := e.Verify(r); {
	case err == nil:
		t.Errorf("%s: accepted", what)
	case !errors.Is(err, domain.ErrUnauthenticated):
		t.Errorf("%s: error %v does not wrap ErrUnauthenticated", what, err)
	}
}

func TestChannelKeepsItsContract(t *testing.T) {
	channeltest.Run(t, channeltest.Spec{
		Channel:     twilio.New(),
		Credentials: withSharedKey(),
		PublicURL:   public,
		Now:         signedAt,
		Refused: []string{
			"15-json-body-tampered", "18-nonstandard-port-8443", "20-subaccount", "23-bad-signature", "24-unknown-account",
		},
		SignedHeaders: []string{"X-Twilio-Signature"},
		BodySigned:    true,
		RetryHeaders:  http.Header{"I-Twilio-Idempotency-Token": {"another-token"}},
		Sign:          resign,
	})
}

// resign makes r genuine again, as Twilio would sign what it now holds.
func resign(r *channels.Request) {
	secret, algorithm := token, ""
	if r.Header.Get("X-Twilio-Webhooks-Signature-Settings") != "" {
		secret, algorithm = sharedKey, "HMAC_SHA256"
	}
	form := url.Values{}
	switch {
	case r.Method == http.MethodGet:
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded"):
		for pair := range strings.SplitSeq(string(r.Body), "&") {
			if pair != "" {
				name, value, _ := strings.Cut(pair, "=")
				form.Add(lenient(name), lenient(value))
			}
		}
	default:
		sum := sha256.Sum256(r.Body)
		before, _, _ := strings.Cut(r.URL, "?")
		r.URL = before + "?bodySHA256=" + hex.EncodeToString(sum[:])
	}
	r.Header.Set("X-Twilio-Signature", sign(secret, algorithm, r.URL, form))
}

// lenient decodes as browsers do: what is no escape stands for itself.
func lenient(s string) string {
	if decoded, err := url.QueryUnescape(s); err == nil {
		return decoded
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.Write(c)
				i += 2
				continue
			}
		}
		if s[i] == '+' {
			b.WriteByte(' ')
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func TestSamplesGiveTheExpectedEvents(t *testing.T) {
	t.Parallel()
	const (
		whatsapp = "whatsapp:+14155550100|whatsapp:+447700900123"
		sms      = "+14155550101|+14155550142"
	)
	type event struct {
		id, account, message, conversation string
		kind                               domain.Kind
	}
	inbound := func(sid, conversation string) []event {
		return []event{{"in:" + sid, acme, "message:" + sid, conversation, domain.MessageCreated}}
	}
	status := func(id, conversation string) []event {
		return []event{{id, acme, "", conversation, domain.MessageStatus}}
	}
	for fixture, want := range map[string][]event{
		"01-whatsapp-text":                  inbound("SM5b1f0c9d2e7a4836b0d4c8e1f2a39577", whatsapp),
		"02-whatsapp-text-retry-same-token": inbound("SM5b1f0c9d2e7a4836b0d4c8e1f2a39577", whatsapp),
		"03-whatsapp-media":                 inbound("MM9e2d4c7b8a1f40639d5e6f7a8b9c0d12", whatsapp),
		"04-whatsapp-location":              inbound("SM3a6b9c0d1e2f43558a7b6c5d4e3f2a10", whatsapp),
		"05-whatsapp-button-reply":          inbound("SM7c8d9e0f1a2b43c4d5e6f708192a3b4c", whatsapp),
		"06-whatsapp-reply-to":              inbound("SM1d2e3f4a5b6c47d8e9f0a1b2c3d4e5f6", whatsapp),
		"07-sms":                            inbound("SM0f1e2d3c4b5a46978877665544332211", sms),
		"16-get-inbound":                    inbound("SM2b3c4d5e6f7a48b9c0d1e2f3a4b5c6d7", sms),
		"21-sharedkey-hmac-sha256":          inbound("SMcd34ef56ab7841c2930d4e5f60718293", whatsapp),
		"09-status-sent":                    status("st:MM5e6f7a8b9c0d41e2f3a4b5c6d7e8f901:sent", whatsapp),
		"10-status-delivered-same-sid":      status("st:MM5e6f7a8b9c0d41e2f3a4b5c6d7e8f901:delivered", whatsapp),
		"11-status-read-same-sid":           status("st:MM5e6f7a8b9c0d41e2f3a4b5c6d7e8f901:read", whatsapp),
		"13-status-sms-undelivered":         status("st:SM6a5b4c3d2e1f40918273645546372819:undelivered:30003", sms),
		"14-json-bodysha256-two-events": {
			{"es:EZ4b0f7c1d2e3a45968770615243342516", acme, "message:SM0f1e2d3c4b5a46978877665544332211", sms, domain.MessageCreated},
			{"es:EZ5c1a8d2e3f4b46a79881726354453627", acme, "", sms, domain.MessageStatus},
		},
	} {
		t.Run(fixture, func(t *testing.T) {
			t.Parallel()
			var got []event
			for _, e := range receive(t, open(t, withSharedKey()), load(t, fixture)).Events {
				got = append(got, event{e.ID, e.Account, e.MessageKey, e.Conversation, e.Kind})
				if c := decode(t, e); c.Conversation.ExternalID != e.Conversation {
					t.Errorf("conversation decoded %q, extracted %q", c.Conversation.ExternalID, e.Conversation)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("events %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestSamplesAreRefusedThatTwilioDidNotSignForTheInstallation(t *testing.T) {
	t.Parallel()
	for _, fixture := range []string{
		"15-json-body-tampered", "18-nonstandard-port-8443", "20-subaccount", "23-bad-signature", "24-unknown-account",
	} {
		mustRefuse(t, open(t, withSharedKey()), load(t, fixture), fixture)
	}
	mustRefuse(t, open(t, credentials(token)), load(t, "21-sharedkey-hmac-sha256"), "a shared key's signature without a shared key")
}

func TestSubaccountIsProvedByItsOwnTokenOnly(t *testing.T) {
	t.Parallel()
	r := load(t, "20-subaccount")
	ev := one(t, open(t, credentials(subToken)), r)
	if ev.Account != "AC0000000000000000000000000000a002" || ev.ID != "in:SMab12cd34ef56478990a1b2c3d4e5f607" {
		t.Errorf("event %s of %s", ev.ID, ev.Account)
	}
	mustRefuse(t, open(t, credentials(subToken)), load(t, "01-whatsapp-text"), "the parent's request by the subaccount's token")
}

func TestRetryIsTheSameEventWithTheSameDigest(t *testing.T) {
	t.Parallel()
	e := open(t, credentials(token))
	first, again := one(t, e, load(t, "01-whatsapp-text")), one(t, e, load(t, "02-whatsapp-text-retry-same-token"))
	if first.ID != again.ID || first.MessageKey != again.MessageKey || first.Digest != again.Digest {
		t.Errorf("%+v\n%+v", first, again)
	}
}

func TestContentIsWhatThePersonSent(t *testing.T) {
	t.Parallel()
	e := open(t, credentials(token))
	c := decode(t, one(t, e, load(t, "01-whatsapp-text")))
	if c.Text != " Grüße! 2 + 2 = 4 😀 " {
		t.Errorf("text %q", c.Text)
	}
	if c.Sender != (domain.Sender{ID: "whatsapp:+447700900123", Name: "Noor Haddad"}) {
		t.Errorf("sender %+v", c.Sender)
	}
	c = decode(t, one(t, e, load(t, "03-whatsapp-media")))
	media := "https://api.twilio.com/2010-04-01/Accounts/" + acme + "/Messages/MM9e2d4c7b8a1f40639d5e6f7a8b9c0d12/Media/"
	if want := []domain.Attachment{
		{URL: media + "ME11112222333344445555666677778888", Type: "image/jpeg"},
		{URL: media + "ME99990000aaaabbbbccccddddeeeeffff", Type: "application/pdf"},
	}; !slices.Equal(c.Attachments, want) {
		t.Errorf("attachments %+v\nwant %+v", c.Attachments, want)
	}
	c = decode(t, receive(t, e, load(t, "14-json-bodysha256-two-events")).Events[0])
	if c.Text != "Is order #3391 ready? 50% paid & signed" || c.Sender.ID != "+14155550142" {
		t.Errorf("Event Streams: text %q of %q", c.Text, c.Sender.ID)
	}
	if want := time.Date(2026, 9, 21, 14, 32, 9, 0, time.UTC); !c.Time.Equal(want) {
		t.Errorf("Event Streams: time %s, want %s", c.Time, want)
	}
}

func TestAnswerNeverHoldsTextForThePerson(t *testing.T) { // BR-76
	t.Parallel()
	e := open(t, withSharedKey())
	for fixture, inbound := range map[string]bool{
		"01-whatsapp-text": true, "07-sms": true, "16-get-inbound": true,
		"09-status-sent": false, "13-status-sms-undelivered": false, "14-json-bodysha256-two-events": false,
	} {
		reply := twilio.New().Acknowledge
		if b := receive(t, e, load(t, fixture)); b.Reply != nil {
			reply = *b.Reply
		}
		want := channels.Reply{}
		if inbound {
			want = channels.Reply{ContentType: "text/xml", Body: []byte(`<?xml version="1.0" encoding="UTF-8"?><Response/>`)}
		}
		if reply.ContentType != want.ContentType || string(reply.Body) != string(want.Body) {
			t.Errorf("%s: answer %q %q", fixture, reply.ContentType, reply.Body)
		}
	}
}

func TestSimulatedRequestsTellMessagesApart(t *testing.T) {
	t.Parallel()
	c := credentials(token)
	e := open(t, c)
	from := func(s channels.Simulation) domain.Event {
		r, err := twilio.New().Simulate(c, s)
		if err != nil {
			t.Fatalf("Simulate: %v", err)
		}
		if r.URL.String() != s.URL {
			t.Errorf("sent to %s, want %s", r.URL, s.URL)
		}
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return one(t, e, &channels.Request{Method: r.Method, URL: s.PublicURL + r.URL.RequestURI(), Header: r.Header, Body: text})
	}
	s := channels.Simulation{
		URL: "http://127.0.0.1:8080/in/twilio/acme", PublicURL: public, Account: acme,
		EventID: "1", Message: "1", From: "whatsapp:+447700900123", Text: " a;b & c=d ", Now: signedAt,
	}
	first := from(s)
	if first.Kind != domain.MessageCreated || first.Account != acme || decode(t, first).Text != s.Text {
		t.Errorf("event %+v", first)
	}
	if first.Conversation != "whatsapp:+14155550101|whatsapp:+447700900123" {
		t.Errorf("conversation %s", first.Conversation)
	}
	s.Retry = 2
	if again := from(s); again.ID != first.ID || again.Digest != first.Digest {
		t.Errorf("a retry is %s, the first was %s", again.ID, first.ID)
	}
	s.EventID, s.Message = "2", "2"
	if other := from(s); other.ID == first.ID || other.MessageKey == first.MessageKey {
		t.Errorf("another message is %s %s too", other.ID, other.MessageKey)
	}
	s.EventID, s.Message = "SM0f1e2d3c4b5a46978877665544332211", ""
	if named := from(s); named.ID != "in:SM0f1e2d3c4b5a46978877665544332211" {
		t.Errorf("the event of a MessageSid is %s", named.ID)
	}
}
