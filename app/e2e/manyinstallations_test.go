package e2e_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// Of a hundred thousand installations an instance holds as many as were asked for of late: as
// many more asked for take no more memory, and a look-up no more time.
func TestHundredThousandInstallationsStayFlat(t *testing.T) { //nolint:paralleltest // it measures memory
	const all = 100_000
	db := servertest.Postgres(t).Database(t)
	s, err := sqlstore.Open(t.Context(), sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // its outcome is not what is tested
	fill(t, db.SuperDSN, fmt.Sprintf(`
		INSERT INTO installations (tenant, id, channel, account, paused, settings, policy, key_id, sealed, created_at, changed_at)
		SELECT 'tenant' || i %% 1000, 'in-' || i, 'slack', 'T' || i, false, '{}', '', '', '', now(), now() FROM generate_series(1, %d) i`, all))
	fill(t, db.SuperDSN, `ANALYZE installations`)

	d, err := intake.NewDirectory(domain.DefaultPolicy(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	open := func(in ports.Installation) (intake.Installation, error) {
		return intake.Installation{ID: in.ID, Tenant: in.Tenant, Channel: in.Channel, Account: in.Account, Policy: domain.DefaultPolicy()}, nil
	}
	if err := d.Extend(s, open, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	// ask looks up those with numbers from first to last, and as many that are not there.
	ask := func(first, last int) (each time.Duration) {
		t.Helper()
		var askers sync.WaitGroup
		begun := time.Now()
		const many = 8
		for part := range many {
			askers.Go(func() {
				for i := first + part; i <= last; i += many {
					in, err := d.ByAccount(t.Context(), "slack", fmt.Sprintf("T%d", i))
					if err != nil || in.ID != fmt.Sprintf("in-%d", i) {
						t.Errorf("ByAccount of %d = %v, %v", i, in, err)
						return
					}
					if _, err := d.ByID(t.Context(), fmt.Sprintf("none-%d", i)); err == nil {
						t.Errorf("none-%d is found", i)
						return
					}
				}
			})
		}
		askers.Wait()
		return time.Since(begun) / time.Duration(last-first+1)
	}
	const some = 10_500 // more than are held
	early := ask(1, some)
	before := heap()
	late := ask(all-some+1, all)
	after := heap()
	if grown := int64(after) - int64(before); grown > 4<<20 {
		t.Errorf("the heap grew by %d kB from %d kB as as many more were asked for; want it flat", grown>>10, before>>10)
	}
	if late > 3*early+time.Millisecond {
		t.Errorf("a look-up took %s, later %s; want the same", early, late)
	}
	begun := time.Now()
	for range 1000 {
		if _, err := d.ByAccount(t.Context(), "slack", fmt.Sprintf("T%d", all)); err != nil {
			t.Fatal(err)
		}
	}
	if each := time.Since(begun) / 1000; each > 50*time.Microsecond {
		t.Errorf("one at hand took %s; want no question to the database", each)
	}
	t.Logf("look-ups of one and of none took %s, later %s; heap %d kB, then %d kB", early, late, before>>10, after>>10)
	runtime.KeepAlive(d)
}

// fill changes the database as its superuser, whom no policy confines.
func fill(t *testing.T, dsn, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context()) //nolint:errcheck // what it did is committed
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// heap returns how much of it is in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what finalisers have let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
