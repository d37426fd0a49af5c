package cli

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func newWebhookSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// An application receives the demo's events and counts what it does with them. It tells them
// apart by their text, which each of the demo's has for itself: so it need not believe the
// server about which events are the same.
type application struct {
	url      string
	server   *http.Server
	verifier *standardwebhooks.Webhook

	mu       sync.Mutex
	events   map[string]*begun
	badly    int                        // requests that were not the server's, or not to be read
	declines bool                       // it asks to come again later
	busy     map[string]<-chan struct{} // it takes its time over these
	told     func(channel, kind, text string)
}

// begun is what the application knows of one event.
type begun struct {
	ids      map[string]bool // webhook-ids that it came under
	began    int
	handled  int
	declined time.Time // the last time
}

func startApplication(ctx context.Context, secret string) (*application, error) {
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, fmt.Errorf("application: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("application: %w", err)
	}
	a := &application{
		url: "http://" + l.Addr().String() + "/events", verifier: verifier,
		events: map[string]*begun{}, busy: map[string]<-chan struct{}{},
	}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: demoTimeout}
	go func() { _ = a.server.Serve(l) }() // it ends by close
	return a, nil
}

func (a *application) close() {
	if a != nil {
		_ = a.server.Close() // its connections are of no more use
	}
}

// ServeHTTP handles one event.
func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 32<<20))
	var event struct {
		ID      string `json:"id"`
		Channel string `json:"channel"`
		Data    struct {
			Kind string `json:"kind"`
			Text string `json:"text"`
		} `json:"data"`
	}
	if err == nil {
		err = a.verifier.Verify(body, r.Header)
	}
	if err == nil {
		err = json.Unmarshal(body, &event)
	}
	if err != nil || event.ID != r.Header.Get(standardwebhooks.HeaderWebhookID) {
		a.mu.Lock()
		a.badly++
		a.mu.Unlock()
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	text := strings.TrimSpace(event.Data.Text)
	e, declines, busy := a.begin(text, event.ID)
	if declines {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if busy != nil {
		select {
		case <-busy:
		case <-r.Context().Done():
			return
		}
	}
	a.mu.Lock()
	e.handled++
	told := a.told
	a.mu.Unlock()
	if told != nil {
		told(event.Channel, event.Data.Kind, text)
	}
}

func (a *application) begin(text, id string) (e *begun, declines bool, busy <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e = a.events[text]; e == nil {
		e = &begun{ids: map[string]bool{}}
		a.events[text] = e
	}
	e.ids[id] = true
	e.began++
	if a.declines {
		e.declined = time.Now()
	}
	return e, a.declines, a.busy[text]
}

// decline makes the application ask for every event to come again later, or no longer.
func (a *application) decline(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.declines = on
}

// hold makes the application take until free over the event with that text.
func (a *application) hold(text string, free <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy[text] = free
}

// tell makes the application say what it handles from now on.
func (a *application) tell(told func(channel, kind, text string)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = told
}

// of returns what the application knows of the event with that text.
func (a *application) of(text string) begun {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.events[text]; e != nil {
		return begun{ids: maps.Clone(e.ids), began: e.began, handled: e.handled, declined: e.declined}
	}
	return begun{}
}

// count returns how many events the application has seen, and how many requests it refused.
func (a *application) count() (events, badly int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.events), a.badly
}
