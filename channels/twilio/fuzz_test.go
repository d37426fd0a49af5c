package twilio_test

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/admitone/admitone/channels/twilio"
	"github.com/admitone/admitone/domain"
)

// FuzzExtract checks that whatever Twilio signs gives events that can be stored, decoded and
// dispatched, or is told to be unreadable, and the same at the second reading.
func FuzzExtract(f *testing.F) {
	for _, body := range []string{
		"MessageSid=SM1&SmsStatus=received&Body=+a+%F0%9F%98%80&From=%2B1&To=%2B2&NumMedia=1&MediaUrl0=x",
		"SmsSid=SM1&SmsStatus=sent&ErrorCode=30003", "&&;=%zz%0&a=%", "Body=%00%E9", "=", "%=%%&%2", "",
		`[{"id":"EZ1","type":"com.twilio.messaging.inbound-message.received","data":{"messageSid":"SM1","from":"1","to":"2","body":"x"}},7,null]`,
		`{"id":1e999999,"data":[{"accountSid":"x"}]}`, `{"id":"\ud800","data":"\u0000"}`, "{\"id\":\"\xff\"}", "[[[[[[", "null",
	} {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	e := open(f, credentials(token))
	f.Fuzz(func(t *testing.T, body []byte, form bool) {
		r := postJSON(string(body))
		if form {
			r.Header.Set("Content-Type", formType)
		}
		b, err := e.Extract(r)
		if err != nil {
			if !errors.Is(err, domain.ErrUnreadable) {
				t.Errorf("error %v", err)
			}
			return
		}
		again, err := e.Extract(r)
		if err != nil || len(again.Events) != len(b.Events) {
			t.Fatalf("second reading: %d events of %d, error %v", len(again.Events), len(b.Events), err)
		}
		for i, ev := range b.Events {
			if a := again.Events[i]; a.ID != ev.ID || a.Digest != ev.Digest || a.MessageKey != ev.MessageKey {
				t.Errorf("second reading: %+v, the first %+v", a, ev)
			}
			if ev.ID == "" || ev.Kind == "" || ev.Digest.IsZero() {
				t.Errorf("event %+v", ev)
			}
			for _, id := range []string{ev.ID, ev.MessageKey, ev.Conversation} {
				if domain.StorableID(id) != id {
					t.Errorf("%q can't be stored", id)
				}
			}
			c, err := twilio.New().Decode(ev)
			if err != nil {
				t.Fatalf("Decode(%+v): %v", ev, err)
			}
			if !json.Valid(c.Raw) || !utf8.Valid(c.Raw) || !utf8.ValidString(c.Text) || !utf8.ValidString(c.Sender.ID) || !utf8.ValidString(c.Sender.Name) {
				t.Errorf("content %+v", c)
			}
			if c.Conversation.ExternalID != ev.Conversation {
				t.Errorf("conversation %q, extracted %q", c.Conversation.ExternalID, ev.Conversation)
			}
		}
	})
}

func BenchmarkVerifyAndExtract(b *testing.B) {
	const body = "SmsMessageSid=SM5b1f0c9d2e7a4836b0d4c8e1f2a39577&NumMedia=0&ProfileName=Noor+Haddad&MessageType=text" +
		"&SmsSid=SM5b1f0c9d2e7a4836b0d4c8e1f2a39577&WaId=447700900123&SmsStatus=received&Body=+Gr%C3%BC%C3%9Fe%21+2+%2B+2+%3D+4+%F0%9F%98%80+" +
		"&To=whatsapp%3A%2B14155550100&NumSegments=1&ReferralNumMedia=0&MessageSid=SM5b1f0c9d2e7a4836b0d4c8e1f2a39577" +
		"&AccountSid=AC0000000000000000000000000000a001&From=whatsapp%3A%2B447700900123&ApiVersion=2010-04-01" +
		"&ChannelMetadata=%7B%22type%22%3A%22whatsapp%22%2C%22data%22%3A%7B%22context%22%3A%7B%22ProfileName%22%3A%22Noor+Haddad%22%2C%22WaId%22%3A%22447700900123%22%7D%7D%7D"
	e := open(b, credentials(token))
	r := post(b, address, body)
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Verify(r); err != nil {
			b.Fatal(err)
		}
		if _, err := e.Extract(r); err != nil {
			b.Fatal(err)
		}
	}
}
