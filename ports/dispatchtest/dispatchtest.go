// Package dispatchtest holds the kit that each adapter of ports.Dispatcher passes: one named
// check for each promise, each on a fresh dispatcher. A failure tells the promise that was
// broken.
package dispatchtest

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// bound is how long a dispatch may take that its context has ended.
const bound = 5 * time.Second

// A Subject is a dispatcher with the application that it hands events to.
type Subject struct {
	Dispatcher ports.Dispatcher
	// Received returns what the application has taken so far. Safe for concurrent use.
	Received func() []Received
	// Bare says that the application learns an event's id and attempt only, as a log does.
	Bare bool
	// Situations are the ways in which the application can fail that this dispatcher can tell
	// apart; empty for one that has no network.
	Situations []Situation
	// Secrets may stand in no reason: signing secrets, passwords of addresses.
	Secrets []string
}

// Received is one event as the application got it.
type Received struct {
	ID      string
	Attempt int
	Kind    domain.Kind
	Content domain.Content // Raw byte by byte as it came
}

// A Trouble is a way in which an application fails.
type Trouble string

// The troubles.
const (
	Unreachable Trouble = "unreachable" // certainly gets nothing: not listening, no name, no handshake
	Busy        Trouble = "busy"        // expressly asks to come again later
	Silent      Trouble = "silent"      // takes the event and never answers: an end by context alone
	Broken      Trouble = "broken"      // takes the event and fails in a way that tells nothing
	Refusing    Trouble = "refusing"    // expressly does not want it
)

// outcomes is the table in section 7 of the contract.
var outcomes = map[Trouble]domain.Outcome{
	Unreachable: domain.NotReceived,
	Busy:        domain.Declined,
	Silent:      domain.Ambiguous,
	Broken:      domain.Ambiguous,
	Refusing:    domain.Rejected,
}

// A Situation is one case of a trouble.
type Situation struct {
	Name    string
	Trouble Trouble
	// Arrange brings it about for the dispatches that follow, and may change d for it.
	Arrange func(t *testing.T, d *ports.Dispatch)
}

// Run checks each promise of ports.Dispatcher. open returns a fresh subject whose application
// takes everything; the kit closes its dispatcher. A subject with situations must have one that
// is Unreachable and one that is Silent.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	check := func(name string, f func(t *testing.T, s Subject)) {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			defer func() {
				if err := s.Dispatcher.Close(); err != nil {
					t.Errorf("Close() = %v; want nil", err)
				}
			}()
			f(t, s)
		})
	}
	check("TakenArrivesOnce", takenArrivesOnce)
	check("IDTravels", idTravels)
	check("PayloadUnchanged", payloadUnchanged)
	check("Concurrent", concurrent)
	check("EndedContextIsNotTaken", endedContextIsNotTaken)

	situations := open(t)
	if err := situations.Dispatcher.Close(); err != nil {
		t.Errorf("Close() = %v; want nil", err)
	}
	if len(situations.Situations) == 0 {
		return
	}
	seen := map[Trouble]bool{}
	for i, situation := range situations.Situations {
		seen[situation.Trouble] = true
		check("Outcome/"+situation.Name, func(t *testing.T, s Subject) { outcome(t, s, s.Situations[i]) })
		if situation.Trouble == Silent {
			check("ContextEndsIt/"+situation.Name, func(t *testing.T, s Subject) { contextEndsIt(t, s, s.Situations[i]) })
		}
	}
	if !seen[Unreachable] || !seen[Silent] {
		t.Errorf("the situations hold %v; want at least one unreachable and one silent", seen)
	}
}

const secretText = "text of a message, which is nobody's business"

// event returns an ordinary dispatch; n tells them apart.
func event(n int) ports.Dispatch {
	number := strconv.Itoa(n)
	return ports.Dispatch{
		ID:             "01920000-0000-7000-8000-" + strings.Repeat("0", 12-len(number)) + number,
		Key:            domain.Key{Tenant: "acme", Platform: "slack", Account: "T0ACME001", EventID: "A0/Ev" + number},
		Channel:        "slack",
		Kind:           domain.MessageCreated,
		MessageKey:     "message:C0GENERAL:" + number,
		Attempt:        1,
		ConversationID: "01920000-0000-7000-8000-c00000000001",
		ReceivedAt:     time.Date(2026, 11, 30, 12, 0, 1, 0, time.UTC),
		Content: domain.Content{
			Conversation: domain.Conversation{ExternalID: "C0GENERAL", Thread: "1790000000.000100"},
			Sender:       domain.Sender{ID: "U0", Name: "Ada"},
			Text:         secretText + " " + number,
			Attachments:  []domain.Attachment{},
			Time:         time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
			Raw:          json.RawMessage(`{"n":` + number + `}`),
		},
	}
}

func dispatch(ctx context.Context, t *testing.T, s Subject, d ports.Dispatch) domain.Result {
	t.Helper()
	result := s.Dispatcher.Dispatch(ctx, d)
	switch result.Outcome {
	case domain.Taken:
		if result.Reason != "" {
			t.Errorf("Dispatch = taken with reason %q; want none", result.Reason)
		}
	case domain.NotReceived, domain.Declined, domain.Ambiguous, domain.Rejected:
		if result.Reason == "" {
			t.Errorf("Dispatch = %s without a reason", result.Outcome)
		}
	default:
		t.Errorf("Dispatch = %q; want one of the outcomes", result.Outcome)
	}
	for _, secret := range append([]string{secretText, d.Content.Sender.Name}, s.Secrets...) {
		if strings.Contains(result.Reason, secret) {
			t.Errorf("the reason %q tells %q", result.Reason, secret)
		}
	}
	if len(result.Reason) > 100 {
		t.Errorf("the reason has %d bytes; want a short one: %q", len(result.Reason), result.Reason)
	}
	return result
}

func wantTaken(ctx context.Context, t *testing.T, s Subject, d ports.Dispatch) {
	t.Helper()
	if result := dispatch(ctx, t, s, d); result.Outcome != domain.Taken {
		t.Errorf("Dispatch = %s, %q; want taken", result.Outcome, result.Reason)
	}
}

func takenArrivesOnce(t *testing.T, s Subject) {
	t.Helper()
	for n := range 3 {
		wantTaken(t.Context(), t, s, event(n))
		if got := len(s.Received()); got != n+1 {
			t.Errorf("%d events have arrived after %d were taken", got, n+1)
		}
	}
}

func idTravels(t *testing.T, s Subject) {
	t.Helper()
	d := event(1)
	for attempt := 1; attempt <= 3; attempt++ {
		d.Attempt = attempt
		wantTaken(t.Context(), t, s, d)
		got := s.Received()
		if len(got) != attempt {
			t.Fatalf("%d events have arrived after %d were taken", len(got), attempt)
		}
		if last := got[attempt-1]; last.ID != d.ID || last.Attempt != attempt {
			t.Errorf("arrived with id %s, attempt %d; want %s, %d", last.ID, last.Attempt, d.ID, attempt)
		}
	}
}

func payloadUnchanged(t *testing.T, s Subject) {
	t.Helper()
	if s.Bare {
		return
	}
	for n, raw := range []string{
		`{}`,
		`{"id":12345678901234567890,"big":1e400,"small":1.0,"zero":-0,"ts":"1790000000.000100"}`,
		`{"html":"<b>&amp;</b>","escaped":"\u003c\u2028\/","lines":"` + "\u2028\u2029" + `","nul":"\u0000"}`,
		"{ \"spaces\" : [ 1 ,\t2 ],\n \"twice\":1,\"twice\":2, \"Twice\":3 }",
		`{"smile":"😀","surrogates":"\ud83d\ude00","lone":"\ud83d","composed":"é","decomposed":"é"}`,
		`["no object"]`,
		`{"long":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		d := event(n)
		d.Content.Raw = json.RawMessage(raw)
		d.Content.Text = "<b>&amp;</b> \"quoted\" \\ \u2028 \x00\t\r\n 😀 é"
		d.Content.Sender = domain.Sender{ID: "U<1>", Name: "Zoë & \"Co\""}
		d.Content.Attachments = []domain.Attachment{{URL: "https://a.example/?a=1&b=2", Type: "image/png", Name: "ü <1>.png", Size: 1 << 40}}
		d.Content.Time = time.Date(2026, 11, 30, 13, 0, 0, 123456000, time.FixedZone("", 3600))
		wantTaken(t.Context(), t, s, d)
		received := s.Received()
		if len(received) != n+1 {
			t.Fatalf("%d events have arrived after %d were taken", len(received), n+1)
		}
		got, want := received[n].Content, d.Content
		if !bytes.Equal(got.Raw, want.Raw) {
			t.Errorf("raw has arrived as %.200s; want %.200s", got.Raw, want.Raw)
		}
		if !got.Time.Equal(want.Time) {
			t.Errorf("time has arrived as %s; want %s", got.Time, want.Time)
		}
		got.Raw, got.Time, want.Raw, want.Time = nil, time.Time{}, nil, time.Time{}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("content has arrived as %+v; want %+v", got, want)
		}
		if received[n].Kind != d.Kind {
			t.Errorf("kind has arrived as %q; want %q", received[n].Kind, d.Kind)
		}
	}
}

func concurrent(t *testing.T, s Subject) {
	t.Helper()
	const callers, each = 32, 10
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range each {
				wantTaken(t.Context(), t, s, event(caller*each+i))
			}
		})
	}
	wg.Wait()
	times := map[string]int{}
	for _, got := range s.Received() {
		times[got.ID]++
		for n := range callers * each {
			if want := event(n); want.ID == got.ID && !s.Bare && (got.Content.Text != want.Content.Text || !bytes.Equal(got.Content.Raw, want.Content.Raw)) {
				t.Errorf("%s has arrived with another's content: %q, %s", got.ID, got.Content.Text, got.Content.Raw)
			}
		}
	}
	for n := range callers * each {
		if got := times[event(n).ID]; got != 1 {
			t.Errorf("%s has arrived %d times; want 1", event(n).ID, got)
		}
	}
}

func endedContextIsNotTaken(t *testing.T, s Subject) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	begun := time.Now()
	result := dispatch(ctx, t, s, event(1))
	if took := time.Since(begun); took > bound {
		t.Errorf("Dispatch with an ended context took %s; want an end at once", took)
	}
	// A dispatcher without a network may be done before it could look.
	arrived := len(s.Received())
	if result.Outcome == domain.Taken && arrived != 1 || result.Outcome == domain.NotReceived && arrived != 0 {
		t.Errorf("Dispatch with an ended context = %s, and %d events have arrived", result.Outcome, arrived)
	}
}

func outcome(t *testing.T, s Subject, situation Situation) {
	t.Helper()
	d := event(1)
	situation.Arrange(t, &d)
	ctx := t.Context()
	if situation.Trouble == Silent {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
	}
	result := dispatch(ctx, t, s, d)
	if want := outcomes[situation.Trouble]; result.Outcome != want {
		t.Errorf("Dispatch to an application that is %s = %s, %q; want %s", situation.Trouble, result.Outcome, result.Reason, want)
	}
	arrived := len(s.Received())
	if arrived > 1 {
		t.Errorf("one Dispatch arrived %d times; want no retry within", arrived)
	}
	if result.Outcome == domain.NotReceived && arrived > 0 {
		t.Errorf("Dispatch = %s, %q, and the event has arrived", result.Outcome, result.Reason)
	}
}

func contextEndsIt(t *testing.T, s Subject, situation Situation) {
	t.Helper()
	d := event(1)
	situation.Arrange(t, &d)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	begun := time.Now()
	result := dispatch(ctx, t, s, d)
	if took := time.Since(begun); took > bound {
		t.Errorf("Dispatch took %s after its context had ended; want an end at once", took)
	}
	if result.Outcome != domain.Ambiguous && result.Outcome != domain.NotReceived {
		t.Errorf("Dispatch whose context ended = %s; want ambiguous", result.Outcome)
	}
}
