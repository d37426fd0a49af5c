package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
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

// behind returns c with its database reached through b.
func behind(t *testing.T, b *servertest.PgBouncerServer, c sqlstore.Config) sqlstore.Config {
	t.Helper()
	u, err := url.Parse(c.DSN)
	if err != nil {
		t.Fatal(err)
	}
	c.DSN = b.DSN(servertest.PostgresDatabase{Name: strings.TrimPrefix(u.Path, "/")})
	return c
}

// BR-118: instances that start at once through few connections all start, and no lock is left
// behind, though one of them dies while it has it.
func TestInstancesStartAtOnceThroughFewConnections(t *testing.T) {
	t.Parallel()
	pg := servertest.Postgres(t)
	db := pg.Database(t)
	b := servertest.PgBouncer(t, pg, "default_pool_size = 2")
	c := sqlstore.Config{Dialect: migrations.Postgres, DSN: b.DSN(db), Migrate: true}
	for _, start := range []string{"an empty database", "one that is current", "one that a dead one was migrating"} {
		if strings.HasPrefix(start, "one that a dead one") {
			dead := connect(t, c.DSN)
			if _, err := dead.Exec(t.Context(), "BEGIN; SELECT pg_advisory_xact_lock(hashtext('admitone.migrations'))"); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(200*time.Millisecond, func() { _ = dead.PgConn().Conn().Close() })
		}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				s, err := sqlstore.Open(within(t, time.Minute), c)
				if err != nil {
					t.Errorf("Open with four others on %s = %v; want nil", start, err)
					return
				}
				_ = s.Close()
			})
		}
		wg.Wait()
	}
	var left int
	err := connect(t, db.SuperDSN).QueryRow(t.Context(), `SELECT count(*) FROM pg_locks
		WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d locks are left, %v; want none", left, err)
	}
}

// A narrow pool has one connection to the database, over which everything goes, so that whatever
// a store leaves behind on it is found by who asks next.
type narrow struct {
	*sqlstore.Store
	t     *testing.T
	db    servertest.PostgresDatabase
	probe *pgx.Conn // through the same connection
	super *pgx.Conn
}

func newNarrow(t *testing.T, pg *servertest.PostgresServer) *narrow {
	t.Helper()
	db := pg.Database(t)
	if err := mustOpen(t, sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true}).Close(); err != nil {
		t.Fatal(err)
	}
	b := servertest.PgBouncer(t, pg, "default_pool_size = 1")
	c := sqlstore.Config{Dialect: migrations.Postgres, DSN: b.DSN(db), SecretKeys: []string{key('a')}}
	return &narrow{Store: open(t, c), t: t, db: db, probe: connect(t, c.DSN), super: connect(t, db.SuperDSN)}
}

// backend is the process that serves the one connection.
func (n *narrow) backend() (pid int) {
	n.t.Helper()
	if err := n.probe.QueryRow(within(n.t, 10*time.Second), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		n.t.Fatalf("the one connection is not to be had: %v", err)
	}
	return pid
}

// wantClean fails the test if something of what came before is left on the connection: a
// transaction, for whom it spoke, whom it looked up, a setting, a statement or a lock.
func (n *narrow) wantClean(after string) {
	n.t.Helper()
	var left string
	err := n.probe.QueryRow(within(n.t, 10*time.Second), `
		SELECT concat_ws(', ',
			nullif(current_setting('admitone.tenants', true), ''),
			nullif(current_setting('admitone.installation', true), ''),
			nullif(current_setting('admitone.account', true), ''),
			(SELECT string_agg(name || ' = ' || setting, ', ') FROM pg_settings
				WHERE name IN ('enable_seqscan', 'enable_hashjoin', 'enable_mergejoin', 'jit', 'lock_timeout', 'plan_cache_mode')
				AND source = 'session'),
			(SELECT string_agg(name, ', ') FROM pg_prepared_statements WHERE name <> ''),
			(SELECT string_agg(locktype || ' ' || mode, ', ') FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'))`).Scan(&left)
	if err != nil || left != "" {
		n.t.Errorf("after %s there is left %q, %v; want nothing", after, left, err)
	}
	if _, err := n.probe.Exec(n.t.Context(), "SELECT admitone_tenants()"); !refused(err) {
		n.t.Errorf("after %s who says nothing speaks for somebody: %v", after, err)
	}
}

// wantOf fails the test unless the tenant has n receipts, and the page of them is theirs alone.
func (n *narrow) wantOf(tenant string, receipts int) {
	n.t.Helper()
	page, err := n.Receipts(n.t.Context(), ports.Filter{Tenant: tenant, Limit: 1000})
	if err != nil || len(page.Receipts) != receipts {
		n.t.Errorf("%s has %d receipts, %v; want %d", tenant, len(page.Receipts), err, receipts)
	}
	for _, r := range page.Receipts {
		if r.Key.Tenant != tenant {
			n.t.Errorf("%s is shown a receipt of %s", tenant, r.Key.Tenant)
		}
	}
}

func receiptOf(tenant, id string) domain.Receipt {
	r := receipt(id)
	r.Key.Tenant = tenant
	return r
}

// BR-112: whatever a store does, nothing of it is left on the connection for who comes next.
func TestNothingIsLeftOnAPooledConnection(t *testing.T) {
	t.Parallel()
	n := newNarrow(t, servertest.Postgres(t))
	ctx := t.Context()
	n.wantClean("opening")
	before := n.backend()
	r := receiptOf("acme", "Ev1")
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"claim", func() error { return claim(ctx, n.Store, r).Err }},
		{"lost claim", func() error { return claim(ctx, n.Store, receiptOf("acme", "Ev1")).Err }},
		{"batch", func() error {
			return n.Claim(ctx, []domain.Receipt{receiptOf("globex", "Ev2"), receiptOf("acme", "Ev2"), receiptOf("globex", "Ev1")})[2].Err
		}},
		{"begin", func() error { n, err := n.Begin(ctx, refOf(r), time.Minute); r.Attempt = n; return err }},
		{"settle", func() error {
			return n.Settle(ctx, ports.Settlement{Ref: refOf(r), Step: domain.Step{State: domain.Failed}, Reason: "rejected"})
		}},
		{"begin of what is closed", func() error { _, err := n.Begin(ctx, refOf(r), time.Minute); return none(err, domain.ErrFenced) }},
		{"beat", func() error { return n.Beat(ctx, holder, time.Minute) }},
		{"take-up", func() error {
			return second(n.TakeUp(ctx, "another", func(string) bool { return true }, 5, time.Minute))
		}},
		{"look for the expired", func() error { return second(n.Expired(ctx, 5)) }},
		{"count", func() error {
			return second(n.CountDeliveries(ctx, []ports.DeliveryCount{{Tenant: "acme", Event: r.Key.Digest(), N: 1}}))
		}},
		{"lease", func() error { return second(n.AcquireLease(ctx, "prune", holder, time.Minute)) }},
		{"replay", func() error { return n.Replay(ctx, r.ID, "ann") }},
		{"replay of what is open", func() error { return none(n.Replay(ctx, r.ID, "ann"), domain.ErrState) }},
		{"discard", func() error { return n.Discard(ctx, r.ID, "ann") }},
		{"list", func() error { return second(n.Receipts(ctx, ports.Filter{})) }},
		{"counts", func() error { return second(n.Counts(ctx)) }},
		{"audit", func() error { return second(n.Audit(ctx, time.Minute, 5)) }},
		{"oldest", func() error { return second(n.OldestOpen(ctx)) }},
		{"installation", func() error { return second(n.AddInstallation(ctx, acmeSlack())) }},
		{"look-up by id", func() error { return second(n.FindInstallation(ctx, ports.InstallationRef{ID: "acme-slack"})) }},
		{"look-up by account", func() error {
			return second(n.FindInstallation(ctx, ports.InstallationRef{Channel: "slack", Account: "T0ACME001"}))
		}},
		{"removal", func() error { return n.RemoveInstallation(ctx, "acme-slack") }},
		{"polls", func() error {
			return n.EnterPolls(ctx, []ports.PollAccount{{Tenant: "acme", Channel: "gmail", Account: "desk"}})
		}},
		{"taking polls", func() error {
			return second(n.TakePolls(ctx, holder, func(ports.PollAccount) bool { return true }, 5, time.Minute))
		}},
		{"prune", func() error {
			return second(n.Prune(ctx, ports.PruneScope{Tenant: "acme", Receipts: time.Now().Add(time.Hour)}, 5))
		}},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s = %v; want nil", step.what, err)
		}
		n.wantClean(step.what)
	}
	if n.backend() != before {
		t.Error("the connection to the database was another; want the same throughout")
	}
}

// none returns err unless it is what was to come.
func none(err, want error) error {
	if err == nil {
		return fmt.Errorf("nil; want %w", want)
	}
	if errors.Is(err, want) {
		return nil
	}
	return err
}

// BR-112: of a batch that fails, however it does, nothing is left on the connection, and the next
// one, of another tenant, is right.
func TestFailedBatchLeavesNothingToTheNext(t *testing.T) {
	t.Parallel()
	pg := servertest.NewPostgres(t, "deadlock_timeout=300ms") // sooner than a batch gives up waiting
	n := newNarrow(t, pg)
	ctx := t.Context()
	lanes := func(r domain.Receipt) int64 { return r.Key.Lane(r.Conversation) }
	rival := connect(t, n.db.SuperDSN)
	if _, err := rival.Exec(ctx, "SET deadlock_timeout = '1h'"); err != nil { // so that it is never the one to give way
		t.Fatal(err)
	}
	holds := func(lane int64) {
		t.Helper()
		if _, err := rival.Exec(ctx, "SELECT pg_advisory_lock($1)", lane); err != nil {
			t.Fatal(err)
		}
	}
	lets := func() {
		t.Helper()
		if _, err := rival.Exec(ctx, "SELECT pg_advisory_unlock_all()"); err != nil {
			t.Fatal(err)
		}
	}
	awaitWaiting := func(pid int) {
		t.Helper()
		for tick := time.Tick(2 * time.Millisecond); ; <-tick {
			var waits bool
			err := n.super.QueryRow(ctx, `SELECT coalesce(wait_event_type, '') = 'Lock' FROM pg_stat_activity WHERE pid = $1`, pid).Scan(&waits)
			if err != nil {
				t.Fatal(err)
			}
			if waits {
				return
			}
		}
	}
	// claims a batch that is let go on only by what is done to it while it waits
	waiting := func(batch []domain.Receipt, lane int64, meanwhile func(pid int)) []ports.Claim {
		t.Helper()
		pid := n.backend()
		holds(lane)
		answers := make(chan []ports.Claim, 1)
		go func() { answers <- n.Claim(within(t, 20*time.Second), batch) }()
		awaitWaiting(pid)
		meanwhile(pid)
		return <-answers
	}
	spoil := func(batch []domain.Receipt) []domain.Receipt {
		for i := range batch {
			batch[i].Conversation = "a\x00b"
		}
		return batch
	}
	acme := 0
	for name, failure := range map[string]struct {
		claim func(batch []domain.Receipt) []ports.Claim
		won   int // of the batch, in the end
	}{
		"spoiled row": {func(batch []domain.Receipt) []ports.Claim {
			spoil(batch[1:2])
			return n.Claim(ctx, batch)
		}, 2},
		"all rows spoiled": {func(batch []domain.Receipt) []ports.Claim { return n.Claim(ctx, spoil(batch)) }, 0},
		"lock_timeout": {func(batch []domain.Receipt) []ports.Claim {
			return waiting(batch, lanes(batch[0]), func(int) {})
		}, 2}, // the others of the batch do not wait for that conversation
		"cancelled": {func(batch []domain.Receipt) []ports.Claim {
			return waiting(batch, lanes(batch[0]), func(pid int) { n.asSuper("SELECT pg_cancel_backend($1)", pid) })
		}, 0},
		// what fell victim to a deadlock, or to whoever ended its process, is sent again
		"deadlock": {func(batch []domain.Receipt) []ports.Claim {
			first, last := lanes(batch[0]), lanes(batch[1])
			if first > last {
				first, last = last, first
			}
			return waiting(batch[:2], last, func(int) {
				holds(first) // which the batch has: it is had once that has given way
				lets()
			})
		}, 2},
		"terminated": {func(batch []domain.Receipt) []ports.Claim {
			return waiting(batch, lanes(batch[0]), func(pid int) {
				n.asSuper("SELECT pg_terminate_backend($1)", pid)
				lets()
			})
		}, 3},
	} {
		got := failure.claim([]domain.Receipt{receiptOf("acme", name+"1"), receiptOf("acme", name+"2"), receiptOf("acme", name+"3")})
		lets()
		if won := wonOf(got); won != failure.won {
			t.Errorf("%s: %d claims are won: %v; want %d", name, won, got, failure.won)
		}
		acme += failure.won
		if got := claim(ctx, n.Store, receiptOf("globex", name)); !got.Won {
			t.Errorf("%s: the next batch = %v; want won", name, got.Err)
		}
		n.wantClean(name)
		n.wantOf("acme", acme)
	}
	n.wantOf("globex", 6)
}

func wonOf(claims []ports.Claim) (n int) {
	for _, c := range claims {
		if c.Won {
			n++
		}
	}
	return n
}

func (n *narrow) asSuper(sql string, args ...any) {
	n.t.Helper()
	if _, err := n.super.Exec(n.t.Context(), sql, args...); err != nil {
		n.t.Fatalf("%s: %v", sql, err)
	}
}

// BR-112: two tenants take turns on one connection, and every other turn is refused.
func TestTenantsTakeTurnsOnOneConnection(t *testing.T) {
	t.Parallel()
	n := newNarrow(t, servertest.Postgres(t))
	const turns = 500
	for i := range turns {
		id := fmt.Sprint(i)
		bad := receiptOf("acme", id)
		bad.Conversation = "a\x00b"
		if c := claim(t.Context(), n.Store, bad); c.Won || c.Err == nil {
			t.Fatalf("turn %d: a spoiled claim is won", i)
		}
		if c := claim(t.Context(), n.Store, receiptOf("globex", id)); !c.Won {
			t.Fatalf("turn %d: %v", i, c.Err)
		}
	}
	n.wantClean("all turns")
	n.wantOf("acme", 0)
	n.wantOf("globex", turns)
}

// Where nobody can be notified, a change of installations is known within a second all the same.
func TestChangesAreToldThroughAPoolingProxy(t *testing.T) {
	t.Parallel()
	pg := servertest.Postgres(t)
	b := servertest.PgBouncer(t, pg)
	c := sqlstore.Config{Dialect: migrations.Postgres, DSN: b.DSN(pg.Database(t)), Migrate: true, SecretKeys: []string{key('a')}}
	one, other := open(t, c), open(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan string, 16)
	var watching sync.WaitGroup
	watching.Go(func() { other.WatchInstallations(ctx, func(id string) { told <- id }) })
	defer watching.Wait()
	defer cancel()
	if first := <-told; first != "" {
		t.Errorf("first told is %q; want everything", first)
	}
	change := func(what string, do func() error) {
		t.Helper()
		begun := time.Now()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case id := <-told:
			if id != "acme-slack" || time.Since(begun) > time.Second {
				t.Errorf("%s: told of %q after %s; want acme-slack within a second", what, id, time.Since(begun))
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s is not told of", what)
		}
	}
	change("an addition", func() error { return second(one.AddInstallation(ctx, acmeSlack())) })
	change("a pause", func() error {
		return second(one.ChangeInstallation(ctx, "acme-slack", func(in *ports.Installation) error { in.Paused = true; return nil }))
	})
	b.Do("RECONNECT")
	change("a removal", func() error { return one.RemoveInstallation(ctx, "acme-slack") })
}

// While events are handled the proxy takes new connections to the database, and then dies: each
// event is handled once all the same.
func TestResetOfThePoolLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	pg := servertest.Postgres(t)
	b := servertest.PgBouncer(t, pg)
	c := sqlstore.Config{Dialect: migrations.Postgres, DSN: b.DSN(pg.Database(t)), Migrate: true}
	stores := []*sqlstore.Store{open(t, c), open(t, c)}
	const workers, each = 8, 40
	handled := make(chan string, workers*each)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				r := receipt(fmt.Sprintf("Ev%d-%d", w, i))
				for ctx := within(t, 30*time.Second); ; {
					// what is refused since nothing reached the database is tried again, as a vendor would
					got := claim(ctx, stores[w%2], r)
					if got.Won {
						break
					}
					if ctx.Err() != nil {
						t.Errorf("%s is never claimed: %v", r.Key.EventID, got.Err)
						return
					}
				}
				handled <- r.ID
			}
		})
	}
	for reset := range 8 {
		for tick := time.Tick(time.Millisecond); len(handled) < (reset+1)*workers*each/10 && !t.Failed(); <-tick { // while there is load
		}
		if reset%4 == 3 {
			b.Restart()
			continue
		}
		b.Do("RECONNECT")
	}
	wg.Wait()
	close(handled)
	all := stored(t, stores[0])
	for id := range handled {
		if !all[id] {
			t.Errorf("%s was answered and is not stored", id)
		}
		delete(all, id)
	}
	if len(all) > 0 {
		t.Errorf("%d receipts nobody knows of", len(all))
	}
}
