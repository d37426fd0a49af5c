package sqlstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// Limits of a page.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// inState says, for each state, how its receipts are found without reading all others: open
// and parked ones have indexes of their own, and handled ones are nearly all.
var inState = map[domain.State]string{
	domain.Claimed:     "r.lane IS NOT NULL AND r.state = 'claimed'",
	domain.Dispatching: "(r.lane IS NOT NULL OR r.due_at IS NOT NULL) AND r.state = 'dispatching'",
	domain.Retrying:    "r.due_at IS NOT NULL AND r.state = 'retrying'",
	domain.Handled:     "r.state = 'handled'",
	domain.Failed:      "r.parked AND r.state = 'failed'",
	domain.Lost:        "r.parked AND r.state = 'lost'",
	domain.Discarded:   "r.parked AND r.state = 'discarded'",
}

// where returns the condition that f sets, with its arguments.
func (s *Store) where(f ports.Filter) (string, []any) {
	conds, args := []string{"true"}, []any{}
	add := func(cond string, a ...any) { conds, args = append(conds, cond), append(args, a...) }
	if f.Tenant != "" {
		add("r.tenant = ?", f.Tenant)
	}
	if f.Platform != "" {
		add("r.platform = ?", f.Platform)
	}
	if f.State != "" {
		cond, ok := inState[f.State]
		if !ok {
			cond = "false"
		}
		add(cond)
	}
	if !f.Since.IsZero() {
		add("r.id >= ? AND r.claimed_at >= ?", s.id(idBefore(f.Since)), f.Since)
	}
	if f.Query != "" {
		if id, err := uuid.Parse(f.Query); err == nil {
			add("(r.id = ? OR r.event_id = ? OR r.message_key = ?)", s.id(id.String()), f.Query, f.Query)
		} else {
			add("(r.event_id = ? OR r.message_key = ?)", f.Query, f.Query)
		}
	}
	if id, err := uuid.Parse(f.Cursor); err == nil {
		add("r.id < ?", s.id(id.String()))
	}
	return strings.Join(conds, " AND "), args
}

// Receipts implements ports.Ledger.
func (s *Store) Receipts(ctx context.Context, f ports.Filter) (ports.Page, error) {
	limit := pageLimit(f.Limit)
	tenants, err := s.meant(ctx, f.Tenant)
	if err != nil {
		return ports.Page{}, err
	}
	// the newest of each tenant come from the primary key, and of these the newest make the page
	var rows []receiptRow
	err = s.readsEach(ctx, tenants, func(tx *gorm.DB, tenant string) error {
		f.Tenant = tenant
		cond, args := s.where(f)
		var some []receiptRow
		err := tx.Raw(`SELECT `+receiptColumns+` FROM receipts r WHERE `+cond+` ORDER BY r.tenant, r.id DESC LIMIT ?`,
			append(args, limit+1)...).Scan(&some).Error
		rows = newest(rows, some, limit+1)
		return err
	})
	if err != nil {
		return ports.Page{}, classify(err)
	}
	rows, next := cutPage(rows, limit)
	return ports.Page{Receipts: receipts(rows), Next: next}, nil
}

// pageLimit returns how many rows make a page of which limit were asked for.
func pageLimit(limit int) int {
	if limit <= 0 {
		limit = defaultLimit
	}
	return min(limit, maxLimit)
}

// meant returns the tenants of whom a list is asked for: the one that is named, or all.
func (s *Store) meant(ctx context.Context, tenant string) ([]string, error) {
	if tenant != "" {
		return []string{tenant}, nil
	}
	return s.Tenants(ctx)
}

// A keyed row has the id by which lists are ordered.
type keyed interface{ key() string }

// cutPage cuts rows, of which there is one more than limit if another page follows, and returns
// where that begins.
func cutPage[R keyed](rows []R, limit int) (page []R, next string) {
	if len(rows) <= limit {
		return rows, ""
	}
	return rows[:limit], rows[limit-1].key()
}

// newest merges two lists, newest first, into one of at most limit. The order of ids is that of
// time.
func newest[R keyed](a, b []R, limit int) []R {
	if len(a) == 0 {
		return b
	}
	out := make([]R, 0, min(len(a)+len(b), limit))
	for len(out) < limit && len(a)+len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && a[0].key() > b[0].key() {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

// Receipt implements ports.Ledger.
func (s *Store) Receipt(ctx context.Context, id string) (domain.Receipt, []ports.Entry, error) {
	row, err := s.find(ctx, id)
	if err != nil {
		return domain.Receipt{}, nil, err
	}
	var noted []struct {
		At      time.Time
		What    string
		Attempt int
		State   string
		Reason  string
		ByWhom  string
	}
	err = s.reads(ctx, of(row.Tenant), func(tx *gorm.DB) error {
		return tx.Raw(`SELECT at, what, attempt, state, reason, by_whom FROM history WHERE tenant = ? AND receipt_id = ? ORDER BY at`,
			row.Tenant, s.id(row.ID)).Scan(&noted).Error
	})
	if err != nil {
		return domain.Receipt{}, nil, classify(err)
	}
	entries := make([]ports.Entry, len(noted))
	for i, n := range noted {
		entries[i] = ports.Entry{At: n.At.UTC(), What: n.What, Attempt: n.Attempt, State: domain.State(n.State), Reason: n.Reason, By: n.ByWhom}
	}
	return row.receipt(), entries, nil
}

func (s *Store) find(ctx context.Context, id string) (receiptRow, error) {
	return findByID[receiptRow](ctx, s, receiptColumns, "receipts r", "r", id, domain.ErrNotFound)
}

// findByID reads the row with that id, whoever its tenant is, of a table under its alias. It returns
// missing if there is none. The key begins with the tenant, and there may be more of them than a
// statement has parameters.
func findByID[R any](ctx context.Context, s *Store, columns, table, alias, id string, missing error) (row R, err error) {
	u, err := uuid.Parse(id)
	if err != nil {
		return row, missing
	}
	var rows []R
	err = s.reads(ctx, everyone, func(tx *gorm.DB) error {
		return tx.Raw(`SELECT `+columns+` FROM tenants t CROSS JOIN `+table+`
			WHERE `+alias+`.tenant = t.tenant AND `+alias+`.id = ?`, s.id(u.String())).Scan(&rows).Error
	})
	if err != nil {
		return row, classify(err)
	}
	if len(rows) == 0 {
		return row, missing
	}
	return rows[0], nil
}

// Replay implements ports.Ledger.
func (s *Store) Replay(ctx context.Context, id, by string) error {
	row, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	if !domain.State(row.State).Replayable() {
		return domain.ErrState
	}
	// the state is asked for again: of two who replay at once, one does
	err = s.change(ctx, row.Tenant, row.ID, entry{what: "replay", attempt: row.Attempt, state: domain.Retrying, by: by}, `
		UPDATE receipts SET state = 'retrying', due_at = ?, parked = NULL, lane = NULL, lease_until = NULL, handled_at = NULL
		WHERE tenant = ? AND id = ? AND state = ?
			AND EXISTS (SELECT 1 FROM payloads p WHERE p.tenant = receipts.tenant AND p.receipt_id = receipts.id ?)`,
		s.now(), row.Tenant, s.id(row.ID), row.State, s.kept())
	if errors.Is(err, domain.ErrFenced) {
		return domain.ErrState
	}
	return err
}

// ReplayAll implements ports.Ledger.
func (s *Store) ReplayAll(ctx context.Context, f ports.Filter, by string) (int, error) {
	page, err := s.Receipts(ctx, f)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, r := range page.Receipts {
		switch err := s.Replay(ctx, r.ID, by); {
		case err == nil:
			n++
		case errors.Is(err, domain.ErrState), errors.Is(err, domain.ErrNotFound):
			// open, pruned or replayed by another meanwhile
		default:
			return n, err
		}
	}
	return n, nil
}

// Discard implements ports.Ledger.
func (s *Store) Discard(ctx context.Context, id, by string) error {
	row, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	if !domain.State(row.State).Discardable() {
		return domain.ErrState
	}
	err = s.change(ctx, row.Tenant, row.ID, entry{what: "discard", attempt: row.Attempt, state: domain.Discarded, by: by}, `
		UPDATE receipts SET state = 'discarded', due_at = NULL, lane = NULL, parked = true
		WHERE tenant = ? AND id = ? AND state = ?`, row.Tenant, s.id(row.ID), row.State)
	if errors.Is(err, domain.ErrFenced) {
		return domain.ErrState
	}
	return err
}

// manyRows is how many receipts make counting the handled ones one by one too dear for a
// question that is asked every few seconds.
const manyRows = 1_000_000

// Counts implements ports.Ledger. Beyond a million receipts the handled ones of all tenants are
// told as one sum under an empty tenant and platform, by the database's own estimate.
func (s *Store) Counts(ctx context.Context) ([]ports.Count, error) {
	estimate, err := s.estimate(ctx)
	if err != nil {
		return nil, err
	}
	cond := "true"
	if estimate > manyRows {
		cond = "(r.lane IS NOT NULL OR r.due_at IS NOT NULL OR r.parked)"
	}
	var counts []ports.Count
	err = s.reads(ctx, everyone, func(tx *gorm.DB) error {
		return tx.Raw(`
			SELECT r.tenant, r.platform, r.state, count(*) AS n FROM receipts r WHERE ` + cond + `
			GROUP BY r.tenant, r.platform, r.state ORDER BY r.tenant, r.platform, r.state`).Scan(&counts).Error
	})
	if err != nil {
		return nil, classify(err)
	}
	if estimate > manyRows {
		for _, c := range counts {
			estimate -= c.N
		}
		counts = append(counts, ports.Count{State: domain.Handled, N: estimate})
	}
	return counts, nil
}

func (s *Store) estimate(ctx context.Context) (n int64, err error) {
	query := `SELECT coalesce(max(seq), 0) - coalesce(min(seq), 0) FROM receipts`
	if s.dialect == migrations.Postgres {
		query = `SELECT reltuples::bigint FROM pg_class WHERE oid = 'receipts'::regclass` // no row of any tenant's
	}
	return n, classify(s.read.WithContext(ctx).Raw(query).Scan(&n).Error)
}

// OldestOpen implements ports.Ledger.
func (s *Store) OldestOpen(ctx context.Context) (oldest time.Time, err error) {
	err = s.reads(ctx, everyone, func(tx *gorm.DB) error {
		// one by one: of both together SQLite reads the whole table
		for _, open := range []string{"r.lane IS NOT NULL", "r.due_at IS NOT NULL"} {
			var rows []receiptRow
			if err := tx.Raw(`SELECT r.claimed_at FROM receipts r WHERE ` + open + ` ORDER BY r.claimed_at LIMIT 1`).Scan(&rows).Error; err != nil {
				return err
			}
			for _, r := range rows {
				if oldest.IsZero() || r.ClaimedAt.Before(oldest) {
					oldest = r.ClaimedAt.UTC()
				}
			}
		}
		return nil
	})
	return oldest, classify(err)
}
