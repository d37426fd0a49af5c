package sqlstore

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"gorm.io/gorm"

	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// A voice says for which tenants a transaction speaks. On Postgres it sees and changes rows of
// these alone, whatever its statements say; SQLite leaves that to the statements.
type voice struct {
	tenants []string
	all     bool
}

func of(tenants ...string) voice { return voice{tenants: tenants} }

var (
	// everyone speaks for each tenant that is entered.
	everyone = voice{all: true}
	// deployment speaks for no tenant, for what belongs to none.
	deployment = of("")
)

// json is a voice as the database reads it: an object whose members are named for the tenants.
func (v voice) json() string {
	names := make(map[string]int, len(v.tenants))
	for _, t := range v.tenants {
		names[t] = 1
	}
	b, err := json.Marshal(names)
	if err != nil {
		return "" // strings and numbers can be written
	}
	return string(b)
}

// looksUp runs do in a transaction that speaks for nobody and may read the one installation that
// ref names: whose an event is, is asked before its tenant is known.
func (s *Store) looksUp(ctx context.Context, ref ports.InstallationRef, do func(tx *gorm.DB) error) error {
	if s.dialect == migrations.SQLite {
		return do(s.read.WithContext(ctx))
	}
	return s.speaks(s.read.WithContext(ctx), voice{}, func(tx *gorm.DB) error {
		account := ""
		if ref.ID == "" {
			account = ref.Channel + "/" + ref.Account
		}
		err := tx.Exec(`SELECT set_config('admitone.installation', ?, true), set_config('admitone.account', ?, true)`, ref.ID, account).Error
		if err != nil {
			return err
		}
		return do(tx)
	})
}

// A transaction of several round trips ends with its process or its network too: rows that it had
// locked would keep others from settling for as long as the server takes the connection for alive.
const (
	notIdle   = `, set_config('idle_in_transaction_session_timeout', '2000', true)`
	speak     = `SELECT set_config('admitone.tenants', ?, true)` + notIdle
	speakLoud = `SELECT set_config('admitone.tenants', (SELECT coalesce(jsonb_object_agg(tenant, 1), '{}')::text FROM tenants), true)` + notIdle
)

// reads runs do in a transaction that speaks for v.
func (s *Store) reads(ctx context.Context, v voice, do func(tx *gorm.DB) error) error {
	if s.dialect == migrations.SQLite {
		// a transaction there would be a writer
		return do(s.read.WithContext(ctx))
	}
	return s.speaks(s.read.WithContext(ctx), v, do)
}

// readsEach runs do for each of tenants, in one transaction that speaks for one after the other. What
// is said is read by each statement, so to speak for all in each would cost the square of their
// number.
func (s *Store) readsEach(ctx context.Context, tenants []string, do func(tx *gorm.DB, tenant string) error) error {
	if len(tenants) == 0 {
		return nil
	}
	return s.reads(ctx, of(tenants[0]), func(tx *gorm.DB) error {
		for i, t := range tenants {
			if i > 0 && s.dialect == migrations.Postgres {
				if err := tx.Exec(speak, of(t).json()).Error; err != nil {
					return err
				}
			}
			if err := do(tx, t); err != nil {
				return err
			}
		}
		return nil
	})
}

// writes runs do in a transaction that speaks for v, and commits what it did unless it returns
// an error.
func (s *Store) writes(ctx context.Context, v voice, do func(tx *gorm.DB) error) error {
	if s.dialect == migrations.SQLite {
		return s.write.WithContext(ctx).Transaction(do)
	}
	return s.speaks(s.write.WithContext(ctx), v, do)
}

func (s *Store) speaks(db *gorm.DB, v voice, do func(tx *gorm.DB) error) error {
	return db.Transaction(func(tx *gorm.DB) error {
		said := tx.Exec(speak, v.json())
		if v.all {
			said = tx.Exec(speakLoud)
		}
		if said.Error != nil {
			return said.Error
		}
		return do(tx)
	})
}

// Tenants implements ports.DurableStore.
func (s *Store) Tenants(ctx context.Context) (names []string, err error) {
	err = s.read.WithContext(ctx).Raw(`SELECT tenant FROM tenants ORDER BY tenant`).Scan(&names).Error
	return names, classify(err)
}

// enter enters tenants, so that who speaks for everyone speaks for them. It commits.
func (s *Store) enter(ctx context.Context, tenants ...string) error {
	for _, t := range tenants {
		if err := s.write.WithContext(ctx).Exec(`INSERT INTO tenants (tenant) VALUES (?) ON CONFLICT DO NOTHING`, t).Error; err != nil {
			return err
		}
	}
	return nil
}

// A register knows which tenants are entered in the database, so that only the first claim of
// each has to enter it.
type register struct {
	mu    sync.Mutex
	known map[string]bool
}

// missing returns the tenants of claims that are not known to be entered.
func (r *register) missing(claims []*op) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names map[string]bool
	for _, o := range claims {
		if t := o.claim.Key.Tenant; !r.known[t] {
			if names == nil {
				names = map[string]bool{}
			}
			names[t] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (r *register) entered(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[string]bool{}
	}
	for _, n := range names {
		r.known[n] = true
	}
}
