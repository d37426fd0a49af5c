package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// A confinedRow is a row of quarantine.
type confinedRow struct {
	Tenant       string
	ID           string
	Installation string
	Until        time.Time
	KeyID        string
	Sealed       []byte
}

func (r confinedRow) place() []string {
	return []string{"quarantine", r.Tenant, r.ID, r.Installation}
}

// Confine implements ports.Quarantine.
func (s *Store) Confine(ctx context.Context, c ports.Confined, limit int) (bool, error) {
	plain, err := json.Marshal(c.Delivery)
	if err != nil {
		return false, fmt.Errorf("sqlstore: quarantine: %w", err)
	}
	r := confinedRow{Tenant: c.Tenant, ID: c.ID, Installation: c.Delivery.Installation, Until: c.Until}
	if r.KeyID, r.Sealed, err = s.keys.seal(plain, r.place()...); err != nil {
		return false, err
	}
	if err := s.enter(ctx, c.Tenant); err != nil {
		return false, classify(err)
	}
	n := int64(0)
	err = s.writes(ctx, of(c.Tenant), func(tx *gorm.DB) error {
		res := tx.Exec(`
			INSERT INTO quarantine (tenant, id, installation, until, key_id, sealed)
			SELECT ?, ?, ?, ?, ?, ?`+s.asBytes()+`
			WHERE (SELECT count(*) FROM quarantine q WHERE q.tenant = ? AND q.installation = ?) < ?`,
			r.Tenant, s.id(r.ID), r.Installation, s.in(time.Until(r.Until)), r.KeyID, r.Sealed, r.Tenant, r.Installation, limit)
		n = res.RowsAffected
		return res.Error
	})
	return n > 0, classify(err)
}

// asBytes ends a parameter of bytes, where a query does not tell its type.
func (s *Store) asBytes() string {
	if s.dialect == migrations.Postgres {
		return "::bytea"
	}
	return ""
}

// Confined implements ports.Quarantine. What was sealed with a key that is gone is passed over.
func (s *Store) Confined(ctx context.Context, tenant, installation, after string, limit int) ([]ports.Confined, error) {
	var out []ports.Confined
	for limit > 0 {
		rows, err := s.confinedRows(ctx, tenant, installation, after, limit)
		if err != nil {
			return nil, classify(err)
		}
		for _, r := range rows {
			c := ports.Confined{ID: r.ID, Tenant: r.Tenant, Until: r.Until.UTC()}
			plain, err := s.keys.open(r.KeyID, r.Sealed, r.place()...)
			if err == nil {
				err = json.Unmarshal(plain, &c.Delivery)
			}
			if err == nil {
				out = append(out, c)
			}
			if after = r.ID; len(out) == limit {
				return out, nil
			}
		}
		if len(rows) < limit {
			break
		}
	}
	return out, nil
}

// confinedRows returns at most limit rows behind the one with the id after, sealed as they are.
func (s *Store) confinedRows(ctx context.Context, tenant, installation, after string, limit int) (rows []confinedRow, err error) {
	cond, args := "q.tenant = ? AND q.installation = ?", []any{tenant, installation}
	if after != "" {
		cond, args = cond+" AND q.id > ?", append(args, s.id(after))
	}
	err = s.reads(ctx, of(tenant), func(tx *gorm.DB) error {
		return tx.Raw(`
			SELECT q.tenant, q.id, q.installation, q.until, q.key_id, q.sealed FROM quarantine q
			WHERE `+cond+` ORDER BY q.id LIMIT ?`, append(args, limit)...).Scan(&rows).Error
	})
	return rows, err
}

// CountConfined implements ports.Quarantine.
func (s *Store) CountConfined(ctx context.Context, tenant, installation string) (n int, err error) {
	err = s.reads(ctx, of(tenant), func(tx *gorm.DB) error {
		return tx.Raw(`SELECT count(*) FROM quarantine q WHERE q.tenant = ? AND q.installation = ?`, tenant, installation).Scan(&n).Error
	})
	return n, classify(err)
}

// Release implements ports.Quarantine.
func (s *Store) Release(ctx context.Context, tenant, id string) error {
	return classify(s.writes(ctx, of(tenant), func(tx *gorm.DB) error {
		return tx.Exec(`DELETE FROM quarantine WHERE tenant = ? AND id = ?`, tenant, s.id(id)).Error
	}))
}

// PruneConfined implements ports.Quarantine.
func (s *Store) PruneConfined(ctx context.Context) (int, error) {
	n := int64(0)
	err := s.writes(ctx, everyone, func(tx *gorm.DB) error {
		res := tx.Exec(`DELETE FROM quarantine WHERE until <= ?`, s.now())
		n = res.RowsAffected
		return res.Error
	})
	return int(n), classify(err)
}
