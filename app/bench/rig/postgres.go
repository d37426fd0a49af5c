package rig

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// Role owns the databases. It is neither superuser nor may it bypass row-level security.
const Role = "admitone"

// Postgres is a server with the settings it comes with: every commit is synced to the disk.
type Postgres struct {
	*Process
	bin      string // folder of the programs
	addr     string
	password string
}

// StartPostgres makes a cluster in dir, which must exist, and returns when it takes connections.
func StartPostgres(ctx context.Context, dir string) (*Postgres, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	owner, err := owner()
	if err != nil {
		return nil, err
	}
	p := &Postgres{bin: bin, password: rand.Text()}
	if p.addr, err = FreeAddr(ctx); err != nil {
		return nil, err
	}
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte(p.password+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("write the superuser's password: %w", err)
	}
	if owner != nil {
		for _, path := range []string{dir, secret} {
			if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
				return nil, fmt.Errorf("give the cluster's folder away: %w", err)
			}
		}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, p.Program("initdb"), "--pgdata="+data, "--username=postgres", "--pwfile="+secret,
		"--auth=password", "--no-locale", "--encoding=UTF8")
	initdb.Dir = dir
	initdb.SysProcAttr = attributes(owner)
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	var said bytes.Buffer
	p.Process, err = Start(Command{Dir: data, User: owner, Stderr: &said, Argv: []string{
		p.Program("postgres"), "-D", data, "-c", "listen_addresses=127.0.0.1", "-c", "port=" + portOf(p.addr),
		"-c", "unix_socket_directories=", "-c", "max_connections=400",
	}})
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, func(ctx context.Context) error { return p.Exec(ctx, "postgres", "SELECT 1") }); err != nil {
		p.Stop(os.Kill)
		return nil, fmt.Errorf("start PostgreSQL: %w: %s", err, said.Bytes())
	}
	if err := p.Exec(ctx, "postgres", "CREATE ROLE "+Role+" LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD '"+p.password+"'"); err != nil {
		p.Stop(os.Kill)
		return nil, err
	}
	return p, nil
}

// Database makes an empty database, owned by Role, and returns where Role reaches it.
func (p *Postgres) Database(ctx context.Context, name string) (dsn string, err error) {
	return p.dsn(Role, name), p.Exec(ctx, "postgres", "CREATE DATABASE "+name+" OWNER "+Role)
}

// SuperDSN returns where a superuser reaches a database.
func (p *Postgres) SuperDSN(database string) string { return p.dsn("postgres", database) }

func (p *Postgres) dsn(role, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(role, p.password), Host: p.addr, Path: database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Exec runs statements in a database as superuser, each by itself, on a connection of their own.
func (p *Postgres) Exec(ctx context.Context, database string, statements ...string) (err error) {
	c, err := pgx.Connect(ctx, p.SuperDSN(database))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	for _, s := range statements {
		if _, err := c.Exec(ctx, s); err != nil {
			return fmt.Errorf("%.60q: %w", s, err)
		}
	}
	return nil
}

// Program returns the path of one of PostgreSQL's programs.
func (p *Postgres) Program(name string) string { return filepath.Join(p.bin, name) }

// Pgbench runs a script as superuser and returns what pgbench tells.
func (p *Postgres) Pgbench(ctx context.Context, database, script string, args ...string) (string, error) {
	argv := append([]string{
		"--host=127.0.0.1", "--port=" + portOf(p.addr), "--username=postgres", "--no-vacuum", "--protocol=prepared", "--file=/dev/stdin",
	}, args...)
	cmd := exec.CommandContext(ctx, p.Program("pgbench"), append(argv, database)...)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+p.password)
	cmd.Stdin = bytes.NewReader([]byte(script))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("pgbench: %w: %s", err, out)
	}
	return string(out), nil
}

// owner returns who is to run the server: it refuses to run as root.
func owner() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // this process's own user is meant
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

// programs returns the folder of PostgreSQL's programs. Debian keeps it off the path, one
// folder for each version; the newest is taken.
func programs() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.Join(errors.New("PostgreSQL is not installed"), err)
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 if it is no number
		return n
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}
