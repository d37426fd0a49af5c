package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A Store is all sides of one adapter: what the server does with receipts, and what people see.
type Store interface {
	ports.DurableStore
	ports.Ledger
	ports.Conversations
}

// A Subject is a store on a fresh, empty database. Its clock may differ from the test's by less
// than a minute.
type Subject struct {
	Store Store
	// Other is a second handle on the same database, as another instance has it. It may be
	// nil; then the promises about several instances are checked within one.
	Other Store
}

// Durable checks each promise of ports.DurableStore, ports.Ledger and ports.Conversations with one
// subtest, each on a store of its own from open. The kit closes what it opens. Run it with -race: some promises
// are about concurrency. What it asks of time is that things happen in the end, never how fast.
func Durable(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	promises := slices.Concat(claimPromises, progressPromises, recoverPromises, prunePromises, ledgerPromises,
		conversationPromises, otherPromises)
	try(t, promises, func(t *testing.T, ctx context.Context) *trial {
		s := open(t)
		k := &trial{T: t, ctx: ctx, store: s.Store, other: s.Other}
		t.Cleanup(func() { k.close(s.Store) })
		if k.other == nil {
			k.other = k.store
		} else {
			t.Cleanup(func() { k.close(s.Other) })
		}
		return k
	})
}

// A trial is the check of one promise. Its helpers end it if what they prepare fails.
type trial struct {
	*testing.T
	ctx          context.Context //nolint:containedctx // of this one check
	store, other Store
}

func (k *trial) close(s Store) {
	k.Helper()
	if err := s.Close(); err != nil {
		k.Errorf("Close() = %v; want nil", err)
	}
}

// handles are the two sides from which a check that concerns several instances comes.
func (k *trial) handles() [2]Store { return [2]Store{k.store, k.other} }

// Holders of the checks.
const (
	holder  = "instance-1"
	another = "instance-2"
)

// event returns a receipt to be claimed, in a conversation of its own.
func event(id string) domain.Receipt {
	now := time.Now().Truncate(time.Microsecond)
	return domain.Receipt{
		ID:           idAt(now),
		Key:          domain.Key{Tenant: "acme", Platform: "slack", Account: "T1", EventID: id},
		Channel:      "slack",
		Installation: "main",
		MessageKey:   "message of " + id,
		Kind:         domain.MessageCreated,
		Conversation: "conversation of " + id,
		Digest:       domain.DigestOf("content", id),
		Guarantee:    domain.AtMostOnce,
		State:        domain.Claimed,
		ClaimedAt:    now,
		Holder:       holder,
		Payload:      domain.Payload{MediaType: "application/json", Body: []byte(`{"event":"` + id + `"}`)},
	}
}

// eventIn returns a receipt to be claimed, in a conversation that is shared.
func eventIn(conversation, id string) domain.Receipt {
	r := event(id)
	r.Conversation = conversation
	return r
}

// idAt returns a receipt id as it is drawn at a time; of equal times a later one is greater.
func idAt(at time.Time) string {
	u := uuid.Must(uuid.NewV7())
	ms := at.UnixMilli()
	if time.Since(at) < time.Minute {
		return u.String()
	}
	for i := 5; i >= 0; i-- {
		u[i] = byte(ms)
		ms >>= 8
	}
	return u.String()
}

func refOf(r domain.Receipt) ports.Ref {
	return ports.Ref{Tenant: r.Key.Tenant, ID: r.ID, Holder: r.Holder, Attempt: r.Attempt}
}

// claim claims r, which must win.
func (k *trial) claim(s Store, r domain.Receipt) domain.Receipt {
	k.Helper()
	c := k.tryClaim(s, r)
	if c.Err != nil || !c.Won || c.Receipt.ID != r.ID {
		k.Fatalf("Claim(%q) = won %t, receipt %s, %v; want won, %s", r.Key.EventID, c.Won, c.Receipt.ID, c.Err, r.ID)
	}
	return c.Receipt
}

func (k *trial) tryClaim(s Store, r domain.Receipt) ports.Claim {
	k.Helper()
	answers := s.Claim(k.ctx, []domain.Receipt{r})
	if len(answers) != 1 {
		k.Fatalf("Claim of 1 receipt gave %d answers; want 1", len(answers))
	}
	return answers[0]
}

// begin begins the next attempt of r, which must be allowed, and returns r as it stands then.
func (k *trial) begin(r domain.Receipt, lease time.Duration) domain.Receipt {
	k.Helper()
	n, err := k.store.Begin(k.ctx, refOf(r), lease)
	if err != nil || n != r.Attempt+1 {
		k.Fatalf("Begin(%q, attempts %d) = %d, %v; want %d, nil", r.Key.EventID, r.Attempt, n, err, r.Attempt+1)
	}
	r.Attempt, r.State = n, domain.Dispatching
	return r
}

// settle ends the attempt of r, which must be allowed, and returns r as it stands then.
func (k *trial) settle(r domain.Receipt, step domain.Step, reason string) domain.Receipt {
	k.Helper()
	if err := k.store.Settle(k.ctx, ports.Settlement{Ref: refOf(r), Step: step, Reason: reason}); err != nil {
		k.Fatalf("Settle(%q, %s) = %v; want nil", r.Key.EventID, step.State, err)
	}
	r.State = step.State
	return r
}

// over returns r, which is claimed or retrying, as Expired returns it once its lease ran out.
func (k *trial) over(r domain.Receipt) domain.Receipt {
	k.Helper()
	r = k.begin(r, soon)
	var found domain.Receipt
	k.await("the receipt whose lease ran out is among the expired", func() bool {
		for _, e := range k.expired() {
			if e.ID == r.ID {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

func (k *trial) expired() []domain.Receipt {
	k.Helper()
	all, err := k.store.Expired(k.ctx, 1000)
	if err != nil {
		k.Fatalf("Expired() = %v; want nil", err)
	}
	return all
}

// due is a time at which a retry is due, whatever the store's clock.
func due() time.Time { return time.Now().Add(-time.Minute).Truncate(time.Microsecond) }

// in claims an event and brings its receipt into a state: dispatching under a long lease,
// retrying and due.
func (k *trial) in(state domain.State, r domain.Receipt) domain.Receipt {
	k.Helper()
	r = k.claim(k.store, r)
	switch state {
	case domain.Claimed:
		return r
	case domain.Dispatching:
		return k.begin(r, long)
	case domain.Retrying:
		return k.settle(k.begin(r, long), domain.Step{State: state, DueAt: due()}, "not yet")
	case domain.Handled:
		return k.settle(k.begin(r, long), domain.Step{State: state}, "")
	case domain.Failed:
		return k.settle(k.begin(r, long), domain.Step{State: state}, "rejected")
	case domain.Lost:
		r = k.over(r)
		if err := k.store.Expire(k.ctx, r, domain.Step{State: state}, "lease ran out"); err != nil {
			k.Fatalf("Expire(%q) = %v; want nil", r.Key.EventID, err)
		}
	case domain.Discarded:
		r = k.settle(k.begin(r, long), domain.Step{State: domain.Failed}, "rejected")
		if err := k.store.Discard(k.ctx, r.ID, "ann"); err != nil {
			k.Fatalf("Discard(%q) = %v; want nil", r.Key.EventID, err)
		}
	}
	r.State = state
	return r
}

// receipt returns the receipt as the other instance sees it.
func (k *trial) receipt(id string) domain.Receipt {
	k.Helper()
	r, _, err := k.other.Receipt(k.ctx, id)
	if err != nil {
		k.Fatalf("Receipt(%s) = %v; want nil", id, err)
	}
	return r
}

// wantState checks where a receipt stands and how often it was begun.
func (k *trial) wantState(id string, state domain.State, attempt int) {
	k.Helper()
	if r := k.receipt(id); r.State != state || r.Attempt != attempt {
		k.Errorf("receipt of %q is %s with %d attempts; want %s, %d", r.Key.EventID, r.State, r.Attempt, state, attempt)
	}
}

// wantErr checks that an error is the one that the port names.
func (k *trial) wantErr(what string, err, want error) {
	k.Helper()
	if !errors.Is(err, want) {
		k.Errorf("%s = %v; want %v", what, err, want)
	}
}

// await waits until done reports true.
func (k *trial) await(what string, done func() bool) {
	k.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			k.Fatalf("after %s it is not so: %s", patience, what)
		}
	}
}

// takeUp takes up at most limit receipts for a holder that knows those named.
func (k *trial) takeUp(s Store, holder string, limit int, known ...string) []domain.Receipt {
	k.Helper()
	got, err := s.TakeUp(k.ctx, holder, func(id string) bool { return slices.Contains(known, id) }, limit, long)
	if err != nil {
		k.Fatalf("TakeUp(%s) = %v; want nil", holder, err)
	}
	return got
}

// beat makes a holder count as alive until the check has ended.
func (k *trial) beat(holder string) {
	k.Helper()
	if err := k.store.Beat(k.ctx, holder, long); err != nil {
		k.Fatalf("Beat(%s) = %v; want nil", holder, err)
	}
}

// ids returns the ids of receipts in their order.
func ids(receipts []domain.Receipt) []string {
	out := make([]string, len(receipts))
	for i, r := range receipts {
		out[i] = r.ID
	}
	return out
}

// eventIDs returns the event ids of receipts in their order, for messages.
func eventIDs(receipts []domain.Receipt) []string {
	out := make([]string, len(receipts))
	for i, r := range receipts {
		out[i] = r.Key.EventID
	}
	return out
}

// wantEvents checks which events receipts are of, and in which order.
func (k *trial) wantEvents(what string, got []domain.Receipt, want ...string) {
	k.Helper()
	if !slices.Equal(eventIDs(got), want) {
		k.Errorf("%s gave the events %q; want %q", what, eventIDs(got), want)
	}
}
