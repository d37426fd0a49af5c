package intake_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A cache is a fast store in memory. away, if set, is what its calls return.
type cache struct {
	mu   sync.Mutex
	away error
	m    map[domain.Digest]ports.Mark
	ttl  map[domain.Digest]time.Duration
}

func newCache() *cache {
	return &cache{m: map[domain.Digest]ports.Mark{}, ttl: map[domain.Digest]time.Duration{}}
}

func (c *cache) Seen(_ context.Context, key domain.Digest) (ports.Mark, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.m[key]
	return m, ok, c.away
}

func (c *cache) Remember(_ context.Context, key domain.Digest, content ports.Mark, ttl time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away == nil {
		c.m[key], c.ttl[key] = content, ttl
	}
	return c.away
}

// change runs f while nobody uses the cache.
func (c *cache) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// kept returns for how long a key was last remembered.
func (c *cache) kept(key domain.Digest) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ttl[key]
}

func (*cache) Ready(context.Context) error { return nil }
func (*cache) Close() error                { return nil }

// An application is a dispatcher that keeps what it gets and does with it what react says.
type application struct {
	mu    sync.Mutex
	got   []ports.Dispatch
	at    []time.Time
	react func(ctx context.Context, d ports.Dispatch) domain.Result
}

func (a *application) Dispatch(ctx context.Context, d ports.Dispatch) domain.Result {
	a.mu.Lock()
	a.got, a.at = append(a.got, d), append(a.at, time.Now())
	react := a.react
	a.mu.Unlock()
	if react == nil {
		return domain.Result{Outcome: domain.Taken}
	}
	return react(ctx, d)
}

func (*application) Close() error { return nil }

// reacts sets what is done with dispatches from now on.
func (a *application) reacts(react func(ctx context.Context, d ports.Dispatch) domain.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.react = react
}

// events returns the event ids that were dispatched, in order.
func (a *application) events() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := make([]string, len(a.got))
	for i, d := range a.got {
		ids[i] = cmp.Or(d.Key.EventID, "unnumbered")
	}
	return ids
}

// times returns when they were.
func (a *application) times() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.at)
}

// toy is a channel whose bodies are lines such as "id=1 in=room msg=m content=x try=2 to=account";
// all but id may be left out, and id too, for an event without a number.
func toy(name string, comesAgain bool) channels.Channel {
	return channels.Channel{
		Name: name, Platform: name, AppWide: true, MaxBody: 1 << 10,
		Acknowledge: channels.Reply{ContentType: "text/plain", Body: []byte("ok")},
		Vendor:      channels.Vendor{Deadline: 3 * time.Second, RetryAfter: 7 * time.Second, ComesAgain: comesAgain},
		Decode: func(e domain.Event) (domain.Content, error) {
			if bytes.Contains(e.Payload.Body, []byte("undecodable")) {
				return domain.Content{}, fmt.Errorf("%w: on purpose", domain.ErrUnreadable)
			}
			return domain.Content{Text: string(e.Payload.Body)}, nil
		},
	}
}

type toyEndpoint struct{}

func (toyEndpoint) Verify(r *channels.Request) error {
	if r.Header.Get("Proof") != "yes" {
		return domain.ErrUnauthenticated
	}
	return nil
}

func (toyEndpoint) Extract(r *channels.Request) (channels.Batch, error) {
	var b channels.Batch
	for line := range strings.Lines(string(r.Body)) {
		fields := map[string]string{}
		for field := range strings.FieldsSeq(line) {
			name, value, ok := strings.Cut(field, "=")
			if !ok {
				return b, fmt.Errorf("%w: %d fields", domain.ErrUnreadable, len(fields))
			}
			fields[name] = value
		}
		if fields["to"] == "unknown-recipient" {
			return b, domain.ErrUnknownRecipient
		}
		if fields["reply"] != "" {
			b.Reply = &channels.Reply{ContentType: "text/x", Body: []byte(fields["reply"])}
			continue
		}
		try, _ := strconv.Atoi(fields["try"])
		b.Events = append(b.Events, domain.Event{
			ID: fields["id"], Account: fields["to"], MessageKey: fields["msg"], Kind: domain.Other, Conversation: fields["in"],
			Digest: domain.DigestOf(fields["content"]), VendorAttempt: try, Payload: domain.Payload{Body: []byte(strings.TrimSpace(line))},
		})
	}
	return b, nil
}

// A bench is an engine between fakes.
type bench struct {
	*intake.Engine
	t       *testing.T
	store   *store
	cache   *cache
	app     *application
	journal *journal
	log     *logText
	metrics *prometheus.Registry
}

// A logText keeps what was logged.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (b *bench) logged() string {
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	return b.log.text.String()
}

// A setup is what a test wants otherwise than the bench has it.
type setup struct {
	store         *store
	config        intake.Config
	policy        func(*domain.ClaimPolicy)
	installations []intake.Installation // beside one and two, of tenants acme and globex
	journal       *journal
	polls         *polls
	kept          *kept         // installations of the database and the quarantine; nil: none
	opens         intake.Opener // of kept ones
	stale         bool          // housekeeping of kept ones fails
	alone         bool          // installation one is the only one of the configuration
	proof         string        // header of channel toy
	busy          int           // status of channel toy beyond a rate limit
}

func newBench(t *testing.T, s setup) *bench {
	t.Helper()
	b := &bench{
		t: t, store: s.store, cache: newCache(), app: new(application), journal: s.journal,
		log: new(logText), metrics: prometheus.NewRegistry(),
	}
	if b.store == nil {
		b.store = newStore()
	}
	policy := domain.DefaultPolicy()
	if s.policy != nil {
		s.policy(&policy)
	}
	ins := append([]intake.Installation{
		{ID: "one", Tenant: "acme", Channel: "toy", Account: "a1", Policy: policy, Endpoint: toyEndpoint{}},
		{ID: "two", Tenant: "globex", Channel: "toy", Account: "a2", Policy: policy, Endpoint: toyEndpoint{}},
		{ID: "once", Tenant: "acme", Channel: "shy", Account: "a3", Policy: policy, Endpoint: toyEndpoint{}},
	}, s.installations...)
	if s.alone {
		ins = ins[:1]
	}
	dir, err := intake.NewDirectory(policy, ins, map[string]intake.AppWide{"toy": {Endpoint: toyEndpoint{}}})
	if err != nil {
		t.Fatal(err)
	}
	shaped := toy("toy", true)
	shaped.Proof, shaped.Vendor.Busy = s.proof, s.busy
	s.config.Workers, s.config.Queue = cmp.Or(s.config.Workers, 8), cmp.Or(s.config.Queue, 100)
	s.config.MaxBody = cmp.Or(s.config.MaxBody, 1<<20)
	p := intake.Params{
		Config: s.config, Channels: []channels.Channel{shaped, toy("shy", false)}, Installations: dir,
		FastStore: b.cache, DurableStore: b.store, Dispatcher: b.app, Metrics: intake.NewMetrics(b.metrics),
		Logger: slog.New(slog.NewTextHandler(b.log, nil)),
	}
	if s.journal != nil {
		p.Journal = s.journal
	}
	if s.kept != nil {
		if s.opens == nil {
			s.opens = opens(nil)
		}
		var db interface {
			ports.Installations
			ports.Quarantine
		} = s.kept
		if s.stale {
			db = stale{s.kept}
		}
		p.Quarantine = db
		if err := dir.Extend(db, s.opens, p.Logger); err != nil {
			t.Fatal(err)
		}
	}
	if s.polls != nil {
		fed := toy("fed", true)
		fed.OpenPoll = func(channels.Credentials) (channels.Poll, error) { return channels.Poll{}, nil }
		p.Polls, p.Channels = s.polls, append(p.Channels, fed)
	}
	if b.Engine, err = intake.New(p); err != nil {
		t.Fatal(err)
	}
	return b
}

// start starts the engine; stop drains and closes it.
func (b *bench) start() *bench {
	b.t.Helper()
	if err := b.Start(b.t.Context()); err != nil {
		b.t.Fatalf("start: %v", err)
	}
	return b
}

func (b *bench) stop() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), time.Minute)
	defer cancel()
	if err := errors.Join(b.Drain(ctx), b.Close(ctx)); err != nil {
		b.t.Errorf("stop: %v", err)
	}
}

// sends delivers lines to installation "one", as one request.
func (b *bench) sends(lines ...string) ports.Answer { return b.sendsTo("toy", "one", lines...) }

func (b *bench) sendsTo(channel, installation string, lines ...string) ports.Answer {
	return b.Deliver(b.t.Context(), delivery(channel, installation, strings.Join(lines, "\n")))
}

func delivery(channel, installation, body string) ports.Delivery {
	return ports.Delivery{
		Channel: channel, Installation: installation, Method: http.MethodPost, Target: "/", Header: http.Header{"Proof": {"yes"}},
		Body: []byte(body), ReceivedAt: time.Now(),
	}
}

// wants fails the test unless a delivery of lines is answered with the status and the verdict.
func (b *bench) wants(status int, verdict string, lines ...string) {
	b.t.Helper()
	b.wantsAt("one", status, verdict, strings.Join(lines, "\n"))
}

// wantsAt is wants for an address of another installation. Whatever makes the vendor come again must
// say when.
func (b *bench) wantsAt(installation string, status int, verdict, body string) {
	b.t.Helper()
	a := b.sendsTo("toy", installation, body)
	if a.Status != status || a.Verdict != verdict {
		b.t.Errorf("%q to %q is answered with %d %q; want %d %q", body, installation, a.Status, a.Verdict, status, verdict)
	}
	again := time.Duration(0)
	if a.Status == http.StatusServiceUnavailable || a.Status == http.StatusTooManyRequests {
		again = 7 * time.Second
	}
	if a.RetryAfter != again {
		b.t.Errorf("%q to %q, answered with %d, is to come again after %s; want %s", body, installation, a.Status, a.RetryAfter, again)
	}
}

// counter returns the sum of a metric over those of its samples that have the label values.
func (b *bench) counter(name string, values ...string) float64 {
	b.t.Helper()
	families, err := b.metrics.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]bool{}
			for _, l := range m.GetLabel() {
				labels[l.GetValue()] = true
			}
			have := maps.Collect(func(yield func(string, bool) bool) {
				for _, v := range values {
					if !yield(v, labels[v]) {
						return
					}
				}
			})
			if f.GetName() != "admitone_"+name || slices.Contains(slices.Collect(maps.Values(have)), false) {
				continue
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// A journal is one in memory, of which size entries fit.
type journal struct {
	mu      sync.Mutex
	size    int
	next    uint64
	entries []ports.JournalEntry
}

func (j *journal) Append(_ context.Context, receipts []domain.Receipt) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.entries)+len(receipts) > j.size {
		return ports.ErrFull
	}
	for _, r := range receipts {
		j.next++
		r.Payload.Body = bytes.Clone(r.Payload.Body)
		j.entries = append(j.entries, ports.JournalEntry{Seq: j.next, Receipt: r})
	}
	return nil
}

func (j *journal) Oldest(_ context.Context, limit int) ([]ports.JournalEntry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries[:min(limit, len(j.entries))]), nil
}

func (j *journal) Remove(_ context.Context, entries []ports.JournalEntry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = slices.DeleteFunc(j.entries, func(e ports.JournalEntry) bool {
		return slices.ContainsFunc(entries, func(r ports.JournalEntry) bool { return r.Seq == e.Seq })
	})
	return nil
}

func (j *journal) Len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.entries)
}

func (*journal) Close() error { return nil }
