package sqlstore

import (
	"context"

	"gorm.io/gorm"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// SQLiteStatements are those on the way of every event.
var SQLiteStatements = map[string]string{
	"claim": liteClaim, "payload": litePayload, "begin": liteBegin, "settle": liteSettle, "note": liteNote,
	"open": liteOpen, "message": liteMessage, "winner": liteWinner, "standing": liteStanding,
}

// Watch calls see with each other statement that s sends, and its arguments.
func (s *Store) Watch(see func(sql string, args []any)) error {
	for _, db := range []*gorm.DB{s.write, s.read} {
		told := func(tx *gorm.DB) { see(tx.Statement.SQL.String(), tx.Statement.Vars) }
		if err := db.Callback().Row().Before("gorm:row").Register("watch:row", told); err != nil {
			return err
		}
		if err := db.Callback().Raw().Before("gorm:raw").Register("watch:raw", told); err != nil {
			return err
		}
		if err := db.Callback().Query().Before("gorm:query").Register("watch:query", told); err != nil {
			return err
		}
	}
	return nil
}

// SettleUnfenced settles a receipt whoever holds it and whatever its state.
func (s *Store) SettleUnfenced(ctx context.Context, how ports.Settlement) error {
	var handled any
	if how.Step.State == domain.Handled {
		handled = s.now()
	}
	return classify(s.writes(ctx, of(how.Tenant), func(tx *gorm.DB) error {
		return tx.Exec(`UPDATE receipts SET state = ?, due_at = NULL, lane = NULL, lease_until = NULL, handled_at = ? WHERE tenant = ? AND id = ?`,
			how.Step.State, handled, how.Tenant, s.id(how.ID)).Error
	}))
}

// HoldLocked locks a receipt in a transaction, says so, and does nothing more until it is released.
func (s *Store) HoldLocked(ctx context.Context, tenant, id string, locked chan<- struct{}, release <-chan struct{}) error {
	return s.writes(ctx, of(tenant), func(tx *gorm.DB) error {
		err := tx.Exec(`SELECT FROM receipts WHERE tenant = ? AND id = ? FOR UPDATE`, tenant, s.id(id)).Error
		close(locked)
		<-release
		return err
	})
}
