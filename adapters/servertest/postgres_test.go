package servertest_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/servertest"
)

// victimVariable tells the test binary that it is the one to be killed.
const victimVariable = "SERVERTEST_VICTIM"

func TestMain(m *testing.M) { servertest.Main(m) }

func TestDatabaseIsEmptyAndOwnedByAnOrdinaryRole(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	conn := connect(t, db.DSN)

	var role string
	var super, bypass, owns bool
	var tables int
	err := conn.QueryRow(t.Context(), `
		SELECT current_user, r.rolsuper, r.rolbypassrls, d.datdba = r.oid,
		       (SELECT count(*) FROM pg_tables WHERE schemaname = 'public')
		FROM pg_roles r, pg_database d
		WHERE r.rolname = current_user AND d.datname = current_database()`).Scan(&role, &super, &bypass, &owns, &tables)
	if err != nil {
		t.Fatal(err)
	}
	if role != "app" || super || bypass || !owns || tables != 0 {
		t.Errorf("role %q, superuser %t, bypasses row-level security %t, owner %t, %d tables; want app, false, false, true, 0", role, super, bypass, owns, tables)
	}
	if _, err := conn.Exec(t.Context(), "CREATE TABLE t (n int)"); err != nil {
		t.Errorf("the owner can't make a table: %v", err)
	}
}

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	if again := servertest.Postgres(t); again != server {
		t.Error("a second server was started; want the shared one")
	}
	one, other := server.Database(t), server.Database(t)
	if _, err := connect(t, one.DSN).Exec(t.Context(), "CREATE TABLE t (n int)"); err != nil {
		t.Fatal(err)
	}
	var found *string
	if err := connect(t, other.DSN).QueryRow(t.Context(), "SELECT to_regclass('t')::text").Scan(&found); err != nil {
		t.Fatal(err)
	}
	if found != nil {
		t.Errorf("a table of one database is seen in another")
	}
}

func TestDatabaseIsDroppedWithItsTest(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	var name string
	t.Run("user", func(t *testing.T) {
		db := server.Database(t)
		name = db.Name
		connect(t, db.DSN)
	})
	var left bool
	err := connect(t, server.SuperDSN()).QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&left)
	if err != nil {
		t.Fatal(err)
	}
	if left {
		t.Errorf("database %s is left over", name)
	}
}

func TestSuperuserReachesTheSameDatabase(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	var name string
	var super bool
	err := connect(t, db.SuperDSN).QueryRow(t.Context(),
		"SELECT current_database(), rolsuper FROM pg_roles WHERE rolname = current_user").Scan(&name, &super)
	if err != nil {
		t.Fatal(err)
	}
	if name != db.Name || !super {
		t.Errorf("database %q, superuser %t; want %q, true", name, super, db.Name)
	}
}

func TestCommitsSurviveStopAndStart(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t)
	db, port := server.Database(t), server.Port()
	conn := connect(t, db.DSN)
	if _, err := conn.Exec(t.Context(), "CREATE TABLE t AS SELECT 7 AS n"); err != nil {
		t.Fatal(err)
	}

	server.Stop(t)
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection outlived the server")
	}
	if refused, err := pgx.Connect(t.Context(), db.DSN); err == nil {
		t.Error("a stopped server took a connection")
		refused.Close(t.Context()) //nolint:errcheck // the test has failed
	}

	server.Start(t)
	if server.Port() != port {
		t.Errorf("port %d; want %d as before", server.Port(), port)
	}
	var n int
	if err := connect(t, db.DSN).QueryRow(t.Context(), "SELECT n FROM t").Scan(&n); err != nil || n != 7 {
		t.Errorf("read %d, %v; want 7", n, err)
	}
}

func TestCrashedServersComeBackOnTheirPorts(t *testing.T) {
	t.Parallel()
	postgres, redis := servertest.NewPostgres(t), servertest.Redis(t)
	db := postgres.Database(t)
	if _, err := connect(t, db.DSN).Exec(t.Context(), "CREATE TABLE t AS SELECT 7 AS n"); err != nil {
		t.Fatal(err)
	}
	redis.Do("SET", "a", "7")
	for name, crash := range map[string]func() (func(context.Context) error, error){
		"PostgreSQL": postgres.Crash, "Redis": redis.Crash,
	} {
		restart, err := crash()
		if err != nil {
			t.Fatalf("crash %s: %v", name, err)
		}
		if err := restart(t.Context()); err != nil {
			t.Fatalf("start %s again: %v", name, err)
		}
	}
	var n int
	if err := connect(t, db.DSN).QueryRow(t.Context(), "SELECT n FROM t").Scan(&n); err != nil || n != 7 {
		t.Errorf("PostgreSQL has %d, %v; want 7", n, err)
	}
	if got := redis.Do("GET", "a"); got != "$-1" {
		t.Errorf("Redis has %q; want nothing", got)
	}
}

func TestStalledServerAnswersOnlyAfterResume(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t)
	conn := connect(t, server.Database(t).DSN)

	server.Stall(t)
	answer := make(chan error, 1)
	go func() { answer <- conn.Ping(t.Context()) }()
	select {
	case err := <-answer:
		t.Errorf("a stalled server answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}

	server.Resume(t)
	if err := <-answer; err != nil {
		t.Errorf("after Resume: %v; want the answer to what was sent before", err)
	}
}

func TestSettingsReachTheServer(t *testing.T) {
	t.Parallel()
	conn := connect(t, servertest.NewPostgres(t, "fsync=on", "max_connections=7").Database(t).DSN)
	for name, want := range map[string]string{"fsync": "on", "max_connections": "7", "synchronous_commit": "on", "listen_addresses": "127.0.0.1"} {
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestServerGoesWithItsTest(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*testing.T, *servertest.PostgresServer){
		"running": func(*testing.T, *servertest.PostgresServer) {},
		"stopped": func(t *testing.T, s *servertest.PostgresServer) { s.Stop(t) },
		"stalled": func(t *testing.T, s *servertest.PostgresServer) { s.Stall(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var folder string
			t.Run("owner", func(t *testing.T) {
				server := servertest.NewPostgres(t)
				folder = folderOf(t, server)
				leave(t, server)
			})
			if left := remains(t, folder); left != "" {
				t.Errorf("left over: %s", left)
			}
		})
	}
}

// TestNothingOutlivesAKilledTestBinary runs this binary again and kills it while its
// servers run: one shared, one of a test's own and stalled, and a Redis, stalled too.
func TestNothingOutlivesAKilledTestBinary(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	victim := exec.CommandContext(t.Context(), self, "-test.run=^TestVictim$")
	victim.Env = append(os.Environ(), victimVariable+"=1")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var folders []string
	for lines := bufio.NewScanner(out); len(folders) < 3 && lines.Scan(); {
		if folder, ok := strings.CutPrefix(lines.Text(), "folder "); ok {
			folders = append(folders, folder)
		}
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // that it was killed is no news
	if len(folders) != 3 {
		t.Fatalf("the victim told of %d folders; want 3", len(folders))
	}

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		left := remains(t, folders...)
		if left == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("left over: %s", left)
		}
	}
}

// TestVictim is a test only for TestNothingOutlivesAKilledTestBinary: it waits to be killed.
func TestVictim(t *testing.T) {
	if os.Getenv(victimVariable) == "" {
		return
	}
	stalled := servertest.NewPostgres(t)
	fmt.Fprintln(os.Stdout, "folder "+folderOf(t, servertest.Postgres(t)))
	folder := folderOf(t, stalled)
	stalled.Stall(t)
	fmt.Fprintln(os.Stdout, "folder "+folder)
	redis := servertest.Redis(t)
	folder = redisFolder(t, redis)
	redis.Stall()
	fmt.Fprintln(os.Stdout, "folder "+folder)
	select {}
}

// folderOf returns the temporary folder of a running server.
func folderOf(t *testing.T, s *servertest.PostgresServer) string {
	t.Helper()
	var data string
	if err := connect(t, s.SuperDSN()).QueryRow(t.Context(), "SELECT current_setting('data_directory')").Scan(&data); err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(data)
}

// redisFolder returns the temporary folder of a running server: the one that it works in.
func redisFolder(t *testing.T, s *servertest.RedisServer) string {
	t.Helper()
	_, pid, _ := strings.Cut(s.Do("INFO", "server"), "process_id:")
	pid, _, _ = strings.Cut(pid, "\r\n")
	folder, err := os.Readlink("/proc/" + pid + "/cwd")
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// remains tells what is left of servers: their folders, and processes that name them or work in them.
func remains(t *testing.T, folders ...string) string {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, folder := range folders {
		if _, err := os.Stat(folder); err == nil {
			left = append(left, folder)
		}
		for _, process := range processes {
			// What ended meanwhile can't be read.
			command, _ := os.ReadFile(filepath.Join(process, "cmdline"))
			cwd, _ := os.Readlink(filepath.Join(process, "cwd"))
			if strings.Contains(string(command), folder) || strings.HasPrefix(cwd, folder) {
				left = append(left, process+" "+strings.ReplaceAll(string(command), "\x00", " "))
			}
		}
	}
	return strings.Join(left, "; ")
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The server may have been stopped.
		_ = conn.Close(context.WithoutCancel(t.Context()))
	})
	return conn
}
