package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/app/bench/rig"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
)

// plainInsert writes what a claim writes, by one ordinary statement. No colon in it stands
// before a letter: pgbench would take that for a variable.
const plainInsert = `
WITH won AS (
	INSERT INTO receipts (tenant, id, platform, channel, installation, account, event_id, event_digest, message_key, message_digest,
		kind, conversation, digest, guarantee, state, vendor_attempt, claimed_at, holder, last_error, lane, attempt, deliveries)
	VALUES ('bench', %s, 'slack', 'slack', 'bench-slack', 'T0BENCH01', 'A0BENCH7Q2X/Ev' || %[2]s, %[3]s, 'message:' || 'C00GENERAL:' || %[2]s, %[4]s,
		'message.created', 'C00' || %[2]s, %[5]s, 'at-most-once', 'claimed', 0, now(), 'bench', '', %[6]s, 0, 1)
	ON CONFLICT DO NOTHING
	RETURNING id
), opened AS (
	INSERT INTO conversations (tenant, id, platform, account, external_id, status, open_key, opened_at)
	SELECT 'bench', won.id, 'slack', 'T0BENCH01', 'C00' || %[2]s, 'pending', %[3]s, now() FROM won
	ON CONFLICT DO NOTHING
	RETURNING id
), message AS (
	INSERT INTO messages (tenant, id, conversation_id) SELECT 'bench', won.id, opened.id FROM won, opened
)
INSERT INTO payloads (tenant, receipt_id, media_type, body) SELECT 'bench', won.id, 'application/json', %[7]s FROM won`

// pgbenchInsert is plainInsert with values that the database makes, so that pgbench sends
// next to nothing. Numbers rise over all clients, as those of UUIDv7 do.
var pgbenchInsert = "\\set i :i + 1\n\\set n :base + :i * 1000 + :client_id\n" +
	strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf(plainInsert, "lpad(to_hex(:n::bigint), 32, '0')::uuid", ":n::bigint",
		"md5('event' || :n::bigint)::uuid", "md5('message' || :n::bigint)::uuid", "md5('content' || :n::bigint)::uuid", ":n::bigint",
		"convert_to(repeat('x', 1500), 'UTF8')")), "\n", " ") + ";\n"

// goInsert is plainInsert with parameters.
var goInsert = fmt.Sprintf(plainInsert, "$1::uuid", "$2::text", "$3::uuid", "$4::uuid", "$5::uuid", "$6::bigint", "$7::bytea")

// A claimRate is one turn of claims.
type claimRate struct {
	rate float64
	cost time.Duration // CPU per row, of the client and of PostgreSQL
}

type claimBench struct {
	*bench
	store *sqlstore.Store
	plain string // name of the database without a store
	conn  *pgx.Conn
	next  atomic.Int64
	body  []byte
}

func (b *bench) claims(ctx context.Context) error {
	c := &claimBench{bench: b, plain: "plain", body: []byte(strings.Repeat("x", 1500))}
	dsn, err := b.postgres.Database(ctx, "claims")
	if err != nil {
		return err
	}
	plainDSN, err := b.postgres.Database(ctx, c.plain)
	if err != nil {
		return err
	}
	if err := sqlstore.Migrate(ctx, sqlstore.Config{Dialect: migrations.Postgres, DSN: plainDSN}); err != nil {
		return err
	}
	if c.store, err = sqlstore.Open(ctx, sqlstore.Config{Dialect: migrations.Postgres, DSN: dsn, Migrate: true}); err != nil {
		return err
	}
	defer c.store.Close() //nolint:errcheck // the benchmark is over
	if c.conn, err = pgx.Connect(ctx, b.postgres.SuperDSN(c.plain)); err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer c.conn.Close(ctx) //nolint:errcheck // the benchmark is over

	callers := []int{1, 64, 256}
	claimed, inserted := make([][]claimRate, len(callers)), make([][]claimRate, len(callers))
	for i, n := range callers {
		for range b.rounds {
			r, err := c.claimed(ctx, n)
			if err != nil {
				return err
			}
			claimed[i] = append(claimed[i], r)
			if r, err = c.inserted(ctx, n); err != nil {
				return err
			}
			inserted[i] = append(inserted[i], r)
		}
	}
	lone, err := c.alone(ctx)
	if err != nil {
		return err
	}
	b.tellClaims(callers, claimed, inserted, lone)
	return nil
}

// receipt returns one that nobody has claimed.
func (c *claimBench) receipt() (domain.Receipt, error) {
	id, err := uuid.NewV7()
	n := strconv.FormatInt(c.next.Add(1), 10)
	return domain.Receipt{
		ID:      id.String(),
		Key:     domain.Key{Tenant: tenant, Platform: "slack", Account: account, EventID: "A0BENCH7Q2X/Ev" + n},
		Channel: "slack", Installation: installation, MessageKey: "message:C00GENERAL:" + n, Kind: domain.MessageCreated,
		Conversation: "C00" + n, Digest: domain.DigestOf(n), Guarantee: domain.AtMostOnce, State: domain.Claimed, Deliveries: 1,
		ClaimedAt: time.Now(), Holder: "bench", Payload: domain.Payload{MediaType: "application/json", Body: c.body},
	}, err
}

func (c *claimBench) claim(ctx context.Context) error {
	r, err := c.receipt()
	if err != nil {
		return err
	}
	won := c.store.Claim(ctx, []domain.Receipt{r})[0]
	if won.Err != nil || !won.Won {
		return fmt.Errorf("claim: won %v, %w", won.Won, won.Err)
	}
	return nil
}

// claimed has callers claim one receipt at a time for one turn.
func (c *claimBench) claimed(ctx context.Context, callers int) (r claimRate, err error) {
	before, err := c.used()
	if err != nil {
		return r, err
	}
	var rows atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, callers)
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for time.Since(start) < c.round {
				if err := c.claim(ctx); err != nil {
					errs <- err
					return
				}
				rows.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	close(errs)
	if err := <-errs; err != nil {
		return r, err
	}
	after, err := c.used()
	return claimRate{float64(rows.Load()) / took.Seconds(), (after - before) / time.Duration(rows.Load())}, err
}

// used returns the CPU time of PostgreSQL and of this process with the children it has waited for.
func (c *claimBench) used() (time.Duration, error) {
	total, err := rig.CPU(c.postgres.PID())
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		err = errors.Join(err, syscall.Getrusage(who, &u))
		total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return total, err
}

var (
	pgbenchRate = regexp.MustCompile(`tps = ([0-9.]+)`)
	pgbenchRows = regexp.MustCompile(`transactions actually processed: (\d+)`)
)

// pgbench lets clients run a script for one turn, and returns its transactions.
func (b *bench) pgbench(ctx context.Context, database, script string, clients, base int) (rate float64, n int, err error) {
	for seconds := max(1, int(b.round.Seconds())); ; seconds *= 2 {
		out, err := b.postgres.Pgbench(ctx, database, script, "--client="+strconv.Itoa(clients), "--jobs="+strconv.Itoa(min(clients, 2)),
			"--time="+strconv.Itoa(seconds), "--define=i=0", "--define=base="+strconv.Itoa(base))
		if err != nil {
			return 0, 0, err
		}
		tps, rows := pgbenchRate.FindStringSubmatch(out), pgbenchRows.FindStringSubmatch(out)
		if tps != nil && rows != nil {
			rate, err = strconv.ParseFloat(tps[1], 64)
			count, err2 := strconv.Atoi(rows[1])
			n, err = count, errors.Join(err, err2)
		}
		// on a busy machine the time can be over when most clients have just connected
		if err != nil || n >= 4*clients {
			return rate, n, err
		}
		if seconds > 60 {
			return 0, 0, fmt.Errorf("pgbench did too little: %s", out)
		}
	}
}

// inserted has pgbench insert row by row for one turn. What its clients take to connect is
// found out by a run of one row each, and does not count.
func (c *claimBench) inserted(ctx context.Context, clients int) (r claimRate, err error) {
	const most = 1_000_000_000 // more than one turn makes
	base := func() int { return int(c.next.Add(most)) }
	before, err := c.used()
	if err != nil {
		return r, err
	}
	_, err = c.postgres.Pgbench(ctx, c.plain, pgbenchInsert, "--client="+strconv.Itoa(clients), "--jobs="+strconv.Itoa(min(clients, 2)),
		"--transactions=1", "--define=i=0", "--define=base="+strconv.Itoa(base()))
	if err != nil {
		return r, err
	}
	connected, err := c.used()
	if err != nil {
		return r, err
	}
	rate, n, err := c.pgbench(ctx, c.plain, pgbenchInsert, clients, base())
	if err != nil {
		return r, err
	}
	after, err := c.used()
	return claimRate{rate, max(0, (after-connected)-(connected-before)) / time.Duration(max(1, n-clients))}, err
}

// lone is how long a claim takes when there is no other, and a plain insert.
type lone struct{ claim, insert []time.Duration }

// alone takes turns after each single one, so that both meet the same machine.
func (c *claimBench) alone(ctx context.Context) (l lone, err error) {
	for range 500 * c.rounds {
		start := time.Now()
		if err := c.claim(ctx); err != nil {
			return l, err
		}
		l.claim = append(l.claim, time.Since(start))
		start = time.Now()
		if err := c.insert(ctx); err != nil {
			return l, err
		}
		l.insert = append(l.insert, time.Since(start))
	}
	return l, nil
}

func (c *claimBench) insert(ctx context.Context) error {
	r, err := c.receipt()
	if err != nil {
		return err
	}
	id, err := uuid.Parse(r.ID)
	if err != nil {
		return err
	}
	as := func(d [16]byte) pgtype.UUID { return pgtype.UUID{Bytes: d, Valid: true} }
	tag, err := c.conn.Exec(ctx, goInsert, as(id), strings.TrimPrefix(r.Conversation, "C00"), as(r.Key.Digest()),
		as(r.Key.Message(r.MessageKey)), as(r.Digest), r.Key.Lane(r.Conversation), r.Payload.Body)
	if err != nil || tag.RowsAffected() != 1 {
		return fmt.Errorf("plain insert: %s, %w", tag, err)
	}
	return nil
}
