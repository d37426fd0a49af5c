package load_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/admitone/admitone/app/bench/load"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/slack"
	"github.com/admitone/admitone/domain"
)

const secret = "0123456789abcdef0123456789abcdef"

func job() load.Job {
	return load.Job{
		Path: "/in/slack/bench", Secret: secret, Account: "T0BENCH01", Connections: 3, Duration: 5 * time.Second,
		First: 7, Events: 20, Conversations: 10,
	}
}

func TestRequestsAreAuthenticAndTheirEventsApart(t *testing.T) {
	t.Parallel()
	ep, err := slack.New().Open(channels.Credentials{Account: "T0BENCH01", Secrets: map[string][]string{"signing_secret": {secret}}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ids, messages, conversations := map[string]bool{}, map[string]bool{}, map[string]int{}
	for _, wire := range load.Requests(job(), now) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(wire)))
		if err != nil {
			t.Fatalf("the request is not HTTP: %v\n%s", err, wire)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatalf("the body is broken: %v", err)
		}
		if len(body) < 1400 || len(body) > 1600 {
			t.Errorf("the body has %d bytes; want some 1500", len(body))
		}
		req := &channels.Request{Method: r.Method, Header: r.Header, Body: body, Now: now}
		if err := ep.Verify(req); err != nil {
			t.Fatalf("Verify = %v", err)
		}
		batch, err := ep.Extract(req)
		if err != nil || len(batch.Events) != 1 {
			t.Fatalf("Extract = %v, %v; want one event", batch, err)
		}
		e := batch.Events[0]
		if e.Kind != domain.MessageCreated || e.Account != "T0BENCH01" {
			t.Errorf("event is %s for %s", e.Kind, e.Account)
		}
		ids[e.ID], messages[e.MessageKey] = true, true
		conversations[e.Conversation]++
	}
	if len(ids) != 20 || len(messages) != 20 || len(conversations) != 10 {
		t.Errorf("%d event ids, %d message keys, %d conversations; want 20, 20, 10", len(ids), len(messages), len(conversations))
	}
}

func TestRunSendsEachEventAndCountsTheAnswers(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	var once atomic.Int64
	seen := make(chan string, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, id, _ := strings.Cut(string(body), `"event_id":"`)
		seen <- id[:12]
		switch i := n.Add(1); {
		case i%4 == 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		case i%4 == 1:
			w.Header().Set("Admitone-Verdict", "admitted")
		case once.Add(1) == 1:
			_, _ = w.Write(bytes.Repeat([]byte("x"), 500))
		}
	}))
	defer s.Close()
	j := job()
	j.Addr = s.Listener.Addr().String()
	r, err := load.Run(j)
	if err != nil {
		t.Fatal(err)
	}
	if r.Answers["503"] != 5 || r.Answers["admitted"] != 5 || r.Answers["200"] != 10 || r.OK() != 15 {
		t.Errorf("answers = %v, of them OK %d", r.Answers, r.OK())
	}
	if r.Elapsed <= 0 || r.P50 <= 0 || r.P99 < r.P50 {
		t.Errorf("elapsed %s, p50 %s, p99 %s", r.Elapsed, r.P50, r.P99)
	}
	ids := map[string]bool{}
	close(seen)
	for id := range seen {
		ids[id] = true
	}
	if len(ids) != 20 {
		t.Errorf("%d events came; want 20", len(ids))
	}
}

func TestRunEndsAtItsTime(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	j := job()
	j.Addr, j.Again, j.Events, j.Duration = s.Listener.Addr().String(), true, 1, 300*time.Millisecond
	r, err := load.Run(j)
	if err != nil {
		t.Fatal(err)
	}
	if r.OK() < 2 || r.Elapsed < j.Duration {
		t.Errorf("%d answers in %s; want more than one turn in %s", r.OK(), r.Elapsed, j.Duration)
	}
}

func TestRunTellsOfAServerThatGoesAway(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer s.Close()
	j := job()
	j.Addr = s.Listener.Addr().String()
	if _, err := load.Run(j); err == nil {
		t.Error("Run = nil; want an error")
	}
}
