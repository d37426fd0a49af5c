package teams_test

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
	"github.com/admitone/admitone/channels/teams"
	"github.com/admitone/admitone/domain"
)

func FuzzExtract(f *testing.F) {
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := strings.Cut(string(raw), "\n\n")
		f.Add([]byte(body))
	}
	for _, seed := range []string{
		"", "[]", `{"type":"message","channelId":"msteams","id":1e999}`, `{"type":"message","channelId":"msteams","conversation":"{\"id\":1}"}`,
		`{"type":"message","channelId":"msteams","timestamp":"9999-12-31T23:59:59-14:00","attachments":[[],{"content":{"fileSize":-1},"contentUrl":"x"}]}`,
	} {
		f.Add([]byte(seed))
	}
	e := open(f, channels.Credentials{Settings: channels.Settings{"app_id": appID}})
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := e.Extract(&channels.Request{Method: http.MethodPost, Body: body, Now: now})
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
			c, err := teams.New().Decode(ev)
			if err != nil {
				t.Fatalf("Decode of what Extract has read: %v", err)
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
	m := newMicrosoft(b, keySet(jwk("own", "")))
	e, r := open(b, m.credentials()), request("own", now)
	b.SetBytes(int64(len(r.Body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Verify(r); err != nil {
			b.Fatal(err)
		}
		if batch, err := e.Extract(r); err != nil || len(batch.Events) != 1 {
			b.Fatal(err)
		}
	}
}
