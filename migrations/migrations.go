// Package migrations holds the schema of both dialects and applies it. It is the only way
// in which the schema changes.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// A Dialect is one of the two kinds of database that the schema is written for.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres"
	SQLite   Dialect = "sqlite"
)

// A Lock keeps other instances from migrating at the same time. It blocks until it has
// the lock or ctx ends; unlock gives it back.
type Lock func(ctx context.Context) (unlock func(), err error)

// Status is where a schema stands.
type Status struct {
	Version uint // last step applied; 0 if none
	Latest  uint // last step there is
	Dirty   bool // a migrator died at Version, and has not been followed by another
}

// Up applies every step that is missing. A step that a killed migrator left is finished or
// begun again, whichever its own entry in schema_steps tells. db is used up: it is closed.
func Up(ctx context.Context, db *sql.DB, d Dialect, lock Lock) error {
	return run(ctx, db, d, lock, (*migrate.Migrate).Up)
}

// Down takes the last step back, and with it what the step's tables hold. db is closed.
func Down(ctx context.Context, db *sql.DB, d Dialect, lock Lock) error {
	return run(ctx, db, d, lock, func(m *migrate.Migrate) error { return m.Steps(-1) })
}

// State reads where the schema of db stands and changes nothing but, on an SQLite database never
// migrated, the table that says so. db is closed.
func State(db *sql.DB, d Dialect) (Status, error) {
	latest, err := latest(d)
	if err != nil {
		return Status{}, err
	}
	s := Status{Latest: latest}
	err = open(db, d, func(m *migrate.Migrate) error {
		v, dirty, err := m.Version()
		if errors.Is(err, migrate.ErrNilVersion) {
			return nil
		}
		s.Version, s.Dirty = v, dirty
		return err
	})
	return s, err
}

func run(ctx context.Context, db *sql.DB, d Dialect, lock Lock, step func(*migrate.Migrate) error) error {
	unlock, err := lock(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("migrations: wait for the lock: %w", err), db.Close())
	}
	defer unlock()
	return open(db, d, func(m *migrate.Migrate) error {
		if err := mend(ctx, db, m); err != nil {
			return err
		}
		if err := step(m); err != nil && !errors.Is(err, migrate.ErrNoChange) {
			return fmt.Errorf("migrations: %w", err)
		}
		return nil
	})
}

// mend decides what became of the step at which a migrator died. It runs under the lock, so
// the migrator is dead and not slow.
func mend(ctx context.Context, db *sql.DB, m *migrate.Migrate) error {
	version, dirty, err := m.Version()
	if err != nil || !dirty {
		if errors.Is(err, migrate.ErrNilVersion) {
			return nil
		}
		return err
	}
	var applied int
	err = db.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM schema_steps WHERE version = %d", version)).Scan(&applied)
	if err != nil {
		applied = 0 // the table comes with the first step
	}
	target := int(version) - 1 + applied
	if target == 0 {
		target = database.NilVersion
	}
	if err := m.Force(target); err != nil {
		return fmt.Errorf("migrations: step %d was left half done: %w", version, err)
	}
	return nil
}

// open calls use with what applies steps to db, and closes db.
func open(db *sql.DB, d Dialect, use func(*migrate.Migrate) error) error {
	m, err := runner(db, d)
	if err != nil {
		return errors.Join(fmt.Errorf("migrations: %w", err), db.Close())
	}
	err = use(m)
	srcErr, dbErr := m.Close()
	return errors.Join(err, srcErr, dbErr)
}

func runner(db *sql.DB, d Dialect) (*migrate.Migrate, error) {
	src, err := iofs.New(files, string(d))
	if err != nil {
		return nil, err
	}
	var target database.Driver
	switch d {
	case Postgres:
		target = pgTarget{db}
	case SQLite:
		target, err = sqlite.WithInstance(db, &sqlite.Config{})
	default:
		err = fmt.Errorf("unknown dialect %q", d)
	}
	if err != nil {
		return nil, err
	}
	return migrate.NewWithInstance("iofs", src, string(d), target)
}

func latest(d Dialect) (uint, error) {
	names, err := fs.Glob(files, string(d)+"/*.up.sql")
	if err != nil || len(names) == 0 {
		return 0, fmt.Errorf("migrations: no steps for %q: %w", d, err)
	}
	var n uint
	last := names[len(names)-1]
	if _, err := fmt.Sscanf(last[len(d)+1:], "%d_", &n); err != nil {
		return 0, fmt.Errorf("migrations: %s: %w", last, err)
	}
	return n, nil
}
