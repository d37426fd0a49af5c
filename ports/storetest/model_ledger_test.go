package storetest_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

func (m *model) Receipts(ctx context.Context, f ports.Filter) (ports.Page, error) {
	if err := m.lock(ctx); err != nil {
		return ports.Page{}, err
	}
	defer m.mu.Unlock()
	var found []domain.Receipt
	for _, o := range m.rows {
		if m.selects(f, o) {
			r := o.Receipt
			if !m.has("lists payloads") {
				r.Payload = domain.Payload{}
			}
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b domain.Receipt) int { return cmp.Compare(b.ID, a.ID) })
	if m.has("lists the oldest first") {
		slices.Reverse(found)
	}
	limit := min(cmp.Or(f.Limit, 100), 1000)
	if len(found) <= limit {
		return ports.Page{Receipts: found}, nil
	}
	next := found[limit-1].ID
	if m.has("leaves out what begins a page") {
		next = found[limit].ID
	}
	return ports.Page{Receipts: found[:limit], Next: next}, nil
}

func (m *model) selects(f ports.Filter, o *row) bool {
	id, err := uuid.Parse(f.Query)
	query := f.Query == "" || err == nil && id.String() == o.ID || f.Query == o.Key.EventID || f.Query == o.MessageKey ||
		m.has("finds parts") && strings.Contains(o.Key.EventID, f.Query)
	return query && (f.Tenant == "" || f.Tenant == o.Key.Tenant) && (f.Platform == "" || f.Platform == o.Key.Platform) &&
		(f.State == "" || f.State == o.State || m.has("filters no states")) && !o.ClaimedAt.Before(f.Since) && (f.Cursor == "" || o.ID < f.Cursor)
}

func (m *model) Receipt(ctx context.Context, id string) (domain.Receipt, []ports.Entry, error) {
	if err := m.lock(ctx); err != nil {
		return domain.Receipt{}, nil, err
	}
	defer m.mu.Unlock()
	o := m.find("", id)
	if o == nil || m.has("keeps claims to itself") && o.other != m.other {
		return domain.Receipt{}, nil, domain.ErrNotFound
	}
	r := o.Receipt
	r.Payload = domain.Payload{}
	return r, slices.Clone(o.history), nil
}

func (m *model) Replay(ctx context.Context, id, by string) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	o := m.find("", id)
	if o == nil {
		return domain.ErrNotFound
	}
	if !o.State.Replayable() && !m.has("replays what is open") || o.bare && !m.has("replays without payload") {
		return domain.ErrState
	}
	m.gap("looks, then replays")
	o.State, o.DueAt, o.HandledAt = domain.Retrying, now(), time.Time{}
	if m.has("counts attempts anew after a replay") {
		o.Attempt = 0
	}
	if m.has("gives a replayed one its place again") {
		o.lane = o.Key.Lane(o.Conversation)
	}
	m.note(o, "replay", "", by)
	return nil
}

func (m *model) ReplayAll(ctx context.Context, f ports.Filter, by string) (int, error) {
	if m.has("replays all states") {
		f.State = ""
	}
	page, err := m.Receipts(ctx, f)
	n := 0
	for _, r := range page.Receipts {
		if m.Replay(ctx, r.ID, by) == nil {
			n++
		}
	}
	return n, err
}

func (m *model) Discard(ctx context.Context, id, by string) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	o := m.find("", id)
	switch {
	case o == nil:
		return domain.ErrNotFound
	case !o.State.Discardable() && !m.has("discards anything"):
		return domain.ErrState
	}
	if !m.has("discards nothing") {
		o.State, o.DueAt = domain.Discarded, time.Time{}
	}
	m.note(o, "discard", "", by)
	return nil
}

func (m *model) Counts(ctx context.Context) ([]ports.Count, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	n := map[ports.Count]int64{}
	for _, o := range m.rows {
		if o.State != domain.Lost || !m.has("leaves what is lost out of the balance") {
			n[ports.Count{Tenant: o.Key.Tenant, Platform: o.Key.Platform, State: o.State}]++
		}
	}
	var all []ports.Count
	for c, n := range n {
		c.N = n
		all = append(all, c)
	}
	return all, nil
}

func (m *model) OldestOpen(ctx context.Context) (oldest time.Time, err error) {
	if err := m.lock(ctx); err != nil {
		return time.Time{}, err
	}
	defer m.mu.Unlock()
	for _, o := range m.rows {
		open := o.State.Open() && (o.State != domain.Retrying || !m.has("forgets retries when asked for the oldest"))
		if open && (oldest.IsZero() || o.ClaimedAt.Before(oldest)) {
			oldest = o.ClaimedAt
		}
	}
	return oldest, nil
}
