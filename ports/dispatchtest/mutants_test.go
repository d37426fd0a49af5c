package dispatchtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
	"github.com/admitone/admitone/ports/dispatchtest"
)

const password = "hunter2"

// A fake is a right dispatcher, together with its application, of which each mutant breaks
// one part.
type fake struct {
	mu       sync.Mutex
	received []dispatchtest.Received
	trouble  dispatchtest.Trouble

	change  func(*ports.Dispatch)          // what arrives
	outcome func(*domain.Result)           // what is told
	arrives func(dispatchtest.Trouble) int // how often
	deaf    bool                           // does not look at its context
	mixed   bool                           // callers share one event between taking and sending it
	last    ports.Dispatch
}

func (f *fake) Dispatch(ctx context.Context, d ports.Dispatch) domain.Result {
	f.mu.Lock()
	trouble := f.trouble
	f.mu.Unlock()
	r := f.dispatch(ctx, d, trouble)
	f.outcome(&r)
	return r
}

func (f *fake) dispatch(ctx context.Context, d ports.Dispatch, trouble dispatchtest.Trouble) domain.Result {
	if ctx.Err() != nil {
		return domain.Result{Outcome: domain.NotReceived, Reason: "given up"}
	}
	f.change(&d)
	if f.mixed {
		f.mu.Lock()
		f.last = d
		f.mu.Unlock()
		runtime.Gosched()
		f.mu.Lock()
		d = f.last
		f.mu.Unlock()
	}
	f.mu.Lock()
	for range f.arrives(trouble) {
		f.received = append(f.received, dispatchtest.Received{ID: d.ID, Attempt: d.Attempt, Kind: d.Kind, Content: d.Content})
	}
	f.mu.Unlock()
	switch trouble {
	case dispatchtest.Unreachable:
		return domain.Result{Outcome: domain.NotReceived, Reason: "connection refused"}
	case dispatchtest.Busy:
		return domain.Result{Outcome: domain.Declined, Reason: "busy"}
	case dispatchtest.Broken:
		return domain.Result{Outcome: domain.Ambiguous, Reason: "broken"}
	case dispatchtest.Refusing:
		return domain.Result{Outcome: domain.Rejected, Reason: "refused"}
	case dispatchtest.Silent:
		if f.deaf {
			<-time.After(6 * time.Second)
		}
		<-ctx.Done()
		return domain.Result{Outcome: domain.Ambiguous, Reason: "timeout"}
	}
	return domain.Result{Outcome: domain.Taken}
}

func (f *fake) Close() error { return nil }

func (f *fake) subject() dispatchtest.Subject {
	s := dispatchtest.Subject{
		Dispatcher: f,
		Received: func() []dispatchtest.Received {
			f.mu.Lock()
			defer f.mu.Unlock()
			return append([]dispatchtest.Received{}, f.received...)
		},
		Secrets: []string{password},
	}
	for _, trouble := range []dispatchtest.Trouble{
		dispatchtest.Unreachable, dispatchtest.Busy, dispatchtest.Silent, dispatchtest.Broken, dispatchtest.Refusing,
	} {
		s.Situations = append(s.Situations, dispatchtest.Situation{
			Name: string(trouble), Trouble: trouble,
			Arrange: func(*testing.T, *ports.Dispatch) {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.trouble = trouble
			},
		})
	}
	return s
}

func newFake() *fake {
	return &fake{
		change:  func(*ports.Dispatch) {},
		outcome: func(*domain.Result) {},
		arrives: func(trouble dispatchtest.Trouble) int {
			if trouble == dispatchtest.Unreachable {
				return 0
			}
			return 1
		},
	}
}

func changesRaw(f func(json.RawMessage) json.RawMessage) func(*fake) {
	return func(s *fake) { s.change = func(d *ports.Dispatch) { d.Content.Raw = f(d.Content.Raw) } }
}

func tells(from, to domain.Outcome) func(*fake) {
	return func(f *fake) {
		f.outcome = func(r *domain.Result) {
			if r.Outcome == from {
				r.Outcome = to
			}
		}
	}
}

func adds(outcome domain.Outcome, text string) func(*fake) {
	return func(f *fake) {
		f.outcome = func(r *domain.Result) {
			if r.Outcome == outcome {
				r.Reason += text
			}
		}
	}
}

var mutants = []struct {
	name    string
	promise string // whose check must fail
	breaks  func(*fake)
}{
	{"sends twice", "TakenArrivesOnce", func(f *fake) { f.arrives = func(dispatchtest.Trouble) int { return 2 } }},
	{"says taken and sends nothing", "TakenArrivesOnce", func(f *fake) { f.arrives = func(dispatchtest.Trouble) int { return 0 } }},
	{"gives a reason for success", "TakenArrivesOnce", adds(domain.Taken, "fine")},
	{"numbers each attempt anew", "IDTravels", func(f *fake) {
		f.change = func(d *ports.Dispatch) { d.ID += strings.Repeat("'", d.Attempt-1) }
	}},
	{"forgets the attempt", "IDTravels", func(f *fake) { f.change = func(d *ports.Dispatch) { d.Attempt = 1 } }},
	{"compacts the payload", "PayloadUnchanged", changesRaw(func(raw json.RawMessage) json.RawMessage {
		var b bytes.Buffer
		_ = json.Compact(&b, raw)
		return b.Bytes()
	})},
	{"escapes HTML", "PayloadUnchanged", changesRaw(func(raw json.RawMessage) json.RawMessage {
		var b bytes.Buffer
		json.HTMLEscape(&b, raw)
		return b.Bytes()
	})},
	{"reads numbers as floats", "PayloadUnchanged", changesRaw(func(raw json.RawMessage) json.RawMessage {
		var v any
		if json.Unmarshal(raw, &v) != nil {
			return raw
		}
		b, _ := json.Marshal(v)
		return b
	})},
	{"cuts long payloads", "PayloadUnchanged", changesRaw(func(raw json.RawMessage) json.RawMessage { return raw[:min(len(raw), 64<<10)] })},
	{"trims the text", "PayloadUnchanged", func(f *fake) {
		f.change = func(d *ports.Dispatch) { d.Content.Text = strings.ReplaceAll(d.Content.Text, "\x00", "") }
	}},
	{"drops attachments", "PayloadUnchanged", func(f *fake) { f.change = func(d *ports.Dispatch) { d.Content.Attachments = nil } }},
	{"rounds the time", "PayloadUnchanged", func(f *fake) {
		f.change = func(d *ports.Dispatch) { d.Content.Time = d.Content.Time.Truncate(time.Second) }
	}},
	{"mixes callers up", "Concurrent", func(f *fake) { f.mixed = true }},
	{"says not received of what arrived", "EndedContextIsNotTaken", func(f *fake) {
		f.received = append(f.received, dispatchtest.Received{})
	}},
	{"calls a refused connection ambiguous", "Outcome/unreachable", tells(domain.NotReceived, domain.Ambiguous)},
	{"calls a time-out not received", "Outcome/silent", tells(domain.Ambiguous, domain.NotReceived)},
	{"calls a fault declined", "Outcome/broken", tells(domain.Ambiguous, domain.Declined)},
	{"calls busy rejected", "Outcome/busy", tells(domain.Declined, domain.Rejected)},
	{"calls a refusal ambiguous", "Outcome/refusing", tells(domain.Rejected, domain.Ambiguous)},
	{"takes everything", "Outcome/broken", tells(domain.Ambiguous, domain.Taken)},
	{"has an outcome of its own", "Outcome/refusing", tells(domain.Rejected, "failed")},
	{"tells no reason", "Outcome/busy", func(f *fake) { f.outcome = func(r *domain.Result) { r.Reason = "" } }},
	{"tells the secret", "Outcome/unreachable", adds(domain.NotReceived, " by "+password)},
	{"tells the text", "Outcome/refusing", func(f *fake) {
		var text string
		f.change = func(d *ports.Dispatch) { text = d.Content.Text }
		f.outcome = func(r *domain.Result) {
			if r.Outcome == domain.Rejected {
				r.Reason += text
			}
		}
	}},
	{"repeats what failed", "Outcome/broken", func(f *fake) {
		f.arrives = func(trouble dispatchtest.Trouble) int {
			if trouble == dispatchtest.Broken {
				return 2
			}
			return 1
		}
	}},
	{"does not heed its context", "ContextEndsIt/silent", func(f *fake) { f.deaf = true }},
}

// The test runs itself once for each mutant, in a process that must fail by the named promise,
// and once for the dispatcher that they are made from, in one that must not.
func TestKitCatches(t *testing.T) {
	const variable = "ADMITONE_DISPATCH_MUTANT"
	if mutant := os.Getenv(variable); mutant != "" {
		dispatchtest.Run(t, func(*testing.T) dispatchtest.Subject {
			f := newFake()
			for _, m := range mutants {
				if m.name == mutant {
					m.breaks(f)
				}
			}
			return f.subject()
		})
		return
	}
	run := func(t *testing.T, mutant string) (string, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKitCatches$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"="+mutant, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	t.Run("nothing in a right dispatcher", func(t *testing.T) {
		t.Parallel()
		if out, err := run(t, "none"); err != nil {
			t.Errorf("the kit refuses a right dispatcher: %v\n%s", err, out)
		}
	})
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, m.name)
			if err == nil || !strings.Contains(out, "--- FAIL: TestKitCatches/"+m.promise+" ") {
				t.Errorf("the kit passes a dispatcher that %s: %s did not fail (%v)\n%s", m.name, m.promise, err, out)
			}
		})
	}
}
