package httpdispatch_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/admitone/admitone/adapters/httpdispatch"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
	"github.com/admitone/admitone/ports/dispatchtest"
)

const (
	secret   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	password = "hunter2"
)

func open(tb testing.TB, c httpdispatch.Config) *httpdispatch.Dispatcher {
	tb.Helper()
	d, err := httpdispatch.New(c)
	if err != nil {
		tb.Fatalf("New = %v; want nil", err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Errorf("Close() = %v; want nil", err)
		}
	})
	return d
}

// An application keeps what it is sent and answers as it is told.
type application struct {
	*httptest.Server
	mu       sync.Mutex
	received []dispatchtest.Received
	headers  []http.Header
	bodies   [][]byte
	answer   func(w http.ResponseWriter, r *http.Request)
}

func newApplication(tb testing.TB) *application {
	tb.Helper()
	a := &application{}
	a.Server = httptest.NewServer(a)
	tb.Cleanup(a.Close)
	return a
}

type wireEvent struct {
	ID      string    `json:"id"`
	Attempt int       `json:"attempt"`
	Time    time.Time `json:"time"`
	Data    struct {
		Kind         domain.Kind `json:"kind"`
		Conversation struct {
			ExternalID string `json:"external_id"`
			Thread     string `json:"thread"`
		} `json:"conversation"`
		Sender      domain.Sender       `json:"sender"`
		Text        string              `json:"text"`
		Attachments []domain.Attachment `json:"attachments"`
		Raw         json.RawMessage     `json:"raw"`
	} `json:"data"`
}

func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var e wireEvent
	if err := json.Unmarshal(body, &e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	a.headers = append(a.headers, r.Header.Clone())
	a.bodies = append(a.bodies, body)
	a.received = append(a.received, dispatchtest.Received{
		ID: e.ID, Attempt: e.Attempt, Kind: e.Data.Kind,
		Content: domain.Content{
			Conversation: domain.Conversation(e.Data.Conversation),
			Sender:       e.Data.Sender, Text: e.Data.Text, Attachments: e.Data.Attachments,
			Time: e.Time, Raw: e.Data.Raw,
		},
	})
	answer := a.answer
	a.mu.Unlock()
	if answer != nil {
		answer(w, r)
	}
}

func (a *application) Received() []dispatchtest.Received {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]dispatchtest.Received{}, a.received...)
}

func (a *application) answers(f func(w http.ResponseWriter, r *http.Request)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = f
}

func status(code int, header ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// cut writes something to the connection and ends it.
func cut(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, text)
		if tcp, ok := conn.(*net.TCPConn); ok && text == "" {
			_ = tcp.SetLinger(0) // a reset in place of an end
		}
		_ = conn.Close()
	}
}

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// closedAddress returns an address at which nobody listens.
func closedAddress(tb testing.TB) string {
	tb.Helper()
	return silentListener(tb, true)
}

// silentListener returns an address at which connections are taken and nothing is said.
func silentListener(tb testing.TB, closed bool) string {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if closed {
		_ = l.Close()
	} else {
		tb.Cleanup(func() { _ = l.Close() })
	}
	return l.Addr().String()
}

func situations(a *application) []dispatchtest.Situation {
	var all []dispatchtest.Situation
	answering := func(trouble dispatchtest.Trouble, name string, f func(http.ResponseWriter, *http.Request)) {
		all = append(all, dispatchtest.Situation{Name: name, Trouble: trouble, Arrange: func(*testing.T, *ports.Dispatch) { a.answers(f) }})
	}
	elsewhere := func(name string, url func(t *testing.T) string) {
		all = append(all, dispatchtest.Situation{Name: name, Trouble: dispatchtest.Unreachable, Arrange: func(t *testing.T, d *ports.Dispatch) {
			t.Helper()
			d.URL = url(t)
		}})
	}
	elsewhere("connection refused", func(t *testing.T) string {
		t.Helper()
		return "http://user:" + password + "@" + closedAddress(t)
	})
	elsewhere("name look-up", func(*testing.T) string { return "http://user:" + password + "@no-such-host.invalid/" })
	elsewhere("no TLS", func(*testing.T) string { return "https://" + a.Listener.Addr().String() })
	elsewhere("unknown certificate", func(t *testing.T) string {
		t.Helper()
		s := httptest.NewUnstartedServer(a)
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // it tells that its certificate was refused
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.URL
	})
	elsewhere("no address", func(*testing.T) string { return "ftp://user:" + password + "@example.com" })
	elsewhere("not a URL", func(*testing.T) string { return "http://user:" + password + "@exa mple.com\x7f" })
	for _, code := range []int{429, 503} {
		answering(dispatchtest.Busy, fmt.Sprint(code), status(code, "Retry-After", "1"))
	}
	answering(dispatchtest.Silent, "no answer", hang)
	for _, code := range []int{500, 501, 502, 504, 507, 599} {
		answering(dispatchtest.Broken, fmt.Sprint(code), status(code))
	}
	answering(dispatchtest.Broken, "reset", cut(""))
	answering(dispatchtest.Broken, "end within the status", cut("HTTP/1.1 20"))
	answering(dispatchtest.Broken, "end within the header", cut("HTTP/1.1 200 OK\r\nContent-Le"))
	answering(dispatchtest.Broken, "no HTTP", cut("nonsense\r\n\r\n"))
	for _, code := range []int{400, 401, 403, 404, 408, 409, 410, 413, 422, 425, 451, 300, 304} {
		answering(dispatchtest.Refusing, fmt.Sprint(code), status(code))
	}
	for _, code := range []int{301, 302, 303, 307, 308} {
		answering(dispatchtest.Refusing, fmt.Sprint(code), status(code, "Location", a.URL+"/elsewhere"))
	}
	answering(dispatchtest.Refusing, "307 without a place", status(307))
	answering(dispatchtest.Refusing, "302 to nonsense", status(302, "Location", "http://%zz"))
	return all
}

func TestDispatcherKeepsThePromisesOfItsPort(t *testing.T) {
	t.Parallel()
	dispatchtest.Run(t, func(t *testing.T) dispatchtest.Subject {
		t.Helper()
		a := newApplication(t)
		d, err := httpdispatch.New(httpdispatch.Config{
			URL:     "http://user:" + password + "@" + a.Listener.Addr().String() + "/events",
			Secrets: []string{secret},
		})
		if err != nil {
			t.Fatal(err)
		}
		return dispatchtest.Subject{
			Dispatcher: d, Received: a.Received, Situations: situations(a),
			Secrets: []string{secret, strings.TrimPrefix(secret, "whsec_"), password, a.Listener.Addr().String()},
		}
	})
}

func message() ports.Dispatch {
	return ports.Dispatch{
		ID:             "0192f000-0000-7000-8000-000000000001",
		Key:            domain.Key{Tenant: "acme", Platform: "slack", Account: "T0ACME001", EventID: "A0/Ev0"},
		Channel:        "slack",
		Kind:           domain.MessageCreated,
		MessageKey:     "message:C0GENERAL:1790000000.000100",
		Attempt:        1,
		ConversationID: "0192f000-0000-7000-8000-000000000002",
		ReceivedAt:     time.Date(2026, 11, 30, 12, 0, 5, 0, time.UTC),
		Content: domain.Content{
			Conversation: domain.Conversation{ExternalID: "C0GENERAL", Thread: "1790000000.000100"},
			Sender:       domain.Sender{ID: "U0"},
			Text:         "hello",
			Attachments:  []domain.Attachment{{URL: "https://f.example/1", Type: "image/png", Name: "1.png"}},
			Time:         time.Date(2026, 11, 30, 13, 0, 0, 0, time.FixedZone("", 3600)),
			Raw:          json.RawMessage(`{"type":"event_callback"}`),
		},
	}
}

func wantOutcome(tb testing.TB, d *httpdispatch.Dispatcher, event ports.Dispatch, want domain.Outcome) {
	tb.Helper()
	if got := d.Dispatch(tb.Context(), event); got.Outcome != want {
		tb.Errorf("Dispatch = %s, %q; want %s", got.Outcome, got.Reason, want)
	}
}

func TestEventHasTheFormOfTheContract(t *testing.T) {
	t.Parallel()
	const full = `{"specversion":"1.0","id":"0192f000-0000-7000-8000-000000000001","source":"/acme/slack/T0ACME001",
		"type":"admitone.message.created","subject":"C0GENERAL","time":"2026-11-30T12:00:00Z","datacontenttype":"application/json",
		"tenant":"acme","platform":"slack","channel":"slack","account":"T0ACME001","eventid":"A0/Ev0","attempt":1,
		"data":{"kind":"message.created","message_key":"message:C0GENERAL:1790000000.000100",
		"conversation":{"id":"0192f000-0000-7000-8000-000000000002","external_id":"C0GENERAL","thread":"1790000000.000100"},
		"sender":{"id":"U0","name":""},"text":"hello",
		"attachments":[{"url":"https://f.example/1","type":"image/png","name":"1.png","size":0}],"raw":{"type":"event_callback"}}}`
	const bare = `{"specversion":"1.0","id":"1","source":"/acme/email/desk@example.com%2F%20%3F%23%25","type":"admitone.other",
		"time":"2026-11-30T12:00:05Z","datacontenttype":"application/json",
		"tenant":"acme","platform":"email","channel":"cfworker","account":"desk@example.com/ ?#%","attempt":2,
		"data":{"kind":"other","message_key":"","conversation":{"external_id":"","thread":""},
		"sender":{"id":"","name":""},"text":"","attachments":[],"raw":null}}`
	for name, c := range map[string]struct {
		event ports.Dispatch
		want  string
	}{
		"full": {message(), full},
		"bare": {ports.Dispatch{
			ID: "1", Key: domain.Key{Tenant: "acme", Platform: "email", Account: "desk@example.com/ ?#%"}, Channel: "cfworker",
			Kind: domain.Other, Attempt: 2, ReceivedAt: time.Date(2026, 11, 30, 12, 0, 5, 0, time.UTC),
		}, bare},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApplication(t)
			wantOutcome(t, open(t, httpdispatch.Config{URL: a.URL}), c.event, domain.Taken)
			var got, want any
			if err := json.Unmarshal(a.bodies[0], &got); err != nil {
				t.Fatalf("the body is no JSON: %v\n%s", err, a.bodies[0])
			}
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the body is\n%s\nwant\n%s", a.bodies[0], c.want)
			}
			if got := a.headers[0].Get("Content-Type"); got != "application/cloudevents+json" {
				t.Errorf("Content-Type = %q", got)
			}
		})
	}
}

func TestFirstSecretSigns(t *testing.T) {
	t.Parallel()
	const second = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	a := newApplication(t)
	wantOutcome(t, open(t, httpdispatch.Config{URL: a.URL, Secrets: []string{secret, second}}), message(), domain.Taken)
	for _, c := range []struct {
		secret string
		valid  bool
	}{{secret, true}, {second, false}} {
		verifier, err := standardwebhooks.NewWebhook(c.secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.Verify(a.bodies[0], a.headers[0]); (err == nil) != c.valid {
			t.Errorf("Verify with %s = %v; want valid: %t", c.secret, err, c.valid)
		}
	}
	if got := a.headers[0].Get("webhook-id"); got != message().ID {
		t.Errorf("webhook-id = %q; want the receipt's id", got)
	}
}

// Who verifies by Standard Webhooks knows a repetition by this header.
func TestEachAttemptHasOneWebhookID(t *testing.T) {
	t.Parallel()
	a := newApplication(t)
	d := open(t, httpdispatch.Config{URL: a.URL, Secrets: []string{secret}})
	for attempt := 1; attempt <= 3; attempt++ {
		m := message()
		m.Attempt = attempt
		wantOutcome(t, d, m, domain.Taken)
		if got := a.headers[attempt-1].Get("webhook-id"); got != m.ID {
			t.Errorf("webhook-id of attempt %d = %q; want the receipt's id", attempt, got)
		}
		if got := a.Received()[attempt-1]; got.ID != m.ID || got.Attempt != attempt {
			t.Errorf("attempt %d is told as attempt %d of %q; want the receipt's id", attempt, got.Attempt, got.ID)
		}
	}
}

func TestWithoutASecretNothingIsSigned(t *testing.T) {
	t.Parallel()
	a := newApplication(t)
	wantOutcome(t, open(t, httpdispatch.Config{URL: a.URL}), message(), domain.Taken)
	if got := a.headers[0].Get("webhook-signature"); got != "" {
		t.Errorf("webhook-signature = %q; want none", got)
	}
	if got := a.headers[0].Get("webhook-id"); got != message().ID {
		t.Errorf("webhook-id = %q; want the receipt's id", got)
	}
}

func TestNoHeaderInvitesTheTransportToRepeat(t *testing.T) {
	t.Parallel()
	a := newApplication(t)
	wantOutcome(t, open(t, httpdispatch.Config{URL: a.URL}), message(), domain.Taken)
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if _, ok := a.headers[0][name]; ok {
			t.Errorf("%s is set: net/http sends such a POST again by itself", name)
		}
	}
}

func TestAnInstallationsOwnAddressComesFirst(t *testing.T) {
	t.Parallel()
	common, own := newApplication(t), newApplication(t)
	d := open(t, httpdispatch.Config{URL: common.URL})
	event := message()
	event.URL = "http://user:" + password + "@" + own.Listener.Addr().String() + "/acme?x=1"
	wantOutcome(t, d, event, domain.Taken)
	if len(common.Received()) != 0 || len(own.Received()) != 1 {
		t.Fatalf("%d events at the common address, %d at the own; want 0, 1", len(common.Received()), len(own.Received()))
	}
	r := http.Request{Header: own.headers[0]}
	if user, pass, _ := r.BasicAuth(); user != "user" || pass != password {
		t.Errorf("the address' user arrived as %q, %q", user, pass)
	}
}

func TestEventThatIsNoJSONIsRejected(t *testing.T) {
	t.Parallel()
	a := newApplication(t)
	event := message()
	event.Content.Raw = json.RawMessage(`{"a":`)
	wantOutcome(t, open(t, httpdispatch.Config{URL: a.URL}), event, domain.Rejected)
	if n := len(a.Received()); n != 0 {
		t.Errorf("%d events have arrived; want 0", n)
	}
}

func TestTimeoutIsAmbiguousOnceSentAndNotReceivedBefore(t *testing.T) {
	t.Parallel()
	a := newApplication(t)
	a.answers(hang)
	d := open(t, httpdispatch.Config{URL: a.URL, Timeout: 200 * time.Millisecond})
	wantOutcome(t, d, message(), domain.Ambiguous)
	// Its handshake never ends, so the request was never begun.
	event := message()
	event.URL = "https://" + silentListener(t, false)
	wantOutcome(t, d, event, domain.NotReceived)
}

// A kept connection that breaks after the request went out has perhaps delivered it, and
// net/http, which repeats such requests if it may, must not.
func TestKeptConnectionThatBreaksIsAmbiguousAndNotRepeated(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // the test is over
	var requests, conns atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			go func() {
				defer conn.Close() //nolint:errcheck // a test's end of a connection
				in := bufio.NewReader(conn)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					if requests.Add(1) > 1 {
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
				}
			}()
		}
	}()
	d := open(t, httpdispatch.Config{URL: "http://" + l.Addr().String()})
	wantOutcome(t, d, message(), domain.Taken)
	wantOutcome(t, d, message(), domain.Ambiguous)
	if r, c := requests.Load(), conns.Load(); r != 2 || c != 1 {
		t.Errorf("%d requests over %d connections; want 2 over 1", r, c)
	}
}

func TestEndlessAnswerIsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"fast": 0, "slow": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApplication(t)
			a.answers(func(w http.ResponseWriter, r *http.Request) {
				tick := time.NewTicker(max(pause, time.Nanosecond))
				defer tick.Stop()
				for r.Context().Err() == nil {
					if _, err := w.Write(make([]byte, 4096)); err != nil {
						return
					}
					_ = http.NewResponseController(w).Flush()
					<-tick.C
				}
			})
			begun := time.Now()
			wantOutcome(t, open(t, httpdispatch.Config{URL: a.URL}), message(), domain.Taken)
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("Dispatch took %s; want about a second at most", took)
			}
		})
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	a := newApplication(t)
	var conns sync.Map // by the address of the other end
	a.answers(func(w http.ResponseWriter, r *http.Request) {
		conns.Store(r.RemoteAddr, true)
		_, _ = w.Write(make([]byte, 10_000))
	})
	const workers = 8
	d := open(t, httpdispatch.Config{URL: a.URL, Workers: workers})
	for range 20 {
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() { wantOutcome(t, d, message(), domain.Taken) })
		}
		wg.Wait()
	}
	// The transport may dial for a request that is served by a freed connection meanwhile.
	n := 0
	conns.Range(func(any, any) bool { n++; return true })
	if n > 3*workers {
		t.Errorf("%d connections for %d workers", n, workers)
	}
}

func TestNewRefusesWhatCannotWorkAndTellsNoSecret(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]httpdispatch.Config{
		"scheme":          {URL: "ftp://user:hunter2@example.com"},
		"no host":         {URL: "http:///hunter2"},
		"no URL":          {URL: "http://user:hunter2@exa mple.com"},
		"secret":          {Secrets: []string{"whsec_hunter2!"}},
		"empty secret":    {Secrets: []string{""}},
		"prefix alone":    {Secrets: []string{"whsec_"}},
		"second secret":   {Secrets: []string{secret, "whsec_hunter2!"}},
		"negative time":   {Timeout: -1},
		"negative number": {Workers: -1},
	} {
		_, err := httpdispatch.New(c)
		if err == nil {
			t.Errorf("%s: New = nil; want an error", name)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: New tells the secret: %v", name, err)
		}
	}
}

func BenchmarkDispatch(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer server.Close()
	d := open(b, httpdispatch.Config{URL: server.URL, Secrets: []string{secret}})
	event := message()
	event.Content.Raw = json.RawMessage(`{"text":"` + strings.Repeat("x", 1500) + `"}`)
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			wantOutcome(b, d, event, domain.Taken)
		}
	})
}
