package whatsappcloud_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/channeltest"
	"github.com/admitone/admitone/channels/whatsappcloud"
	"github.com/admitone/admitone/domain"
)

const (
	secret   = "meta-test-app-secret"
	token    = "meta-test-verify-token"
	business = "204000000000001"
	number   = "106000000000001"
	header   = "X-Hub-Signature-256"
)

var now = time.Unix(1790001100, 0)

// appWide are the credentials of an app that serves many tenants.
func appWide() channels.Credentials {
	return channels.Credentials{Secrets: map[string][]string{"app_secret": {secret}, "verify_token": {token}}}
}

func of(account string) channels.Credentials {
	c := appWide()
	c.Account = account
	return c
}

func open(t testing.TB, c channels.Credentials) channels.Endpoint {
	t.Helper()
	e, err := whatsappcloud.New().Open(c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return e
}

// signature is computed here anew, from Meta's rule.
func signature(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func sign(r *channels.Request) { r.Header.Set(header, signature(secret, string(r.Body))) }

func TestChannelKeepsEveryPromise(t *testing.T) {
	channeltest.Run(t, channeltest.Spec{
		Channel:       whatsappcloud.New(),
		Credentials:   appWide(),
		Now:           now,
		Refused:       []string{"06-bad-signature"},
		Handshakes:    []string{"07-verify-get"},
		ByContent:     []string{"05-non-message-field-without-id"},
		SignedHeaders: []string{header},
		BodySigned:    true,
		RetryHeaders:  http.Header{"X-Hub-Signature": {"sha1=0000"}},
		Sign:          sign,
	})
}

// extract returns the events of a body that the app-wide address has received.
func extract(t testing.TB, body string) ([]domain.Event, error) {
	t.Helper()
	b, err := open(t, appWide()).Extract(&channels.Request{Method: http.MethodPost, Body: []byte(body), Now: now})
	if err == nil && b.Reply != nil {
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
	c, err := whatsappcloud.New().Decode(ev)
	if err != nil {
		t.Fatalf("Decode(%.200s): %v", ev.Payload.Body, err)
	}
	return c
}

// delivery returns a body with one entry for each list of changes.
func delivery(entries ...string) string {
	return `{"object":"whatsapp_business_account","entry":[` + strings.Join(entries, ",") + `]}`
}

func entry(changes ...string) string {
	return `{"id":"` + business + `","changes":[` + strings.Join(changes, ",") + `]}`
}

// change returns one of the field messages that was sent to a phone number.
func change(to, members string) string {
	return fmt.Sprintf(`{"value":{"messaging_product":"whatsapp","metadata":{"display_phone_number":"15550100200","phone_number_id":%q},%s},"field":"messages"}`, to, members)
}

func message(id, kind, members string) string {
	return fmt.Sprintf(`{"from":"447700900123","id":%q,"timestamp":"1790001000","type":%q,%s}`, id, kind, members)
}

func textMessage(id, body string) string {
	return message(id, "text", fmt.Sprintf(`"text":{"body":%q}`, body))
}

func status(id, status string) string {
	return fmt.Sprintf(`{"id":%q,"status":%q,"timestamp":"1790001001","recipient_id":"447700900123"}`, id, status)
}

// single returns a body with one message.
func single(message string) string {
	return delivery(entry(change(number, `"messages":[`+message+`]`)))
}

func TestSamples(t *testing.T) {
	t.Parallel()
	const wamid = "wamid.VEVTVC1BQ01FLTAwMDA"
	type want struct {
		id, key, account, conversation string
		kind                           domain.Kind
	}
	created := func(id, from string) want {
		return want{"message:" + id, "message:" + id, number, from, domain.MessageCreated}
	}
	for file, wants := range map[string][]want{
		"01-batch-3-messages-and-1-status": {
			created(wamid+"wMS1FWEFNUExFLUlE", "447700900123"),
			created(wamid+"wMi1FWEFNUExFLUlE", "447700900123"),
			created(wamid+"wMy1FWEFNUExFLUlE", "447700900177"),
			{"status:" + wamid + "5MC1FWEFNUExFLUlE:delivered:447700900123", "", number, "447700900123", domain.MessageStatus},
		},
		"03-status-sent-delivered-read-same-wamid": {
			{"status:" + wamid + "5MS1FWEFNUExFLUlE:sent:447700900123", "", number, "447700900123", domain.MessageStatus},
			{"status:" + wamid + "5MS1FWEFNUExFLUlE:delivered:447700900123", "", number, "447700900123", domain.MessageStatus},
			{"status:" + wamid + "5MS1FWEFNUExFLUlE:read:447700900123", "", number, "447700900123", domain.MessageStatus},
		},
		"05-non-message-field-without-id": {
			{
				"fallback:" + domain.DigestOf(business, "message_template_status_update", "1790001060", "",
					`{"message_template_id":812000000001,"message_template_name":"pickup_slot","message_template_language":"en_GB","event":"APPROVED"}`).String(),
				"", business, "", domain.Other,
			},
		},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			r := channeltest.Load(t, "testdata/"+file+".http", "", now)
			if err := open(t, appWide()).Verify(r); err != nil {
				t.Fatalf("Verify: %v", err)
			}
			events := mustExtract(t, string(r.Body))
			if len(events) != len(wants) {
				t.Fatalf("Extract = %d events; want %d", len(events), len(wants))
			}
			for i, ev := range events {
				if got := (want{ev.ID, ev.MessageKey, ev.Account, ev.Conversation, ev.Kind}); got != wants[i] {
					t.Errorf("event %d = %+v; want %+v", i, got, wants[i])
				}
			}
		})
	}
}

func TestButtonReplyIsAMessage(t *testing.T) {
	t.Parallel()
	r := channeltest.Load(t, "testdata/01-batch-3-messages-and-1-status.http", "", now)
	c := mustDecode(t, mustExtract(t, string(r.Body))[2])
	if c.Text != "Confirm" || c.Sender != (domain.Sender{ID: "447700900177", Name: "Jonas"}) {
		t.Errorf("text %q of %+v; want Confirm of Jonas", c.Text, c.Sender)
	}
	if !strings.Contains(string(c.Raw), `"id":"confirm:77"`) {
		t.Errorf("raw %s does not tell what was clicked", c.Raw)
	}
}

func TestSignatureIsOfTheBytesAsSent(t *testing.T) {
	t.Parallel()
	// Meta signs the escaped form: the second signature is not that of the decoded text.
	e := open(t, appWide())
	for _, tt := range []struct {
		body, signature string
		genuine         bool
	}{
		{`{"object":"whatsapp_business_account","entry":[]}`, "07b38670fa0f17c96197dfa4b856c927ea9a6a8809b722e025edd80b507b142f", true},
		{`{"t":"Gr\u00fc\u00dfe"}`, "02f228e38f0352ebfc2712939bf7aae07636a614e1290c4dc863ed56d3a99f5e", true},
		{`{"t":"Grüße"}`, "02f228e38f0352ebfc2712939bf7aae07636a614e1290c4dc863ed56d3a99f5e", false},
		{`{"object":"whatsapp_business_account","entry":[]}`, "07B38670FA0F17C96197DFA4B856C927EA9A6A8809B722E025EDD80B507B142F", false},
	} {
		r := &channels.Request{Method: http.MethodPost, Header: http.Header{header: {"sha256=" + tt.signature}}, Body: []byte(tt.body), Now: now}
		if err := e.Verify(r); (err == nil) != tt.genuine {
			t.Errorf("Verify(%s) with %s: %v; want genuine %t", tt.body, tt.signature, err, tt.genuine)
		}
	}
}

func TestHandshake(t *testing.T) {
	t.Parallel()
	get := func(query string) *channels.Request {
		return &channels.Request{Method: http.MethodGet, URL: "https://hooks.example.com/in/whatsappcloud" + query, Header: http.Header{}, Now: now}
	}
	e := open(t, appWide())
	for _, query := range []string{
		"?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=" + token,
		"?hub.verify_token=meta%2Dtest-verify-token&hub.mode=subscribe&hub.challenge=1158201444&x=1",
	} {
		for range 2 { // it comes again whenever the settings change
			if err := e.Verify(get(query)); err != nil {
				t.Fatalf("Verify(%s): %v", query, err)
			}
			b, err := e.Extract(get(query))
			if err != nil || len(b.Events) != 0 || b.Reply == nil || b.Reply.ContentType != "text/plain" || string(b.Reply.Body) != "1158201444" {
				t.Errorf("Extract(%s) = %+v, %v; want the challenge as plain text", query, b, err)
			}
		}
	}
	for what, query := range map[string]string{
		"no query":      "",
		"no token":      "?hub.mode=subscribe&hub.challenge=1",
		"empty token":   "?hub.mode=subscribe&hub.challenge=1&hub.verify_token=",
		"another token": "?hub.mode=subscribe&hub.challenge=1&hub.verify_token=x",
		"prefix":        "?hub.mode=subscribe&hub.challenge=1&hub.verify_token=" + token[:8],
		"capitals":      "?hub.mode=subscribe&hub.challenge=1&hub.verify_token=" + strings.ToUpper(token),
		"two tokens":    "?hub.mode=subscribe&hub.challenge=1&hub.verify_token=x&hub.verify_token=" + token,
		"no mode":       "?hub.challenge=1&hub.verify_token=" + token,
		"another mode":  "?hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=" + token,
		"app secret":    "?hub.mode=subscribe&hub.challenge=1&hub.verify_token=" + secret,
		"broken query":  "?hub.mode=subscribe&hub.challenge=%zz&hub.verify_token=" + token,
	} {
		err := e.Verify(get(query))
		if !errors.Is(err, domain.ErrUnauthenticated) {
			t.Errorf("%s: %v; want one that wraps ErrUnauthenticated", what, err)
		}
		if err != nil && strings.Contains(err.Error(), token) {
			t.Errorf("%s: the error tells the token", what)
		}
	}
	signed := get("?hub.mode=subscribe&hub.challenge=1")
	sign(signed)
	if err := e.Verify(signed); !errors.Is(err, domain.ErrUnauthenticated) {
		t.Errorf("a GET with the signature of no body: %v; want one that wraps ErrUnauthenticated", err)
	}
	posted := get("?hub.mode=subscribe&hub.challenge=1&hub.verify_token=" + token)
	posted.Method, posted.Body = http.MethodPost, []byte(single(textMessage("wamid.A", "x")))
	if err := e.Verify(posted); !errors.Is(err, domain.ErrUnauthenticated) {
		t.Errorf("an unsigned POST with the token in its query: %v; want one that wraps ErrUnauthenticated", err)
	}
	if _, err := e.Extract(get("?hub.mode=subscribe&hub.verify_token=" + token)); !errors.Is(err, domain.ErrUnreadable) {
		t.Errorf("without a challenge: %v; want one that wraps ErrUnreadable", err)
	}
}

func TestVerifyTokenIsRotated(t *testing.T) {
	t.Parallel()
	c := appWide()
	c.Secrets["verify_token"] = []string{"new-token", token}
	e := open(t, c)
	for tok, genuine := range map[string]bool{"new-token": true, token: true, "old-token": false} {
		r := &channels.Request{Method: http.MethodGet, URL: "/in/whatsappcloud?hub.mode=subscribe&hub.challenge=1&hub.verify_token=" + tok}
		if err := e.Verify(r); (err == nil) != genuine {
			t.Errorf("%s: %v; want genuine %t", tok, err, genuine)
		}
	}
}
