package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// older is how the columns of an old receipt differ from those of one that the server has
// just written. $1 is how many there are, n which of them. They are 28 days old at most, two
// days less than receipts are kept.
var older = map[string]string{
	"id":             "(lpad(to_hex(1790000000000 + n), 12, '0') || '7' || substr(md5('id' || n), 1, 3) || 'a' || substr(md5('id' || n), 4, 15))::uuid",
	"event_id":       "'A0BENCH7Q2X/Evold' || n",
	"event_digest":   "md5('event' || n)::uuid",
	"message_key":    "'message:C00old:' || n",
	"message_digest": "md5('message' || n)::uuid",
	"conversation":   "'C00' || n % 1000",
	"digest":         "md5('content' || n)::uuid",
	"claimed_at":     age,
	"begun_at":       age,
	"handled_at":     age,
}

const age = "now() - interval '28 days' * (1 - n / $1::float8)"

// fillStores makes both databases as large as those of a server that has worked for four
// weeks: with all receipts, and with payloads of the last six days.
func (b *bench) fillStores(ctx context.Context) error {
	c, err := pgx.Connect(ctx, b.postgres.SuperDSN("admitone"))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer c.Close(ctx) //nolint:errcheck // what was written is committed
	rows, err := c.Query(ctx, `SELECT column_name FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name = 'receipts' AND is_identity = 'NO' AND is_generated = 'NEVER'`)
	if err != nil {
		return fmt.Errorf("read the columns: %w", err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read the columns: %w", err)
	}
	values := make([]string, len(columns))
	for i, name := range columns {
		values[i] = "r." + name
		if value, ok := older[name]; ok {
			values[i] = value
		}
	}
	if _, err := c.Exec(ctx, `INSERT INTO receipts (`+strings.Join(columns, ", ")+`) SELECT `+strings.Join(values, ", ")+`
		FROM (SELECT * FROM receipts WHERE state = 'handled' LIMIT 1) r, generate_series(1, $1::bigint) n`, b.fill); err != nil {
		return fmt.Errorf("fill receipts: %w", err)
	}
	if _, err := c.Exec(ctx, `INSERT INTO payloads (tenant, receipt_id, media_type, body)
		SELECT p.tenant, `+older["id"]+`, p.media_type, p.body
		FROM (SELECT * FROM payloads LIMIT 1) p, generate_series($1::bigint * 22 / 28, $1::bigint) n`, b.fill); err != nil {
		return fmt.Errorf("fill payloads: %w", err)
	}
	if _, err := c.Exec(ctx, `INSERT INTO messages (tenant, id, conversation_id)
		SELECT c.tenant, `+older["id"]+`, c.ids[1 + n % cardinality(c.ids)]
		FROM (SELECT tenant, array_agg(id) ids FROM conversations GROUP BY tenant LIMIT 1) c, generate_series(1, $1::bigint) n`, b.fill); err != nil {
		return fmt.Errorf("fill messages: %w", err)
	}
	o, err := pgx.Connect(ctx, b.postgres.SuperDSN("ordinary"))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer o.Close(ctx) //nolint:errcheck // what was written is committed
	if _, err := o.Exec(ctx, `INSERT INTO deliveries
			(tenant, platform, account, event_id, channel, message_key, kind, conversation, status, attempt, payload, created_at, updated_at)
		SELECT r.tenant, r.platform, r.account, `+older["event_id"]+`, r.channel, `+older["message_key"]+`, r.kind, r.conversation,
			r.status, r.attempt, CASE WHEN n >= $1::bigint * 22 / 28 THEN r.payload END, `+age+`, `+age+`
		FROM (SELECT * FROM deliveries LIMIT 1) r, generate_series(1, $1::bigint) n`, b.fill); err != nil {
		return fmt.Errorf("fill deliveries: %w", err)
	}
	return errors.Join(
		b.postgres.Exec(ctx, "admitone", "VACUUM ANALYZE receipts", "VACUUM ANALYZE payloads", "VACUUM ANALYZE messages"),
		b.postgres.Exec(ctx, "ordinary", "VACUUM ANALYZE deliveries", "CHECKPOINT"),
	)
}
