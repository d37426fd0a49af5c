package intake_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A store is a durable store in memory, by the clock of the test's bubble. away, if set, is
// asked before each call by its name; its error is what the call returns.
type store struct {
	mu       sync.Mutex
	away     func(call string) error
	receipts []*domain.Receipt // in the order of claims
	lanes    map[string]int64  // of receipts whose first attempt has not ended
	alive    map[string]time.Time
	counts   []ports.DeliveryCount
	calls    map[string]int
	pruned   []ports.PruneScope
	tenants  []string
	left     []string
	// beginTakes and takeUpTakes are how long the answers are on their way.
	beginTakes, takeUpTakes time.Duration
}

func newStore() *store {
	return &store{lanes: map[string]int64{}, alive: map[string]time.Time{}, calls: map[string]int{}}
}

func (s *store) call(name string) error {
	s.calls[name]++
	if s.away == nil {
		return nil
	}
	return s.away(name)
}

// fails sets what calls return from now on; nil ends that.
func (s *store) fails(away func(call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// called returns how often a method was called.
func (s *store) called(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[name]
}

func (s *store) find(id string) *domain.Receipt {
	for _, r := range s.receipts {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// look runs f while nothing changes.
func (s *store) look(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// by returns the receipt of an event id as it stands.
func (s *store) by(eventID string) domain.Receipt {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.receipts {
		if r.Key.EventID == eventID {
			return *r
		}
	}
	return domain.Receipt{}
}

// errApplied makes a claim stand whose answer is unknown.
var errApplied = fmt.Errorf("applied: %w", domain.ErrUnknown)

func (s *store) Claim(ctx context.Context, receipts []domain.Receipt) []ports.Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]ports.Claim, len(receipts))
	err := cmp.Or(s.call("Claim"), ctx.Err())
	for i, r := range receipts {
		if errors.Is(err, errApplied) {
			s.claim(r)
		}
		if err != nil {
			out[i].Err = err
			continue
		}
		if r.Payload.Body != nil && bytes.Contains(r.Payload.Body, []byte("refuse-me")) {
			out[i].Err = errors.New("refused")
			continue
		}
		out[i] = s.claim(r)
	}
	return out
}

func (s *store) claim(r domain.Receipt) ports.Claim {
	for _, w := range s.receipts {
		same := w.Key == r.Key
		message := r.MessageKey != "" && w.Key.Message(w.MessageKey) == r.Key.Message(r.MessageKey)
		if !same && !message {
			continue
		}
		lost := *w
		lost.Payload = domain.Payload{}
		return ports.Claim{Won: w.ID == r.ID, Receipt: lost, SameMessage: !same}
	}
	r.Seq = int64(len(s.receipts) + 1)
	r.Payload.Body = bytes.Clone(r.Payload.Body)
	s.receipts = append(s.receipts, &r)
	if r.State == domain.Claimed {
		s.lanes[r.ID] = r.Key.Lane(r.Conversation)
	}
	return ports.Claim{Won: true, Receipt: r}
}

func (s *store) Begin(_ context.Context, ref ports.Ref, lease time.Duration) (int, error) {
	var takes time.Duration
	s.look(func() { takes = s.beginTakes })
	defer time.Sleep(takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("Begin"); err != nil {
		return 0, err
	}
	r := s.find(ref.ID)
	if r != nil && ref.Doubt && r.Holder == ref.Holder && r.Attempt == ref.Attempt+1 && r.State == domain.Dispatching {
		return r.Attempt, nil
	}
	if r == nil || r.Holder != ref.Holder || r.Attempt != ref.Attempt || r.State != domain.Claimed && r.State != domain.Retrying {
		return 0, domain.ErrFenced
	}
	if lane, ok := s.lanes[r.ID]; ok {
		for _, earlier := range s.receipts {
			if l, ok := s.lanes[earlier.ID]; ok && l == lane && earlier.Seq < r.Seq {
				return 0, ports.ErrWaits
			}
		}
	}
	r.State, r.Attempt, r.BegunAt, r.LeaseUntil = domain.Dispatching, r.Attempt+1, time.Now(), time.Now().Add(lease)
	return r.Attempt, nil
}

func (s *store) Settle(_ context.Context, st ports.Settlement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("Settle"); err != nil {
		return err
	}
	r := s.find(st.ID)
	if r == nil || r.Holder != st.Holder || r.Attempt != st.Attempt || r.State != domain.Dispatching || !time.Now().Before(r.LeaseUntil) {
		return domain.ErrFenced
	}
	s.step(r, st.Step, st.Reason)
	return nil
}

func (s *store) step(r *domain.Receipt, step domain.Step, reason string) {
	delete(s.lanes, r.ID)
	r.State, r.DueAt, r.LastError, r.LeaseUntil = step.State, step.DueAt, reason, time.Time{}
	if step.State == domain.Handled {
		r.HandledAt = time.Now()
	}
}

func (s *store) Beat(_ context.Context, holder string, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("Beat"); err != nil {
		return err
	}
	s.alive[holder] = time.Now().Add(ttl)
	return nil
}

func (s *store) Leave(_ context.Context, holder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.alive, holder)
	s.left = append(s.left, holder)
	return s.call("Leave")
}

func (s *store) TakeUp(_ context.Context, holder string, mine func(string) bool, limit int, reserve time.Duration) ([]domain.Receipt, error) {
	var takes time.Duration
	s.look(func() { takes = s.takeUpTakes })
	defer time.Sleep(takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("TakeUp"); err != nil {
		return nil, err
	}
	var out []domain.Receipt
	for _, r := range s.receipts {
		if len(out) == limit {
			break
		}
		waits := r.State == domain.Claimed && (r.Holder == holder && !mine(r.ID) || r.Holder != holder && !time.Now().Before(s.alive[r.Holder]))
		due := r.State == domain.Retrying && !time.Now().Before(r.DueAt)
		if !waits && !due {
			continue
		}
		r.Holder = holder
		if due {
			r.DueAt = time.Now().Add(reserve)
		}
		out = append(out, *r)
	}
	return out, nil
}

func (s *store) Expired(_ context.Context, limit int) ([]domain.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("Expired"); err != nil {
		return nil, err
	}
	var out []domain.Receipt
	for _, r := range s.receipts {
		if len(out) < limit && r.State == domain.Dispatching && !time.Now().Before(r.LeaseUntil) {
			out = append(out, *r)
		}
	}
	return out, nil
}

func (s *store) Expire(_ context.Context, r domain.Receipt, step domain.Step, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("Expire"); err != nil {
		return err
	}
	now := s.find(r.ID)
	if now.State != domain.Dispatching || now.Attempt != r.Attempt || now.Holder != r.Holder {
		return domain.ErrFenced
	}
	s.step(now, step, reason)
	return nil
}

func (s *store) CountDeliveries(_ context.Context, counts []ports.DeliveryCount) ([]ports.DeliveryCount, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("CountDeliveries"); err != nil {
		return nil, err
	}
	var left []ports.DeliveryCount
	for _, c := range counts {
		at := slices.IndexFunc(s.receipts, func(r *domain.Receipt) bool { return r.Key.Digest() == c.Event })
		if at < 0 {
			left = append(left, c)
			continue
		}
		s.receipts[at].Deliveries += c.N
		s.receipts[at].VendorAttempt = max(s.receipts[at].VendorAttempt, c.VendorAttempt)
	}
	s.counts = append(s.counts, counts...)
	return left, nil
}

func (s *store) AcquireLease(context.Context, string, string, time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return true, s.call("AcquireLease")
}

func (s *store) Tenants(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tenants, s.call("Tenants")
}

func (s *store) Prune(_ context.Context, scope ports.PruneScope, _ int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(scope.Except)
	s.pruned = append(s.pruned, scope)
	return 0, s.call("Prune")
}

func (s *store) Ready(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call("Ready")
}

func (*store) Close() error { return nil }
