package slack_test

import (
	"io"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/slack"
	"github.com/admitone/admitone/domain"
)

func simulated(t *testing.T, s channels.Simulation) (domain.Event, domain.Content, string) {
	t.Helper()
	h, err := slack.New().Simulate(credentials(secret, "old"), s)
	if err != nil {
		t.Fatalf("Simulate: %v", err)
	}
	if h.URL.String() != s.URL {
		t.Errorf("URL %s; want %s", h.URL, s.URL)
	}
	body, err := io.ReadAll(h.Body)
	if err != nil {
		t.Fatal(err)
	}
	r := &channels.Request{Method: h.Method, URL: s.URL, Header: h.Header, Body: body, Now: s.Now}
	return event(t, r), content(t, r), string(body)
}

func TestSimulatedRequestIsGenuine(t *testing.T) {
	t.Parallel()
	s := channels.Simulation{
		URL: "http://127.0.0.1:8080/in/slack", Account: "T0ACME001", EventID: "Ev7", Message: "7", From: "U1", Text: "hello <é>", Now: signedAt,
	}
	first, c, body := simulated(t, s)
	if first.Kind != domain.MessageCreated || first.Account != "T0ACME001" || first.MessageKey == "" || first.VendorAttempt != 0 {
		t.Errorf("got %+v", first)
	}
	if c.Text != "hello <é>" || c.Sender.ID != "U1" || c.Conversation.ExternalID != first.Conversation {
		t.Errorf("got %+v", c)
	}

	retry := s
	retry.Retry, retry.Now = 2, s.Now.Add(time.Hour)
	again, _, sameBody := simulated(t, retry)
	if again.ID != first.ID || again.Digest != first.Digest || again.VendorAttempt != 2 || body != sameBody {
		t.Errorf("the retry is not byte for byte the same event: %+v", again)
	}

	phantom := s
	phantom.EventID = "8"
	if got, _, _ := simulated(t, phantom); got.ID == first.ID || got.MessageKey != first.MessageKey || got.Digest != first.Digest {
		t.Errorf("another event id of the same message gives %q %q %s", got.ID, got.MessageKey, got.Digest)
	}
	next := s
	next.Message, next.From = "8", "U2"
	if got, _, _ := simulated(t, next); got.MessageKey == first.MessageKey || got.Conversation == first.Conversation {
		t.Errorf("another message of another person gives %q in %q", got.MessageKey, got.Conversation)
	}
	org := s
	org.Account = "E0ORG"
	if got, _, _ := simulated(t, org); got.Account != "E0ORG" {
		t.Errorf("account %q; want the organisation's", got.Account)
	}
}

func TestSimulateNeedsASecret(t *testing.T) {
	t.Parallel()
	if _, err := slack.New().Simulate(channels.Credentials{}, channels.Simulation{Now: signedAt}); err == nil {
		t.Error("Simulate without a secret succeeds")
	}
}
