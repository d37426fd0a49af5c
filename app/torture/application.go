package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/admitone/admitone/app/child"
)

// applicationSecret signs what the servers send to the application.
const applicationSecret = "whsec_dG9ydHVyZS1hcHBsaWNhdGlvbi1zZWNyZXQtMDAwMDA="

// A mood is what the application does with everything for a while.
type mood uint32

const (
	calm      mood = iota // all is taken
	usual                 // some is declined, broken, cut, rejected or slow
	declining             // 503 to all
	breaking              // 500 to all
	sluggish              // all is slow
)

// An application receives what the servers dispatch, and fails at it. It notes each begin on disk
// before it answers.
type application struct {
	seed     uint64
	address  string
	log      *beginLog
	verifier *standardwebhooks.Webhook
	accuse   func(format string, a ...any)
	mood     atomic.Uint32
	begins   atomic.Int64

	mu     sync.Mutex
	server *http.Server // nil while it is dead
}

func startApplication(ctx context.Context, seed uint64, path string, accuse func(string, ...any)) (*application, error) {
	verifier, err := standardwebhooks.NewWebhook(applicationSecret)
	if err != nil {
		return nil, fmt.Errorf("application: %w", err)
	}
	a := &application{seed: seed, verifier: verifier, accuse: accuse}
	if a.address, err = child.FreePort(ctx); err != nil {
		return nil, err
	}
	if a.log, err = newBeginLog(path); err != nil {
		return nil, err
	}
	if err := a.start(ctx); err != nil {
		return nil, errors.Join(err, a.log.close())
	}
	return a, nil
}

func (a *application) url() string { return "http://" + a.address + "/events" }

// start makes the application listen, unless it does.
func (a *application) start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.server != nil {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.address)
	if err != nil {
		return fmt.Errorf("application: %w", err)
	}
	s := &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
	a.server = s
	go func() { _ = s.Serve(l) }() // it ends by die
	return nil
}

// die ends the application as a crash does: nothing listens, and all connections are reset.
func (a *application) die() {
	a.mu.Lock()
	s := a.server
	a.server = nil
	a.mu.Unlock()
	if s != nil {
		_ = s.Close() // its connections are to break
	}
}

func (a *application) close() error {
	a.die()
	return a.log.close()
}

// ServeHTTP takes one attempt.
func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 32<<20))
	if err != nil {
		return // cut before it was read whole: nothing has begun
	}
	var said struct {
		ID      string `json:"id"`
		Attempt uint16 `json:"attempt"`
		Data    struct {
			Text string `json:"text"`
		} `json:"data"`
	}
	if err := a.verifier.VerifyIgnoringTimestamp(body, r.Header); err != nil {
		a.accuse("the application got a request with a wrong signature: %v", err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	err = json.Unmarshal(body, &said)
	receipt, idErr := uuid.Parse(r.Header.Get(standardwebhooks.HeaderWebhookID))
	n, known := eventOf(said.Data.Text)
	if err != nil || idErr != nil || !known || said.ID != receipt.String() {
		a.accuse("the application got what nobody sent: webhook-id %q, id %q, text %.60q",
			r.Header.Get(standardwebhooks.HeaderWebhookID), said.ID, said.Data.Text)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	out, takes, status := a.decide(n, said.Attempt)
	if err := a.log.note(begin{receipt: receipt, event: n, attempt: said.Attempt, outcome: out}); err != nil {
		a.accuse("the application's log can't be written: %v", err)
	}
	a.begins.Add(1)
	if takes > 0 {
		t := time.NewTimer(takes)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			return
		}
	}
	if out == cut {
		reset(w)
		return
	}
	w.WriteHeader(status)
}

// decide says what becomes of an attempt.
func (a *application) decide(n uint32, attempt uint16) (out outcome, takes time.Duration, status int) {
	d := dice(a.seed, diceApplication, uint64(n), uint64(attempt))
	throw, work := d.IntN(100), time.Duration(d.IntN(20))*time.Millisecond
	if d.IntN(20) == 0 {
		work *= 20
	}
	switch mood(a.mood.Load()) {
	case calm:
		throw = 99
	case declining:
		throw = 0
	case breaking:
		throw = 6
	case sluggish:
		throw = 8
	case usual:
	}
	switch {
	case throw < 4:
		return declined, work, http.StatusServiceUnavailable
	case throw < 6:
		return declined, 0, http.StatusTooManyRequests
	case throw < 8:
		return broken, work, http.StatusInternalServerError
	case throw < 10:
		return slowly, dispatchTimeout + dispatchTimeout/2, http.StatusOK
	case throw < 12:
		return cut, work, 0
	case throw < 13:
		return rejected, 0, http.StatusBadRequest
	default:
		return taken, work, http.StatusOK
	}
}

// reset ends the connection of w without an answer.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // so that it is reset and not ended in order
	}
	_ = conn.Close() // it is to break
}
