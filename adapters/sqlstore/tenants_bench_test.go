package sqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// What is asked over all tenants says the name of each of them first. The tenants have ten handled
// receipts each, and a hundred receipts of theirs wait.
func BenchmarkTransactionsOfEveryone(b *testing.B) {
	for _, tenants := range []int{1, 1000, 10_000} {
		db := servertest.Postgres(b).Database(b)
		s, err := sqlstore.Open(b.Context(), sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		manyTenants(b, db, tenants)
		for name, do := range map[string]func() error{
			"sweep": func() error {
				_, err1 := s.TakeUp(b.Context(), "idle", func(string) bool { return true }, 64, time.Minute)
				_, err2 := s.Expired(b.Context(), 64)
				if err1 != nil {
					return err1
				}
				return err2
			},
			"counts":            func() error { return second(s.Counts(b.Context())) },
			"list of all":       func() error { return second(s.Receipts(b.Context(), ports.Filter{Limit: 100})) },
			"list of one":       func() error { return second(s.Receipts(b.Context(), ports.Filter{Tenant: "t1", Limit: 100})) },
			"receipt by its id": func() error { _, _, err := s.Receipt(b.Context(), "00000000-0000-7000-8000-000000000001"); return err },
			"claim": func() error {
				r := receipt(fmt.Sprint(time.Now().UnixNano()))
				r.Key.Tenant, r.Holder, r.State = "t1", "idle", domain.Failed
				return claim(b.Context(), s, r).Err
			},
		} {
			b.Run(fmt.Sprintf("%d tenants/%s", tenants, name), func(b *testing.B) {
				for b.Loop() {
					if err := do(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// manyTenants makes receipts of tenants t1, t2, …: ten handled ones each, and the oldest hundred of all wait.
func manyTenants(b *testing.B, db servertest.PostgresDatabase, tenants int) {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), db.SuperDSN)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(b.Context()) //nolint:errcheck // everything is answered
	for _, sql := range []string{
		fmt.Sprintf(`INSERT INTO tenants SELECT 't' || i FROM generate_series(1, %d) i`, tenants),
		fmt.Sprintf(`INSERT INTO receipts (tenant, id, platform, channel, installation, account, event_id, event_digest, message_key, kind,
				conversation, digest, guarantee, state, attempt, deliveries, vendor_attempt, claimed_at, handled_at, holder, last_error, lane)
			SELECT 't' || 1 + i %% %[1]d, ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 'slack', 'slack', 'main', 'T1', 'Ev' || i,
				gen_random_uuid(), '', 'other', '', gen_random_uuid(), 'at-most-once', CASE WHEN i < 100 THEN 'claimed' ELSE 'handled' END,
				0, 1, 0, now(), now(), 'idle', '', CASE WHEN i < 100 THEN i END
			FROM generate_series(0, greatest(10 * %[1]d, 200)) i`, tenants),
		`INSERT INTO instances VALUES ('idle', now() + interval '1 hour')`,
		`VACUUM ANALYZE receipts`,
		`ANALYZE tenants`,
	} {
		if _, err := conn.Exec(b.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			b.Fatal(err)
		}
	}
}
