package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/admitone/admitone/app/bench/load"
	"github.com/admitone/admitone/app/bench/rig"
)

// A bench is one run.
type bench struct {
	options
	self     string // this program
	dir      string // temporary
	out      io.Writer
	postgres *rig.Postgres
	redis    *rig.Redis
	targets  []target
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	b := &bench{options: o, out: out}
	if b.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if b.server, err = filepath.Abs(b.server); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "admitone-bench-"); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := os.Chmod(b.dir, 0o711); err != nil { //nolint:gosec // PostgreSQL's user passes through it
		return fmt.Errorf("open the folder to PostgreSQL's user: %w", err)
	}
	dir := func(name string) string { return filepath.Join(b.dir, name) }
	for _, name := range []string{"postgres", "redis"} {
		if err := os.Mkdir(dir(name), 0o700); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
	}
	if b.postgres, err = rig.StartPostgres(ctx, dir("postgres")); err != nil {
		return err
	}
	defer b.postgres.Stop(syscall.SIGQUIT)
	if b.redis, err = rig.StartRedis(ctx, dir("redis")); err != nil {
		return err
	}
	defer b.redis.Stop(syscall.SIGTERM)

	fmt.Fprintf(out, "%d cores, load average %s before, %s; %d rounds of %s, medians\n",
		runtime.NumCPU(), rig.Load(), runtime.Version(), b.rounds, b.round)
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{partHTTP, b.http}, {partClaims, b.claims}, {partRedis, b.fast}, {partMemory, b.memory}} {
		if !slices.Contains(b.parts, part.name) {
			continue
		}
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if b.uniqueness > 0 {
		if err := b.unique(ctx); err != nil {
			return fmt.Errorf("uniqueness: %w", err)
		}
	}
	b.tellTargets()
	fmt.Fprintf(out, "\nload average %s after\n", rig.Load())
	return nil
}

// A contestant is a server that is measured.
type contestant struct {
	*rig.Process
	addr    string
	profile string // address of its profiles; empty if it has none
}

// startChild starts this program as one of the baselines.
func (b *bench) startChild(ctx context.Context, name string, env ...string) (*contestant, error) {
	addr, err := rig.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	p, err := rig.Start(rig.Command{
		Argv: []string{b.self, child, name}, Dir: b.dir, Stderr: os.Stderr,
		Env: append(append(os.Environ(), env...), envAddr+"="+addr),
	})
	if err != nil {
		return nil, err
	}
	if err := p.AwaitPort(ctx, addr); err != nil {
		p.Stop(os.Kill)
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &contestant{Process: p, addr: addr}, nil
}

// configuration is that of a server as it is measured: defaults, but for where things are.
const configuration = `
server: {listen: "%[1]s", admin_listen: "%[2]s"}
store:
  durable: {driver: postgres, dsn: "%[3]s"}
  fast: {driver: redis, url: "%[4]s"}
  journal: {path: "%[5]s"}
tenants:
  - id: ` + tenant + `
    installations:
      - {id: ` + installation + `, channel: slack, account: ` + account + `, secrets: {signing_secret: "` + secret + `"}}
`

// startServer starts Admitone on the database of dsn. More configuration may follow.
func (b *bench) startServer(ctx context.Context, dsn, redis, more string) (*contestant, error) {
	var addr [3]string
	for i := range addr {
		var err error
		if addr[i], err = rig.FreeAddr(ctx); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(b.dir, "admitone.yaml")
	text := fmt.Sprintf(configuration, addr[0], addr[1], dsn, redis, filepath.Join(b.dir, "journal")) + more
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	s := &contestant{addr: addr[0]}
	argv := []string{b.server}
	env := os.Environ()
	if b.profiles != "" {
		argv = []string{b.self, child, childServer}
		env = append(env, envAddr+"="+addr[2])
		s.profile = addr[2]
	}
	// The log takes a line for each event. It goes nowhere, since a file would share its disk
	// with the stores; so what is wrong with the start is found out before.
	check := exec.CommandContext(ctx, argv[0], append(argv[1:], "check", "--config", file)...)
	check.Env = append(env, envAddr+"=127.0.0.1:0")
	if out, err := check.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("admitone check: %w: %s", err, out)
	}
	var err error
	s.Process, err = rig.Start(rig.Command{Argv: append(argv, "serve", "--config", file), Dir: b.dir, Env: env})
	if err != nil {
		return nil, err
	}
	if err := s.AwaitPort(ctx, s.addr); err != nil {
		s.Stop(os.Kill)
		return nil, fmt.Errorf("start admitone: %w", err)
	}
	return s, nil
}

// A sender is the process that sends.
type sender struct {
	*rig.Process
	jobs    *json.Encoder
	in      io.Closer
	results *json.Decoder
}

func (b *bench) startSender() (*sender, error) {
	jobsOut, jobsIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	resultsOut, resultsIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p, err := rig.Start(rig.Command{
		Argv: []string{b.self, child, childLoad}, Dir: b.dir, Stdin: jobsOut, Stdout: resultsIn, Stderr: os.Stderr,
	})
	if err = errors.Join(err, jobsOut.Close(), resultsIn.Close()); err != nil {
		return nil, err
	}
	return &sender{Process: p, jobs: json.NewEncoder(jobsIn), in: jobsIn, results: json.NewDecoder(resultsOut)}, nil
}

// do does a job and waits for its end. When the clock starts it calls began, if there is one, and does not wait for it.
func (s *sender) do(j load.Job, began func()) (r load.Result, err error) {
	if err := s.jobs.Encode(j); err != nil { //nolint:gosec // the secret is an invented one
		return r, fmt.Errorf("the sender has ended: %w", err)
	}
	var begins bool
	if err := s.results.Decode(&begins); err != nil {
		return r, fmt.Errorf("the sender has ended: %w", err)
	}
	if began != nil {
		go began()
	}
	if err := s.results.Decode(&r); err != nil {
		return r, fmt.Errorf("the sender has ended: %w", err)
	}
	return r, nil
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
