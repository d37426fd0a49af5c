package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// applicationSecret signs what the server posts to the application.
const applicationSecret = "whsec_YXBwbGljYXRpb24tc2VjcmV0LW9mLWUyZS10ZXN0cw=="

// A dispatch is one request that the application got.
type dispatch struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Tenant   string `json:"tenant"`
	Platform string `json:"platform"`
	Channel  string `json:"channel"`
	Account  string `json:"account"`
	EventID  string `json:"eventid"`
	Attempt  int    `json:"attempt"`
	Data     struct {
		Kind         string `json:"kind"`
		MessageKey   string `json:"message_key"`
		Conversation struct {
			ID         string `json:"id"`
			ExternalID string `json:"external_id"`
		} `json:"conversation"`
		Text string          `json:"text"`
		Raw  json.RawMessage `json:"raw"`
	} `json:"data"`

	began, ended time.Time // ended is zero while it runs
}

// A reaction is what the application does with one dispatch. The zero one takes it.
type reaction struct {
	status int             // 0 means 200
	after  time.Duration   // how long it works
	until  <-chan struct{} // what it waits for beside that
	hangUp bool            // it closes the connection without an answer
}

// An application receives dispatches, checks that they are to the contract, and keeps them.
// Safe for concurrent use.
type application struct {
	server   *httptest.Server
	verifier *standardwebhooks.Webhook

	mu     sync.Mutex
	got    []*dispatch
	faults []string
	react  func(dispatch) reaction
}

func newApplication(t testing.TB) *application {
	t.Helper()
	v, err := standardwebhooks.NewWebhook(applicationSecret)
	if err != nil {
		t.Fatalf("application: %v", err)
	}
	a := &application{verifier: v}
	a.server = httptest.NewServer(a)
	t.Cleanup(func() {
		a.server.Close()
		for _, f := range a.faults {
			t.Errorf("the application got what it can't trust: %s", f)
		}
	})
	return a
}

// reacts sets what the application does from now on.
func (a *application) reacts(react func(dispatch) reaction) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.react = react
}

func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // cut off: it was not received
	}
	d := &dispatch{began: time.Now()}
	fault := a.check(r, body, d)
	a.mu.Lock()
	if fault != "" {
		a.faults = append(a.faults, fault)
	}
	a.got = append(a.got, d)
	var does reaction
	if a.react != nil {
		does = a.react(*d)
	}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		d.ended = time.Now()
	}()
	if does.after > 0 {
		select {
		case <-time.After(does.after):
		case <-r.Context().Done():
			return
		}
	}
	if does.until != nil {
		select {
		case <-does.until:
		case <-r.Context().Done():
			return
		}
	}
	if does.hangUp {
		panic(http.ErrAbortHandler)
	}
	if does.status == 0 {
		does.status = http.StatusOK
	}
	w.WriteHeader(does.status)
}

// check reads a request into d and tells what is wrong with it.
func (a *application) check(r *http.Request, body []byte, d *dispatch) string {
	if err := a.verifier.Verify(body, r.Header); err != nil {
		return "signature: " + err.Error()
	}
	if err := json.Unmarshal(body, d); err != nil {
		return "body: " + err.Error()
	}
	d.Data.Text = strings.TrimSpace(d.Data.Text) // a mail ends with the end of a line
	if got := r.Header.Get("Content-Type"); got != "application/cloudevents+json" {
		return "content type " + got
	}
	if got := r.Header.Get("webhook-id"); got != d.ID || d.ID == "" {
		return fmt.Sprintf("webhook-id %q of event %q", got, d.ID)
	}
	if d.Type != "admitone."+d.Data.Kind || d.Tenant == "" || d.Platform == "" || d.Attempt < 1 {
		return fmt.Sprintf("event %+v", *d)
	}
	return ""
}

// dispatches returns what the application got so far, in the order in which it came.
func (a *application) dispatches() []dispatch {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]dispatch, len(a.got))
	for i, d := range a.got {
		all[i] = *d
	}
	return all
}

// working returns how many dispatches the application has not answered yet.
func (a *application) working() int {
	n := 0
	for _, d := range a.dispatches() {
		if d.ended.IsZero() {
			n++
		}
	}
	return n
}

// of returns the dispatches with that text.
func (a *application) of(text string) []dispatch {
	return slices.DeleteFunc(a.dispatches(), func(d dispatch) bool { return d.Data.Text != text })
}

// awaitDispatches waits until the application has got n or more.
func (a *application) awaitDispatches(t testing.TB, n int) {
	t.Helper()
	await(t, fmt.Sprintf("the application has %d dispatches", n), func() bool { return len(a.dispatches()) >= n })
}
