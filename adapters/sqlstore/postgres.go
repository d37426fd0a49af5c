package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// batchTimeout bounds one commit. It is a little longer than any vendor's patience, so that
// a commit which is late but alive is still learned of by who waits for it.
const batchTimeout = 5 * time.Second

// pgSettings keep every plan on indexes: one made while a table is empty would otherwise be
// kept until the first statistics, 10 to 20 times too expensive by then. They bound how long a
// batch waits for a row that another instance holds. Behind a pooling proxy, which keeps no
// session, they are made in each transaction; else once for a connection.
var pgSettings = map[string]string{
	"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off", "lock_timeout": "500",
	// to start workers costs more than what is asked for all day
	"max_parallel_workers_per_gather": "0",
	// to plan a begin anew each time costs more than to carry it out
	"plan_cache_mode": "force_generic_plan",
}

// localSettings makes pgSettings for one transaction.
var localSettings = func() string {
	calls := make([]string, 0, len(pgSettings))
	for name, value := range pgSettings {
		calls = append(calls, fmt.Sprintf("set_config('%s', '%s', true)", name, value))
	}
	return "SELECT " + strings.Join(calls, ", ")
}()

// A pgStatement is prepared once for a connection under its name, or sent as text each time
// behind a proxy. Its parameters are cast, so that their types need not be asked for.
type pgStatement struct{ name, text string }

// pgClaim writes receipts. It first takes the locks of the conversations in which a batch
// claims, in ascending order: so of two instances' claims in one conversation the later number
// is also the later commit, and a begin that sees no earlier claim can rely on there being
// none. It also keeps batches which hold the same events from waiting for each other's rows
// crosswise.
var pgClaim = pgStatement{"admitone_claim", `
INSERT INTO receipts (tenant, id, platform, channel, installation, account, event_id, event_digest,
	message_key, message_digest, kind, conversation, digest, guarantee, state, vendor_attempt,
	claimed_at, holder, last_error, lane, parked, attempt, deliveries)
SELECT v.*, 0, 1
FROM (SELECT count(pg_advisory_xact_lock(lane)) FROM unnest($1::bigint[]) lane) locks,
	unnest($2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::uuid[],
	$10::text[], $11::uuid[], $12::text[], $13::text[], $14::uuid[], $15::text[], $16::text[], $17::int[],
	$18::timestamptz[], $19::text[], $20::text[], $21::bigint[], $22::bool[]) v
ON CONFLICT DO NOTHING
RETURNING id, seq`}

var (
	pgSpeak = pgStatement{"admitone_speak", `SELECT set_config('admitone.tenants', $1::text, true)`}

	pgEnter = pgStatement{"admitone_enter", `INSERT INTO tenants (tenant) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING`}

	pgBegin = pgStatement{"admitone_begin", `
UPDATE receipts r
SET state = 'dispatching', attempt = r.attempt + 1, begun_at = now(), lease_until = now() + make_interval(secs => v.lease),
	due_at = CASE WHEN r.lane IS NULL THEN now() + make_interval(secs => v.lease) END
FROM unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::float8[]) WITH ORDINALITY v (tenant, id, holder, attempt, lease, n)
WHERE r.tenant = v.tenant AND r.id = v.id AND r.holder = v.holder AND r.attempt = v.attempt
	AND r.state IN ('claimed', 'retrying')
	AND (r.lane IS NULL OR NOT EXISTS (
		SELECT FROM receipts p WHERE p.tenant = r.tenant AND p.lane = r.lane AND p.lane IS NOT NULL AND p.seq < r.seq))
RETURNING r.id, v.n`}

	pgHandled = pgStatement{"admitone_handled", `
UPDATE receipts r
SET state = 'handled', handled_at = now(), due_at = NULL, lane = NULL, last_error = '', lease_until = NULL, parked = NULL
FROM unnest($1::text[], $2::uuid[], $3::text[], $4::int[]) WITH ORDINALITY v (tenant, id, holder, attempt, n)
WHERE r.tenant = v.tenant AND r.id = v.id AND r.holder = v.holder AND r.attempt = v.attempt
	AND r.state = 'dispatching' AND r.lease_until > now()
RETURNING r.id, v.n`}

	pgUnhandled = pgStatement{"admitone_unhandled", `
WITH ended AS (
	UPDATE receipts r
	SET state = v.state, due_at = v.due_at, lane = NULL, last_error = v.reason, lease_until = NULL,
		parked = CASE WHEN v.state IN ('failed', 'lost') THEN true END
	FROM unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::timestamptz[], $7::text[]) WITH ORDINALITY
		v (tenant, id, holder, attempt, state, due_at, reason, n)
	WHERE r.tenant = v.tenant AND r.id = v.id AND r.holder = v.holder AND r.attempt = v.attempt
		AND r.state = 'dispatching' AND r.lease_until > now()
	RETURNING v.n, r.tenant, r.id, r.attempt, r.state, r.last_error
)
INSERT INTO history (tenant, receipt_id, at, what, attempt, state, reason, by_whom)
SELECT tenant, id, now(), 'attempt', attempt, state, last_error, '' FROM ended
RETURNING receipt_id, (SELECT e.n FROM ended e WHERE e.tenant = history.tenant AND e.id = history.receipt_id)`}
)

// pgWinners reads what the losers of a claim lost to: by event key before by message key, and
// by id alone if it is neither. Of a receipt that has lost to itself it reads the conversation, too.
const pgWinners = `
SELECT v.n, w.taken, w.id::text, w.seq, w.state, w.attempt, w.digest::text, w.event_id, w.kind, w.holder,
	w.claimed_at, w.lease_until, w.due_at, w.handled_at,
	coalesce((SELECT m.conversation_id::text FROM messages m WHERE w.id = v.id AND m.tenant = w.tenant AND m.id = w.id), '')
FROM unnest($1::int[], $2::text[], $3::uuid[], $4::uuid[], $5::uuid[]) v (n, tenant, event_digest, message_digest, id),
LATERAL (
	SELECT 0 AS taken, r.* FROM receipts r WHERE r.event_digest = v.event_digest
	UNION ALL
	SELECT 1, r.* FROM receipts r WHERE r.message_digest = v.message_digest
	UNION ALL
	SELECT 2, r.* FROM receipts r WHERE r.tenant = v.tenant AND r.id = v.id
) w
ORDER BY v.n, w.taken DESC`

const pgStanding = `
SELECT v.n, r.state, r.holder, r.attempt
FROM unnest($1::int[], $2::text[], $3::uuid[]) v (n, tenant, id)
JOIN receipts r ON r.tenant = v.tenant AND r.id = v.id`

// A pgCommitter applies batches on Postgres: one transaction and one round trip each.
type pgCommitter struct {
	db      *sql.DB
	ctx     context.Context //nolint:containedctx // the store's life, which bounds every batch
	pooled  bool            // behind a proxy that keeps no session
	tenants *register
}

func (p *pgCommitter) apply(ops []*op) (unknown []*op) {
	err := p.try(ops)
	if err == nil {
		return nil
	}
	switch kind := pgKind(err); {
	case (kind == refusedRow || kind == held) && len(ops) > 1:
		return oneByOne(ops, p.apply)
	case kind == refusedRow:
		ops[0].finish(fmt.Errorf("sqlstore: %w", err))
		return nil
	default:
		for _, o := range ops {
			if o.answered() {
				continue
			}
			if (kind == unreachable || kind == held) && !o.doubt {
				o.finish(fmt.Errorf("%w: %w", domain.ErrUnavailable, err))
				continue
			}
			unknown = append(unknown, o)
		}
		return unknown
	}
}

func (o *op) answered() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// try applies ops in one transaction and answers each, or answers none and returns why.
func (p *pgCommitter) try(ops []*op) error {
	ctx, cancel := context.WithTimeout(p.ctx, batchTimeout)
	defer cancel()
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	return conn.Raw(func(dc any) error {
		c := dc.(*stdlib.Conn).Conn()
		err := p.transact(ctx, c, ops)
		if c.IsClosed() || stale(err) {
			return errors.Join(driver.ErrBadConn, err) // the pool drops it
		}
		return err
	})
}

func (p *pgCommitter) transact(ctx context.Context, c *pgx.Conn, ops []*op) error {
	claims, begins, settles := split(ops)
	strangers := p.tenants.missing(claims)
	if len(strangers) > 0 {
		// by itself, so that batches which enter the same tenant don't wait for each other's claims
		if _, err := c.Exec(ctx, pgEnter.text, strangers); err != nil {
			return fmt.Errorf("enter tenants: %w", err)
		}
		p.tenants.entered(strangers)
	}
	t := &pgTx{ctx: ctx, conn: c, pooled: p.pooled, ids: make(map[*op][16]byte, len(ops)), places: map[*op]int64{}}
	t.speak(spokenFor(ops))
	// a settle comes before a begin, so that the next event of a conversation begins in the
	// transaction in which the one before it ends
	t.settle(settles)
	t.begin(begins)
	t.claim(claims)
	rows, err := t.commit()
	if err != nil {
		return err
	}
	var lost, unsettled []*op
	for _, o := range claims {
		if seq, ok := rows.numbers[claimRows][t.ids[o]]; ok {
			o.err = nil
			o.claim.Seq, o.claim.ConversationID = seq, rows.conversation(t.ids[o])
			o.won = ports.Claim{Won: true, Receipt: *o.claim}
			continue
		}
		lost = append(lost, o)
	}
	for _, o := range begins {
		if !t.carriedOut(o, rows.numbers[beginRows]) {
			unsettled = append(unsettled, o)
			continue
		}
		o.attempt, o.err = o.begin.ref.Attempt+1, nil // whatever an earlier try had read
	}
	for _, o := range settles {
		kind := unhandledRows
		if o.settle.Step.State == domain.Handled {
			kind = handledRows
		}
		if !t.carriedOut(o, rows.numbers[kind]) {
			unsettled = append(unsettled, o)
			continue
		}
		o.err = nil
	}
	err = errors.Join(readWinners(ctx, c, lost), readStanding(ctx, c, unsettled))
	late := map[*op]bool{}
	if err != nil {
		for _, o := range slices.Concat(lost, unsettled) {
			late[o] = true
		}
	}
	for _, o := range ops {
		if !late[o] {
			close(o.done)
		}
	}
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	return nil
}

// spokenFor returns the tenants that ops concern.
func spokenFor(ops []*op) (v voice) {
	for _, o := range ops {
		t := ""
		if o.claim != nil {
			t = o.claim.Key.Tenant
		} else {
			t = o.ref().Tenant
		}
		if n := len(v.tenants); n == 0 || v.tenants[n-1] != t {
			v.tenants = append(v.tenants, t)
		}
	}
	return v
}

// ask sends a query that speaks for v, in one transaction and one round trip, and calls row for
// each row of its answer.
func ask(ctx context.Context, c *pgx.Conn, v voice, query string, args []any, row func(pgx.Rows) error) error {
	var b pgx.Batch
	b.Queue(pgSpeak.text, v.json())
	b.Queue(query, args...)
	answers := c.SendBatch(ctx, &b)
	_, err := answers.Exec()
	if err == nil {
		var rows pgx.Rows
		if rows, err = answers.Query(); err == nil {
			for rows.Next() && err == nil {
				err = row(rows)
			}
			rows.Close()
			err = errors.Join(err, rows.Err())
		}
	}
	return errors.Join(err, answers.Close())
}

// pgAsk is ask on a connection of the pool.
func (s *Store) pgAsk(ctx context.Context, v voice, query string, args []any, row func(pgx.Rows) error) error {
	db, err := s.write.DB()
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	return conn.Raw(func(dc any) error {
		c := dc.(*stdlib.Conn).Conn()
		err := ask(ctx, c, v, query, args, row)
		if c.IsClosed() || stale(err) {
			return errors.Join(driver.ErrBadConn, err) // the pool drops it
		}
		return err
	})
}

// readWinners completes the claims that were lost. A claim that meets its own receipt was
// applied by an earlier try.
func readWinners(ctx context.Context, c *pgx.Conn, lost []*op) error {
	if len(lost) == 0 {
		return nil
	}
	ns, tenants := make([]int32, len(lost)), make([]string, len(lost))
	events, messages, ids := make([]pgtype.UUID, len(lost)), make([]pgtype.UUID, len(lost)), make([]string, len(lost))
	for i, o := range lost {
		o.won, o.err = ports.Claim{}, nil
		ids[i] = o.claim.ID
		ns[i], tenants[i] = int32(i), o.claim.Key.Tenant
		events[i] = pgtype.UUID{Bytes: o.claim.Key.Digest(), Valid: true}
		messages[i] = pgDigest(o.claim.Key.Message(o.claim.MessageKey))
	}
	err := ask(ctx, c, of(tenants...), pgWinners, []any{ns, tenants, events, messages, ids}, func(rows pgx.Rows) error {
		var n, taken int
		var w ports.Claim
		var digest string
		var state, kind string
		var lease, due, handled *time.Time
		r := &w.Receipt
		if err := rows.Scan(&n, &taken, &r.ID, &r.Seq, &state, &r.Attempt, &digest, &r.Key.EventID, &kind, &r.Holder,
			&r.ClaimedAt, &lease, &due, &handled, &r.ConversationID); err != nil {
			return err
		}
		o := lost[n]
		id := r.Key.EventID
		r.State, r.Kind, r.Key = domain.State(state), domain.Kind(kind), o.claim.Key
		r.Key.EventID = id
		r.Digest, r.ClaimedAt = parseDigest(digest), r.ClaimedAt.UTC()
		r.LeaseUntil, r.DueAt, r.HandledAt = timeOf(lease), timeOf(due), timeOf(handled)
		o.lose(w, taken)
		return nil
	})
	if err != nil {
		return err
	}
	for _, o := range lost {
		if o.won.Receipt.ID == "" {
			// the winner was pruned in between: the event is new again
			return errVanished
		}
	}
	return nil
}

// What of a receipt to be claimed a stored one has taken.
const (
	eventTaken = iota
	messageTaken
	idTaken // and neither of the keys
)

var errIDTaken = errors.New("sqlstore: the receipt's id is that of another event")

// lose answers a claim that wrote nothing because of w: it was lost to w, or it met its own
// receipt, which an earlier try had written.
func (o *op) lose(w ports.Claim, taken int) {
	o.won, o.err = w, nil
	switch {
	case taken == idTaken:
		o.err = errIDTaken
	case w.Receipt.ID == o.claim.ID:
		o.won = ports.Claim{Won: true, Receipt: standing(*o.claim, w.Receipt)}
	default:
		o.won.SameMessage = taken == messageTaken
	}
}

// standing returns the receipt of a claim that an earlier try had won, as it stands by now:
// others may have taken it up meanwhile.
func standing(claim, row domain.Receipt) domain.Receipt {
	claim.Seq, claim.State, claim.Holder, claim.Attempt = row.Seq, row.State, row.Holder, row.Attempt
	claim.ConversationID = row.ConversationID
	return claim
}

// readStanding answers the begins and settles that changed nothing, by where the receipt stands.
func readStanding(ctx context.Context, c *pgx.Conn, ops []*op) error {
	if len(ops) == 0 {
		return nil
	}
	ns, tenants, ids := make([]int32, len(ops)), make([]string, len(ops)), make([]string, len(ops))
	for i, o := range ops {
		ref := o.ref()
		ns[i], tenants[i], ids[i] = int32(i), ref.Tenant, ref.ID
	}
	found := make([]bool, len(ops))
	err := ask(ctx, c, of(tenants...), pgStanding, []any{ns, tenants, ids}, func(rows pgx.Rows) error {
		var n, attempt int
		var state, holder string
		if err := rows.Scan(&n, &state, &holder, &attempt); err != nil {
			return err
		}
		found[n] = true
		ops[n].stand(domain.State(state), holder, attempt)
		return nil
	})
	for i, o := range ops {
		if !found[i] {
			o.err = domain.ErrFenced
		}
	}
	return err
}

func (o *op) ref() ports.Ref {
	if o.begin != nil {
		return o.begin.ref
	}
	return o.settle.Ref
}

// stand answers a begin or settle that changed nothing: it was applied by an earlier try, it
// waits for its conversation, or it is fenced.
func (o *op) stand(state domain.State, holder string, attempt int) {
	ref := o.ref()
	o.err = domain.ErrFenced
	switch {
	case holder != ref.Holder:
	case o.begin != nil && o.doubt && state == domain.Dispatching && attempt == ref.Attempt+1:
		o.attempt, o.err = attempt, nil
	case o.begin != nil && attempt == ref.Attempt && (state == domain.Claimed || state == domain.Retrying):
		o.err = ports.ErrWaits
		if o.doubt { // on a connection that was given up, and whose network may yet deliver it
			o.err = fmt.Errorf("%w: %w", ports.ErrWaits, domain.ErrUnknown)
		}
	case o.settle != nil && o.doubt && state == o.settle.Step.State && attempt == ref.Attempt:
		o.err = nil
	}
}

func pgDigest(d domain.Digest) pgtype.UUID { return pgtype.UUID{Bytes: d, Valid: !d.IsZero()} }

// What an error says of a batch.
type errorKind int

const (
	unsure      errorKind = iota // it may have been applied
	unreachable                  // certainly not applied: the store can't take anything now
	refusedRow                   // certainly not applied: a row, or the company of others, spoiled it
	held                         // certainly not applied: somebody else holds a row of it
)

var (
	errNotSent  = errors.New("nothing was sent")
	errReceipt  = errors.New("not a receipt")
	errVanished = errors.New("the receipt was pruned meanwhile")
)

func pgKind(err error) errorKind {
	if errors.Is(err, errNotSent) {
		return unreachable
	}
	if errors.Is(err, errReceipt) {
		return refusedRow
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pg.Severity == "FATAL" || pg.Severity == "PANIC" {
		return unsure
	}
	switch {
	case pg.Code == "40P01", pg.Code == "40001", pg.Code == "0A000":
		return unsure // rolled back: it is tried again, and that does no harm
	case pg.Code == "55P03":
		return held
	case strings.HasPrefix(pg.Code, "22"), strings.HasPrefix(pg.Code, "23"), strings.HasPrefix(pg.Code, "54"):
		return refusedRow
	}
	return unreachable
}

// stale reports whether a connection holds plans that a migration has made unfit: they would
// be unfit at each try.
func stale(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "0A000"
}
