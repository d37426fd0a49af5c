package sqlstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/admitone/admitone/domain"
)

// A pgTx is one batch on its way: all statements are sent at once and answered at once. They are
// one transaction, which the server begins with the first and commits at the sync that ends them.
// The first says for which tenants it speaks: once, however many rows follow.
type pgTx struct {
	ctx    context.Context //nolint:containedctx // of this one transaction
	conn   *pgx.Conn
	pooled bool
	calls  []pgCall
	ids    map[*op][16]byte
	places map[*op]int64 // of begins and settles in their statement, the first being 1
	err    error
}

type pgCall struct {
	pgStatement
	rows int // what its answer is of
	args [][]byte
}

// What the rows of an answer are of.
const (
	noRows = iota
	claimRows
	beginRows
	handledRows
	unhandledRows
	numberKinds
	messageRows
)

// pgRows are what came with the ids of rows.
type pgRows struct {
	numbers       [numberKinds]map[[16]byte]int64 // of a claim its seq, of a begin or settle its place
	conversations map[[16]byte][16]byte           // of messages that stand in one
}

// conversation returns the id of the conversation of a message, and nothing for what is none.
func (r pgRows) conversation(message [16]byte) string {
	id, ok := r.conversations[message]
	if !ok {
		return ""
	}
	return uuid.UUID(id).String()
}

func (r *pgRows) add(kind int, row [][]byte) {
	id := [16]byte(row[0])
	if kind != messageRows {
		if r.numbers[kind] == nil {
			r.numbers[kind] = map[[16]byte]int64{}
		}
		r.numbers[kind][id] = int64(binary.BigEndian.Uint64(row[1])) //nolint:gosec // an int8 of the wire
		return
	}
	if row[1] != nil {
		if r.conversations == nil {
			r.conversations = map[[16]byte][16]byte{}
		}
		r.conversations[id] = [16]byte(row[1])
	}
}

// carriedOut reports whether o, a begin or settle, is what changed its receipt: of several in
// one batch that concern the same receipt at most one does, and rows tell the place of that one.
func (t *pgTx) carriedOut(o *op, rows map[[16]byte]int64) bool {
	place, ok := rows[t.ids[o]]
	return ok && place == t.places[o]
}

var binaryFormat = []int16{pgtype.BinaryFormatCode}

// commit sends everything, waits for the answers, and returns their rows by kind.
func (t *pgTx) commit() (rows pgRows, err error) {
	if t.err != nil {
		return rows, t.err
	}
	if !t.pooled {
		for _, c := range t.calls {
			if _, err := t.conn.Prepare(t.ctx, c.name, c.text); err != nil {
				return rows, fmt.Errorf("%w: %w", errNotSent, err)
			}
		}
	}
	p := t.conn.PgConn().StartPipeline(t.ctx)
	kinds := make([]int, 0, len(t.calls)+1)
	if t.pooled {
		p.SendQueryParams(localSettings, nil, nil, nil, nil)
		kinds = append(kinds, noRows)
	}
	for _, c := range t.calls {
		if t.pooled {
			p.SendQueryParams(c.text, c.args, nil, binaryFormat, binaryFormat)
		} else {
			p.SendQueryPrepared(c.name, c.args, binaryFormat, binaryFormat)
		}
		kinds = append(kinds, c.rows)
	}
	err = p.Sync()
	for i := 0; err == nil; i++ {
		var res any
		if res, err = p.GetResults(); err != nil {
			break
		}
		answer, ok := res.(*pgconn.ResultReader)
		if !ok {
			break // everything is answered
		}
		kind := noRows
		if i < len(kinds) {
			kind = kinds[i]
		}
		for answer.NextRow() {
			if kind != noRows {
				rows.add(kind, answer.Values())
			}
		}
		_, err = answer.Close()
	}
	if closeErr := p.Close(); err == nil {
		err = closeErr
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

// id notes under which id the row of o comes back.
func (t *pgTx) id(o *op, id string) [16]byte {
	u, err := uuid.Parse(id)
	if err != nil && t.err == nil {
		t.err = fmt.Errorf("%w: id: %w", errReceipt, err)
	}
	t.ids[o] = u
	return u
}

func (t *pgTx) call(s pgStatement, rows int, args ...[]byte) {
	t.calls = append(t.calls, pgCall{pgStatement: s, rows: rows, args: args})
}

// speak says for which tenants the transaction speaks.
func (t *pgTx) speak(v voice) { t.call(pgSpeak, noRows, []byte(v.json())) }

func (t *pgTx) claim(ops []*op) {
	n := len(ops)
	if n == 0 {
		return
	}
	text := func(of func(*domain.Receipt) string) []byte {
		return textArray(n, func(i int) string { return of(ops[i].claim) })
	}
	locks := make([]int64, 0, n)
	lanes := make([]int64, n)
	for i, o := range ops {
		if o.claim.State == domain.Claimed || o.claim.Kind == domain.MessageCreated {
			lanes[i] = o.claim.Key.Lane(o.claim.Conversation)
			locks = append(locks, lanes[i])
		}
	}
	slices.Sort(locks)
	locks = slices.Compact(locks)
	claimed := func(i int) bool { return ops[i].claim.State == domain.Claimed }
	tenants := text(func(r *domain.Receipt) string { return r.Key.Tenant })
	ids := uuidArray(n, func(i int) ([16]byte, bool) { return t.id(ops[i], ops[i].claim.ID), true })
	media := text(func(r *domain.Receipt) string { return r.Payload.MediaType })
	bodies := array(n, pgtype.ByteaOID, func(b []byte, i int) []byte {
		body := ops[i].claim.Payload.Body
		return append(sized(b, len(body)), body...)
	})
	args := [][]byte{
		array(len(locks), pgtype.Int8OID, func(b []byte, i int) []byte { return int8Element(b, locks[i]) }),
		tenants,
		ids,
		text(func(r *domain.Receipt) string { return r.Key.Platform }),
		text(func(r *domain.Receipt) string { return r.Channel }),
		text(func(r *domain.Receipt) string { return r.Installation }),
		text(func(r *domain.Receipt) string { return r.Key.Account }),
		text(func(r *domain.Receipt) string { return r.Key.EventID }),
		uuidArray(n, func(i int) ([16]byte, bool) { return ops[i].claim.Key.Digest(), true }),
		text(func(r *domain.Receipt) string { return r.MessageKey }),
		uuidArray(n, func(i int) ([16]byte, bool) {
			d := ops[i].claim.Key.Message(ops[i].claim.MessageKey)
			return d, !d.IsZero()
		}),
		text(func(r *domain.Receipt) string { return string(r.Kind) }),
		text(func(r *domain.Receipt) string { return r.Conversation }),
		uuidArray(n, func(i int) ([16]byte, bool) { return ops[i].claim.Digest, true }),
		text(func(r *domain.Receipt) string { return string(r.Guarantee) }),
		text(func(r *domain.Receipt) string { return string(r.State) }),
		int4Array(n, func(i int) int { return ops[i].claim.VendorAttempt }),
		timeArray(n, func(i int) time.Time { return ops[i].claim.ClaimedAt }),
		text(func(r *domain.Receipt) string { return r.Holder }),
		text(func(r *domain.Receipt) string { return r.LastError }),
		array(n, pgtype.Int8OID, func(b []byte, i int) []byte {
			if !claimed(i) {
				return null(b)
			}
			return int8Element(b, lanes[i])
		}),
		array(n, pgtype.BoolOID, func(b []byte, i int) []byte {
			if claimed(i) {
				return null(b)
			}
			return append(sized(b, 1), 1)
		}),
	}
	t.call(pgClaim, claimRows, args...)
	t.call(pgContents, messageRows, tenants, ids, media, bodies, uuidArray(n, func(i int) ([16]byte, bool) {
		d := ops[i].claim.Key.Conversation(ops[i].claim.Conversation)
		return d, !d.IsZero()
	}))
}

// refs encodes what begins and settles are fenced by.
func (t *pgTx) refs(ops []*op) [][]byte {
	n := len(ops)
	for i, o := range ops {
		t.places[o] = int64(i) + 1
	}
	return [][]byte{
		textArray(n, func(i int) string { return ops[i].ref().Tenant }),
		uuidArray(n, func(i int) ([16]byte, bool) { return t.id(ops[i], ops[i].ref().ID), true }),
		textArray(n, func(i int) string { return ops[i].ref().Holder }),
		int4Array(n, func(i int) int { return ops[i].ref().Attempt }),
	}
}

func (t *pgTx) begin(ops []*op) {
	if len(ops) == 0 {
		return
	}
	t.call(pgBegin, beginRows, append(t.refs(ops), array(len(ops), pgtype.Float8OID, func(b []byte, i int) []byte {
		return binary.BigEndian.AppendUint64(sized(b, 8), math.Float64bits(ops[i].begin.lease.Seconds()))
	}))...)
}

func (t *pgTx) settle(ops []*op) {
	var handled, rest []*op
	for _, o := range ops {
		if o.settle.Step.State == domain.Handled {
			handled = append(handled, o)
		} else {
			rest = append(rest, o)
		}
	}
	if len(handled) > 0 {
		t.call(pgHandled, handledRows, t.refs(handled)...)
	}
	if n := len(rest); n > 0 {
		t.call(pgUnhandled, unhandledRows, append(t.refs(rest),
			textArray(n, func(i int) string { return string(rest[i].settle.Step.State) }),
			timeArray(n, func(i int) time.Time { return rest[i].settle.Step.DueAt }),
			textArray(n, func(i int) string { return rest[i].settle.Reason }))...)
	}
}

// The arrays below are written in the binary form of Postgres' wire directly: the general
// encoder, which finds out for each element what it is, took a fifth of the process.

// array writes n elements, each with its length in front, by each.
func array(n int, oid uint32, each func(b []byte, i int) []byte) []byte {
	b := make([]byte, 0, 20+24*n)
	if n == 0 {
		b = binary.BigEndian.AppendUint32(b, 0)
		b = binary.BigEndian.AppendUint32(b, 0)
		return binary.BigEndian.AppendUint32(b, oid)
	}
	b = binary.BigEndian.AppendUint32(b, 1) // dimensions
	b = binary.BigEndian.AppendUint32(b, 1) // may hold nulls
	b = binary.BigEndian.AppendUint32(b, oid)
	b = binary.BigEndian.AppendUint32(b, uint32(n)) //nolint:gosec // at most maxBatch
	b = binary.BigEndian.AppendUint32(b, 1)         // first index
	for i := range n {
		b = each(b, i)
	}
	return b
}

func sized(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(n)) //nolint:gosec // bounded by the limit on bodies
}

func null(b []byte) []byte { return binary.BigEndian.AppendUint32(b, math.MaxUint32) }

func int8Element(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(sized(b, 8), uint64(v)) //nolint:gosec // an int8 of the wire
}

func textArray(n int, at func(int) string) []byte {
	return array(n, pgtype.TextOID, func(b []byte, i int) []byte {
		s := at(i)
		return append(sized(b, len(s)), s...)
	})
}

func uuidArray(n int, at func(int) (v [16]byte, ok bool)) []byte {
	return array(n, pgtype.UUIDOID, func(b []byte, i int) []byte {
		v, ok := at(i)
		if !ok {
			return null(b)
		}
		return append(sized(b, 16), v[:]...)
	})
}

func int4Array(n int, at func(int) int) []byte {
	return array(n, pgtype.Int4OID, func(b []byte, i int) []byte {
		return binary.BigEndian.AppendUint32(sized(b, 4), uint32(at(i))) //nolint:gosec // attempts are small
	})
}

// pgEpoch is where Postgres counts microseconds from.
var pgEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// timeArray writes zero times as nulls.
func timeArray(n int, at func(int) time.Time) []byte {
	return array(n, pgtype.TimestamptzOID, func(b []byte, i int) []byte {
		t := at(i)
		if t.IsZero() {
			return null(b)
		}
		return int8Element(b, t.UnixMicro()-pgEpoch.UnixMicro())
	})
}
