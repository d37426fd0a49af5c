package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
)

// quietTenant has old receipts and no installation.
const quietTenant = "quiet"

// A server that is killed while it prunes has deleted whole batches or nothing, takes no settle
// back, and is followed by one that prunes on. Guarantees of dispatches have no part in it.
func TestKilledWhilePruningLeavesWholeReceipts(t *testing.T) {
	t.Parallel()
	const old = 5
	for at, left := range map[stop]int{beforePrune: old, inPrune: old, afterPrune: old - prunedAtOnce} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			onBoth(t, nil, func(t *testing.T, d *deployment) {
				before := d.serve(nil)
				m := d.write(install("acme-slack"))
				m.send(t, before).want(t, http.StatusOK, admitted)
				d.once(m.text)
				before.kill()
				d.leaveOld(old)

				blocked := at == inPrune && d.pg != nil
				unlock := func() {}
				if blocked {
					// payloads go before the history: so half of the batch's work is done
					unlock = d.lockedBy("LOCK TABLE history IN SHARE MODE")
				}
				first := d.launchStopping(at, 0, nil)
				if blocked {
					d.awaitBlocked("DELETE FROM history")
				} else {
					first.awaitStop(string(at))
				}
				first.kill()
				unlock()
				d.wantOld(left)

				second := d.launchStopping(afterPrune, 0, nil)
				second.awaitStop(string(afterPrune))
				second.kill()
				d.wantOld(left - prunedAtOnce)
				m.again(1).send(t, d.serve(nil)).want(t, http.StatusOK, duplicate)
				d.dispatchedOnce(m.text)
			})
		})
	}
}

// leaveOld writes n receipts of a quiet tenant that were parked long ago.
func (d *deployment) leaveOld(n int) {
	d.t.Helper()
	c := sqlstore.Config{Dialect: migrations.SQLite, DSN: d.file()}
	if d.pg != nil {
		c = sqlstore.Config{Dialect: migrations.Postgres, DSN: d.db.DSN}
	}
	s, err := sqlstore.Open(d.t.Context(), c)
	if err != nil {
		d.t.Fatalf("open the durable store: %v", err)
	}
	defer s.Close() //nolint:errcheck // it never returns one
	for i := range n {
		id := uuid.UUID{5: 1, 6: 0x70, 8: 0x80, 15: byte(i)}.String() // of version 7, drawn in 1970
		r := domain.Receipt{
			ID: id, Key: domain.Key{Tenant: quietTenant, Platform: "slack", Account: "T1", EventID: id},
			Channel: "slack", Kind: domain.Other, Digest: domain.DigestOf(id), Guarantee: domain.AtMostOnce,
			State: domain.Failed, LastError: "old", ClaimedAt: time.Unix(1, 0), Payload: domain.Payload{Body: []byte("{}")},
		}
		if c := s.Claim(d.t.Context(), []domain.Receipt{r})[0]; !c.Won || c.Err != nil {
			d.t.Fatalf("write an old receipt: %+v", c)
		}
	}
}

// wantOld fails the test unless n receipts of the quiet tenant are left, each with its payload.
func (d *deployment) wantOld(n int) {
	d.t.Helper()
	for _, query := range []string{
		"SELECT count(*) FROM receipts WHERE tenant = 'quiet'",
		"SELECT count(*) FROM payloads WHERE tenant = 'quiet'",
		"SELECT count(*) FROM receipts r JOIN payloads p ON p.tenant = r.tenant AND p.receipt_id = r.id WHERE r.tenant = 'quiet'",
	} {
		if got := d.count(query); got != n {
			d.t.Errorf("%s: %d; want %d", query, got, n)
		}
	}
}

// count returns the number that a query yields, past the proxy.
func (d *deployment) count(query string) (n int) {
	d.t.Helper()
	driver, dsn := "sqlite", "file:"+d.file()+"?_pragma=busy_timeout(10000)"
	if d.pg != nil {
		driver, dsn = "pgx", d.db.SuperDSN
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		d.t.Fatalf("open the database: %v", err)
	}
	defer db.Close() //nolint:errcheck // it was only read
	if err := db.QueryRowContext(d.t.Context(), query).Scan(&n); err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// file is where the embedded durable store is.
func (d *deployment) file() string { return filepath.Join(d.dir, "admitone.db") }

// lockedBy leaves a transaction of PostgreSQL open that has carried out a statement, until
// release is called.
func (d *deployment) lockedBy(statement string) (release func()) {
	d.t.Helper()
	ctx := context.WithoutCancel(d.t.Context())
	c, err := pgx.Connect(ctx, d.db.SuperDSN)
	if err == nil {
		_, err = c.Exec(ctx, "BEGIN; "+statement)
	}
	if err != nil {
		d.t.Fatalf("%s: %v", statement, err)
	}
	release = func() { _ = c.Close(ctx) } // a second one is no news
	d.t.Cleanup(release)
	return release
}

// awaitBlocked waits until a statement with that text waits for a lock in PostgreSQL.
func (d *deployment) awaitBlocked(statement string) {
	d.t.Helper()
	await(d.t, statement+" waits for a lock", func() bool { return d.count(running(statement)+" AND wait_event_type = 'Lock'") > 0 })
}

// running returns a query for how many statements with that text are being carried out.
func running(statement string) string {
	return `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND state = 'active' AND query LIKE '%` + statement + `%'`
}

// A server that is killed within a step of the schema is followed by one that takes the step
// whole, or finds it taken.
func TestKilledWhileMigratingIsMendedByTheNext(t *testing.T) {
	t.Parallel()
	usable := func(t *testing.T, d *deployment) {
		t.Helper()
		in := d.serve(nil)
		m := d.write(install("acme-slack"))
		m.send(t, in).want(t, http.StatusOK, admitted)
		d.once(m.text)
	}
	t.Run("servers", func(t *testing.T) {
		t.Parallel()
		d := onServers(t, nil)
		const step = "CREATE TABLE receipts ("
		// nobody can make a table while somebody else is making one of that name
		unlock := d.lockedBy("CREATE TABLE receipts ()")
		first := d.launch(nil)
		d.awaitBlocked(step)
		first.kill()
		unlock()
		// what a dead client has asked for the database carries out all the same
		await(t, "the step is over", func() bool { return d.count(running(step)) == 0 })
		usable(t, d)
	})
	// On SQLite the server stops before each of the first commits that it makes: they are those of
	// the steps, and of the notes which are made before and after each.
	for n := 1; n <= 8; n++ {
		t.Run(fmt.Sprintf("embedded, commit %d", n), func(t *testing.T) {
			t.Parallel()
			d := embedded(t, nil)
			first := d.launchStopping("", n, nil)
			first.awaitStop(fmt.Sprintf("commit %d", n))
			first.kill()
			usable(t, d)
		})
	}
}
