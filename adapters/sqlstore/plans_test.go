package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// manyRows is how many receipts a store holds in which a statement must find its few.
const manyRows = 50_000

// operations are what a server does all the time, and what people look at.
var operations = map[string]func(context.Context, *sqlstore.Store) error{
	"claim, begin and settle": func(ctx context.Context, s *sqlstore.Store) error {
		r := receipt("new")
		if c := claim(ctx, s, r); !c.Won {
			return fmt.Errorf("claim: %w", c.Err)
		}
		n, err := s.Begin(ctx, refOf(r), time.Minute)
		if err != nil {
			return err
		}
		r.Attempt = n
		return s.Settle(ctx, ports.Settlement{Ref: refOf(r), Step: domain.Step{State: domain.Handled}})
	},
	"a batch of claims, duplicates among them": func(ctx context.Context, s *sqlstore.Store) error {
		var batch []domain.Receipt
		for i := range 50 {
			batch = append(batch, receipt(fmt.Sprint(i/2)))
		}
		for _, c := range s.Claim(ctx, batch) {
			if c.Err != nil {
				return c.Err
			}
		}
		return nil
	},
	"a fenced begin and settle": func(ctx context.Context, s *sqlstore.Store) error {
		r := receipt("absent")
		_, _ = s.Begin(ctx, refOf(r), time.Minute)
		_ = s.Settle(ctx, ports.Settlement{Ref: refOf(r), Step: domain.Step{State: domain.Failed}})
		return nil
	},
	"take up": func(ctx context.Context, s *sqlstore.Store) error {
		got, err := s.TakeUp(ctx, "taker", func(string) bool { return false }, 50, time.Minute)
		if err == nil && len(got) == 0 {
			return fmt.Errorf("nothing was taken up")
		}
		return err
	},
	"expire": func(ctx context.Context, s *sqlstore.Store) error {
		got, err := s.Expired(ctx, 50)
		if err != nil || len(got) == 0 {
			return fmt.Errorf("expired: %d, %w", len(got), err)
		}
		return s.Expire(ctx, got[0], domain.Step{State: domain.Lost}, "lease ran out")
	},
	"count deliveries": func(ctx context.Context, s *sqlstore.Store) error {
		var counts []ports.DeliveryCount
		for i := range 50 {
			counts = append(counts, ports.DeliveryCount{Tenant: "acme", Event: receipt(fmt.Sprint(i)).Key.Digest(), N: 1})
		}
		_, err := s.CountDeliveries(ctx, counts)
		return err
	},
	"prune": func(ctx context.Context, s *sqlstore.Store) error {
		old := time.UnixMilli(firstID + 100)
		n, err := s.Prune(ctx, ports.PruneScope{Tenant: "tenant-1", Receipts: old, Payloads: old.Add(100 * time.Millisecond)}, 50)
		if err == nil && n == 0 {
			return fmt.Errorf("nothing was pruned")
		}
		return err
	},
	"newest conversations": func(ctx context.Context, s *sqlstore.Store) error {
		return second(s.Conversations(ctx, ports.ConversationFilter{Limit: 50}))
	},
	"pending conversations of a tenant": func(ctx context.Context, s *sqlstore.Store) error {
		return second(s.Conversations(ctx, ports.ConversationFilter{Tenant: "tenant-1", Status: domain.ConversationPending, Limit: 50}))
	},
	"messages of a conversation": func(ctx context.Context, s *sqlstore.Store) error {
		c, err := s.Conversations(ctx, ports.ConversationFilter{Limit: 1})
		if err != nil {
			return err
		}
		page, err := s.Messages(ctx, c.Conversations[0].ID, 50, "")
		if err == nil && len(page.Receipts) == 0 {
			return fmt.Errorf("a conversation without messages")
		}
		return err
	},
	"close": func(ctx context.Context, s *sqlstore.Store) error {
		c, err := s.Conversations(ctx, ports.ConversationFilter{Tenant: "tenant-1", Status: domain.ConversationPending, Limit: 1})
		if err != nil {
			return err
		}
		return s.CloseConversation(ctx, c.Conversations[0].ID, "ann")
	},
	"a message in a conversation of many": func(ctx context.Context, s *sqlstore.Store) error {
		for i := range 2 { // alone, and of a tenant that has many
			r := receipt(fmt.Sprint("one more ", i))
			r.Key.Tenant, r.Conversation = "tenant-1", "C1"
			if c := claim(ctx, s, r); c.Receipt.ConversationID == "" {
				return fmt.Errorf("a message in no conversation: %w", c.Err)
			}
		}
		return nil
	},
	"tenants": func(ctx context.Context, s *sqlstore.Store) error { return second(s.Tenants(ctx)) },
	"newest receipts": func(ctx context.Context, s *sqlstore.Store) error {
		return second(s.Receipts(ctx, ports.Filter{Limit: 50}))
	},
	"newest receipts of a tenant": func(ctx context.Context, s *sqlstore.Store) error {
		return second(s.Receipts(ctx, ports.Filter{Tenant: "tenant-1", Limit: 50}))
	},
	"what failed": func(ctx context.Context, s *sqlstore.Store) error {
		return second(s.Receipts(ctx, ports.Filter{State: domain.Failed, Limit: 50}))
	},
	"what is retrying": func(ctx context.Context, s *sqlstore.Store) error {
		return second(s.Receipts(ctx, ports.Filter{State: domain.Retrying, Limit: 50}))
	},
	"what is dispatching": func(ctx context.Context, s *sqlstore.Store) error {
		return second(s.Receipts(ctx, ports.Filter{State: domain.Dispatching, Limit: 50}))
	},
	"oldest open": func(ctx context.Context, s *sqlstore.Store) error { return second(s.OldestOpen(ctx)) },
	"replay and discard": func(ctx context.Context, s *sqlstore.Store) error {
		page, err := s.Receipts(ctx, ports.Filter{State: domain.Failed, Limit: 2})
		if err != nil || len(page.Receipts) < 2 {
			return fmt.Errorf("receipts: %d, %w", len(page.Receipts), err)
		}
		if err := s.Replay(ctx, page.Receipts[0].ID, "ann"); err != nil {
			return err
		}
		return s.Discard(ctx, page.Receipts[1].ID, "ann")
	},
	"one receipt": func(ctx context.Context, s *sqlstore.Store) error {
		page, err := s.Receipts(ctx, ports.Filter{Limit: 1})
		if err != nil {
			return err
		}
		_, _, err = s.Receipt(ctx, page.Receipts[0].ID)
		return err
	},
}

// firstID is the time, in milliseconds, of the oldest receipt.
const firstID = 1_700_000_000_000

// fill is written for both dialects. Of a hundred receipts one is claimed, one is retrying and
// due, one is dispatching past its lease and two have failed; all others are handled.
const fill = `
INSERT INTO receipts (tenant, id, platform, channel, installation, account, event_id, event_digest, message_key, message_digest,
	kind, conversation, digest, guarantee, state, attempt, deliveries, vendor_attempt, claimed_at, holder, last_error,
	lane, due_at, parked, lease_until)
SELECT tenant, id, 'slack', 'slack', 'main', 'T1', 'Ev' || g, digest, '', NULL, 'message.created', '', digest, 'at-most-once',
	CASE g % 100 WHEN 1 THEN 'claimed' WHEN 2 THEN 'retrying' WHEN 3 THEN 'dispatching' WHEN 4 THEN 'failed' WHEN 5 THEN 'failed' ELSE 'handled' END,
	1, 1, 0, past, 'gone', '',
	CASE WHEN g % 100 IN (1, 3) THEN g END, CASE WHEN g % 100 = 2 THEN past END, CASE WHEN g % 100 IN (4, 5) THEN true END,
	CASE WHEN g % 100 = 3 THEN past END
FROM numbers`

// Every tenth receipt has opened a conversation, and half of these are pending.
const fillConversations = `
INSERT INTO conversations (tenant, id, platform, account, external_id, status, open_key, opened_at)
SELECT tenant, id, 'slack', 'T1', 'C' || (seq % 5), CASE WHEN seq % 100 < 50 THEN 'pending' ELSE 'closed' END,
	CASE WHEN seq % 100 < 50 THEN digest END, claimed_at
FROM receipts WHERE seq % 50 < 5`

// Every message is in the conversation that its tenant opened last before.
const fillMessages = `
INSERT INTO messages (tenant, id, conversation_id)
SELECT r.tenant, r.id, o.id FROM receipts r JOIN receipts o ON o.tenant = r.tenant AND o.seq = r.seq - r.seq % 50 + r.seq % 5`

const fillTenants = `INSERT INTO tenants (tenant) SELECT DISTINCT tenant FROM receipts`

const fillPayloads = `INSERT INTO payloads (tenant, receipt_id, media_type, body) SELECT tenant, id, 'application/json', %s FROM receipts`

// Postgres counts what its scans read. A statement that reads a whole index is as bad as one
// that reads the table.
func TestPostgresReadsNoTableWhole(t *testing.T) {
	t.Parallel()
	for name, analysed := range map[string]bool{"with statistics": true, "before the first statistics": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.NewPostgres(t, "autovacuum=off", "track_counts=on")
			db := server.Database(t)
			c := sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true}
			open(t, c)
			conn := connect(t, db.SuperDSN)
			statements := []string{
				strings.Replace(fill, "FROM numbers", `FROM (
					SELECT g, 'tenant-' || (g % 5) AS tenant, md5(g::text)::uuid AS digest, now() - interval '1 day' AS past,
						(lpad(to_hex(1700000000000 + g), 12, '0') || '7' || left(md5(g::text), 3) || '8' || left(md5(g::text), 15))::uuid AS id
					FROM generate_series(1, `+fmt.Sprint(manyRows)+`) g) numbers`, 1),
				fmt.Sprintf(fillPayloads, "'{}'::bytea"),
				fillTenants,
				fillConversations,
				fillMessages,
			}
			if analysed {
				statements = append(statements, "VACUUM ANALYZE receipts", "ANALYZE payloads", "ANALYZE history",
					"VACUUM ANALYZE messages", "ANALYZE conversations")
			}
			for _, text := range statements {
				if _, err := conn.Exec(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			c.Migrate = false
			for name, do := range operations {
				scans, rows := reads(t, conn)
				s := mustOpen(t, c)
				err := do(t.Context(), s)
				if err := s.Close(); err != nil { // what its connections have read is told when they end
					t.Errorf("Close = %v; want nil", err)
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				awaitNoConnections(t, conn)
				scansThen, rowsThen := reads(t, conn)
				if scans != scansThen {
					t.Errorf("%s reads a table from end to end", name)
				}
				// all open ones together are 1500; a list for people may read its tenants' index before
				// the database knows better
				if read := rowsThen - rows; read > 6000 && (analysed || !strings.HasPrefix(name, "what is")) {
					t.Errorf("%s reads %d rows of indexes of %d", name, read, manyRows)
				}
			}
		})
	}
}

// Plans are kept, and the first are made while nothing is known of the tables. What they read must
// not grow with what the tables hold by then.
func TestPlansThatWereMadeOnEmptyTablesStayGood(t *testing.T) {
	t.Parallel()
	db := servertest.NewPostgres(t, "autovacuum=off", "track_counts=on").Database(t)
	c := sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true}
	if err := mustOpen(t, c).Close(); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, db.SuperDSN)
	awaitNoConnections(t, conn)
	scans, rows := reads(t, conn)
	s := mustOpen(t, c)
	ctx := t.Context()
	const rounds, each = 40, 100
	for round := range rounds {
		batch := make([]domain.Receipt, each)
		counts := make([]ports.DeliveryCount, each)
		for i := range batch {
			batch[i] = receipt(fmt.Sprintf("%d of %d", i, round))
			counts[i] = ports.DeliveryCount{Tenant: "acme", Event: batch[i].Key.Digest(), N: 1}
		}
		for _, c := range s.Claim(ctx, batch) {
			if !c.Won {
				t.Fatal(c.Err)
			}
		}
		for i, state := range []domain.State{domain.Handled, domain.Failed} {
			r := batch[i]
			n, err := s.Begin(ctx, refOf(r), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = s.Begin(ctx, refOf(r), time.Minute)
			r.Attempt = n
			if err := s.Settle(ctx, ports.Settlement{Ref: refOf(r), Step: domain.Step{State: state}}); err != nil {
				t.Fatal(err)
			}
			again := receipt(r.Key.EventID)
			claim(ctx, s, again)
			again.Key.EventID += " again" // under the message key of another
			claim(ctx, s, again)
		}
		if _, err := s.CountDeliveries(ctx, counts); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	awaitNoConnections(t, conn)
	scansThen, rowsThen := reads(t, conn)
	if whole, read := scansThen-scans, rowsThen-rows; whole > 0 || read > 20*rounds*each {
		t.Errorf("%d claims read tables whole %d times and %d rows of indexes; want at most 20 rows for each", rounds*each, whole, read)
	}
}

// What was open and is not any more stays in the indexes of what is open until they are vacuumed. Who looks
// round every second must not read it each time.
func TestSweepsPassOverWhatIsSettled(t *testing.T) {
	t.Parallel()
	const settled = 5000
	db := servertest.NewPostgres(t, "autovacuum=off", "track_counts=on").Database(t)
	c := sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true}
	if err := mustOpen(t, c).Close(); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, db.SuperDSN)
	for _, text := range []string{
		`INSERT INTO tenants VALUES ('acme')`,
		`INSERT INTO receipts (tenant, id, platform, channel, installation, account, event_id, event_digest, message_key, kind,
			conversation, digest, guarantee, state, attempt, deliveries, vendor_attempt, claimed_at, holder, last_error, lane, due_at)
		SELECT 'acme', gen_random_uuid(), 'slack', 'slack', 'main', 'T1', 'Ev' || i, gen_random_uuid(), '', 'other', '', gen_random_uuid(),
			'at-most-once', 'dispatching', 1, 1, 0, now(), 'gone', '', i, now()
		FROM generate_series(1, ` + fmt.Sprint(settled) + `) i`,
		`ANALYZE receipts`,
		`UPDATE receipts SET state = 'handled', lane = NULL, due_at = NULL`,
	} {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func() {
		s := mustOpen(t, c)
		_, err := s.TakeUp(t.Context(), "taker", func(string) bool { return true }, 100, time.Minute)
		_, err2 := s.Expired(t.Context(), 100)
		if err := errors.Join(err, err2, s.Close()); err != nil {
			t.Fatal(err)
		}
		awaitNoConnections(t, conn)
	}
	sweep()
	_, before := reads(t, conn)
	sweep()
	if _, after := reads(t, conn); after-before > settled/10 {
		t.Errorf("a sweep that finds nothing reads %d entries of indexes; %d receipts were open once", after-before, settled)
	}
}

// reads returns how often tables were read whole, and how many entries of indexes were read.
func reads(t *testing.T, conn *pgx.Conn) (scans, rows int64) {
	t.Helper()
	// what this connection itself has read counts from the next transaction on
	if _, err := conn.Exec(t.Context(), "SELECT pg_stat_force_next_flush()"); err != nil {
		t.Fatal(err)
	}
	err := conn.QueryRow(t.Context(), `
		SELECT (SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname IN ('receipts', 'payloads', 'history', 'messages', 'conversations')),
			(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname IN ('receipts', 'payloads', 'history', 'messages', 'conversations'))`).Scan(&scans, &rows)
	if err != nil {
		t.Fatal(err)
	}
	return scans, rows
}

func awaitNoConnections(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	ctx := within(t, 30*time.Second)
	for n := 1; n > 0; {
		// the test's own other handle, which is idle, is not counted
		err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend' AND backend_start > $1 AND pid <> pg_backend_pid()`,
			backendsSince(t, conn)).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// backendsSince is when the test's own connection began: those of the handle that only migrated
// are older.
func backendsSince(t *testing.T, conn *pgx.Conn) (since time.Time) {
	t.Helper()
	err := conn.QueryRow(t.Context(), `SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()`).Scan(&since)
	if err != nil {
		t.Fatal(err)
	}
	return since
}

// SQLite tells its plans, which do not depend on how many rows there are.
func TestSQLiteReadsNoTableWhole(t *testing.T) {
	t.Parallel()
	c := liteConfig(t)
	s := open(t, c)
	db := liteDB(t, c.DSN)
	for _, text := range []string{
		strings.Replace(fill, "FROM numbers", `FROM (
			WITH RECURSIVE n (g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM n WHERE g < 1000)
			SELECT g, 'tenant-' || (g % 5) AS tenant, printf('%032x', g * 7919) AS digest, 1700000000000000 AS past,
				printf('%08x-%04x-7000-8000-%012x', (1700000000000 + g) >> 16, (1700000000000 + g) & 65535, g) AS id
			FROM n) numbers`, 1),
		fmt.Sprintf(fillPayloads, "x'7b7d'"),
		fillTenants,
		fillConversations,
		fillMessages,
	} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range sqlstore.SQLiteStatements {
		for _, detail := range wantIndexes(t, db, name, text) {
			if strings.HasPrefix(detail, "SEARCH") && strings.HasSuffix(detail, "(tenant=?)") {
				t.Errorf("%s reads all of a tenant's rows: %s in\n%s", name, detail, text)
			}
		}
	}
	type sent struct {
		text string
		args []any
	}
	var seen []sent
	if err := s.Watch(func(text string, args []any) { seen = append(seen, sent{text, args}) }); err != nil {
		t.Fatal(err)
	}
	for name, do := range operations {
		seen = nil
		if err := do(t.Context(), s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, statement := range seen {
			wantIndexes(t, db, name, statement.text, statement.args...)
		}
	}
}

// wantIndexes checks that a statement reads tables through indexes, and of these only the ones of
// what is open or parked from end to end. It returns the steps of its plan.
func wantIndexes(t *testing.T, db *sql.DB, name, text string, args ...any) (plan []string) {
	t.Helper()
	if len(args) == 0 { // a plan does not depend on them
		for range strings.Count(text, "?") {
			args = append(args, "")
		}
		for _, name := range regexp.MustCompile(`@\w+`).FindAllString(text, -1) {
			args = append(args, sql.Named(name[1:], ""))
		}
	}
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		t.Errorf("%s: explain %s: %v", name, text, err)
		return nil
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, detail)
		what, ok := strings.CutPrefix(detail, "SCAN ")
		if !ok {
			continue
		}
		table, how, _ := strings.Cut(what, " ")
		few := strings.Contains(how, "receipts_lane") || strings.Contains(how, "receipts_due") || strings.Contains(how, "receipts_parked")
		switch table {
		case "r", "receipts", "p", "payloads", "history", "m", "messages", "c", "conversations":
			if !few {
				t.Errorf("%s: %s in\n%s", name, detail, text)
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan
}

// liteDB opens the file of a store as somebody else would.
func liteDB(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer("%", "%25", "?", "%3f", " ", "%20").Replace(path)+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
