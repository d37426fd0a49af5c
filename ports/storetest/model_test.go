package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A model is a durable store in memory that keeps every promise, unless it has a bug. Its
// handles share one database.
type model struct {
	*database
	other bool // the second handle
}

type database struct {
	mu     sync.Mutex
	bug    string // name of the one thing that is broken; see durableMutants
	rows   []*row // in the order of claims
	seq    int64
	alive  map[string]time.Time
	leases map[string]lease
	taken  map[domain.Digest]bool // keys of pruned rows, for a bug

	conversations []*ports.Conversation

	between gap
}

type row struct {
	domain.Receipt
	event, message domain.Digest
	lane           int64 // 0 once the first attempt has ended
	bare           bool  // the payload was pruned
	history        []ports.Entry
	other          bool // claimed through the second handle
}

type lease struct {
	holder string
	until  time.Time
}

func newModel(bug string) (*model, *model) {
	db := &database{bug: bug, alive: map[string]time.Time{}, leases: map[string]lease{}, taken: map[domain.Digest]bool{}, between: newGap()}
	return &model{database: db}, &model{database: db, other: true}
}

// has reports whether the model has a bug.
func (m *model) has(bug string) bool { return m.bug == bug }

// lock begins a transaction, unless ctx has ended.
func (m *model) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		if m.has("calls a cancelled change refused") {
			return err
		}
		return errors.Join(domain.ErrUnavailable, err)
	}
	m.mu.Lock()
	return nil
}

// gap lets others in between a look and what follows from it.
func (m *model) gap(bug string) {
	if m.has(bug) {
		m.mu.Unlock()
		m.between.wait()
		m.mu.Lock()
	}
}

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func (m *model) keys(r domain.Receipt) (event, message domain.Digest) {
	k := r.Key
	switch {
	case m.has("folds case"):
		k.EventID = strings.ToLower(k.EventID)
	case m.has("is blind to tenants"):
		k.Tenant = ""
	case m.has("is blind to accounts"):
		k.Account = ""
	case m.has("is blind to platforms"):
		k.Platform = ""
	case m.has("joins the parts of keys"):
		k = domain.Key{EventID: strings.Join([]string{k.Tenant, k.Platform, k.Account + ":" + k.EventID}, ":")}
	case m.has("ignores message keys"):
		r.MessageKey = ""
	}
	return k.Digest(), k.Message(r.MessageKey)
}

func (m *model) Claim(ctx context.Context, receipts []domain.Receipt) []ports.Claim {
	answers := make([]ports.Claim, len(receipts))
	spoilt := m.has("lets one bad row take the batch") && slices.ContainsFunc(receipts, func(r domain.Receipt) bool { return !m.storable(r) })
	for i, r := range receipts {
		if spoilt {
			answers[i] = ports.Claim{Err: errors.New("refused")}
			continue
		}
		answers[i] = m.claim(ctx, r)
	}
	return answers
}

func (m *model) storable(r domain.Receipt) bool {
	return r.State == domain.Claimed || r.State == domain.Failed
}

func (m *model) claim(ctx context.Context, r domain.Receipt) ports.Claim {
	if m.has("claims under another id when cancelled") && ctx.Err() != nil {
		r.ID, ctx = uuid.Must(uuid.NewV7()).String(), context.WithoutCancel(ctx)
		m.claim(ctx, r)
		return ports.Claim{Err: domain.ErrUnknown}
	}
	if err := m.lock(ctx); err != nil {
		return ports.Claim{Err: err}
	}
	defer m.mu.Unlock()
	if !m.storable(r) {
		return ports.Claim{Err: errors.New("refused")}
	}
	event, message := m.keys(r)
	winner, same := m.winner(event, message)
	m.gap("looks, then inserts")
	if winner == nil {
		if i := slices.IndexFunc(m.rows, func(o *row) bool { return o.ID == r.ID }); i >= 0 {
			if m.has("calls every refusal a duplicate") {
				return ports.Claim{Receipt: m.rows[i].Receipt}
			}
			return ports.Claim{Err: errors.New("the id is taken")}
		}
		if m.taken[event] {
			return ports.Claim{Receipt: r}
		}
		return ports.Claim{Won: true, Receipt: m.insert(r, event, message)}
	}
	got := winner.Receipt
	got.Payload = domain.Payload{}
	if m.has("records messages of lost claims") && winner.ID != r.ID {
		m.record(&r)
	}
	switch {
	case winner.ID == r.ID:
		if again := r; m.has("opens a conversation for what was claimed before") {
			m.record(&again)
		}
		if m.has("forgets the conversation of what was claimed before") {
			got.ConversationID = ""
		}
		return ports.Claim{Won: !m.has("loses to itself"), Receipt: got}
	case m.has("tells losers that they won"):
		return ports.Claim{Won: true, Receipt: r}
	case m.has("forgets the winner's lease"):
		got.LeaseUntil = time.Time{}
	case m.has("forgets why a claim was lost"):
		same = false
	}
	return ports.Claim{Receipt: got, SameMessage: same}
}

func (m *model) winner(event, message domain.Digest) (w *row, same bool) {
	for _, o := range m.rows {
		if o.event == event {
			return o, false
		}
		if !message.IsZero() && o.message == message {
			w, same = o, true
		}
	}
	return w, same
}

func (m *model) insert(r domain.Receipt, event, message domain.Digest) domain.Receipt {
	m.seq++
	r.Seq, r.Deliveries, r.ClaimedAt = m.seq, 1, r.ClaimedAt.UTC().Truncate(time.Microsecond)
	r.Payload.Body = bytes.Clone(r.Payload.Body)
	m.record(&r)
	o := &row{Receipt: r, event: event, message: message, other: m.other}
	if r.State == domain.Claimed || m.has("dispatches what was parked") {
		o.State, o.lane = domain.Claimed, r.Key.Lane(r.Conversation)
	}
	switch {
	case m.has("keeps whole seconds"):
		o.ClaimedAt = o.ClaimedAt.Truncate(time.Second)
	case m.has("keeps payloads as text"):
		o.Payload.Body = bytes.ToValidUTF8(o.Payload.Body, []byte("\ufffd"))
	case m.has("trims texts"):
		o.Conversation = strings.TrimSpace(o.Conversation)
	}
	m.rows = append(m.rows, o)
	return o.Receipt
}

func (m *model) find(tenant, id string) *row {
	for _, o := range m.rows {
		if o.ID == id && (tenant == "" || o.Key.Tenant == tenant) {
			return o
		}
	}
	return nil
}

func (m *model) Begin(ctx context.Context, ref ports.Ref, ttl time.Duration) (int, error) {
	if err := m.lock(ctx); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	o := m.find(ref.Tenant, ref.ID)
	waiting := o != nil && (o.State == domain.Claimed || o.State == domain.Retrying)
	if o != nil && m.has("begins what is begun") {
		waiting = o.State.Open()
	}
	mine := o != nil && (o.Holder == ref.Holder || m.has("takes another's begin for its own")) && o.Attempt == ref.Attempt+1
	if ref.Doubt && mine && o.State == domain.Dispatching && !m.has("takes its own begin for another's") {
		return o.Attempt, nil
	}
	if !waiting || o.Holder != ref.Holder && !m.has("begins for anyone") || o.Attempt != ref.Attempt && !m.has("begins any attempt") {
		return 0, domain.ErrFenced
	}
	for _, p := range m.rows {
		earlier := p.Seq < o.Seq
		if m.has("orders conversations by the claimers' clocks") {
			earlier = p.ClaimedAt.Before(o.ClaimedAt)
		}
		holds := p.lane != 0 || m.has("waits for retries") && p.State == domain.Retrying && p.Conversation == o.Conversation
		if o.lane != 0 && earlier && holds && (p.lane == o.lane || p.lane == 0) && !m.has("begins without looking at the conversation") {
			if ref.Doubt {
				return 0, errors.Join(ports.ErrWaits, domain.ErrUnknown)
			}
			return 0, ports.ErrWaits
		}
	}
	m.gap("looks, then begins")
	first := o.BegunAt
	o.State, o.BegunAt = domain.Dispatching, now()
	o.Attempt = ref.Attempt + 1
	o.LeaseUntil = o.BegunAt.Add(ttl)
	if m.has("counts leases from the first begin") && !first.IsZero() {
		o.LeaseUntil = first.Add(ttl)
	}
	if m.has("counts leases from the claim") {
		o.LeaseUntil = o.ClaimedAt.Add(ttl)
	}
	return o.Attempt, nil
}

func (m *model) Settle(ctx context.Context, s ports.Settlement) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	o := m.find(s.Tenant, s.ID)
	if o == nil || o.State != domain.Dispatching && !m.has("settles what is settled") ||
		o.Holder != s.Holder && !m.has("settles for anyone") || o.Attempt != s.Attempt && !m.has("settles any attempt") ||
		!now().Before(o.LeaseUntil) && o.State == domain.Dispatching && !m.has("settles after the lease") {
		return domain.ErrFenced
	}
	m.gap("looks, then settles")
	m.end(o, s.Step, s.Reason)
	if s.Step.State == domain.Handled {
		o.HandledAt = now()
	} else {
		m.note(o, "attempt", s.Reason, "")
	}
	if m.has("forgets the reason") {
		o.LastError = ""
	}
	return nil
}

func (m *model) end(o *row, step domain.Step, reason string) {
	o.State, o.DueAt, o.LastError, o.LeaseUntil, o.lane = step.State, step.DueAt.UTC(), reason, time.Time{}, 0
	if m.has("holds conversations up until handled") && o.State != domain.Handled {
		o.lane = o.Key.Lane(o.Conversation)
	}
}

func (m *model) note(o *row, what, reason, by string) {
	if m.has("forgets who asked") {
		by = ""
	}
	o.history = append(o.history, ports.Entry{At: now(), What: what, Attempt: o.Attempt, State: o.State, Reason: reason, By: by})
}

func (m *model) Beat(ctx context.Context, holder string, ttl time.Duration) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if _, ok := m.alive[holder]; !ok || !m.has("lets nobody renew its time") {
		m.alive[holder] = now().Add(ttl)
	}
	return nil
}

func (m *model) Leave(ctx context.Context, holder string) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if !m.has("does not note who leaves") {
		delete(m.alive, holder)
	}
	return nil
}

func (m *model) TakeUp(ctx context.Context, holder string, mine func(string) bool, limit int, reserve time.Duration) ([]domain.Receipt, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var found []*row
	for _, o := range m.rows {
		if len(found) < limit && m.waits(o, holder, mine) {
			found = append(found, o)
		}
	}
	m.gap("lists, then takes up")
	if m.has("takes up in any order") {
		rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	}
	var got []domain.Receipt
	for _, o := range found {
		if !m.has("leaves the holder as it was") {
			o.Holder = holder
		}
		if o.State == domain.Retrying && !m.has("reserves nothing") {
			o.DueAt = now().Add(reserve)
		}
		r := o.Receipt
		if m.has("takes up without conversation") {
			r.ConversationID = ""
		}
		if m.has("takes up without payload") {
			r.Payload = domain.Payload{}
		}
		got = append(got, r)
	}
	return got, nil
}

func (m *model) waits(o *row, holder string, mine func(string) bool) bool {
	switch o.State {
	case domain.Claimed:
		if o.Holder == holder {
			return m.has("passes over nothing of its own") || !mine(o.ID)
		}
		return !now().Before(m.alive[o.Holder]) || m.has("takes up from the living")
	case domain.Retrying:
		return !now().Before(o.DueAt) || m.has("takes retries up early")
	case domain.Dispatching:
		return m.has("takes up what is dispatching")
	case domain.Handled, domain.Failed, domain.Lost, domain.Discarded:
	}
	return false
}

func (m *model) Expired(ctx context.Context, limit int) ([]domain.Receipt, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var got []domain.Receipt
	for _, o := range m.rows {
		if o.State == domain.Dispatching && (!now().Before(o.LeaseUntil) || m.has("calls the living expired")) && len(got) < limit {
			r := o.Receipt
			r.Payload = domain.Payload{}
			got = append(got, r)
		}
	}
	return got, nil
}

func (m *model) Expire(ctx context.Context, r domain.Receipt, step domain.Step, reason string) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	o := m.find(r.Key.Tenant, r.ID)
	if o == nil || o.State != domain.Dispatching && !m.has("expires what was settled late") || o.State == domain.Dispatching && now().Before(o.LeaseUntil) ||
		(o.Holder != r.Holder || o.Attempt != r.Attempt) && !m.has("expires a later attempt") {
		return domain.ErrFenced
	}
	m.end(o, step, reason)
	m.note(o, "lost", reason, "")
	return nil
}

func (m *model) CountDeliveries(ctx context.Context, counts []ports.DeliveryCount) (left []ports.DeliveryCount, err error) {
	if err := m.lock(ctx); err != nil {
		return counts, err
	}
	defer m.mu.Unlock()
	seen := map[domain.Digest]bool{}
	for _, c := range counts {
		i := slices.IndexFunc(m.rows, func(o *row) bool { return o.event == c.Event && o.Key.Tenant == c.Tenant })
		switch {
		case i < 0:
			left = append(left, c)
			continue
		case m.has("counts an event once in a list") && seen[c.Event]:
			continue
		case m.has("sets counts"):
			m.rows[i].Deliveries = 1
		}
		seen[c.Event] = true
		m.rows[i].Deliveries += c.N
		m.rows[i].VendorAttempt = max(m.rows[i].VendorAttempt, c.VendorAttempt)
		if m.has("keeps the last vendor attempt") {
			m.rows[i].VendorAttempt = c.VendorAttempt
		}
	}
	return left, nil
}

func (m *model) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	if err := m.lock(ctx); err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	l, ok := m.leases[name]
	switch {
	case ok && m.has("keeps leases for ever") && l.holder != holder:
		return false, nil
	case ok && l.holder != holder && now().Before(l.until) && !m.has("gives leases to all"):
		return false, nil
	}
	m.leases[name] = lease{holder, now().Add(ttl)}
	return true, nil
}

func (m *model) Tenants(ctx context.Context) ([]string, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	all := map[string]bool{}
	for _, o := range m.rows {
		if o.State.Open() || !m.has("forgets quiet tenants") {
			all[o.Key.Tenant] = true
		}
	}
	return slices.Collect(maps.Keys(all)), nil
}

func (m *model) Prune(ctx context.Context, s ports.PruneScope, limit int) (int, error) {
	if err := m.lock(ctx); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	if m.has("prunes without limit") {
		limit = len(m.rows)
	}
	byAge := slices.SortedFunc(slices.Values(m.rows), func(a, b *row) int { return a.ClaimedAt.Compare(b.ClaimedAt) })
	if m.has("prunes the youngest first") {
		slices.Reverse(byAge)
	}
	in := func(o *row) bool {
		if o.Key.Tenant != s.Tenant && !m.has("prunes all tenants") || o.State.Open() && !m.has("prunes what is open") {
			return false
		}
		if s.Only != nil {
			return slices.Contains(s.Only, o.Installation) || m.has("prunes all installations")
		}
		return !slices.Contains(s.Except, o.Installation)
	}
	receipts, payloads := 0, 0
	for _, o := range byAge {
		if in(o) && o.ClaimedAt.Before(s.Receipts) && receipts < limit {
			receipts++
			m.rows = slices.DeleteFunc(m.rows, func(p *row) bool { return p == o })
			if m.has("keeps the keys of what was pruned") {
				m.taken[o.event] = true
			}
		}
	}
	for _, o := range byAge {
		wanted := in(o) || m.has("prunes payloads of what is open") && o.Key.Tenant == s.Tenant
		if wanted && slices.Contains(m.rows, o) && !o.bare && o.ClaimedAt.Before(s.Payloads) && payloads < limit {
			payloads++
			o.bare, o.Payload = true, domain.Payload{}
		}
	}
	m.bury(s.Tenant)
	return receipts + payloads, nil
}

func (m *model) Ready(ctx context.Context) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if m.has("is never ready") {
		return domain.ErrUnavailable
	}
	return nil
}

func (m *model) Close() error { return nil }
