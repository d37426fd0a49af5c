package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/golang-migrate/migrate/v4/database"
)

// A pgTarget takes steps on Postgres and keeps where the schema stands in the table of
// golang-migrate's own driver. That one holds an advisory lock of the session, which through a
// proxy that pools transactions is taken on one connection and given back on another: it would
// stay for as long as the first one does, and every later migrator wait for it. Here the Lock of
// the caller is the only one, and each statement is a transaction by itself.
type pgTarget struct{ db *sql.DB }

const pgVersions = `CREATE TABLE IF NOT EXISTS schema_migrations (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL)`

// Open implements database.Driver, for registered ones.
func (pgTarget) Open(string) (database.Driver, error) {
	return nil, errors.New("a database is needed, not its address")
}

// Close implements database.Driver.
func (p pgTarget) Close() error { return p.db.Close() }

// Lock implements database.Driver.
func (pgTarget) Lock() error { return nil }

// Unlock implements database.Driver.
func (pgTarget) Unlock() error { return nil }

// Run implements database.Driver. The statements of a step, which has no parameters, are sent as
// one text: they are applied together or not at all.
func (p pgTarget) Run(step io.Reader) error {
	text, err := io.ReadAll(step)
	if err != nil {
		return fmt.Errorf("read a step: %w", err)
	}
	_, err = p.db.ExecContext(context.Background(), string(text))
	return err
}

// SetVersion implements database.Driver.
func (p pgTarget) SetVersion(version int, dirty bool) error {
	text := pgVersions + `; DELETE FROM schema_migrations`
	if version >= 0 || dirty {
		text += fmt.Sprintf(`; INSERT INTO schema_migrations (version, dirty) VALUES (%d, %t)`, version, dirty) //nolint:gosec // a number and a truth value
	}
	_, err := p.db.ExecContext(context.Background(), text)
	return err
}

// Version implements database.Driver.
func (p pgTarget) Version() (version int, dirty bool, err error) {
	var kept bool
	err = p.db.QueryRowContext(context.Background(), `SELECT to_regclass('schema_migrations') IS NOT NULL`).Scan(&kept)
	if err != nil || !kept {
		return database.NilVersion, false, err
	}
	err = p.db.QueryRowContext(context.Background(), `SELECT version, dirty FROM schema_migrations`).Scan(&version, &dirty)
	if errors.Is(err, sql.ErrNoRows) {
		return database.NilVersion, false, nil
	}
	return version, dirty, err
}

// Drop implements database.Driver. Nothing here drops a whole database.
func (pgTarget) Drop() error { return errors.ErrUnsupported }
