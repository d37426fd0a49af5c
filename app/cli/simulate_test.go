package cli_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/cfworker"
	"github.com/admitone/admitone/channels/twilio"
)

// A hook is a server that answers each delivery as answer says and keeps what it got.
type hook struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*channels.Request
}

func newHook(t *testing.T, answer func(n int, w http.ResponseWriter)) *hook {
	t.Helper()
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		h.requests = append(h.requests, &channels.Request{
			Method: r.Method, URL: h.URL + r.RequestURI, Header: r.Header, Body: body, Now: time.Now(),
		})
		n := len(h.requests)
		h.mu.Unlock()
		answer(n, w)
	}))
	t.Cleanup(h.Close)
	return h
}

// once admits the first delivery and takes all others for duplicates of it.
func once(n int, w http.ResponseWriter) {
	w.Header().Set("Admitone-Verdict", map[bool]string{true: "admitted", false: "duplicate"}[n == 1])
}

// callers returns the channels whose vendors call.
func callers() []channels.Channel {
	return slices.DeleteFunc(app.Channels(), channels.Channel.Polled)
}

func TestSimulatedDeliveriesAreGenuineAndOneEvent(t *testing.T) {
	t.Parallel()
	for _, c := range callers() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			h := newHook(t, once)
			got := admitone("simulate", c.Name, "--url", h.URL, "--retries", "2", "--race", "3", "--text", "Good morning")
			if got.code != 0 || !strings.Contains(got.stdout, "5 sent: 1 admitted, 4 duplicates, 0 refused") {
				t.Fatalf("simulate = %+v; want code 0 and a summary of 5 deliveries", got)
			}
			endpoint, err := c.Open(c.Example)
			if err != nil {
				t.Fatal(err)
			}
			ids, hints := map[string]bool{}, 0
			for _, r := range h.requests {
				to, _, _ := strings.Cut(r.URL, "?") // where some vendors' signatures stand
				if want := h.URL + "/in/" + c.Name + "/demo-" + c.Name; to != want {
					t.Errorf("sent to %s; want %s", to, want)
				}
				if err := endpoint.Verify(r); err != nil {
					t.Fatalf("not genuine: %v", err)
				}
				batch, err := endpoint.Extract(r)
				if err != nil || len(batch.Events) != 1 {
					t.Fatalf("Extract = %+v, %v; want one event", batch, err)
				}
				e := batch.Events[0]
				ids[e.ID+" "+e.MessageKey] = true
				hints = max(hints, e.VendorAttempt)
				if content, err := c.Decode(e); err != nil || strings.TrimSpace(content.Text) != "Good morning" {
					t.Errorf("Decode = %+v, %v; want the text", content, err)
				}
			}
			if len(ids) != 1 {
				t.Errorf("one run has the events %v; want one", ids)
			}
			if c.Name == "slack" && hints != 2 {
				t.Errorf("the highest retry count is %d; want 2", hints)
			}
		})
	}
}

// events returns event id and message key of each delivery to the example of c.
func (h *hook) events(t *testing.T, c channels.Channel) []string {
	t.Helper()
	endpoint, err := c.Open(c.Example)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range h.requests {
		batch, err := endpoint.Extract(r)
		if err != nil || len(batch.Events) != 1 {
			t.Fatalf("Extract = %+v, %v; want one event", batch, err)
		}
		all = append(all, batch.Events[0].ID+" "+batch.Events[0].MessageKey)
	}
	return all
}

func TestARunIsANewEventUnlessItsIDIsSaid(t *testing.T) {
	t.Parallel()
	for _, c := range callers() {
		h := newHook(t, once)
		admitone("simulate", c.Name, "--url", h.URL)
		admitone("simulate", c.Name, "--url", h.URL)
		admitone("simulate", c.Name, "--url", h.URL, "--event-id", "one")
		admitone("simulate", c.Name, "--url", h.URL, "--event-id", "one")
		admitone("simulate", c.Name, "--url", h.URL, "--event-id", "other")
		e := h.events(t, c)
		if e[0] == e[1] {
			t.Errorf("%s: two runs are one event: %s", c.Name, e[0])
		}
		if e[2] != e[3] {
			t.Errorf("%s: the same --event-id is %s and %s", c.Name, e[2], e[3])
		}
		if e[3] == e[4] {
			t.Errorf("%s: another --event-id is the same event: %s", c.Name, e[3])
		}
	}
}

func TestSimulateSendsAMailAsItIs(t *testing.T) {
	t.Parallel()
	const file = "../../channels/email/testdata/16-latin1-id.eml"
	mail, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	h := newHook(t, once)
	got := admitone("simulate", "cfworker", "--url", h.URL, "--eml", file, "--retries", "1")
	if got.code != 0 || !strings.Contains(got.stdout, "2 sent: 1 admitted, 1 duplicate, 0 refused") {
		t.Fatalf("simulate = %+v; want code 0 and a summary of 2 deliveries", got)
	}
	if !bytes.Equal(h.requests[0].Body, mail) {
		t.Errorf("sent %q; want the file", h.requests[0].Body)
	}
	if retry := h.requests[1].Body; !bytes.HasSuffix(retry, mail) || !bytes.HasPrefix(retry, []byte("Received: ")) {
		t.Errorf("the retry is %q; want the file after one more trace field", retry)
	}
	c := cfworker.New()
	endpoint, err := c.Open(c.Example)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range h.requests {
		if err := endpoint.Verify(r); err != nil {
			t.Errorf("not genuine: %v", err)
		}
	}
	if e := h.events(t, c); e[0] != e[1] {
		t.Errorf("a mail and its retry are %s and %s", e[0], e[1])
	}

	if got := admitone("simulate", "slack", "--url", h.URL, "--eml", file); got.code != 2 || !strings.Contains(got.stderr, "slack brings no mail") {
		t.Errorf("simulate slack --eml = %+v; want code 2", got)
	}
	if got := admitone("simulate", "cfworker", "--url", h.URL, "--eml", "no-such.eml"); got.code != 1 || !strings.Contains(got.stderr, "no-such.eml") {
		t.Errorf("simulate --eml without the file = %+v; want code 1", got)
	}
	if len(h.requests) != 2 {
		t.Errorf("%d requests; want 2", len(h.requests))
	}
}

func TestATwilioEventIDIsTheMessagesOwn(t *testing.T) {
	t.Parallel()
	h := newHook(t, once)
	const sid = "SM0123456789abcdef0123456789abcdef"
	admitone("simulate", "twilio", "--url", h.URL, "--event-id", sid)
	if body := string(h.requests[0].Body); !strings.Contains(body, "MessageSid="+sid) {
		t.Errorf("the body is %s; want MessageSid=%s", body, sid)
	}
}

func TestCopiesOfARaceAreUnderWayTogether(t *testing.T) {
	t.Parallel()
	const copies = 8
	var all sync.WaitGroup
	all.Add(copies)
	h := newHook(t, func(n int, w http.ResponseWriter) {
		all.Done()
		all.Wait() // for ever, if they came one after another
		once(n, w)
	})
	got := admitone("simulate", "telegram", "--url", h.URL, "--race", "8")
	if got.code != 0 || !strings.Contains(got.stdout, "8 sent: 1 admitted, 7 duplicates") {
		t.Errorf("simulate = %+v; want 8 deliveries", got)
	}
}

func TestSimulateSignsWithWhatItIsTold(t *testing.T) {
	t.Parallel()
	h := newHook(t, once)
	got := admitone("simulate", "twilio", "--url", h.URL+"/in/twilio/acme-sms?x=1", "--account", "AC00000000000000000000000000000b02",
		"--secret", "auth_token=other", "--public-url", "https://hooks.example.com")
	if got.code != 0 {
		t.Fatalf("simulate = %+v; want code 0", got)
	}
	r := h.requests[0]
	if want := h.URL + "/in/twilio/acme-sms?x=1"; r.URL != want {
		t.Errorf("sent to %s; want %s", r.URL, want)
	}
	r.URL = "https://hooks.example.com/in/twilio/acme-sms?x=1"
	endpoint, err := twilio.New().Open(channels.Credentials{
		Account: "AC00000000000000000000000000000b02", Secrets: map[string][]string{"auth_token": {"other"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := endpoint.Verify(r); err != nil {
		t.Errorf("not signed for the public address with the secret: %v", err)
	}
	if !strings.Contains(string(r.Body), "AC00000000000000000000000000000b02") {
		t.Errorf("the body is %s; want the account", r.Body)
	}
}

func TestSimulateFailsWhereTheServerDoes(t *testing.T) {
	t.Parallel()
	status := func(code int) func(int, http.ResponseWriter) {
		return func(_ int, w http.ResponseWriter) { w.WriteHeader(code) }
	}
	for name, tt := range map[string]struct {
		answer func(int, http.ResponseWriter)
		says   string
	}{
		"two admitted": {
			func(_ int, w http.ResponseWriter) { w.Header().Set("Admitone-Verdict", "admitted") },
			"2 copies of one event were admitted",
		},
		"wrong secret":    {status(http.StatusUnauthorized), "another secret (--secret)"},
		"no installation": {status(http.StatusNotFound), "account: T0ACME001"},
		"refused":         {status(http.StatusServiceUnavailable), "comes again later"},
		"redirect":        {status(http.StatusFound), "2 refused"},
		"retry refused": {
			func(n int, w http.ResponseWriter) {
				once(n, w)
				if n > 1 {
					w.WriteHeader(http.StatusInternalServerError)
				}
			},
			"1 admitted, 0 duplicates, 1 refused",
		},
		"cut off": {
			func(n int, w http.ResponseWriter) {
				if n > 1 {
					panic(http.ErrAbortHandler)
				}
				once(n, w)
			},
			"1 without an answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHook(t, tt.answer)
			got := admitone("simulate", "slack", "--url", h.URL, "--retries", "1", "--secret", "not-to-be-shown")
			if got.code != 1 || !strings.Contains(got.stdout+got.stderr, tt.says) {
				t.Errorf("simulate = %+v; want code 1 and %q", got, tt.says)
			}
			if strings.Contains(got.stdout+got.stderr, "not-to-be-shown") {
				t.Errorf("it shows the secret: %+v", got)
			}
		})
	}
}

func TestSimulateTellsThatNobodyListens(t *testing.T) {
	t.Parallel()
	h := newHook(t, once)
	h.Close()
	got := admitone("simulate", "slack", "--url", h.URL)
	if got.code != 1 || !strings.Contains(got.stderr, "connection refused") || !strings.Contains(got.stderr, "configs/quickstart.yaml") {
		t.Errorf("simulate = %+v; want code 1 and what to do", got)
	}
}
