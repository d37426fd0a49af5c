package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// A PgBouncerServer is a PgBouncer of one test's own that pools transactions before a PostgreSQL
// server: a transaction gets whichever of the server's connections is free, and what a session
// was told is another's by the next (https://www.pgbouncer.org/features.html). Its methods
// fail the test on any error; they are not safe for concurrent use.
type PgBouncerServer struct {
	tb       testing.TB
	home     *home
	program  string
	port     int
	password string
	process  *os.Process // nil while it is stopped
}

// PgBouncer starts a PgBouncer before server and ends it with the test. Settings are lines of
// its configuration, such as "default_pool_size = 1"; unless they say otherwise it has four
// connections to each database. It knows role app alone.
func PgBouncer(tb testing.TB, server *PostgresServer, settings ...string) *PgBouncerServer {
	tb.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		tb.Fatalf("pgbouncer is needed for this test and is not installed: %v", err)
	}
	owner, err := postgresUser() // it does not run as root either
	if err != nil {
		tb.Fatal(err)
	}
	h, err := newHome("pgbouncer", owner)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := h.close(); err != nil {
			tb.Error(err)
		}
	})
	port, err := freePort(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	b := &PgBouncerServer{tb: tb, home: h, program: program, port: port, password: server.password}
	b.write("users", fmt.Sprintf("%q %q\n", appRole, server.password))
	b.write("pgbouncer.ini", strings.Join(append([]string{
		"[databases]",
		fmt.Sprintf("* = host=127.0.0.1 port=%d", server.port),
		"[pgbouncer]",
		"pool_mode = transaction",
		"listen_addr = 127.0.0.1",
		"listen_port = " + strconv.Itoa(port),
		"unix_socket_dir =",
		"auth_type = scram-sha-256",
		"auth_file = " + filepath.Join(h.path, "users"),
		"admin_users = " + appRole,
		"max_client_conn = 400",
		"default_pool_size = 4",
		"server_login_retry = 1",
	}, settings...), "\n")+"\n")
	b.start()
	tb.Cleanup(b.stop)
	return b
}

// DSN returns where role app reaches db through the pool, told so that the driver prepares
// nothing.
func (b *PgBouncerServer) DSN(db PostgresDatabase) string { return b.dsn(db.Name, "exec") }

// Do sends a command to PgBouncer's console, such as "RECONNECT" or "PAUSE".
func (b *PgBouncerServer) Do(command string) {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(b.tb.Context(), startTimeout)
	defer cancel()
	if err := b.console(ctx, command); err != nil {
		b.tb.Fatalf("pgbouncer: %s: %v", command, err)
	}
}

// Restart ends PgBouncer as a crash would, with all connections on both sides, and starts it
// on the same port.
func (b *PgBouncerServer) Restart() {
	b.tb.Helper()
	b.stop()
	b.start()
}

func (b *PgBouncerServer) write(name, text string) {
	b.tb.Helper()
	path := filepath.Join(b.home.path, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.tb.Fatalf("pgbouncer: %v", err)
	}
	if u := b.home.user; u != nil {
		if err := os.Chown(path, int(u.Uid), int(u.Gid)); err != nil {
			b.tb.Fatalf("pgbouncer: give %s away: %v", name, err)
		}
	}
}

// start returns when PgBouncer takes connections.
func (b *PgBouncerServer) start() {
	b.tb.Helper()
	process, err := b.home.spawn(b.home.path, nil, b.program, filepath.Join(b.home.path, "pgbouncer.ini"))
	if err != nil {
		b.tb.Fatalf("start pgbouncer: %v", err)
	}
	b.process = process
	err = awaitStart(b.tb.Context(), process, func(ctx context.Context) error { return b.console(ctx, "SHOW VERSION") })
	if err != nil {
		b.tb.Fatalf("start pgbouncer: %v: %s", err, b.home.logTail())
	}
}

func (b *PgBouncerServer) stop() {
	b.tb.Helper()
	if b.process == nil {
		return
	}
	_ = b.process.Signal(syscall.SIGKILL) // that it has ended already is told by what is missing
	if _, err := b.process.Wait(); err != nil {
		b.tb.Errorf("wait for pgbouncer: %v", err)
	}
	b.process = nil
}

// console sends a command on a connection of its own. Its language is no SQL and knows the
// simple protocol alone.
func (b *PgBouncerServer) console(ctx context.Context, command string) (err error) {
	conn, err := pgconn.Connect(ctx, b.dsn("pgbouncer", ""))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	return conn.Exec(ctx, command).Close()
}

func (b *PgBouncerServer) dsn(database, mode string) string {
	q := url.Values{"sslmode": {"disable"}}
	if mode != "" {
		q.Set("default_query_exec_mode", mode)
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(appRole, b.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)), Path: database, RawQuery: q.Encode(),
	}
	return u.String()
}
