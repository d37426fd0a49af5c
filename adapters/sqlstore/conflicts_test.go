package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// A refused row and a conflict leave the connection that they came over as it was, with
// nothing of one tenant in what the next one does.
func TestRefusalsLeaveThePoolUsable(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	s := open(t, sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true})
	tenants := []string{"acme", "umbrella", "o'neill; --"}
	for i := range 300 {
		r := receipt(fmt.Sprintf("Ev%d", i))
		r.Key.Tenant = tenants[i%len(tenants)]
		bad := r
		bad.Conversation = "a\x00b"
		if c := claim(t.Context(), s, bad); c.Err == nil || errors.Is(c.Err, domain.ErrUnavailable) || errors.Is(c.Err, domain.ErrUnknown) {
			t.Fatalf("Claim of a text with a NUL = won %t, %v; want a refusal", c.Won, c.Err)
		}
		if c := claim(t.Context(), s, r); c.Err != nil || !c.Won {
			t.Fatalf("Claim after a refusal = won %t, %v; want won", c.Won, c.Err)
		}
		again := receipt(r.Key.EventID)
		again.Key.Tenant = r.Key.Tenant
		if c := claim(t.Context(), s, again); c.Err != nil || c.Won || c.Receipt.ID != r.ID || c.Receipt.Key.Tenant != r.Key.Tenant {
			t.Fatalf("Claim of a duplicate = won %t, %s of %q, %v; want lost", c.Won, c.Receipt.ID, c.Receipt.Key.Tenant, c.Err)
		}
	}
	for _, tenant := range tenants {
		if page, err := s.Receipts(t.Context(), ports.Filter{Tenant: tenant, Limit: 1000}); err != nil || len(page.Receipts) != 100 {
			t.Errorf("%d receipts of %q, %v; want 100", len(page.Receipts), tenant, err)
		}
	}
	conn := connect(t, db.SuperDSN)
	var idle int
	err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND state LIKE 'idle in transaction%'`).Scan(&idle)
	if err != nil || idle != 0 {
		t.Errorf("%d transactions were left open, %v; want none", idle, err)
	}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(within(t, time.Minute)) })
	return conn
}

// The loser waits for the winner's commit, and its look for the winner must see it then.
func TestSimultaneousDuplicatesWithASlowCommit(t *testing.T) {
	t.Parallel()
	c := pgConfig(t)
	p := newProxy(t, c.DSN)
	open(t, c)
	c.DSN = p.DSN
	stores := []*sqlstore.Store{open(t, c), open(t, c)}
	p.slow(50 * time.Millisecond)
	for round := range 30 {
		var wg sync.WaitGroup
		answers := make([]ports.Claim, len(stores))
		start := make(chan struct{})
		for i, s := range stores {
			wg.Go(func() {
				<-start
				answers[i] = claim(within(t, 30*time.Second), s, receipt(fmt.Sprintf("Ev%d", round)))
			})
		}
		close(start)
		wg.Wait()
		a, b := answers[0], answers[1]
		if a.Err != nil || b.Err != nil || a.Won == b.Won || a.Receipt.ID != b.Receipt.ID {
			t.Errorf("two claims at once = won %t (%v) and %t (%v); want one winner whom the other learns", a.Won, a.Err, b.Won, b.Err)
		}
	}
}

// A winner that hangs before its commit holds the loser up for the lock's time-out and no longer.
func TestHangingWinnerDoesNotHoldTheLoserUp(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	s := open(t, sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true})
	conn := connect(t, db.SuperDSN)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := receipt("Ev1").Key.Digest()
	_, err = tx.Exec(t.Context(), `
		INSERT INTO receipts (tenant, id, platform, channel, installation, account, event_id, event_digest, message_key, kind, conversation,
			digest, guarantee, state, attempt, deliveries, vendor_attempt, claimed_at, holder, last_error)
		VALUES ('acme', gen_random_uuid(), 'slack', 'slack', 'main', 'T1', 'Ev1', $1, '', 'message.created', '', $1, 'at-most-once', 'claimed',
			0, 1, 0, now(), 'hangs', '')`, key.String())
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	c := claim(within(t, 30*time.Second), s, receipt("Ev1"))
	if took := time.Since(begun); !errors.Is(c.Err, domain.ErrUnavailable) || took > 5*time.Second {
		t.Errorf("Claim beside a winner that hangs = won %t, %v after %s; want ErrUnavailable after a second", c.Won, c.Err, took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := claim(t.Context(), s, receipt("Ev1")); c.Err != nil || !c.Won {
		t.Errorf("Claim when the winner has gone = won %t, %v; want won", c.Won, c.Err)
	}
}

// Only a conflict on one of the keys is a duplicate.
func TestOtherRefusalsAreNoDuplicates(t *testing.T) {
	t.Parallel()
	s := open(t, pgConfig(t))
	for what, spoil := range map[string]func(*domain.Receipt){
		"a state that there is not":       func(r *domain.Receipt) { r.State = "pending" },
		"a key too long for an index":     func(r *domain.Receipt) { r.Key.Tenant = incompressible(9000) },
		"a text that is not UTF-8":        func(r *domain.Receipt) { r.Conversation = "\xff\xfe" },
		"an id that is not a UUID":        func(r *domain.Receipt) { r.ID = "1" },
		"a NUL in what the channel calls": func(r *domain.Receipt) { r.Key.EventID = "\x00" },
	} {
		r := receipt("Ev1")
		spoil(&r)
		c := claim(within(t, 10*time.Second), s, r)
		if c.Err == nil || errors.Is(c.Err, domain.ErrUnavailable) || errors.Is(c.Err, domain.ErrUnknown) {
			t.Errorf("Claim with %s = won %t, %v; want a refusal", what, c.Won, c.Err)
		}
	}
	if c := claim(t.Context(), s, receipt("Ev1")); c.Err != nil || !c.Won {
		t.Errorf("Claim afterwards = won %t, %v; want won", c.Won, c.Err)
	}
}

// incompressible returns a text that the database can't make short enough.
func incompressible(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(domain.DigestOf(fmt.Sprint(i)).String())
	}
	return b.String()
}

func TestTwoFirstEventsOfAConversationAreBothAdmitted(t *testing.T) {
	t.Parallel()
	for _, c := range []sqlstore.Config{liteConfig(t), pgConfig(t)} {
		s := open(t, c)
		for round := range 25 {
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Go(func() {
					r := receipt(fmt.Sprintf("Ev%d-%d", round, i))
					r.Conversation = fmt.Sprint("new ", round)
					if c := claim(t.Context(), s, r); c.Err != nil || !c.Won {
						t.Errorf("Claim = won %t, %v; want won", c.Won, c.Err)
					}
				})
			}
			wg.Wait()
		}
	}
}

// However many an instance holds and knows of, what stands behind them is found.
func TestTakeUpLooksPastAllOfItsOwn(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	s := open(t, sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true})
	if err := s.Beat(t.Context(), "taker", time.Hour); err != nil {
		t.Fatal(err)
	}
	exec(t, db.SuperDSN, `
		INSERT INTO tenants VALUES ('acme');
		INSERT INTO receipts (tenant, id, platform, channel, installation, account, event_id, event_digest, message_key, kind,
			conversation, digest, guarantee, state, attempt, deliveries, vendor_attempt, claimed_at, holder, last_error, lane)
		SELECT 'acme', gen_random_uuid(), 'slack', 'slack', 'main', 'T1', 'Ev' || i, gen_random_uuid(), '', 'other', '', gen_random_uuid(),
			'at-most-once', 'claimed', 0, 1, 0, now(), 'taker', '', i
		FROM generate_series(1, 20500) i`)
	left := receipt("left")
	left.Holder = "gone"
	if c := claim(t.Context(), s, left); !c.Won {
		t.Fatalf("Claim = %v; want won", c.Err)
	}
	got, err := s.TakeUp(t.Context(), "taker", func(string) bool { return true }, 10, time.Minute)
	if err != nil || len(got) != 1 || got[0].ID != left.ID {
		t.Errorf("TakeUp gave %d, %v; want what stands behind its own", len(got), err)
	}
}

// A count of duplicates never waits for a receipt that is just being changed.
func TestCountsDoNotWaitForALockedReceipt(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	s := open(t, sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true})
	locked, free := receipt("locked"), receipt("free")
	for _, c := range s.Claim(t.Context(), []domain.Receipt{locked, free}) {
		if !c.Won {
			t.Fatalf("Claim = %v; want won", c.Err)
		}
	}
	tx, err := connect(t, db.SuperDSN).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM receipts WHERE event_id = 'locked' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	count := func(r domain.Receipt) ports.DeliveryCount {
		return ports.DeliveryCount{Tenant: "acme", Event: r.Key.Digest(), N: 1}
	}
	left, err := s.CountDeliveries(within(t, 10*time.Second), []ports.DeliveryCount{count(locked), count(free)})
	if err != nil || len(left) != 1 || left[0] != count(locked) {
		t.Errorf("CountDeliveries beside a lock left %v, %v; want the locked one", left, err)
	}
	// nor does who takes up
	if got, err := s.TakeUp(within(t, 10*time.Second), "taker", func(string) bool { return false }, 10, time.Minute); err != nil || len(got) != 1 || got[0].ID != free.ID {
		t.Errorf("TakeUp beside a lock gave %d, %v; want the free one", len(got), err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err = s.CountDeliveries(t.Context(), left); err != nil || len(left) != 0 {
		t.Errorf("CountDeliveries afterwards left %v, %v; want nothing", left, err)
	}
}

// Somebody may hold a row for long. Only who wants that row is told so, and not what came in the
// same batch.
func TestLockedReceiptSpoilsNoOthersOfItsBatch(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	s := open(t, sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true})
	receipts := []domain.Receipt{receipt("locked")}
	for i := range 30 {
		receipts = append(receipts, receipt(fmt.Sprint(i)))
	}
	for i, c := range s.Claim(t.Context(), receipts) {
		if !c.Won {
			t.Fatalf("claim %d = %v; want won", i, c.Err)
		}
	}
	tx, err := connect(t, db.SuperDSN).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM receipts WHERE event_id = 'locked' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, len(receipts))
	var wg sync.WaitGroup
	for i, r := range receipts {
		wg.Go(func() { _, errs[i] = s.Begin(within(t, 30*time.Second), refOf(r), time.Minute) })
	}
	wg.Wait()
	for i, err := range errs {
		if want := i > 0; (err == nil) != want {
			t.Errorf("begin %d = %v; want that only the locked one fails", i, err)
		}
	}
	if !errors.Is(errs[0], domain.ErrUnavailable) {
		t.Errorf("begin of the locked one = %v; want unavailable", errs[0])
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin(t.Context(), refOf(receipts[0]), time.Minute); err != nil {
		t.Errorf("begin afterwards = %v; want nil", err)
	}
}

// A process that stands still in the middle of a transaction must not keep others from the rows
// that it has locked for longer than they can wait.
func TestTransactionThatStandsStillIsEnded(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	s := open(t, sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true})
	r := receipt("locked")
	if c := claim(t.Context(), s, r); !c.Won {
		t.Fatal(c.Err)
	}
	locked, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	go s.HoldLocked(context.WithoutCancel(t.Context()), r.Key.Tenant, r.ID, locked, release) //nolint:errcheck // it fails, as it must
	<-locked
	ctx := within(t, 30*time.Second)
	for {
		_, err := s.Begin(ctx, refOf(r), time.Minute)
		if err == nil {
			return
		}
		if !errors.Is(err, domain.ErrUnavailable) {
			t.Fatalf("begin beside a lock = %v; want unavailable, and then nil", err)
		}
	}
}

// A later version's migration adds columns while this one serves.
func TestColumnsMayBeAddedWhileServing(t *testing.T) {
	t.Parallel()
	for _, dialect := range []migrations.Dialect{migrations.SQLite, migrations.Postgres} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			var c sqlstore.Config
			var exec func(string) error
			if dialect == migrations.SQLite {
				c = liteConfig(t)
				exec = func(text string) error { return second(liteDB(t, c.DSN).ExecContext(t.Context(), text)) }
			} else {
				db := servertest.Postgres(t).Database(t)
				c = sqlstore.Config{Dialect: dialect, DSN: db.DSN, Migrate: true}
				exec = func(text string) error { return second(connect(t, db.SuperDSN).Exec(t.Context(), text)) }
			}
			s := open(t, c)
			if err := s.Beat(t.Context(), holder, time.Hour); err != nil {
				t.Fatal(err)
			}
			stop, started := make(chan struct{}), make(chan struct{})
			var wg sync.WaitGroup
			for w := range 4 {
				wg.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
						}
						r := receipt(fmt.Sprintf("Ev%d-%d", w, i))
						if err := handle(t.Context(), s, r); err != nil {
							t.Errorf("while columns are added: %v", err)
							return
						}
						if c := claim(t.Context(), s, receipt(r.Key.EventID)); c.Err != nil || c.Won {
							t.Errorf("Claim of a duplicate = won %t, %v; want lost", c.Won, c.Err)
						}
						_, _, err1 := s.Receipt(t.Context(), r.ID)
						_, err2 := s.Receipts(t.Context(), ports.Filter{Limit: 3})
						_, err3 := s.TakeUp(t.Context(), "taker", func(string) bool { return true }, 1, time.Minute)
						_, err4 := s.Expired(t.Context(), 1)
						_, err5 := s.CountDeliveries(t.Context(), []ports.DeliveryCount{{Tenant: "acme", Event: r.Key.Digest(), N: 1}})
						if err := errors.Join(err1, err2, err3, err4, err5, s.Replay(t.Context(), r.ID, "ann"), s.Discard(t.Context(), r.ID, "ann")); err != nil {
							t.Errorf("while columns are added: %v", err)
							return
						}
						if w == 0 && i == 2 {
							close(started)
						}
					}
				})
			}
			<-started
			for i, table := range []string{"receipts", "payloads", "history", "receipts", "instances"} {
				if err := exec(fmt.Sprintf("ALTER TABLE %s ADD COLUMN added_%d text DEFAULT 'x'", table, i)); err != nil {
					t.Errorf("ALTER TABLE %s: %v", table, err)
				}
				if err := handle(t.Context(), s, receipt(fmt.Sprintf("after %d", i))); err != nil {
					t.Errorf("after a column was added: %v", err)
				}
			}
			close(stop)
			wg.Wait()
		})
	}
}
