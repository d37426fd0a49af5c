package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
)

// Check connects and refuses what Open would refuse: a key, a role under which tenants can't be
// kept apart or that lacks a right, a database whose policies were taken away, and a pooling
// proxy that the DSN does not tell of. Its errors tell what to do. It changes nothing.
func Check(ctx context.Context, c Config) error {
	if _, err := newKeyring(c.SecretKeys); err != nil {
		return err
	}
	var db *sql.DB
	var err error
	if c.Dialect == migrations.SQLite {
		db, err = litePool(c.DSN, 1)
	} else {
		db, err = pgPool(c.DSN)
	}
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // nothing was written through it
	if err := db.PingContext(ctx); err != nil {
		if tellsOfAProxy(err) {
			return errors.New("sqlstore: " + proxyUntold)
		}
		return fmt.Errorf("%w: %w", domain.ErrUnavailable, err)
	}
	if c.Dialect == migrations.SQLite {
		return nil
	}
	errs := []error{checkSettings(ctx, db, c.DSN), checkRole(ctx, db), checkRights(ctx, db), checkPolicies(ctx, db)}
	if c.Migrate && c.MigrateDSN == "" {
		errs = append(errs, checkMayCreate(ctx, db))
	}
	return errors.Join(errs...)
}

const proxyUntold = "a pooling proxy stands before the database, and store.durable.dsn does not tell: add default_query_exec_mode=exec to it"

// tellsOfAProxy reports whether a proxy refused a connection for the settings that it began with.
// PostgreSQL's own code for it is another.
func tellsOfAProxy(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == pgProtocolViolation && strings.Contains(pg.Message, "startup parameter")
}

const pgProtocolViolation = "08P01"

// checkSettings refuses a connection on which the settings that it began with do not hold: a proxy
// ignores them (ignore_startup_parameters of PgBouncer), and so moves statements to connections
// on which they were not prepared.
func checkSettings(ctx context.Context, db *sql.DB, dsn string) error {
	if behindProxy(dsn) {
		return nil
	}
	const setting = "plan_cache_mode" // of all the one that a server hardly has by itself
	got, err := names(ctx, db, `SELECT current_setting('`+setting+`')`)
	if err != nil {
		return err
	}
	if got[0] != pgSettings[setting] {
		return errors.New("sqlstore: " + proxyUntold)
	}
	return nil
}

// checkRole refuses a role under which the database can't keep tenants apart, be it by itself, by
// the role that the session began with or by one that it may become.
func checkRole(ctx context.Context, db *sql.DB) error {
	var role, free string
	var super bool
	err := db.QueryRowContext(ctx, `
		SELECT current_user, rolname, rolsuper FROM pg_roles
		WHERE (rolsuper OR rolbypassrls) AND (pg_has_role(current_user, oid, 'MEMBER') OR rolname = session_user)
		ORDER BY rolname <> current_user LIMIT 1`).Scan(&role, &free, &super)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sqlstore: %w", err)
	}
	what := "bypasses row-level security"
	if super {
		what = "is a superuser"
	}
	if free != role {
		what = fmt.Sprintf("may become %q, which %s", free, what)
	}
	return fmt.Errorf(`sqlstore: role %q %s, so the database could not keep tenants apart; use one made by:
    CREATE ROLE admitone LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD '…';
    CREATE DATABASE admitone OWNER admitone;
  or, for a database that has its tables, whose owner then is the role of store.durable.migrate_dsn:
    CREATE ROLE admitone LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD '…';
    GRANT USAGE ON SCHEMA public TO admitone;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO admitone;
  nothing that ALTER ROLE … SET gives it is needed, so it may be used through a pooling proxy`, role, what)
}

// ofTenants are the tables that hold tenants' rows. The first step of the schema put none of them
// under a policy, and had no table of tenants.
const ofTenants = `
	SELECT c.* FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
	WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'tenants'
		AND a.attname = 'tenant' AND NOT a.attisdropped AND to_regclass('tenants') IS NOT NULL`

// checkRights refuses a role that may not read and write each table that there is.
func checkRights(ctx context.Context, db *sql.DB) error {
	var role string
	var schema sql.NullString
	if err := db.QueryRowContext(ctx, `SELECT current_user, current_schema()`).Scan(&role, &schema); err != nil {
		return fmt.Errorf("sqlstore: %w", err)
	}
	if !schema.Valid {
		return fmt.Errorf(`sqlstore: role %q may use no schema of this database; its owner lets it by:
    GRANT USAGE ON SCHEMA public TO %s;`, role, pgx.Identifier{role}.Sanitize())
	}
	tables, err := names(ctx, db, `
		SELECT t.relname FROM (`+ofTenants+`
			UNION ALL
			SELECT * FROM pg_class WHERE oid IN (to_regclass('tenants'), to_regclass('instances'), to_regclass('installation_changes'))
		) t
		WHERE NOT (SELECT bool_and(has_table_privilege(t.oid, needed)) FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) needed)
		ORDER BY t.relname`)
	if err != nil || len(tables) == 0 {
		return err
	}
	return fmt.Errorf(`sqlstore: role %q may not read and write %s; their owner lets it by:
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[3]s TO %[4]s;
    ALTER DEFAULT PRIVILEGES IN SCHEMA %[3]s GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO %[4]s;`,
		role, strings.Join(tables, ", "), pgx.Identifier{schema.String}.Sanitize(), pgx.Identifier{role}.Sanitize())
}

// checkMayCreate refuses a role that is to make the tables and may not.
func checkMayCreate(ctx context.Context, db *sql.DB) error {
	var role, database string
	var may bool
	err := db.QueryRowContext(ctx, `
		SELECT current_user, current_database(),
			to_regclass('receipts') IS NOT NULL OR coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)`).
		Scan(&role, &database, &may)
	if err != nil {
		return fmt.Errorf("sqlstore: %w", err)
	}
	if may {
		return nil
	}
	return fmt.Errorf(`sqlstore: role %q may not make the tables; let it own the database by
    ALTER DATABASE %s OWNER TO %s;
  or name a role that owns it in store.durable.migrate_dsn`,
		role, pgx.Identifier{database}.Sanitize(), pgx.Identifier{role}.Sanitize())
}

// checkPolicies refuses a database that would not keep tenants apart, whoever asks: each table
// with a tenant in its rows must be under the policy of the migrations and no other one, and that
// must hold for its owner too.
func checkPolicies(ctx context.Context, db *sql.DB) error {
	open, err := names(ctx, db, `
		SELECT t.relname FROM (`+ofTenants+`) t
		WHERE NOT (t.relrowsecurity AND t.relforcerowsecurity)
			OR (SELECT count(*) FILTER (WHERE p.polname = 'tenant' AND p.polpermissive AND p.polcmd = '*' AND p.polroles = '{0}'
					AND p.polwithcheck IS NULL AND pg_get_expr(p.polqual, p.polrelid) LIKE 'jsonb_exists(%admitone_tenants()%, tenant)')
				FROM pg_policy p WHERE p.polrelid = t.oid) <> 1
		ORDER BY t.relname`)
	if err != nil {
		return err
	}
	wide, err := names(ctx, db, `
		SELECT p.polname || ' ON ' || t.relname FROM (`+ofTenants+`) t JOIN pg_policy p ON p.polrelid = t.oid
		WHERE p.polname <> 'tenant' AND p.polpermissive AND NOT (t.relname = 'installations' AND p.polname = 'look_up' AND p.polcmd = 'r'
			AND pg_get_expr(p.polqual, p.polrelid) LIKE '%id = current_setting(%admitone.installation%account%= current_setting(%admitone.account%')
		ORDER BY 1`)
	if err != nil || len(open)+len(wide) == 0 {
		return err
	}
	var mend strings.Builder
	for _, table := range open {
		fmt.Fprintf(&mend, `
    DROP POLICY IF EXISTS tenant ON %[1]s;
    CREATE POLICY tenant ON %[1]s USING (jsonb_exists((SELECT admitone_tenants()), tenant));
    ALTER TABLE %[1]s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;`, table)
	}
	for _, policy := range wide {
		fmt.Fprintf(&mend, "\n    DROP POLICY %s;", policy)
	}
	return fmt.Errorf("sqlstore: row-level security is not what the migrations made it, so the database would not keep tenants apart; the owner mends it by:%s",
		mend.String())
}

// names returns what a query without parameters yields.
func names(ctx context.Context, db *sql.DB, query string) (all []string, err error) {
	rows, err := db.QueryContext(ctx, query, pgx.QueryExecModeExec)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: %w", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("sqlstore: %w", err)
		}
		all = append(all, name)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sqlstore: %w", err)
	}
	return all, nil
}
