package storetest

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// sequences is how many are drawn unless -rapid.checks says otherwise: a database takes its time
// for each call.
const sequences = 40

// anySequence draws sequences of calls and carries out each on the store and on a model of it
// that is as small as the port's promises allow. Each sequence has a tenant of its own.
func anySequence(k *trial) {
	k.ctx = k.Context() // rapid looks for the shortest sequence that fails, which takes its time
	n, failed := 0, false
	checks := flag.Lookup("rapid.checks")
	rapid.Check(k.T, func(t *rapid.T) {
		n++
		if n > sequences && !failed && checks.Value.String() == checks.DefValue {
			return
		}
		ended := false
		defer func() { failed = failed || !ended }()
		q := &sequence{T: t, k: k, tenant: fmt.Sprintf("tenant-%d", n), alive: map[string]bool{}}
		defer q.clear()
		t.Repeat(map[string]func(*rapid.T){
			"claim": q.claim, "begin": q.begin, "settle": q.settle, "expire": q.expire, "take up": q.takeUp,
			"beat": q.beat, "leave": q.leave, "replay": q.replay, "discard": q.discard, "prune": q.prune,
			"": q.check,
		})
		q.balance()
		ended = true
	})
}

// A sequence is the model of the receipts of one tenant. Its T is that of the whole sequence;
// actions draw from their own, which is the same.
type sequence struct {
	*rapid.T
	k        *trial
	tenant   string
	receipts []*modelled
	alive    map[string]bool
	events   int
}

// modelled is what the model knows of one receipt.
type modelled struct {
	domain.Receipt      // State, Attempt and Holder are the model's, the rest is as it was claimed
	first          bool // its first attempt has not ended: it holds up its conversation
	due            bool // if retrying
	over           bool // if dispatching: its lease ran out
	begun          int  // begins that were allowed
	pruned         bool
}

var sequenceHolders = []string{holder, another}

func (q *sequence) side() Store {
	return q.k.handles()[rapid.IntRange(0, 1).Draw(q.T, "side")]
}

func (q *sequence) pick() *modelled {
	if len(q.receipts) == 0 {
		q.Skip("no receipt yet")
	}
	return rapid.SampledFrom(q.receipts).Draw(q.T, "receipt")
}

// pickIn prefers receipts in a state, since most calls are refused in any other.
func (q *sequence) pickIn(states ...domain.State) *modelled {
	var some []*modelled
	for _, m := range q.receipts {
		if slices.Contains(states, m.State) {
			some = append(some, m)
		}
	}
	if len(some) == 0 || rapid.IntRange(0, 3).Draw(q.T, "any") == 0 {
		return q.pick()
	}
	return rapid.SampledFrom(some).Draw(q.T, "receipt")
}

func (q *sequence) claim(*rapid.T) {
	id := fmt.Sprintf("Ev%d", q.events)
	if q.events > 0 && rapid.IntRange(0, 3).Draw(q.T, "again") == 0 {
		id = fmt.Sprintf("Ev%d", rapid.IntRange(0, q.events-1).Draw(q.T, "event"))
	} else {
		q.events++
	}
	r := eventIn(rapid.SampledFrom([]string{"C1", "C2", ""}).Draw(q.T, "conversation"), id)
	r.Key.Tenant, r.Holder = q.tenant, rapid.SampledFrom(sequenceHolders).Draw(q.T, "holder")
	if rapid.IntRange(0, 9).Draw(q.T, "parked") == 0 {
		r.State = domain.Failed
	}
	c := q.k.tryClaim(q.side(), r)
	i := slices.IndexFunc(q.receipts, func(m *modelled) bool { return m.Key == r.Key && !m.pruned })
	switch {
	case c.Err != nil:
		q.Fatalf("Claim(%s) = %v", id, c.Err)
	case i < 0 != c.Won:
		q.Fatalf("Claim(%s) = won %t; want %t", id, c.Won, i < 0)
	case c.Won:
		r.Seq = c.Receipt.Seq
		q.receipts = append(q.receipts, &modelled{Receipt: r, first: r.State == domain.Claimed})
	case c.Receipt.ID != q.receipts[i].ID || c.Receipt.State != q.receipts[i].State:
		q.Fatalf("Claim(%s) is lost to %s, %s; want %s, %s", id, c.Receipt.ID, c.Receipt.State, q.receipts[i].ID, q.receipts[i].State)
	}
}

// ref draws how somebody holds m: as the model says, mostly.
func (q *sequence) ref(m *modelled) ports.Ref {
	f := refOf(m.Receipt)
	if rapid.IntRange(0, 4).Draw(q.T, "wrong") == 0 {
		f.Holder = rapid.SampledFrom(sequenceHolders).Draw(q.T, "holder")
		f.Attempt = max(0, f.Attempt+rapid.IntRange(-1, 1).Draw(q.T, "attempt"))
	}
	return f
}

func (m *modelled) heldAs(f ports.Ref) bool { return f.Holder == m.Holder && f.Attempt == m.Attempt }

func (q *sequence) begin(*rapid.T) {
	m := q.pickIn(domain.Claimed, domain.Retrying)
	f := q.ref(m)
	var want error
	switch {
	case m.pruned || !m.heldAs(f) || m.State != domain.Claimed && m.State != domain.Retrying:
		want = domain.ErrFenced
	case m.first && slices.ContainsFunc(q.receipts, func(p *modelled) bool {
		return p.first && !p.pruned && m.Conversation != "" && p.Conversation == m.Conversation && p.Seq < m.Seq
	}):
		want = ports.ErrWaits
	}
	lease := rapid.SampledFrom([]time.Duration{long, soon}).Draw(q.T, "lease")
	n, err := q.side().Begin(q.k.ctx, f, lease)
	if !errors.Is(err, want) || want == nil && n != m.Attempt+1 {
		q.Fatalf("Begin(%s %s) = %d, %v; want %d, %v", m.Key.EventID, m.State, n, err, m.Attempt+1, want)
	}
	if want != nil {
		return
	}
	m.State, m.Attempt, m.over = domain.Dispatching, n, lease == soon
	m.begun++
	if m.over {
		q.k.await("the lease has run out", func() bool {
			return slices.ContainsFunc(q.k.expired(), func(r domain.Receipt) bool { return r.ID == m.ID })
		})
	}
}

// step draws where a receipt goes.
func (q *sequence) step(states ...domain.State) (step domain.Step, isDue bool) {
	step.State = rapid.SampledFrom(states).Draw(q.T, "state")
	if step.State == domain.Retrying {
		step.DueAt, isDue = due(), rapid.Bool().Draw(q.T, "due")
		if !isDue {
			step.DueAt = time.Now().Add(long)
		}
	}
	return step, isDue
}

func (q *sequence) settle(*rapid.T) {
	m := q.pickIn(domain.Dispatching)
	f := q.ref(m)
	step, isDue := q.step(domain.Handled, domain.Retrying, domain.Failed)
	var want error
	if m.pruned || m.State != domain.Dispatching || !m.heldAs(f) || m.over {
		want = domain.ErrFenced
	}
	if err := q.side().Settle(q.k.ctx, ports.Settlement{Ref: f, Step: step}); !errors.Is(err, want) {
		q.Fatalf("Settle(%s %s, over %t) = %v; want %v", m.Key.EventID, m.State, m.over, err, want)
	}
	if want == nil {
		m.State, m.due, m.first = step.State, isDue, false
	}
}

func (q *sequence) expire(*rapid.T) {
	m := q.pickIn(domain.Dispatching)
	r := m.Receipt
	f := q.ref(m)
	r.Holder, r.Attempt = f.Holder, f.Attempt
	step, isDue := q.step(domain.Lost, domain.Retrying, domain.Failed)
	var want error
	if m.pruned || m.State != domain.Dispatching || !m.over || !m.heldAs(f) {
		want = domain.ErrFenced
	}
	if err := q.side().Expire(q.k.ctx, r, step, "lease ran out"); !errors.Is(err, want) {
		q.Fatalf("Expire(%s %s, over %t) = %v; want %v", m.Key.EventID, m.State, m.over, err, want)
	}
	if want == nil {
		m.State, m.due, m.over, m.first = step.State, isDue, false, false
	}
}

func (q *sequence) takeUp(*rapid.T) {
	who := rapid.SampledFrom(sequenceHolders).Draw(q.T, "holder")
	knows := rapid.Bool().Draw(q.T, "knows its own")
	var want []string
	for _, m := range q.receipts {
		waits := m.State == domain.Claimed && (m.Holder == who && !knows || m.Holder != who && !q.alive[m.Holder])
		if !m.pruned && (waits || m.State == domain.Retrying && m.due) {
			want = append(want, m.ID)
		}
	}
	got, err := q.side().TakeUp(q.k.ctx, who, func(string) bool { return knows }, 1000, long)
	if err != nil || !slices.Equal(ids(got), want) {
		q.Fatalf("TakeUp(%s) gave %q, %v; want %q", who, ids(got), err, want)
	}
	for _, m := range q.receipts {
		if slices.Contains(want, m.ID) {
			m.Holder, m.due = who, false
		}
	}
	for _, r := range got {
		if len(r.Payload.Body) == 0 {
			q.Fatalf("TakeUp gave %s without payload", r.Key.EventID)
		}
	}
}

func (q *sequence) beat(*rapid.T) {
	who := rapid.SampledFrom(sequenceHolders).Draw(q.T, "holder")
	if err := q.side().Beat(q.k.ctx, who, long); err != nil {
		q.Fatalf("Beat = %v", err)
	}
	q.alive[who] = true
}

func (q *sequence) leave(*rapid.T) {
	who := rapid.SampledFrom(sequenceHolders).Draw(q.T, "holder")
	if err := q.side().Leave(q.k.ctx, who); err != nil {
		q.Fatalf("Leave = %v", err)
	}
	q.alive[who] = false
}

func (q *sequence) replay(*rapid.T) {
	m := q.pickIn(domain.Handled, domain.Failed, domain.Lost, domain.Discarded)
	var want error
	switch {
	case m.pruned:
		want = domain.ErrNotFound
	case m.State.Open():
		want = domain.ErrState
	}
	if err := q.side().Replay(q.k.ctx, m.ID, "ann"); !errors.Is(err, want) {
		q.Fatalf("Replay(%s %s) = %v; want %v", m.Key.EventID, m.State, err, want)
	}
	if want == nil {
		m.State, m.due = domain.Retrying, true
	}
}

func (q *sequence) discard(*rapid.T) {
	m := q.pickIn(domain.Failed, domain.Lost, domain.Retrying)
	var want error
	switch {
	case m.pruned:
		want = domain.ErrNotFound
	case !m.State.Discardable():
		want = domain.ErrState
	}
	if err := q.side().Discard(q.k.ctx, m.ID, "ann"); !errors.Is(err, want) {
		q.Fatalf("Discard(%s %s) = %v; want %v", m.Key.EventID, m.State, err, want)
	}
	if want == nil {
		m.State = domain.Discarded
	}
}

// prune deletes every closed receipt, seldom, since there is little to be seen afterwards.
func (q *sequence) prune(*rapid.T) {
	if rapid.IntRange(0, 5).Draw(q.T, "seldom") > 0 {
		q.Skip("seldom")
	}
	// a minute ahead: ids drawn in this millisecond are not before it
	scope := scopeOf(q.tenant, -time.Minute, -time.Minute)
	if _, err := q.side().Prune(q.k.ctx, scope, 1000); err != nil {
		q.Fatalf("Prune = %v", err)
	}
	for _, m := range q.receipts {
		m.pruned = m.pruned || !m.State.Open()
	}
}

// check compares every receipt with the model.
func (q *sequence) check(*rapid.T) {
	page, err := q.k.store.Receipts(q.k.ctx, ports.Filter{Tenant: q.tenant, Limit: 1000})
	if err != nil {
		q.Fatalf("Receipts = %v", err)
	}
	stored := map[string]domain.Receipt{}
	for _, r := range page.Receipts {
		stored[r.ID] = r
	}
	for _, m := range q.receipts {
		r, ok := stored[m.ID]
		if ok == m.pruned {
			q.Fatalf("%s is stored %t; want %t", m.Key.EventID, ok, !m.pruned)
		}
		if ok && (r.State != m.State || r.Attempt != m.Attempt || r.Holder != m.Holder || r.Attempt != m.begun) {
			q.Fatalf("%s is %s, attempt %d, held by %s; want %s, %d begun %d times, %s",
				m.Key.EventID, r.State, r.Attempt, r.Holder, m.State, m.Attempt, m.begun, m.Holder)
		}
	}
}

// balance compares what is counted with the model.
func (q *sequence) balance() {
	want := map[ports.Count]int64{}
	for _, m := range q.receipts {
		if !m.pruned {
			want[ports.Count{Tenant: q.tenant, Platform: "slack", State: m.State}]++
		}
	}
	got := q.k.counts()
	maps.DeleteFunc(got, func(c ports.Count, _ int64) bool { return c.Tenant != q.tenant })
	if !maps.Equal(got, want) {
		q.Fatalf("Counts = %v; want %v", got, want)
	}
}

// clear closes and deletes whatever the sequence has left, so that no other one meets it.
func (q *sequence) clear() {
	for range 2 * len(q.receipts) {
		for _, m := range q.receipts {
			r, _, err := q.k.store.Receipt(q.k.ctx, m.ID)
			if err != nil {
				continue
			}
			if r.State == domain.Claimed || r.State == domain.Retrying {
				if n, err := q.k.store.Begin(q.k.ctx, refOf(r), long); err == nil {
					r.Attempt, r.State = n, domain.Dispatching
				}
			}
			if r.State == domain.Dispatching {
				if err := q.k.store.Settle(q.k.ctx, ports.Settlement{Ref: refOf(r), Step: domain.Step{State: domain.Handled}}); err != nil {
					_ = q.k.store.Expire(q.k.ctx, r, domain.Step{State: domain.Lost}, "")
				}
			}
		}
		if oldest, err := q.k.store.OldestOpen(q.k.ctx); err != nil || oldest.IsZero() {
			break
		}
	}
	for _, who := range sequenceHolders {
		_ = q.k.store.Leave(q.k.ctx, who)
	}
	_, _ = q.k.store.Prune(q.k.ctx, scopeOf(q.tenant, -time.Minute, -time.Minute), 1000)
}
