package servertest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/servertest"
)

// What a session was told is there for whoever gets its connection next: so it pools.
func TestPgBouncerPoolsTransactions(t *testing.T) {
	t.Parallel()
	pg := servertest.Postgres(t)
	db := pg.Database(t)
	b := servertest.PgBouncer(t, pg, "default_pool_size = 1")
	one, other := connect(t, b.DSN(db)), connect(t, b.DSN(db))
	pid := func(c *pgx.Conn) (n int) {
		t.Helper()
		if err := c.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := pid(one)
	if pid(other) != before {
		t.Error("two clients have a connection each; want the one that there is")
	}
	if _, err := one.Exec(t.Context(), "SELECT set_config('test.left', 'over', false)"); err != nil {
		t.Fatal(err)
	}
	var left string
	if err := other.QueryRow(t.Context(), "SELECT current_setting('test.left')").Scan(&left); err != nil || left != "over" {
		t.Errorf("what a session was told is %q to the next, %v; want it left over", left, err)
	}
	b.Do("RECONNECT")
	if pid(one) == before {
		t.Error("after RECONNECT the old connection is used; want a new one")
	}
}

func TestPgBouncerComesBackOnItsPort(t *testing.T) {
	t.Parallel()
	pg := servertest.Postgres(t)
	db := pg.Database(t)
	b := servertest.PgBouncer(t, pg)
	conn := connect(t, b.DSN(db))
	b.Restart()
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection outlived PgBouncer")
	}
	var role string
	if err := connect(t, b.DSN(db)).QueryRow(t.Context(), "SELECT current_user").Scan(&role); err != nil || role != "app" {
		t.Errorf("role %q, %v; want app", role, err)
	}
}
