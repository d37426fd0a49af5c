package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
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

// pgSettings hold for one transaction and keep every plan on indexes: a plan made while
// a table is empty would otherwise be kept until the first statistics, 10 to 20 times too
// expensive by then. They are made in the transaction, since a pooling proxy keeps no session.
const pgSettings = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
	set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true), set_config('lock_timeout', '1000', true)`

// pgLanes takes the locks of the conversations in which a batch claims, in ascending order:
// so of two instances' claims in one conversation the later number is also the later
// commit, and a begin that sees no earlier claim can rely on there being none. It also keeps
// batches which hold the same events from waiting for each other's rows crosswise.
const pgLanes = `SELECT count(pg_advisory_xact_lock(lane)) FROM unnest($1::bigint[]) lane`

const pgClaim = `
INSERT INTO receipts (tenant, id, platform, channel, installation, account, event_id, event_digest,
	message_key, message_digest, kind, conversation, digest, guarantee, state, vendor_attempt,
	claimed_at, holder, last_error, lane, parked, attempt, deliveries)
SELECT v.*, 0, 1 FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::uuid[],
	$9::text[], $10::uuid[], $11::text[], $12::text[], $13::uuid[], $14::text[], $15::text[], $16::int[],
	$17::timestamptz[], $18::text[], $19::text[], $20::bigint[], $21::bool[]) v
ON CONFLICT DO NOTHING
RETURNING id, seq`

const pgPayload = `
INSERT INTO payloads (tenant, receipt_id, media_type, body)
SELECT v.tenant, v.id, v.media_type, v.body
FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bytea[]) v (tenant, id, media_type, body)
WHERE EXISTS (SELECT FROM receipts r WHERE r.tenant = v.tenant AND r.id = v.id)
ON CONFLICT DO NOTHING`

const pgBegin = `
UPDATE receipts r
SET state = 'dispatching', attempt = r.attempt + 1, begun_at = now(), lease_until = now() + make_interval(secs => v.lease),
	due_at = CASE WHEN r.lane IS NULL THEN now() + make_interval(secs => v.lease) END
FROM unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::float8[]) WITH ORDINALITY v (tenant, id, holder, attempt, lease, n)
WHERE r.tenant = v.tenant AND r.id = v.id AND r.holder = v.holder AND r.attempt = v.attempt
	AND r.state IN ('claimed', 'retrying')
	AND (r.lane IS NULL OR NOT EXISTS (
		SELECT FROM receipts p WHERE p.tenant = r.tenant AND p.lane = r.lane AND p.lane IS NOT NULL AND p.seq < r.seq))
RETURNING v.n, r.attempt`

const pgSettle = `
WITH ended AS (
	UPDATE receipts r
	SET state = v.state, due_at = v.due_at, lane = NULL, last_error = v.reason, lease_until = NULL,
		handled_at = CASE WHEN v.state = 'handled' THEN now() ELSE r.handled_at END,
		parked = CASE WHEN v.state IN ('failed', 'lost') THEN true END
	FROM unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::timestamptz[], $7::text[]) WITH ORDINALITY
		v (tenant, id, holder, attempt, state, due_at, reason, n)
	WHERE r.tenant = v.tenant AND r.id = v.id AND r.holder = v.holder AND r.attempt = v.attempt
		AND r.state = 'dispatching' AND r.lease_until > now()
	RETURNING v.n, r.tenant, r.id, r.attempt, r.state, r.last_error
), noted AS (
	INSERT INTO history (tenant, receipt_id, at, what, attempt, state, reason, by_whom)
	SELECT tenant, id, now(), 'attempt', attempt, state, last_error, '' FROM ended WHERE state <> 'handled'
)
SELECT n, 0 FROM ended`

// pgWinners reads what the losers of a claim lost to: by event key before by message key.
const pgWinners = `
SELECT v.n, w.same_message, w.id::text, w.seq, w.state, w.attempt, w.digest::text, w.event_id, w.kind, w.holder,
	w.claimed_at, w.lease_until, w.due_at, w.handled_at
FROM unnest($1::int[], $2::text[], $3::uuid[], $4::uuid[]) v (n, tenant, event_digest, message_digest),
LATERAL (
	SELECT false AS same_message, r.* FROM receipts r WHERE r.tenant = v.tenant AND r.event_digest = v.event_digest
	UNION ALL
	SELECT true, r.* FROM receipts r WHERE r.tenant = v.tenant AND r.message_digest = v.message_digest
) w
ORDER BY v.n, w.same_message DESC`

const pgStanding = `
SELECT v.n, r.state, r.holder, r.attempt
FROM unnest($1::int[], $2::text[], $3::uuid[]) v (n, tenant, id)
JOIN receipts r ON r.tenant = v.tenant AND r.id = v.id`

// A pgCommitter applies batches on Postgres: one transaction and one round trip each.
type pgCommitter struct {
	db  *sql.DB
	ctx context.Context //nolint:containedctx // the store's life, which bounds every batch
}

func (p *pgCommitter) apply(ops []*op) (unknown []*op) {
	err := p.try(ops)
	if err == nil {
		return nil
	}
	switch kind := pgKind(err); {
	case kind == refusedRow && len(ops) > 1:
		return oneByOne(ops, p.try)
	case kind == refusedRow:
		ops[0].finish(fmt.Errorf("sqlstore: %w", err))
		return nil
	default:
		for _, o := range ops {
			if o.answered() {
				continue
			}
			if kind == unreachable && !o.doubt {
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
		if c.IsClosed() {
			return errors.Join(driver.ErrBadConn, err)
		}
		return err
	})
}

func (p *pgCommitter) transact(ctx context.Context, c *pgx.Conn, ops []*op) error {
	claims, begins, settles := split(ops)
	t, err := startPG(ctx, c, len(claims) > 0, len(begins) > 0, len(settles) > 0)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	// a settle comes before a begin, so that the next event of a conversation begins in the
	// transaction in which the one before it ends
	if len(settles) > 0 {
		t.settle(settles)
	}
	if len(begins) > 0 {
		t.begin(begins)
	}
	if len(claims) > 0 {
		t.claim(claims)
	}
	rows, err := t.commit()
	if err != nil {
		return err
	}
	var lost, unsettled []*op
	for _, o := range claims {
		if seq, ok := rows[claimRows][t.keys[o]]; ok {
			o.claim.Seq = seq
			o.won = ports.Claim{Won: true, Receipt: *o.claim}
			continue
		}
		lost = append(lost, o)
	}
	for _, o := range begins {
		if n, ok := rows[beginRows][t.keys[o]]; ok {
			o.attempt = int(n)
			continue
		}
		unsettled = append(unsettled, o)
	}
	for _, o := range settles {
		if _, ok := rows[settleRows][t.keys[o]]; !ok {
			unsettled = append(unsettled, o)
		}
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

// readWinners completes the claims that were lost. A claim that meets its own receipt was
// applied by an earlier try.
func readWinners(ctx context.Context, c *pgx.Conn, lost []*op) error {
	if len(lost) == 0 {
		return nil
	}
	ns, tenants := make([]int32, len(lost)), make([]string, len(lost))
	events, messages := make([]pgtype.UUID, len(lost)), make([]pgtype.UUID, len(lost))
	for i, o := range lost {
		ns[i], tenants[i] = int32(i), o.claim.Key.Tenant //nolint:gosec // at most maxBatch
		events[i] = pgtype.UUID{Bytes: o.claim.Key.Digest(), Valid: true}
		messages[i] = pgDigest(o.claim.Key.Message(o.claim.MessageKey))
	}
	rows, err := c.Query(ctx, pgWinners, ns, tenants, events, messages)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		var w ports.Claim
		var digest string
		var state, kind string
		var lease, due, handled *time.Time
		r := &w.Receipt
		if err := rows.Scan(&n, &w.SameMessage, &r.ID, &r.Seq, &state, &r.Attempt, &digest, &r.Key.EventID, &kind, &r.Holder,
			&r.ClaimedAt, &lease, &due, &handled); err != nil {
			return err
		}
		o := lost[n]
		id := r.Key.EventID
		r.State, r.Kind, r.Key = domain.State(state), domain.Kind(kind), o.claim.Key
		r.Key.EventID = id
		r.Digest = parseDigest(digest)
		r.LeaseUntil, r.DueAt, r.HandledAt = timeOf(lease), timeOf(due), timeOf(handled)
		if r.ID == o.claim.ID {
			w = ports.Claim{Won: true, Receipt: standing(*o.claim, *r)}
		}
		o.won = w
	}
	if err := rows.Err(); err != nil {
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

// standing returns the receipt of a claim that an earlier try had won, as it stands by now:
// others may have taken it up meanwhile.
func standing(claim, row domain.Receipt) domain.Receipt {
	claim.Seq, claim.State, claim.Holder, claim.Attempt = row.Seq, row.State, row.Holder, row.Attempt
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
		ns[i], tenants[i], ids[i] = int32(i), ref.Tenant, ref.ID //nolint:gosec // at most maxBatch
	}
	rows, err := c.Query(ctx, pgStanding, ns, tenants, ids)
	if err != nil {
		return err
	}
	defer rows.Close()
	for _, o := range ops {
		o.err = domain.ErrFenced
	}
	for rows.Next() {
		var n, attempt int
		var state, holder string
		if err := rows.Scan(&n, &state, &holder, &attempt); err != nil {
			return err
		}
		ops[n].stand(domain.State(state), holder, attempt)
	}
	return rows.Err()
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
	case o.settle != nil && o.doubt && state == o.settle.Step.State && attempt == ref.Attempt:
		o.err = nil
	}
}

// A pgTx is one batch on its way: everything is sent at once and answered at once.
type pgTx struct {
	p     *pgconn.Pipeline
	ctx   context.Context //nolint:containedctx // of this one transaction
	conn  *pgx.Conn
	stmts map[string]*pgconn.StatementDescription
	keys  map[*op]string // by which an answer is known, as it comes on the wire: the id of a claim, the place of others
	what  []int          // of each answer to come
	err   error
	b     pgx.ExtendedQueryBuilder
}

// Which answer a statement gives.
const (
	noRows = iota
	claimRows
	beginRows
	settleRows
	rowKinds
)

func startPG(ctx context.Context, c *pgx.Conn, claims, begins, settles bool) (*pgTx, error) {
	t := &pgTx{ctx: ctx, conn: c, stmts: map[string]*pgconn.StatementDescription{}, keys: map[*op]string{}}
	for _, s := range []struct {
		name, sql string
		used      bool
	}{
		{"settings", pgSettings, true},
		{"lanes", pgLanes, claims},
		{"claim", pgClaim, claims},
		{"payload", pgPayload, claims},
		{"begin", pgBegin, begins},
		{"settle", pgSettle, settles},
	} {
		if !s.used {
			continue
		}
		sd, err := c.Prepare(ctx, "admitone_"+s.name, s.sql)
		if err != nil {
			return nil, err
		}
		t.stmts[s.name] = sd
	}
	t.p = c.PgConn().StartPipeline(ctx)
	// begin and commit are spelled out each time and not prepared: it costs nothing and
	// lets proxies and captures see where transactions end
	t.p.SendQueryParams("begin", nil, nil, nil, nil)
	t.what = append(t.what, noRows)
	t.send("settings", noRows)
	return t, nil
}

func (t *pgTx) send(name string, what int, args ...any) {
	if t.err != nil {
		return
	}
	sd := t.stmts[name]
	if err := t.b.Build(t.conn.TypeMap(), sd, args); err != nil {
		t.err = fmt.Errorf("%w: %s: %w", errEncode, name, err)
		return
	}
	// the builder is used again before the pipeline is flushed
	t.p.SendQueryStatement(sd, slices.Clone(t.b.ParamValues), slices.Clone(t.b.ParamFormats), slices.Clone(t.b.ResultFormats))
	t.b = pgx.ExtendedQueryBuilder{}
	t.what = append(t.what, what)
}

// commit ends the transaction and returns, by kind of answer, the number that each row's key came with.
func (t *pgTx) commit() (rows [rowKinds]map[string]int64, err error) {
	if t.err == nil {
		t.p.SendQueryParams("commit", nil, nil, nil, nil)
		t.what = append(t.what, noRows)
	}
	err = t.p.Sync()
	for i := 0; err == nil; {
		var res any
		if res, err = t.p.GetResults(); err != nil {
			break
		}
		if res == nil {
			break
		}
		if _, ok := res.(*pgconn.PipelineSync); ok {
			break
		}
		rr := res.(*pgconn.ResultReader)
		kind := t.what[i]
		i++
		for rr.NextRow() {
			if kind == noRows {
				continue
			}
			if rows[kind] == nil {
				rows[kind] = map[string]int64{}
			}
			v := rr.Values()
			rows[kind][string(v[0])] = number(v[1])
		}
		_, err = rr.Close()
	}
	if closeErr := t.p.Close(); err == nil {
		err = closeErr
	}
	if t.err != nil {
		err = t.err
	}
	if !t.conn.IsClosed() && t.conn.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), time.Second)
		defer cancel()
		if _, rollErr := t.conn.Exec(ctx, "rollback"); rollErr != nil && err == nil {
			err = rollErr
		}
	}
	return rows, err
}

func number(b []byte) int64 {
	if len(b) == 4 {
		return int64(int32(binary.BigEndian.Uint32(b))) //nolint:gosec // an int4 of the wire
	}
	return int64(binary.BigEndian.Uint64(b)) //nolint:gosec // an int8 of the wire
}

func (t *pgTx) id(id string) [16]byte {
	u, err := uuid.Parse(id)
	if err != nil && t.err == nil {
		t.err = fmt.Errorf("%w: receipt id: %w", errEncode, err)
	}
	return u
}

// place is the key of the i-th begin or settle: of two that concern one receipt at most one is carried out.
func place(i int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(i)+1)) } //nolint:gosec // at most maxBatch

func (t *pgTx) claim(ops []*op) {
	n := len(ops)
	text := make([][]string, 11)
	for i := range text {
		text[i] = make([]string, n)
	}
	ids, events, messages, digests := make([]pgtype.UUID, n), make([]pgtype.UUID, n), make([]pgtype.UUID, n), make([]pgtype.UUID, n)
	attempts, at := make([]int32, n), make([]time.Time, n)
	reasons := make([]string, n)
	lanes, parked := make([]*int64, n), make([]*bool, n)
	media, bodies := make([]string, n), make([][]byte, n)
	locks := make([]int64, 0, n)
	yes := true
	for i, o := range ops {
		r := o.claim
		for j, v := range [...]string{r.Key.Tenant, r.Key.Platform, r.Channel, r.Installation, r.Key.Account, r.Key.EventID,
			r.MessageKey, string(r.Kind), r.Conversation, string(r.Guarantee), string(r.State)} {
			text[j][i] = v
		}
		ids[i] = pgtype.UUID{Bytes: t.id(r.ID), Valid: true}
		t.keys[o] = string(ids[i].Bytes[:])
		events[i] = pgtype.UUID{Bytes: r.Key.Digest(), Valid: true}
		messages[i] = pgDigest(r.Key.Message(r.MessageKey))
		digests[i] = pgtype.UUID{Bytes: r.Digest, Valid: true}
		attempts[i], at[i] = int32(r.VendorAttempt), r.ClaimedAt //nolint:gosec // bounded by the intake
		reasons[i] = r.LastError
		if r.State == domain.Claimed {
			lane := r.Key.Lane(r.Conversation)
			lanes[i] = &lane
			locks = append(locks, lane)
		} else {
			parked[i] = &yes
		}
		media[i], bodies[i] = r.Payload.MediaType, r.Payload.Body
		if bodies[i] == nil {
			bodies[i] = []byte{}
		}
	}
	slices.Sort(locks)
	t.send("lanes", noRows, slices.Compact(locks))
	holder := make([]string, n)
	for i, o := range ops {
		holder[i] = o.claim.Holder
	}
	t.send("claim", claimRows, text[0], ids, text[1], text[2], text[3], text[4], text[5], events, text[6], messages,
		text[7], text[8], digests, text[9], text[10], attempts, at, holder, reasons, lanes, parked)
	t.send("payload", noRows, text[0], ids, media, bodies)
}

func (t *pgTx) begin(ops []*op) {
	n := len(ops)
	tenants, holders, ids := make([]string, n), make([]string, n), make([]pgtype.UUID, n)
	attempts, leases := make([]int32, n), make([]float64, n)
	for i, o := range ops {
		ref := o.begin.ref
		tenants[i], holders[i], attempts[i] = ref.Tenant, ref.Holder, int32(ref.Attempt) //nolint:gosec // small
		ids[i] = pgtype.UUID{Bytes: t.id(ref.ID), Valid: true}
		t.keys[o] = place(i)
		leases[i] = o.begin.lease.Seconds()
	}
	t.send("begin", beginRows, tenants, ids, holders, attempts, leases)
}

func (t *pgTx) settle(ops []*op) {
	n := len(ops)
	tenants, holders, ids := make([]string, n), make([]string, n), make([]pgtype.UUID, n)
	attempts, states, reasons := make([]int32, n), make([]string, n), make([]string, n)
	due := make([]*time.Time, n)
	for i, o := range ops {
		s := o.settle
		tenants[i], holders[i], attempts[i] = s.Tenant, s.Holder, int32(s.Attempt) //nolint:gosec // small
		ids[i] = pgtype.UUID{Bytes: t.id(s.ID), Valid: true}
		t.keys[o] = place(i)
		states[i], reasons[i] = string(s.Step.State), s.Reason
		if !s.Step.DueAt.IsZero() {
			due[i] = &s.Step.DueAt
		}
	}
	t.send("settle", settleRows, tenants, ids, holders, attempts, states, due, reasons)
}

func pgDigest(d domain.Digest) pgtype.UUID { return pgtype.UUID{Bytes: d, Valid: !d.IsZero()} }

// What an error says of a batch.
type errorKind int

const (
	unsure      errorKind = iota // it may have been applied
	unreachable                  // certainly not applied: the store can't take anything now
	refusedRow                   // certainly not applied: a row, or the company of others, spoiled it
)

var (
	errNotSent  = errors.New("nothing was sent")
	errEncode   = errors.New("can't be encoded")
	errVanished = errors.New("the receipt was pruned meanwhile")
)

func pgKind(err error) errorKind {
	if errors.Is(err, errNotSent) {
		return unreachable
	}
	if errors.Is(err, errEncode) {
		return refusedRow
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Severity == "FATAL" || pg.Severity == "PANIC" {
		return unsure
	}
	switch {
	case pg.Code == "40P01", pg.Code == "40001", pg.Code == "0A000":
		return unsure // rolled back: it is tried again, and that does no harm
	case strings.HasPrefix(pg.Code, "22"), strings.HasPrefix(pg.Code, "23"), strings.HasPrefix(pg.Code, "54"):
		return refusedRow
	}
	return unreachable
}
