package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// conversations is how many people write to each account of the demo. Events of one
// conversation are handled one after another.
const conversations = 8

// A fleet is the vendors of the demo.
type fleet struct {
	senders []*sender
	client  *http.Client
}

// A sender is one vendor, with what it has sent and what it was answered.
type sender struct {
	vendor

	mu     sync.Mutex
	events []*event
	balance
	slowest time.Duration
}

// A balance says what became of deliveries: sent is the sum of the others.
type balance struct{ sent, admitted, suppressed, unanswered int }

func (b balance) minus(o balance) balance {
	return balance{b.sent - o.sent, b.admitted - o.admitted, b.suppressed - o.suppressed, b.unanswered - o.unanswered}
}

func (b balance) plus(o balance) balance {
	return balance{b.sent + o.sent, b.admitted + o.admitted, b.suppressed + o.suppressed, b.unanswered + o.unanswered}
}

// An event is one that a vendor sends, however often. Its text is its own.
type event struct {
	message
	admitted int // deliveries that were
}

func newFleet(chs []channels.Channel) *fleet {
	f := &fleet{client: newVendorClient(raceCopies * len(chs))}
	for _, c := range chs {
		f.senders = append(f.senders, &sender{vendor: vendor{channel: c, cred: c.Example, client: f.client}})
	}
	return f
}

// close gives up the vendors' connections.
func (f *fleet) close() { f.client.CloseIdleConnections() }

// aim tells the vendors what address they were given.
func (f *fleet) aim(public string) {
	for _, s := range f.senders {
		s.publicURL, s.url = public, public+"/in/"+s.channel.Name+"/"+exampleID(s.channel.Name)
	}
}

// each runs do for every vendor at the same time.
func (f *fleet) each(ctx context.Context, do func(context.Context, *sender) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range f.senders {
		g.Go(func() error { return do(ctx, s) })
	}
	return g.Wait()
}

func (f *fleet) balance() balance {
	var sum balance
	for _, s := range f.senders {
		s.mu.Lock()
		sum = sum.plus(s.balance)
		s.mu.Unlock()
	}
	return sum
}

func (f *fleet) sent() int { return f.balance().sent }

// all returns every event so far.
func (f *fleet) all() []*event {
	var all []*event
	for _, s := range f.senders {
		all = slices.Concat(all, s.all())
	}
	return all
}

func (s *sender) all() []*event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// repeats is how many times the vendor sends an event again, as far as the demo has time for it.
func (s *sender) repeats() int { return min(max(1, len(s.channel.Vendor.Retries)), 3) }

// make returns n new events.
func (s *sender) make(n int) []*event {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		i := len(s.events) + 1
		s.events = append(s.events, &event{message: message{
			eventID: newEventID(), number: strconv.Itoa(i),
			from: strconv.Itoa(15550100 + i%conversations),
			text: fmt.Sprintf("message %d of the demo by %s", i, s.channel.Name),
		}})
	}
	return slices.Clone(s.events[len(s.events)-n:])
}

// errUnanswered is returned for a delivery that nobody answered.
var errUnanswered = errors.New("no answer")

// deliver sends one delivery of e and books what it was answered. Whatever is no verdict is an error.
func (s *sender) deliver(ctx context.Context, e *event, retry int) error {
	r, err := s.request(ctx, e.message, retry)
	if err != nil {
		return err
	}
	a, err := s.send(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	if err != nil {
		s.unanswered++
		return fmt.Errorf("%s: %w: %s", s.channel.Name, errUnanswered, why(err))
	}
	s.slowest = max(s.slowest, a.took)
	switch {
	case a.status == http.StatusOK && a.verdict == string(domain.Admitted):
		s.admitted++
		e.admitted++
	case a.status == http.StatusOK && a.verdict == string(domain.Duplicate):
		s.suppressed++
	default:
		return fmt.Errorf("%s: %q was answered %d %s", s.channel.Name, e.text, a.status, a.verdict)
	}
	return nil
}

// deliverAll sends delivery number retry of each of the events, several at a time.
func (s *sender) deliverAll(ctx context.Context, events []*event, retry int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(conversations)
	for _, e := range events {
		g.Go(func() error { return s.deliver(ctx, e, retry) })
	}
	return g.Wait()
}

// copies sends n first deliveries of e at the same moment.
func (s *sender) copies(ctx context.Context, e *event, n int) error {
	g, ctx := errgroup.WithContext(ctx)
	start := make(chan struct{})
	for range n {
		g.Go(func() error {
			<-start
			return s.deliver(ctx, e, 0)
		})
	}
	close(start)
	return g.Wait()
}

// forge sends n requests that somebody signed who does not know the secret, and returns how
// many were refused as not authentic.
func (s *sender) forge(ctx context.Context, n int) (refused int, err error) {
	v := s.vendor
	v.cred.Secrets = map[string][]string{}
	for name, list := range s.cred.Secrets {
		v.cred.Secrets[name] = []string{another(list[0])}
	}
	for range n {
		a, err := v.deliver(ctx, message{eventID: newEventID(), number: "1", from: "15550199", text: "forged"}, 0)
		if err != nil {
			return refused, fmt.Errorf("%s: %w", s.channel.Name, err)
		}
		if a.status == http.StatusUnauthorized {
			refused++
		}
	}
	return refused, nil
}

// another returns a secret of the same form as secret.
func another(secret string) string {
	b := []byte(secret)
	if middle := len(b) / 2; b[middle] == 'x' {
		b[middle] = 'y'
	} else {
		b[middle] = 'x'
	}
	return string(b)
}
