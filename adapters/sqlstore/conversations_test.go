package sqlstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A claim is whole or not at all: if its message, its conversation or its payload can't be
// written, nothing of it is there, and what was claimed with it is.
func TestClaimIsWrittenWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"messages", "conversations", "payloads"} {
		for _, alone := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, alone %t", table, alone), func(t *testing.T) {
				t.Parallel()
				t.Run("postgres", func(t *testing.T) {
					c := pgConfig(t)
					s := open(t, c)
					conn := connect(t, c.DSN)
					exec := func(statement string) error {
						_, err := conn.Exec(t.Context(), statement)
						return err
					}
					if err := exec(speaksForAll); err != nil {
						t.Fatal(err)
					}
					wantWhole(t, s, table, alone, exec, func(query string) (n int, err error) {
						if err := exec(speaksForAll); err != nil {
							return 0, err
						}
						return n, conn.QueryRow(t.Context(), query).Scan(&n)
					}, `CREATE FUNCTION break_off() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
							IF %s THEN RAISE EXCEPTION 'broken off' USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$;
						CREATE TRIGGER break_off BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION break_off()`)
				})
				t.Run("sqlite", func(t *testing.T) {
					c := liteConfig(t)
					s := open(t, c)
					db := liteDB(t, c.DSN)
					wantWhole(t, s, table, alone, func(statement string) error {
						_, err := db.ExecContext(t.Context(), statement)
						return err
					}, func(query string) (n int, err error) {
						return n, db.QueryRowContext(t.Context(), query).Scan(&n)
					}, `CREATE TRIGGER break_off BEFORE INSERT ON %[2]s WHEN %[1]s BEGIN SELECT RAISE(ABORT, 'broken off'); END`)
				})
			})
		}
	}
}

func wantWhole(t *testing.T, s *sqlstore.Store, table string, alone bool, exec func(string) error, count func(string) (int, error), trigger string) {
	t.Helper()
	bad := receipt("bad")
	id := "id"
	if table == "payloads" {
		id = "receipt_id"
	}
	if err := exec(fmt.Sprintf(trigger, fmt.Sprintf("NEW.%s = '%s'", id, bad.ID), table)); err != nil {
		t.Fatal(err)
	}
	batch := []domain.Receipt{bad}
	if !alone {
		batch = []domain.Receipt{receipt("before"), bad, receipt("after")}
	}
	for i, c := range s.Claim(t.Context(), batch) {
		if broken := batch[i].ID == bad.ID; c.Won == broken || (c.Err != nil) != broken {
			t.Errorf("claim of %q = won %t, %v", batch[i].Key.EventID, c.Won, c.Err)
		}
	}
	for _, table := range []string{"receipts", "payloads", "conversations", "messages"} {
		if n, err := count("SELECT count(*) FROM " + table); err != nil || n != len(batch)-1 {
			t.Errorf("%d rows in %s, %v; want %d", n, table, err, len(batch)-1)
		}
	}
}

// An answer that is lost leaves one message in one conversation, and the claimer learns which,
// though somebody has closed it meanwhile.
func TestConversationIsFoundOutAfterALostAnswer(t *testing.T) {
	t.Parallel()
	p, s, direct := proxied(t)
	for _, batch := range []int{1, 5} {
		receipts := make([]domain.Receipt, batch)
		for i := range receipts {
			receipts[i] = receipt(fmt.Sprintf("%d of %d", i, batch))
			receipts[i].Conversation = fmt.Sprint("C", batch)
		}
		toServer, toClient, left := cutsAnswers(1)
		p.set(toServer, toClient)
		answers := s.Claim(within(t, 30*time.Second), receipts)
		p.set(nil, nil)
		if left() != 0 {
			t.Error("no answer was cut")
		}
		for i, c := range answers {
			if c.Err != nil || !c.Won || c.Receipt.ConversationID == "" || c.Receipt.ConversationID != answers[0].Receipt.ConversationID {
				t.Fatalf("claim %d = won %t in %q, %v; want won, in the conversation of the first", i, c.Won, c.Receipt.ConversationID, c.Err)
			}
		}
		page, err := direct.Messages(t.Context(), answers[0].Receipt.ConversationID, 0, "")
		if err != nil || len(page.Receipts) != batch {
			t.Errorf("the conversation has %d messages, %v; want %d", len(page.Receipts), err, batch)
		}
	}
	all, err := direct.Conversations(t.Context(), ports.ConversationFilter{})
	if err != nil || len(all.Conversations) != 3 { // that of the warming up is one
		t.Errorf("%d conversations, %v; want 3", len(all.Conversations), err)
	}
}

// A claim waits for whoever is closing its conversation, and then opens another.
func TestClaimWaitsForTheCloseOfItsConversation(t *testing.T) {
	t.Parallel()
	c := pgConfig(t)
	s := open(t, c)
	r := receipt("first")
	first := claim(t.Context(), s, r)
	conn := connect(t, c.DSN)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	for _, statement := range []struct {
		text string
		args []any
	}{
		{`SELECT set_config('admitone.tenants', '{"acme": 1}', true)`, nil},
		{`SELECT pg_advisory_xact_lock($1)`, []any{r.Key.Lane(r.Conversation)}},
		{`UPDATE conversations SET status = 'closed', open_key = NULL, closed_at = now()`, nil},
	} {
		if _, err := tx.Exec(t.Context(), statement.text, statement.args...); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	var second ports.Claim
	wg.Go(func() {
		next := receipt("second")
		next.Conversation = r.Conversation
		second = claim(t.Context(), s, next)
	})
	awaitWaiting(t, connect(t, c.DSN))
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if id := second.Receipt.ConversationID; second.Err != nil || id == "" || id == first.Receipt.ConversationID {
		t.Errorf("after the close a message is in %q, %v; want another than %q", id, second.Err, first.Receipt.ConversationID)
	}
}

// awaitWaiting waits until a statement waits for a lock.
func awaitWaiting(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	ctx := within(t, 30*time.Second)
	for n := 0; n == 0; {
		err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The database itself takes no second pending conversation, whoever writes it.
func TestDatabaseTakesOnePendingConversation(t *testing.T) {
	t.Parallel()
	insert := func(id, account, status string) string {
		key := "NULL"
		if status != "closed" {
			key = "'" + (domain.Key{Tenant: "acme", Platform: "slack", Account: account}).Conversation("C1").String() + "'"
		}
		return fmt.Sprintf(`INSERT INTO conversations (tenant, id, platform, account, external_id, status, open_key, opened_at)
			VALUES ('acme', '01920000-0000-7000-8000-00000000000%s', 'slack', '%s', 'C1', '%s', %s, '2026-11-30')`, id, account, status, key)
	}
	pg, lite := pgConfig(t), liteConfig(t)
	open(t, pg)
	open(t, lite)
	conn := confinedConn(t, pg, `{"acme": 1}`)
	db := liteDB(t, lite.DSN)
	for _, c := range []struct {
		statement string
		taken     bool
	}{
		{insert("1", "T1", "pending"), false},
		{insert("2", "T1", "pending"), true},
		{insert("3", "T1", "closed"), false},
		{insert("4", "T1", "closed"), false},
		{insert("5", "T2", "pending"), false},
		{insert("6", "T3", "open"), true},
	} {
		_, pgErr := conn.Exec(t.Context(), c.statement)
		_, liteErr := db.ExecContext(t.Context(), c.statement)
		if (pgErr != nil) != c.taken || (liteErr != nil) != c.taken {
			t.Errorf("%s = %v on Postgres, %v on SQLite; want refused %t", c.statement, pgErr, liteErr, c.taken)
		}
	}
}
