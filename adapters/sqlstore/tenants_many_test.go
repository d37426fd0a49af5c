package sqlstore_test

import (
	"testing"

	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/migrations"
)

// A statement of Postgres has at most 65535 parameters, one of SQLite 32766.
func TestReceiptIsFoundAmongMoreTenantsThanParameters(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]func(*testing.T) sqlstore.Config{"sqlite": liteConfig, "postgres": pgConfig} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(t)
			s := open(t, c)
			r := receipt("1")
			won := claim(t.Context(), s, r)
			if !won.Won {
				t.Fatalf("claim: %v", won.Err)
			}
			if c.Dialect == migrations.SQLite {
				_, err := liteDB(t, c.DSN).ExecContext(t.Context(), `
					INSERT INTO tenants WITH RECURSIVE n (g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM n WHERE g < 70000) SELECT 'other-' || g FROM n`)
				if err != nil {
					t.Fatal(err)
				}
			} else {
				exec(t, c.DSN, `INSERT INTO tenants SELECT 'other-' || g FROM generate_series(1, 70000) g`)
			}
			if got, _, err := s.Receipt(t.Context(), r.ID); err != nil || got.ID != r.ID {
				t.Errorf("Receipt = %q, %v", got.ID, err)
			}
			if page, err := s.Messages(t.Context(), won.Receipt.ConversationID, 1, ""); err != nil || len(page.Receipts) != 1 {
				t.Errorf("Messages = %d, %v", len(page.Receipts), err)
			}
		})
	}
}
