package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"gorm.io/gorm"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// Beat implements ports.DurableStore.
func (s *Store) Beat(ctx context.Context, holder string, ttl time.Duration) error {
	return s.exec(ctx, `
		INSERT INTO instances (id, alive_until) VALUES (?, ?)
		ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until`, holder, s.in(ttl))
}

// Leave implements ports.DurableStore.
func (s *Store) Leave(ctx context.Context, holder string) error {
	return s.exec(ctx, `DELETE FROM instances WHERE id = ? OR alive_until < ?`, holder, s.in(-24*time.Hour))
}

// waiting selects claimed receipts that no living instance but the asking one holds. That an id is more
// than nothing makes Postgres take the index of the instances, which are few: a scan of them, being
// forbidden, seems so dear to it that it would rather read all receipts once than the instances twice.
const waiting = `r.lane IS NOT NULL AND r.state = 'claimed'
	AND r.holder NOT IN (SELECT i.id FROM instances i WHERE i.id > '' AND i.alive_until > ? AND i.id <> ?)`

// sweeps reads of all tenants what is open, again and again. Until they are vacuumed the indexes of that
// hold mostly what is not open any more. An index scan marks it, so that the next passes over it, and a
// bitmap scan would not.
func (s *Store) sweeps(ctx context.Context, read func(tx *gorm.DB) error) error {
	return s.reads(ctx, everyone, func(tx *gorm.DB) error {
		if s.dialect == migrations.Postgres {
			if err := tx.Exec(`SET LOCAL enable_bitmapscan = off`).Error; err != nil {
				return err
			}
		}
		return read(tx)
	})
}

// TakeUp implements ports.DurableStore.
func (s *Store) TakeUp(ctx context.Context, holder string, mine func(string) bool, limit int, reserve time.Duration,
) ([]domain.Receipt, error) {
	var found []receiptRow
	err := s.sweeps(ctx, func(tx *gorm.DB) error {
		// what this instance holds and knows of stands among what it asks for, as many as its
		// queue has places. By seq alone SQLite would rather walk the whole table in that order
		// than the index of what is open.
		const page = 10_000
		for after, more := int64(-1), true; more && len(found) < limit; {
			var some []receiptRow
			err := tx.Raw(`
				SELECT r.tenant, r.id, r.seq, r.holder FROM receipts r WHERE `+waiting+` AND r.seq + 0 > ?
				ORDER BY r.seq + 0 LIMIT ?`, s.now(), holder, after, page).Scan(&some).Error
			if err != nil {
				return err
			}
			if more = len(some) == page; more {
				after = some[page-1].Seq
			}
			found = append(found, slices.DeleteFunc(some, func(r receiptRow) bool { return r.Holder == holder && mine(r.ID) })...)
		}
		found = found[:min(len(found), limit)]
		var due []receiptRow
		err := tx.Raw(`
			SELECT r.tenant, r.id FROM receipts r
			WHERE r.due_at IS NOT NULL AND r.due_at <= ? AND r.state = 'retrying'
			ORDER BY r.due_at LIMIT ?`, s.now(), limit-len(found)).Scan(&due).Error
		found = append(found, due...)
		return err
	})
	if err != nil {
		return nil, classify(err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	var theirs voice
	for _, r := range found {
		theirs.tenants = append(theirs.tenants, r.Tenant)
	}
	var rows []receiptRow
	err = s.writes(ctx, theirs, func(tx *gorm.DB) error {
		var got []receiptRow
		if err := tx.Raw(`
			WITH found AS MATERIALIZED (
				SELECT r.tenant, r.id FROM ? JOIN receipts r ON r.tenant = v.column1 AND r.id = v.column2
				WHERE `+waiting+` OR r.state = 'retrying' AND r.due_at <= ?
				?)
			UPDATE receipts SET holder = ?, due_at = CASE WHEN state = 'retrying' THEN ? ELSE due_at END
			FROM found WHERE receipts.tenant = found.tenant AND receipts.id = found.id
			RETURNING receipts.tenant, receipts.id`,
			s.named(found), s.now(), holder, s.now(), s.locked(), holder, s.in(reserve)).Scan(&got).Error; err != nil {
			return err
		}
		if len(got) == 0 {
			return nil
		}
		return tx.Raw(`
			SELECT `+receiptColumns+`, coalesce(p.media_type, '') AS media_type, p.body,
				coalesce(CAST(m.conversation_id AS text), '') AS conversation_id
			FROM ? JOIN receipts r ON r.tenant = v.column1 AND r.id = v.column2
				LEFT JOIN payloads p ON p.tenant = r.tenant AND p.receipt_id = r.id
				LEFT JOIN messages m ON m.tenant = r.tenant AND m.id = r.id
			ORDER BY r.seq`, s.named(got)).Scan(&rows).Error
	})
	if err != nil {
		return nil, classify(err)
	}
	return receipts(rows), nil
}

// Expired implements ports.DurableStore.
func (s *Store) Expired(ctx context.Context, limit int) ([]domain.Receipt, error) {
	var rows []receiptRow
	err := s.sweeps(ctx, func(tx *gorm.DB) error {
		return tx.Raw(`
			SELECT `+receiptColumns+` FROM receipts r
			WHERE r.lane IS NOT NULL AND r.state = 'dispatching' AND r.lease_until <= ?
			UNION ALL
			SELECT `+receiptColumns+` FROM receipts r
			WHERE r.lane IS NULL AND r.due_at <= ? AND r.state = 'dispatching' AND r.lease_until <= ?
			LIMIT ?`, s.now(), s.now(), s.now(), limit).Scan(&rows).Error
	})
	if err != nil {
		return nil, classify(err)
	}
	return receipts(rows), nil
}

// Expire implements ports.DurableStore.
func (s *Store) Expire(ctx context.Context, r domain.Receipt, step domain.Step, reason string) error {
	var due, parked any
	if step.State == domain.Retrying {
		due = step.DueAt
	} else {
		parked = true
	}
	return s.change(ctx, r.Key.Tenant, r.ID, entry{what: "lost", attempt: r.Attempt, state: step.State, reason: reason}, `
		UPDATE receipts SET state = ?, due_at = ?, lane = NULL, parked = ?, last_error = ?, lease_until = NULL
		WHERE tenant = ? AND id = ? AND state = 'dispatching' AND holder = ? AND attempt = ? AND lease_until <= ?`,
		step.State, due, parked, reason, r.Key.Tenant, s.id(r.ID), r.Holder, r.Attempt, s.now())
}

// An entry is a row of history yet to be written.
type entry struct {
	what    string
	attempt int
	state   domain.State
	reason  string
	by      string
}

// change carries out update, which concerns one receipt, and notes e in its history. It returns
// domain.ErrFenced if update changed nothing.
func (s *Store) change(ctx context.Context, tenant, id string, e entry, update string, args ...any) error {
	err := s.writes(ctx, of(tenant), func(tx *gorm.DB) error {
		res := tx.Exec(update, args...)
		if res.Error != nil {
			return res.Error
		}
		if res.RowsAffected == 0 {
			return domain.ErrFenced
		}
		return tx.Exec(`INSERT INTO history (tenant, receipt_id, at, what, attempt, state, reason, by_whom)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			tenant, s.id(id), s.now(), e.what, e.attempt, e.state, e.reason, e.by).Error
	})
	if errors.Is(err, domain.ErrFenced) {
		return err
	}
	return classify(err)
}

// CountDeliveries implements ports.DurableStore.
func (s *Store) CountDeliveries(ctx context.Context, counts []ports.DeliveryCount) ([]ports.DeliveryCount, error) {
	const chunk = 500
	// an UPDATE takes one of several rows that it is joined with
	counts = merged(counts)
	var left []ports.DeliveryCount
	for i := 0; i < len(counts); i += chunk {
		rest, err := s.countDeliveries(ctx, counts[i:min(i+chunk, len(counts))])
		if err != nil {
			return append(left, counts[i:]...), classify(err)
		}
		left = append(left, rest...)
	}
	return left, nil
}

// merged returns counts with one for each event.
func merged(counts []ports.DeliveryCount) []ports.DeliveryCount {
	type key struct {
		tenant string
		event  domain.Digest
	}
	at := make(map[key]int, len(counts))
	out := make([]ports.DeliveryCount, 0, len(counts))
	for _, c := range counts {
		k := key{c.Tenant, c.Event}
		i, ok := at[k]
		if !ok {
			at[k] = len(out)
			out = append(out, c)
			continue
		}
		out[i].N += c.N
		out[i].VendorAttempt = max(out[i].VendorAttempt, c.VendorAttempt)
	}
	return out
}

func (s *Store) countDeliveries(ctx context.Context, counts []ports.DeliveryCount) ([]ports.DeliveryCount, error) {
	var done []int
	var err error
	if s.dialect == migrations.Postgres {
		done, err = s.pgCount(ctx, counts)
	} else {
		done, err = s.liteCount(ctx, counts)
	}
	if err != nil {
		return nil, err
	}
	added := make([]bool, len(counts))
	for _, n := range done {
		added[n] = true
	}
	var left []ports.DeliveryCount
	for i, c := range counts {
		if !added[i] {
			left = append(left, c)
		}
	}
	return left, nil
}

// pgCount adds counts to their receipts and returns the indexes of those that it added. What is
// locked is found once, before anything is changed: a plan may carry a subquery of a condition
// out for each row.
func (s *Store) pgCount(ctx context.Context, counts []ports.DeliveryCount) (done []int, err error) {
	var theirs voice
	events := make([]pgtype.UUID, len(counts))
	ns, attempts := make([]int32, len(counts)), make([]int32, len(counts))
	for i, c := range counts {
		theirs.tenants, events[i] = append(theirs.tenants, c.Tenant), pgDigest(c.Event)
		ns[i], attempts[i] = int32(c.N), int32(c.VendorAttempt) //nolint:gosec // the intake bounds both
	}
	// in one round trip, since it locks rows of others' that are open
	err = s.pgAsk(ctx, theirs, `
		WITH found AS MATERIALIZED (
			SELECT r.tenant, r.id, v.n, v.attempt, v.place
			FROM unnest($1::text[], $2::uuid[], $3::int[], $4::int[]) WITH ORDINALITY v (tenant, event, n, attempt, place)
			JOIN receipts r ON r.event_digest = v.event
			FOR UPDATE OF r SKIP LOCKED)
		UPDATE receipts
		SET deliveries = deliveries + found.n, vendor_attempt = greatest(vendor_attempt, found.attempt)
		FROM found
		WHERE receipts.tenant = found.tenant AND receipts.id = found.id
		RETURNING found.place - 1`, []any{theirs.tenants, events, ns, attempts}, func(rows pgx.Rows) error {
		var n int
		if err := rows.Scan(&n); err != nil {
			return err
		}
		done = append(done, n)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

func (s *Store) liteCount(ctx context.Context, counts []ports.DeliveryCount) (done []int, err error) {
	values := make([]string, len(counts))
	args := make([]any, 0, 4*len(counts))
	for i, c := range counts {
		values[i] = "(?, ?, CAST(? AS INTEGER), CAST(? AS INTEGER))"
		args = append(args, c.Tenant, c.Event.String(), c.N, c.VendorAttempt)
	}
	var got []struct {
		Tenant      string
		EventDigest string
	}
	var theirs voice
	// SQLite knows the columns of VALUES by these names alone, and returns none of theirs
	err = s.writes(ctx, theirs, func(tx *gorm.DB) error {
		return tx.Raw(`
		WITH v AS (SELECT column1 AS tenant, column2 AS event, column3 AS n, column4 AS attempt FROM (VALUES `+strings.Join(values, ", ")+`) AS x)
		UPDATE receipts
		SET deliveries = deliveries + v.n, vendor_attempt = max(vendor_attempt, v.attempt)
		FROM v
		WHERE receipts.tenant = v.tenant AND receipts.event_digest = v.event
		RETURNING receipts.tenant, receipts.event_digest`, args...).Scan(&got).Error
	})
	if err != nil {
		return nil, err
	}
	for _, g := range got {
		done = append(done, slices.IndexFunc(counts, func(c ports.DeliveryCount) bool {
			return c.Tenant == g.Tenant && c.Event == parseDigest(g.EventDigest)
		}))
	}
	return done, nil
}

// AcquireLease implements ports.DurableStore.
func (s *Store) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	n := int64(0)
	err := s.writes(ctx, deployment, func(tx *gorm.DB) error {
		res := tx.Exec(`
			INSERT INTO leases (name, holder, until) VALUES (?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
			WHERE leases.holder = excluded.holder OR leases.until <= ?`, name, holder, s.in(ttl), s.now())
		n = res.RowsAffected
		return res.Error
	})
	return n > 0, classify(err)
}

// Prune implements ports.DurableStore.
func (s *Store) Prune(ctx context.Context, scope ports.PruneScope, limit int) (int, error) {
	which, args := "true", []any{}
	if scope.Only != nil {
		which, args = "r.installation IN ?", []any{scope.Only}
	} else if len(scope.Except) > 0 {
		which, args = "r.installation NOT IN ?", []any{scope.Except}
	}
	n := 0
	err := s.writes(ctx, of(scope.Tenant), func(tx *gorm.DB) error {
		var old []receiptRow
		// the order of ids is that of time, so the primary key finds what is old
		err := tx.Raw(`
			SELECT r.tenant, r.id FROM receipts r
			WHERE r.tenant = ? AND r.id < ? AND r.state NOT IN ('claimed', 'dispatching', 'retrying') AND `+which+`
			ORDER BY r.id LIMIT ?`,
			append(append([]any{scope.Tenant, s.id(idBefore(scope.Receipts))}, args...), limit)...).Scan(&old).Error
		if err != nil {
			return err
		}
		emptied, err := s.emptied(tx, scope.Tenant, old, scope.Receipts)
		if err != nil {
			return err
		}
		if old, err = s.lockClosed(tx, scope.Tenant, old); err != nil {
			return err
		}
		if err := s.deleteAll(tx, scope.Tenant, old, "payloads:receipt_id", "history:receipt_id", "messages:id", "receipts:id"); err != nil {
			return err
		}
		if err := s.deleteEmpty(tx, scope.Tenant, emptied); err != nil {
			return err
		}
		n = len(old)
		var bare []receiptRow
		err = tx.Raw(`
			SELECT p.tenant, p.receipt_id AS id FROM payloads p JOIN receipts r ON r.tenant = p.tenant AND r.id = p.receipt_id
			WHERE p.tenant = ? AND p.receipt_id < ? AND r.state NOT IN ('claimed', 'dispatching', 'retrying') AND `+which+`
			ORDER BY p.receipt_id LIMIT ? ?`,
			append(append([]any{scope.Tenant, s.id(idBefore(scope.Payloads))}, args...), limit, s.locked())...).Scan(&bare).Error
		if err != nil {
			return err
		}
		n += len(bare)
		return s.deleteAll(tx, scope.Tenant, bare, "payloads:receipt_id")
	})
	return n, classify(err)
}

// lockClosed returns those of a tenant's receipts that are closed and nobody is changing, locked.
func (s *Store) lockClosed(tx *gorm.DB, tenant string, rows []receiptRow) (locked []receiptRow, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	err = tx.Raw(`
		SELECT r.tenant, r.id FROM receipts r
		WHERE r.tenant = ? AND r.id IN ? AND r.state NOT IN ('claimed', 'dispatching', 'retrying') ?`,
		tenant, s.ids(rows), s.locked()).Scan(&locked).Error
	return locked, err
}

func (s *Store) deleteAll(tx *gorm.DB, tenant string, rows []receiptRow, columns ...string) error {
	if len(rows) == 0 {
		return nil
	}
	for _, c := range columns {
		table, column, _ := strings.Cut(c, ":")
		if err := tx.Exec(`DELETE FROM `+table+` WHERE tenant = ? AND `+column+` IN ?`, tenant, s.ids(rows)).Error; err != nil {
			return err
		}
	}
	return nil
}

// idBefore returns the least UUIDv7 of a time: all ids drawn before are smaller.
func idBefore(t time.Time) string {
	ms := max(t.UnixMilli(), 0)
	return fmt.Sprintf("%08x-%04x-7000-8000-000000000000", ms>>16, ms&0xffff)
}

func (s *Store) exec(ctx context.Context, query string, args ...any) error {
	return classify(s.write.WithContext(ctx).Exec(query, args...).Error)
}

// classify tells apart what became of a change: certainly nothing, since the store is out of
// reach or busy; nobody knows; or the store refused it.
func classify(err error) error {
	if err == nil {
		return nil
	}
	switch changeKind(err) {
	case unreachable:
		return fmt.Errorf("%w: %w", domain.ErrUnavailable, err)
	case unsure:
		return fmt.Errorf("%w: %w", domain.ErrUnknown, err)
	case refusedRow, held:
	}
	return fmt.Errorf("sqlstore: %w", err)
}

func changeKind(err error) errorKind {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	var lite *sqlite.Error
	switch {
	case errors.As(err, &connect), pgconn.SafeToRetry(err):
		return unreachable
	case errors.As(err, &pg):
		if pg.Severity == "FATAL" || pg.Severity == "PANIC" {
			return unsure // the connection went with it, maybe between a commit and its answer
		}
		switch pg.Code[:2] {
		case "08", "40", "53", "55", "57": // connection, rolled back, resources, locked, cancelled
			return unreachable
		}
		return refusedRow
	case errors.As(err, &lite):
		switch lite.Code() & 0xff {
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM:
			return unreachable
		case sqlite3.SQLITE_IOERR:
			return unsure
		}
		return refusedRow
	}
	// Whatever no server has told may have come between a commit and its answer.
	return unsure
}
