package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// batchRows is how many rows a batch of claims has when many come at once.
const batchRows = 64

// A uniqueness is a way to keep an event from being stored twice.
type uniqueness struct {
	name, table, column, index, value string

	rates    []float64 // rows per second
	bytes    float64   // of the unique index, per row
	wal, got float64   // bytes of WAL, and rows that they were written for
}

// unique compares a unique index on a digest with one on the columns that people read, in
// tables of many rows.
func (b *bench) unique(ctx context.Context) error {
	if _, err := b.postgres.Database(ctx, "uniqueness"); err != nil {
		return err
	}
	ways := []*uniqueness{
		{
			name: "digest", table: "by_digest", column: ", event_digest uuid NOT NULL", index: "tenant, event_digest",
			value: ", md5('event' || n)::uuid",
		},
		{name: "platform, account, event id", table: "by_columns", index: "tenant, platform, account, event_id"},
	}
	c, err := pgx.Connect(ctx, b.postgres.SuperDSN("uniqueness"))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer c.Close(ctx) //nolint:errcheck // the benchmark is over
	for _, u := range ways {
		for _, s := range []string{
			`CREATE TABLE ` + u.table + ` (tenant text COLLATE "C" NOT NULL, id uuid NOT NULL, platform text NOT NULL, account text NOT NULL,
				event_id text NOT NULL, claimed_at timestamptz NOT NULL` + u.column + `, PRIMARY KEY (tenant, id))`,
			`CREATE UNIQUE INDEX ` + u.table + `_event ON ` + u.table + ` (` + u.index + `)`,
			u.insert(fmt.Sprintf("generate_series(1, %d) n", b.uniqueness)),
			`VACUUM ANALYZE ` + u.table,
		} {
			if _, err := c.Exec(ctx, s); err != nil {
				return fmt.Errorf("fill %s: %w", u.table, err)
			}
		}
	}
	if err := b.postgres.Exec(ctx, "uniqueness", "CHECKPOINT"); err != nil {
		return err
	}
	base := b.uniqueness
	for range 2 * b.rounds {
		for _, u := range ways {
			before, err := wal(ctx, c)
			if err != nil {
				return err
			}
			const clients = 2 // batches that instances commit at a time
			script := "\\set i :i + 1\n\\set n :base + (:i * 10 + :client_id) * " + fmt.Sprint(batchRows) + "\n" +
				u.insert(fmt.Sprintf("generate_series(:n::bigint, :n::bigint + %d) n", batchRows-1)) + ";\n"
			rate, n, err := b.pgbench(ctx, "uniqueness", script, clients, base)
			if err != nil {
				return err
			}
			after, err := wal(ctx, c)
			if err != nil {
				return err
			}
			base += (n + 10*clients) * 10 * batchRows
			u.rates = append(u.rates, rate*batchRows)
			u.wal += after - before
			u.got += float64(n * batchRows)
		}
	}
	for _, u := range ways {
		var size, rows float64
		err := c.QueryRow(ctx, `SELECT pg_relation_size('`+u.table+`_event')::float8, count(*)::float8 FROM `+u.table).Scan(&size, &rows)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return fmt.Errorf("measure the index: %w", err)
		}
		u.bytes = size / rows
	}
	b.tellUnique(ways[0], ways[1])
	return nil
}

// insert returns a statement that inserts one row for each n of the series.
func (u *uniqueness) insert(series string) string {
	columns := ""
	if u.value != "" {
		columns = ", event_digest"
	}
	return strings.Join(strings.Fields(`INSERT INTO `+u.table+` (tenant, id, platform, account, event_id, claimed_at`+columns+`)
		SELECT 'bench', lpad(to_hex(n), 32, '0')::uuid, 'slack', 'T0BENCH01', 'A0BENCH7Q2X/Ev' || upper(substr(md5('id' || n), 1, 12)), now()`+
		u.value+` FROM `+series+` ON CONFLICT DO NOTHING`), " ")
}

func wal(ctx context.Context, c *pgx.Conn) (bytes float64, err error) {
	err = c.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`).Scan(&bytes)
	if err != nil {
		return 0, fmt.Errorf("read the end of the WAL: %w", err)
	}
	return bytes, nil
}
