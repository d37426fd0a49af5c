package logdispatch_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/admitone/admitone/adapters/logdispatch"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
	"github.com/admitone/admitone/ports/dispatchtest"
)

// A lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) received(t *testing.T) []dispatchtest.Received {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []dispatchtest.Received
	for s := bufio.NewScanner(bytes.NewReader(l.b.Bytes())); s.Scan(); {
		var line struct {
			ID      string      `json:"id"`
			Attempt int         `json:"attempt"`
			Kind    domain.Kind `json:"kind"`
		}
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			t.Errorf("a line is no JSON: %v\n%s", err, s.Bytes())
		}
		all = append(all, dispatchtest.Received{ID: line.ID, Attempt: line.Attempt, Kind: line.Kind})
	}
	return all
}

func TestDispatcherKeepsThePromisesOfItsPort(t *testing.T) {
	t.Parallel()
	dispatchtest.Run(t, func(t *testing.T) dispatchtest.Subject {
		t.Helper()
		log := &lines{}
		return dispatchtest.Subject{
			Dispatcher: logdispatch.New(slog.New(slog.NewJSONHandler(log, nil))),
			Received:   func() []dispatchtest.Received { return log.received(t) },
			Bare:       true,
		}
	})
}

func TestLineTellsNamesAndNothingThatAPersonWrote(t *testing.T) {
	t.Parallel()
	log := &lines{}
	d := logdispatch.New(slog.New(slog.NewJSONHandler(log, nil)))
	d.Dispatch(t.Context(), ports.Dispatch{
		ID: "id-1", Key: domain.Key{Tenant: "acme", Platform: "slack", Account: "T0", EventID: "A0/Ev0"},
		Channel: "slack", Kind: domain.Mention, MessageKey: "message:C0:1", Attempt: 2, ConversationID: "conv-1",
		URL: "http://user:hunter2@example.com",
		Content: domain.Content{
			Text: "private words", Sender: domain.Sender{ID: "U0", Name: "Ada Private"},
			Attachments: []domain.Attachment{{URL: "https://private.example", Name: "private.txt"}},
			Raw:         json.RawMessage(`{"private":1}`),
		},
	})
	got := log.b.String()
	if strings.Count(got, "\n") != 1 {
		t.Errorf("the log has %d lines; want 1", strings.Count(got, "\n"))
	}
	for _, want := range []string{
		`"level":"INFO"`, `"id":"id-1"`, `"kind":"mention"`, `"tenant":"acme"`, `"platform":"slack"`, `"channel":"slack"`,
		`"account":"T0"`, `"event_id":"A0/Ev0"`, `"message_key":"message:C0:1"`, `"conversation":"conv-1"`, `"attempt":2`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the line lacks %s: %s", want, got)
		}
	}
	for _, secret := range []string{"rivate", "hunter2"} {
		if strings.Contains(got, secret) {
			t.Errorf("the line tells %q: %s", secret, got)
		}
	}
}
