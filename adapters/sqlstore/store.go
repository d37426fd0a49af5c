// Package sqlstore keeps receipts in Postgres or SQLite. Both dialects share the schema of
// package migrations and the queries for people, through gorm; what happens on the way of
// every event is plain SQL, committed together with what else arrived meanwhile.
package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/libtnb/sqlite"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// Config says where the receipts are.
type Config struct {
	Dialect    migrations.Dialect
	DSN        string // postgres://… or, for SQLite, a file
	Migrate    bool   // apply what is missing of the schema when opened
	MigrateDSN string // of another role, for migrations; empty: DSN
	// SecretKeys encrypt installations' secrets: 32 bytes each, in Base64. The first encrypts, each
	// decrypts. Without one no installation with secrets can be kept.
	SecretKeys []string
}

// A Store keeps receipts. It implements ports.DurableStore and ports.Ledger.
type Store struct {
	dialect migrations.Dialect
	read    *gorm.DB // for people, and for whatever may wait
	write   *gorm.DB
	cancel  context.CancelFunc

	claims   *committer // what the vendor waits for
	progress *committer // begins and settles

	keys      *keyring
	listenDSN string // for notifications; empty where there are none
}

var (
	_ ports.DurableStore = (*Store)(nil)
	_ ports.Ledger       = (*Store)(nil)
)

// Open connects, brings the schema up to date if it may, and refuses a role that tenants can't
// be kept apart from each other under. It blocks until the database answers or ctx ends; the
// store lives on after ctx until Close.
func Open(ctx context.Context, c Config) (*Store, error) {
	// before a table is made that the right role would then not own
	if err := Check(ctx, c); err != nil {
		return nil, err
	}
	if c.Migrate {
		if err := Migrate(ctx, c); err != nil {
			return nil, err
		}
	} else if err := checkSchema(ctx, c); err != nil {
		return nil, err
	}
	keys, err := newKeyring(c.SecretKeys)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Store{dialect: c.Dialect, cancel: cancel, keys: keys}
	switch c.Dialect {
	case migrations.Postgres:
		err = s.openPostgres(life, c.DSN)
	case migrations.SQLite:
		err = s.openSQLite(life, c.DSN)
	default:
		err = fmt.Errorf("sqlstore: unknown dialect %q", c.Dialect)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return s, nil
}

func (s *Store) openPostgres(life context.Context, dsn string) error {
	db, err := pgPool(dsn)
	if err != nil {
		return err
	}
	if s.write, err = gorm.Open(postgres.New(postgres.Config{Conn: db}), gormConfig()); err != nil {
		return errors.Join(fmt.Errorf("sqlstore: %w", err), db.Close())
	}
	s.read = s.write
	// again, since the schema may be new
	if err := errors.Join(checkRights(life, db), checkPolicies(life, db)); err != nil {
		return errors.Join(err, db.Close())
	}
	// two, so that a claim is not held up by the begins and settles of earlier events
	pooled := behindProxy(dsn)
	if !pooled {
		s.listenDSN = dsn
	}
	tenants := &register{}
	s.claims = newCommitter((&pgCommitter{db: db, ctx: life, pooled: pooled, tenants: tenants}).apply)
	s.progress = newCommitter((&pgCommitter{db: db, ctx: life, pooled: pooled, tenants: tenants}).apply)
	return nil
}

// behindProxy reports whether the DSN says that the server is reached through a proxy which
// pools transactions: by default_query_exec_mode, as the driver wants it there.
func behindProxy(dsn string) bool {
	c, err := pgx.ParseConfig(dsn)
	return err == nil && c.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement
}

func (s *Store) openSQLite(life context.Context, path string) error {
	writer, err := litePool(path, 1)
	if err != nil {
		return err
	}
	reader, err := litePool(path, 4)
	if err != nil {
		return errors.Join(err, writer.Close())
	}
	if s.write, err = gorm.Open(sqlite.New(sqlite.Config{Conn: writer}), gormConfig()); err == nil {
		s.read, err = gorm.Open(sqlite.New(sqlite.Config{Conn: reader}), gormConfig())
	}
	var c *liteCommitter
	if err == nil {
		c, err = newLiteCommitter(life, writer)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("sqlstore: %w", err), writer.Close(), reader.Close())
	}
	s.claims = newCommitter(c.apply)
	s.progress = s.claims // one writer: one queue, one sync
	return nil
}

func gormConfig() *gorm.Config {
	return &gorm.Config{SkipDefaultTransaction: true, DisableAutomaticPing: true, Logger: logger.Discard}
}

func pgPool(dsn string) (*sql.DB, error) {
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		// the error of the library would show the DSN
		return nil, errors.New("sqlstore: store.durable.dsn can't be parsed")
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 2 * time.Second
	}
	if _, ok := c.RuntimeParams["application_name"]; !ok {
		c.RuntimeParams["application_name"] = "admitone"
	}
	if c.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		maps.Copy(c.RuntimeParams, pgSettings)
	}
	db := stdlib.OpenDB(*c)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(8)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db, nil
}

func litePool(path string, conns int) (*sql.DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("sqlstore: %w", err)
	}
	q := url.Values{
		"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(5000)", "cache_size(-16000)"},
		"_txlock": {"immediate"}, "_time_integer_format": {"unix_micro"}, "_inttotime": {"1"},
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return nil, fmt.Errorf("sqlstore: %w", err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// Migrate applies every step of the schema that is missing.
func Migrate(ctx context.Context, c Config) error {
	return withMigrator(c, func(db *sql.DB, lock migrations.Lock) error { return migrations.Up(ctx, db, c.Dialect, lock) })
}

// MigrateDown takes back the last step of the schema, and with it what its tables hold.
func MigrateDown(ctx context.Context, c Config) error {
	return withMigrator(c, func(db *sql.DB, lock migrations.Lock) error { return migrations.Down(ctx, db, c.Dialect, lock) })
}

// Schema reads where the schema stands.
func Schema(_ context.Context, c Config) (st migrations.Status, err error) {
	err = withMigrator(c, func(db *sql.DB, _ migrations.Lock) error {
		st, err = migrations.State(db, c.Dialect)
		return err
	})
	return st, err
}

func checkSchema(ctx context.Context, c Config) error {
	st, err := Schema(ctx, c)
	if err != nil {
		return err
	}
	if st.Dirty || st.Version != st.Latest {
		return fmt.Errorf("sqlstore: the schema is at step %d of %d and store.durable.migrate is false: run admitone migrate up",
			st.Version, st.Latest)
	}
	return nil
}

// withMigrator opens a database for a migration, which closes it, and the lock that goes with it.
func withMigrator(c Config, use func(*sql.DB, migrations.Lock) error) error {
	dsn := c.DSN
	if c.MigrateDSN != "" {
		dsn = c.MigrateDSN
	}
	if c.Dialect == migrations.SQLite {
		db, err := litePool(dsn, 1)
		if err != nil {
			return err
		}
		return use(db, fileLock(dsn+".migrate"))
	}
	db, err := pgPool(dsn)
	if err != nil {
		return err
	}
	locks, err := pgPool(dsn)
	if err != nil {
		return err
	}
	defer locks.Close() //nolint:errcheck // nothing was written through it
	return use(db, transactionLock(locks))
}

func fileLock(path string) migrations.Lock {
	return func(ctx context.Context) (func(), error) {
		l := flock.New(path)
		if _, err := l.TryLockContext(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
		return func() { _ = l.Unlock() }, nil
	}
}

// lockEvery is how often a migrator that waits asks whether the one before it has ended.
const lockEvery = 50 * time.Millisecond

// transactionLock is an advisory lock that lives with a transaction, so that it is freed when
// its holder dies and holds through a pooling proxy. Who waits for it does so without a
// transaction: the proxy's connections may be few, and the holder needs a second one.
func transactionLock(db *sql.DB) migrations.Lock {
	return func(ctx context.Context) (func(), error) {
		for {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return nil, err
			}
			var had bool
			err = tx.QueryRowContext(ctx, `SELECT pg_try_advisory_xact_lock(hashtext('admitone.migrations'))`).Scan(&had)
			if had {
				return func() { _ = tx.Rollback() }, nil
			}
			if err = errors.Join(err, tx.Rollback()); err != nil {
				return nil, err
			}
			select {
			case <-time.After(lockEvery):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// Ready implements ports.DurableStore.
func (s *Store) Ready(ctx context.Context) error {
	db, err := s.read.DB()
	if err == nil {
		err = db.PingContext(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", domain.ErrUnavailable, err)
	}
	return nil
}

// Close implements ports.DurableStore.
func (s *Store) Close() error {
	s.claims.close()
	s.progress.close()
	s.cancel()
	var errs []error
	for _, g := range []*gorm.DB{s.write, s.read} {
		if g == s.read && s.read == s.write && len(errs) > 0 {
			continue
		}
		db, err := g.DB()
		if err == nil {
			err = db.Close()
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		slog.Warn("closing the durable store", "error", err)
	}
	return nil
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func parseDigest(s string) (d domain.Digest) {
	_, _ = hex.Decode(d[:], []byte(strings.ReplaceAll(s, "-", ""))) // the schema admits nothing else
	return d
}
