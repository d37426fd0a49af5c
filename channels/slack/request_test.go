package slack_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/slack"
	"github.com/admitone/admitone/domain"
)

const (
	secret = "0123456789abcdef0123456789abcdef"
	app    = "A0LARK7Q2XZ"
)

// signedAt is when the fixtures were signed.
var signedAt = time.Unix(1790000000, 0)

func credentials(secrets ...string) channels.Credentials {
	return channels.Credentials{Secrets: map[string][]string{"signing_secret": secrets}}
}

func open(t testing.TB, secrets ...string) channels.Endpoint {
	t.Helper()
	e, err := slack.New().Open(credentials(secrets...))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return e
}

// signature is computed here anew, from Slack's rule.
func signature(secret, timestamp, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "v0:%s:%s", timestamp, body)
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}

func sign(r *channels.Request, secret string) {
	timestamp := strconv.FormatInt(r.Now.Unix(), 10)
	r.Header.Set("X-Slack-Request-Timestamp", timestamp)
	r.Header.Set("X-Slack-Signature", signature(secret, timestamp, string(r.Body)))
}

// signed returns the genuine request with body.
func signed(body string) *channels.Request {
	r := &channels.Request{Method: http.MethodPost, URL: "https://hooks.example.com/in/slack", Header: http.Header{}, Body: []byte(body), Now: signedAt}
	sign(r, secret)
	return r
}

// load returns the fixture of that name as received when it was signed.
func load(t testing.TB, name string) *channels.Request {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name+".http"))
	if err != nil {
		t.Fatal(err)
	}
	head, body, found := strings.Cut(string(raw), "\n\n")
	if !found {
		t.Fatalf("%s: no empty line", name)
	}
	r := &channels.Request{Header: http.Header{}, Body: []byte(body), Now: signedAt}
	for i, line := range strings.Split(head, "\n") {
		if i == 0 {
			words := strings.Fields(line)
			r.Method, r.URL = words[0], "https://hooks.gateway.example"+words[1]
			continue
		}
		key, value, _ := strings.Cut(line, ": ")
		r.Header.Add(key, value)
	}
	return r
}

// extract verifies r and returns its batch.
func extract(t testing.TB, r *channels.Request) channels.Batch {
	t.Helper()
	e := open(t, secret)
	if err := e.Verify(r); err != nil {
		t.Fatalf("Verify: %v", err)
	}
	b, err := e.Extract(r)
	if err != nil {
		t.Fatalf("Extract: %v", err)
	}
	return b
}

// event returns the one event of r.
func event(t testing.TB, r *channels.Request) domain.Event {
	t.Helper()
	b := extract(t, r)
	if len(b.Events) != 1 {
		t.Fatalf("Extract: %d events; want 1", len(b.Events))
	}
	return b.Events[0]
}

// content returns what the application is told of the one event of r.
func content(t testing.TB, r *channels.Request) domain.Content {
	t.Helper()
	c, err := slack.New().Decode(event(t, r))
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	return c
}

// callback returns an event_callback with the inner event, an id and one authorization.
func callback(eventID, inner string) string {
	return `{"team_id":"T1","api_app_id":"` + app + `","event":` + inner + `,"type":"event_callback","event_id":"` + eventID +
		`","event_time":1789999999,"authorizations":[{"enterprise_id":null,"team_id":"T1","user_id":"U0SELF","is_bot":true,"is_enterprise_install":false}]}`
}
