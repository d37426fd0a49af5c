package sqlstore

import "gorm.io/gorm"

// SQLiteStatements are those on the way of every event.
var SQLiteStatements = map[string]string{
	"claim": liteClaim, "payload": litePayload, "begin": liteBegin, "settle": liteSettle, "note": liteNote,
	"winner": liteWinner, "standing": liteStanding,
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
