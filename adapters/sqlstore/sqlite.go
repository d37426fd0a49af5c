package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

const liteClaim = `
INSERT INTO receipts (tenant, id, platform, channel, installation, account, event_id, event_digest,
	message_key, message_digest, kind, conversation, digest, guarantee, state, vendor_attempt,
	claimed_at, holder, last_error, lane, parked, attempt, deliveries)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 1)
ON CONFLICT DO NOTHING
RETURNING seq`

const liteEnter = `INSERT OR IGNORE INTO tenants (tenant) VALUES (?)`

const litePayload = `INSERT INTO payloads (tenant, receipt_id, media_type, body) VALUES (?, ?, ?, ?)`

const liteBegin = `
UPDATE receipts
SET state = 'dispatching', attempt = attempt + 1, begun_at = @now, lease_until = @lease,
	due_at = CASE WHEN lane IS NULL THEN @lease END
WHERE tenant = @tenant AND id = @id AND holder = @holder AND attempt = @attempt AND state IN ('claimed', 'retrying')
	AND (lane IS NULL OR NOT EXISTS (
		SELECT 1 FROM receipts p
		WHERE p.tenant = receipts.tenant AND p.lane = receipts.lane AND p.lane IS NOT NULL AND p.seq < receipts.seq))`

const liteSettle = `
UPDATE receipts
SET state = @state, due_at = @due, lane = NULL, last_error = @reason, lease_until = NULL,
	handled_at = CASE WHEN @state = 'handled' THEN @now ELSE handled_at END,
	parked = CASE WHEN @state IN ('failed', 'lost') THEN true END
WHERE tenant = @tenant AND id = @id AND holder = @holder AND attempt = @attempt
	AND state = 'dispatching' AND lease_until > @now`

const liteNote = `
INSERT INTO history (tenant, receipt_id, at, what, attempt, state, reason, by_whom)
VALUES (?, ?, ?, 'attempt', ?, ?, ?, '')`

const liteWinner = `
SELECT taken, id, seq, state, attempt, digest, event_id, kind, holder, claimed_at, lease_until, due_at, handled_at,
	coalesce((SELECT m.conversation_id FROM messages m WHERE w.id = @id AND m.tenant = @tenant AND m.id = @id), '')
FROM (
	SELECT 0 AS taken, * FROM receipts WHERE tenant = @tenant AND event_digest = @event
	UNION ALL
	SELECT 1, * FROM receipts WHERE tenant = @tenant AND message_digest = @message
	UNION ALL
	SELECT 2, * FROM receipts WHERE tenant = @tenant AND id = @id
) w ORDER BY taken LIMIT 1`

const liteStanding = `SELECT state, holder, attempt FROM receipts WHERE tenant = ? AND id = ?`

// A liteCommitter applies batches on SQLite: one transaction each. There is one writer, so
// nothing can come between the statements of a batch.
type liteCommitter struct {
	db      *sql.DB         // one connection, the writer's
	ctx     context.Context //nolint:containedctx // the store's life, which bounds every batch
	stmts   liteStatements
	tenants register
}

type liteStatements struct {
	claim, payload, open, message, begin, settle, note, winner, standing *sql.Stmt
}

func newLiteCommitter(ctx context.Context, db *sql.DB) (*liteCommitter, error) {
	l := &liteCommitter{db: db, ctx: ctx}
	for text, s := range map[string]**sql.Stmt{
		liteClaim: &l.stmts.claim, litePayload: &l.stmts.payload, liteOpen: &l.stmts.open, liteMessage: &l.stmts.message, liteBegin: &l.stmts.begin, liteSettle: &l.stmts.settle,
		liteNote: &l.stmts.note, liteWinner: &l.stmts.winner, liteStanding: &l.stmts.standing,
	} {
		var err error
		if *s, err = db.PrepareContext(ctx, text); err != nil {
			return nil, fmt.Errorf("sqlstore: prepare: %w", err)
		}
	}
	return l, nil
}

func (l *liteCommitter) apply(ops []*op) (unknown []*op) {
	err := l.try(ops)
	if err == nil {
		return nil
	}
	kind := liteKind(err)
	if kind == refusedRow && len(ops) > 1 {
		return oneByOne(ops, l.apply)
	}
	for _, o := range ops {
		switch {
		case kind == refusedRow:
			o.finish(fmt.Errorf("sqlstore: %w", err))
		case kind == unreachable && !o.doubt:
			o.finish(fmt.Errorf("%w: %w", domain.ErrUnavailable, err))
		default:
			unknown = append(unknown, o)
		}
	}
	return unknown
}

func (l *liteCommitter) try(ops []*op) error {
	ctx, cancel := context.WithTimeout(l.ctx, batchTimeout)
	defer cancel()
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	now := time.Now()
	claims, begins, settles := split(ops)
	strangers := l.tenants.missing(claims)
	for _, t := range strangers {
		if _, err := tx.ExecContext(ctx, liteEnter, t); err != nil {
			return errors.Join(fmt.Errorf("%w: %w", errRolledBack, err), tx.Rollback())
		}
	}
	for _, step := range []struct {
		ops   []*op
		apply func(context.Context, *sql.Tx, *op, time.Time) error
	}{{settles, l.settle}, {begins, l.begin}, {claims, l.claim}} {
		for _, o := range step.ops {
			if err := step.apply(ctx, tx, o, now); err != nil {
				return errors.Join(fmt.Errorf("%w: %w", errRolledBack, err), tx.Rollback())
			}
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	l.tenants.entered(strangers)
	for _, o := range ops {
		close(o.done)
	}
	return nil
}

func (l *liteCommitter) claim(ctx context.Context, tx *sql.Tx, o *op, _ time.Time) error {
	r := o.claim
	var lane, parked any
	if r.State == domain.Claimed {
		lane = r.Key.Lane(r.Conversation)
	} else {
		parked = true
	}
	event, message := r.Key.Digest().String(), liteDigest(r.Key.Message(r.MessageKey))
	err := tx.StmtContext(ctx, l.stmts.claim).QueryRowContext(ctx, r.Key.Tenant, r.ID, r.Key.Platform, r.Channel, r.Installation,
		r.Key.Account, r.Key.EventID, event, r.MessageKey, message, r.Kind, r.Conversation, r.Digest.String(), r.Guarantee, r.State,
		r.VendorAttempt, r.ClaimedAt, r.Holder, r.LastError, lane, parked).Scan(&r.Seq)
	if err == nil {
		body := r.Payload.Body
		if body == nil {
			body = []byte{}
		}
		_, err = tx.StmtContext(ctx, l.stmts.payload).ExecContext(ctx, r.Key.Tenant, r.ID, r.Payload.MediaType, body)
		if err == nil && r.Kind == domain.MessageCreated {
			err = l.message(ctx, tx, r)
		}
		o.won, o.err = ports.Claim{Won: true, Receipt: *r}, nil
		return err
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	w := ports.Claim{Receipt: domain.Receipt{Key: r.Key}}
	var digest string
	var taken int
	var lease, due, handled *time.Time
	p := &w.Receipt
	err = tx.StmtContext(ctx, l.stmts.winner).QueryRowContext(ctx,
		sql.Named("tenant", r.Key.Tenant), sql.Named("event", event), sql.Named("message", message), sql.Named("id", r.ID),
	).Scan(&taken, &p.ID, &p.Seq, &p.State, &p.Attempt, &digest, &p.Key.EventID, &p.Kind, &p.Holder, &p.ClaimedAt, &lease, &due, &handled, &p.ConversationID)
	if err != nil {
		return err
	}
	p.Digest = parseDigest(digest)
	p.LeaseUntil, p.DueAt, p.HandledAt = timeOf(lease), timeOf(due), timeOf(handled)
	o.lose(w, taken)
	return nil
}

// message records r, which is won, as a message in its conversation.
func (l *liteCommitter) message(ctx context.Context, tx *sql.Tx, r *domain.Receipt) error {
	key := liteDigest(r.Key.Conversation(r.Conversation))
	if key != nil {
		_, err := tx.StmtContext(ctx, l.stmts.open).ExecContext(ctx,
			r.Key.Tenant, r.ID, r.Key.Platform, r.Key.Account, r.Conversation, key, r.ClaimedAt)
		if err != nil {
			return err
		}
	}
	return tx.StmtContext(ctx, l.stmts.message).QueryRowContext(ctx,
		sql.Named("tenant", r.Key.Tenant), sql.Named("id", r.ID), sql.Named("key", key)).Scan(&r.ConversationID)
}

func (l *liteCommitter) begin(ctx context.Context, tx *sql.Tx, o *op, now time.Time) error {
	ref := o.begin.ref
	res, err := tx.StmtContext(ctx, l.stmts.begin).ExecContext(ctx, sql.Named("now", now), sql.Named("lease", now.Add(o.begin.lease)),
		sql.Named("tenant", ref.Tenant), sql.Named("id", ref.ID), sql.Named("holder", ref.Holder), sql.Named("attempt", ref.Attempt))
	if err != nil {
		return err
	}
	o.attempt, o.err = ref.Attempt+1, nil
	return l.stand(ctx, tx, o, res)
}

func (l *liteCommitter) settle(ctx context.Context, tx *sql.Tx, o *op, now time.Time) error {
	s := o.settle
	var due any
	if !s.Step.DueAt.IsZero() {
		due = s.Step.DueAt
	}
	res, err := tx.StmtContext(ctx, l.stmts.settle).ExecContext(ctx, sql.Named("state", s.Step.State), sql.Named("due", due),
		sql.Named("reason", s.Reason), sql.Named("now", now), sql.Named("tenant", s.Tenant), sql.Named("id", s.ID),
		sql.Named("holder", s.Holder), sql.Named("attempt", s.Attempt))
	if err != nil {
		return err
	}
	o.err = nil
	n, err := res.RowsAffected()
	if err == nil && n > 0 && s.Step.State != domain.Handled {
		_, err = tx.StmtContext(ctx, l.stmts.note).ExecContext(ctx, s.Tenant, s.ID, now, s.Attempt, s.Step.State, s.Reason)
		return err
	}
	return l.stand(ctx, tx, o, res)
}

// stand answers o by where its receipt stands, if res changed nothing.
func (l *liteCommitter) stand(ctx context.Context, tx *sql.Tx, o *op, res sql.Result) error {
	n, err := res.RowsAffected()
	if err != nil || n > 0 {
		return err
	}
	var state domain.State
	var holder string
	var attempt int
	ref := o.ref()
	err = tx.StmtContext(ctx, l.stmts.standing).QueryRowContext(ctx, ref.Tenant, ref.ID).Scan(&state, &holder, &attempt)
	if errors.Is(err, sql.ErrNoRows) {
		o.err = domain.ErrFenced
		return nil
	}
	if err != nil {
		return err
	}
	o.stand(state, holder, attempt)
	return nil
}

func liteDigest(d domain.Digest) any {
	if d.IsZero() {
		return nil
	}
	return d.String()
}

var errRolledBack = errors.New("rolled back")

func liteKind(err error) errorKind {
	if errors.Is(err, errNotSent) {
		return unreachable
	}
	if !errors.Is(err, errRolledBack) {
		return unsure
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG:
			return refusedRow
		}
	}
	return unreachable
}
