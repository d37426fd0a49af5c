package slack_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/slack"
	"github.com/admitone/admitone/domain"
)

func FuzzExtract(f *testing.F) {
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		f.Add(load(f, strings.TrimSuffix(filepath.Base(file), ".http")).Body)
	}
	for _, seed := range []string{
		"", "{", "[]", `{"type":"event_callback","event":{"type":"message","channel":"\u0000","ts":1e400}}`,
		"{\"type\":\"x\",\"event_id\":\"\xff\"}", `{"type":"x","authorizations":[[{}]]}`, "payload={}", "payload=%7B%7D&payload=x", "command", strings.Repeat("[", 5000),
	} {
		f.Add([]byte(seed))
	}
	e := open(f, secret)
	f.Fuzz(func(t *testing.T, body []byte) {
		r := &channels.Request{Header: http.Header{}, Body: body, Now: signedAt}
		b, err := e.Extract(r)
		if err != nil {
			if !errors.Is(err, domain.ErrUnreadable) || len(b.Events) != 0 {
				t.Fatalf("Extract = %d events, %v", len(b.Events), err)
			}
			return
		}
		for _, ev := range b.Events {
			for _, id := range []string{ev.ID, ev.Account, ev.MessageKey, ev.Conversation} {
				if id != domain.StorableID(id) {
					t.Errorf("%q can't be stored", id)
				}
			}
			if ev.MessageKey != "" && ev.Kind != domain.MessageCreated {
				t.Errorf("%s has the message key %q", ev.Kind, ev.MessageKey)
			}
			c, err := slack.New().Decode(ev)
			if err != nil {
				t.Fatalf("Decode of what Extract has read: %v", err)
			}
			if c.Conversation.ExternalID != ev.Conversation {
				t.Errorf("content in %q, event in %q", c.Conversation.ExternalID, ev.Conversation)
			}
			if !json.Valid(c.Raw) || !utf8.Valid(c.Raw) {
				t.Errorf("raw is no JSON: %q", c.Raw)
			}
			if _, err := json.Marshal(c); err != nil {
				t.Errorf("content is no JSON: %v", err)
			}
		}
	})
}

func BenchmarkVerifyAndExtract(b *testing.B) {
	message := callback("Ev1", `{"type":"message","user":"U1","channel":"C1","ts":"1.2","event_ts":"1.2","text":"`+strings.Repeat("words ", 100)+
		`","blocks":[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"`+strings.Repeat("words ", 80)+`"}]}]}]}`)
	command, err := os.ReadFile("testdata/command_plain.http")
	if err != nil {
		b.Fatal(err)
	}
	_, form, _ := strings.Cut(string(command), "\n\n")
	for name, body := range map[string]string{"event": message, "command": form} {
		b.Run(name, func(b *testing.B) {
			e, r := open(b, secret), signed(body)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Verify(r); err != nil {
					b.Fatal(err)
				}
				if batch, err := e.Extract(r); err != nil || len(batch.Events) != 1 {
					b.Fatal(err)
				}
			}
		})
	}
}
