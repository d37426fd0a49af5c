package servertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// appRole owns the databases. It is neither superuser nor may it bypass row-level security.
const appRole = "app"

// A PostgresServer is a PostgreSQL server of the tests' own. It listens on 127.0.0.1 only.
// Its methods are safe for concurrent use.
type PostgresServer struct {
	home      *home
	bin       string // folder of the programs
	settings  []string
	password  string
	port      int
	shared    bool
	databases atomic.Int64

	mu      sync.Mutex
	process *os.Process // nil while it is stopped
}

// A PostgresDatabase is a database of one test.
type PostgresDatabase struct {
	Name     string
	DSN      string // as role app, the owner, which is neither superuser nor may bypass row-level security
	SuperDSN string // as superuser
}

var sharedPostgres struct {
	once   sync.Once
	server *PostgresServer
	err    error
}

// Postgres returns the server that the tests of this binary share, which Main stops. A test
// can't stop or stall it: others use it at the same time. It keeps what was committed
// when its processes are killed, though not if the machine is.
func Postgres(t testing.TB) *PostgresServer {
	t.Helper()
	sharedPostgres.once.Do(func() {
		sharedPostgres.server, sharedPostgres.err = startPostgres(t.Context(), true, nil)
		if sharedPostgres.err == nil {
			closeAtEnd(sharedPostgres.server.home)
		}
	})
	if sharedPostgres.err != nil {
		t.Fatal(sharedPostgres.err)
	}
	return sharedPostgres.server
}

// NewPostgres starts a server for t alone, which may stop and stall it. It ends with t.
// Settings are PostgreSQL's own, such as "fsync=on" or "max_connections=5"; fsync is off
// unless they say otherwise.
func NewPostgres(t testing.TB, settings ...string) *PostgresServer {
	t.Helper()
	s, err := startPostgres(t.Context(), false, settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Port returns the port of 127.0.0.1 that the server listens on, the same for all its life.
func (s *PostgresServer) Port() int { return s.port }

// SuperDSN returns where a superuser reaches the database postgres.
func (s *PostgresServer) SuperDSN() string { return s.dsn("postgres", "postgres") }

// Database makes an empty database, owned by role app. It is dropped when t ends.
func (s *PostgresServer) Database(t testing.TB) PostgresDatabase {
	t.Helper()
	name := fmt.Sprintf("test_%d", s.databases.Add(1))
	if err := s.exec(t.Context(), "CREATE DATABASE "+name+" OWNER "+appRole+" TEMPLATE template0"); err != nil {
		t.Fatalf("make a database: %v", err)
	}
	if !s.shared {
		return s.database(name) // it goes with its server, which may be stopped by then
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startTimeout)
		defer cancel()
		if err := s.exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return s.database(name)
}

func (s *PostgresServer) database(name string) PostgresDatabase {
	return PostgresDatabase{Name: name, DSN: s.dsn(appRole, name), SuperDSN: s.dsn("postgres", name)}
}

// Stop ends the server as a crash would: no transaction is finished, no client is told.
func (s *PostgresServer) Stop(t testing.TB) {
	t.Helper()
	s.refuseIfShared(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
}

// Crash ends the server as Stop does, and returns what starts it again as Start does. Neither
// fails a test, so that both may be called outside of its goroutine.
func (s *PostgresServer) Crash() (restart func(context.Context) error, err error) {
	if s.shared {
		return nil, errors.New("the tests of this binary share this server: take one from NewPostgres")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stop(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.process != nil {
			return errors.New("start PostgreSQL: it is running")
		}
		return s.start(ctx)
	}, nil
}

// Start starts a stopped server again, on the same port and with the data it had, and
// returns when it takes connections.
func (s *PostgresServer) Start(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		t.Fatal("start PostgreSQL: it is running")
	}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Stall halts every process of the server. Connections stay open and new ones are taken by
// the system, but nothing is answered until Resume.
func (s *PostgresServer) Stall(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGSTOP)
}

// Resume ends a Stall. What clients sent meanwhile is worked on.
func (s *PostgresServer) Resume(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGCONT)
}

func (s *PostgresServer) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	s.refuseIfShared(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		t.Fatalf("send %v to PostgreSQL: it is stopped", sig)
	}
	if err := signalFamily(s.process.Pid, sig); err != nil {
		t.Fatalf("send %v to PostgreSQL: %v", sig, err)
	}
}

func (s *PostgresServer) refuseIfShared(t testing.TB) {
	t.Helper()
	if s.shared {
		t.Fatal("the tests of this binary share this server: take one from NewPostgres")
	}
}

// signalFamily begins with pid itself: once it is halted it starts no further child.
func signalFamily(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil {
		return err
	}
	pids, _, err := family(pid)
	if err != nil {
		return err
	}
	for _, child := range pids[1:] {
		if err := syscall.Kill(child, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

func startPostgres(ctx context.Context, shared bool, settings []string) (*PostgresServer, error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	owner, err := postgresUser()
	if err != nil {
		return nil, err
	}
	h, err := newHome("postgres", owner)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s := &PostgresServer{home: h, bin: bin, settings: settings, password: rand.Text(), shared: shared}
	if err := s.create(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// create makes the cluster, starts it for the first time and makes the role.
func (s *PostgresServer) create(ctx context.Context) error {
	if err := s.initialise(); err != nil {
		return err
	}
	// Another test binary may take the port between its choice and the start.
	const tries = 3
	var err error
	for range tries {
		if s.port, err = freePort(ctx); err != nil {
			return err
		}
		if err = s.start(ctx); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	if err := s.exec(ctx, "CREATE ROLE "+appRole+" LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD '"+s.password+"'"); err != nil {
		return fmt.Errorf("make the role %s: %w", appRole, err)
	}
	return nil
}

func (s *PostgresServer) initialise() error {
	pwfile := filepath.Join(s.home.path, "password")
	if err := os.WriteFile(pwfile, []byte(s.password+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the superuser's password: %w", err)
	}
	if u := s.home.user; u != nil {
		if err := os.Chown(pwfile, int(u.Uid), int(u.Gid)); err != nil {
			return fmt.Errorf("give the password's file away: %w", err)
		}
	}
	// A password keeps out the machine's other users, to whom a superuser would give the
	// rights of the server's own; on loopback nothing is gained by hashing it on the way.
	initdb, err := s.home.spawn(s.home.path, nil, filepath.Join(s.bin, "initdb"),
		"--pgdata="+s.data(), "--username=postgres", "--pwfile="+pwfile, "--auth=password",
		"--no-locale", "--encoding=UTF8", "--no-sync")
	if err != nil {
		return fmt.Errorf("run initdb: %w", err)
	}
	state, err := initdb.Wait()
	if err != nil {
		return fmt.Errorf("wait for initdb: %w", err)
	}
	if !state.Success() {
		return fmt.Errorf("initdb: %v: %s", state, s.home.logTail())
	}
	return nil
}

// start returns when the server takes connections. The caller holds mu or is alone.
func (s *PostgresServer) start(ctx context.Context) error {
	argv := []string{filepath.Join(s.bin, "postgres"), "-D", s.data()}
	for _, setting := range append([]string{
		"listen_addresses=127.0.0.1",
		"port=" + strconv.Itoa(s.port),
		"unix_socket_directories=",
		"max_connections=200",
		// Without fsync a commit is still with the system before it is answered, so Stop loses none.
		"fsync=off",
		"full_page_writes=off",
		"synchronous_commit=on",
		"wal_level=minimal",
		"max_wal_senders=0",
		"jit=off",
	}, s.settings...) {
		argv = append(argv, "-c", setting)
	}
	process, err := s.home.spawn(s.data(), nil, argv...)
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	s.process = process
	err = awaitStart(ctx, process, func(ctx context.Context) error { return s.exec(ctx, "SELECT 1") })
	if err != nil {
		return errors.Join(fmt.Errorf("start PostgreSQL: %w: %s", err, s.home.logTail()), s.stop())
	}
	return nil
}

// stop waits until the server's process ended. The caller holds mu or is alone.
func (s *PostgresServer) stop() error {
	if s.process == nil {
		return nil
	}
	// A stalled server would not note the order. PostgreSQL calls SIGQUIT the immediate shutdown.
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGCONT} {
		if err := signalFamily(s.process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop PostgreSQL: %w", err)
		}
	}
	if _, err := s.process.Wait(); err != nil {
		return fmt.Errorf("wait for PostgreSQL: %w", err)
	}
	s.process = nil
	return nil
}

func (s *PostgresServer) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.stop(), s.home.close())
}

// exec runs one statement as superuser on a connection of its own.
func (s *PostgresServer) exec(ctx context.Context, sql string) (err error) {
	conn, err := pgx.Connect(ctx, s.SuperDSN())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

func (s *PostgresServer) data() string { return filepath.Join(s.home.path, "data") }

func (s *PostgresServer) dsn(role, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(role, s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// postgresUser returns who is to run the server: it refuses to run as root.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no user for it: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user postgres: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user postgres: %w", err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// postgresPrograms returns the folder of the server's programs. Debian keeps it off the
// path, one folder for each version; the newest is taken.
func postgresPrograms() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", fmt.Errorf("look for PostgreSQL: %w", err)
	}
	var newest string
	var version float64
	for _, path := range found {
		bin := filepath.Dir(path)
		// Versions before 10 had two numbers: 9.6.
		if v, err := strconv.ParseFloat(filepath.Base(filepath.Dir(bin)), 64); err == nil && v > version {
			newest, version = bin, v
		}
	}
	if newest == "" {
		return "", errors.New("PostgreSQL is not installed: `task deps` installs what the tests need")
	}
	return newest, nil
}
