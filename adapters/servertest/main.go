// Package servertest starts the servers that tests need: real ones, on free ports of the
// loopback address and in temporary folders, never those that run on the machine already.
// A machine that lacks a program fails the test; nothing is skipped.
//
// Whatever happens to the test binary, nothing it started outlives it for long: each server
// has a watcher, a process that waits for the end of the test binary, kills what works in
// the server's folder and deletes the folder.
//
// The package is for tests only. It needs Linux, since it finds processes through /proc.
package servertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTimeout is generous: the machines that run tests are small and busy.
const startTimeout = 90 * time.Second

// Main runs the tests of a package and then stops the servers that they shared:
//
//	func TestMain(m *testing.M) { servertest.Main(m) }
//
// Without it the servers go too, but only after the test binary has ended.
func Main(m *testing.M) {
	m.Run()
	if err := Shutdown(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // the exit code of a test binary is decided here
	}
}

// Shutdown stops the shared servers and deletes their folders. It is for a TestMain that
// can't be Main; no test may use a shared server afterwards.
func Shutdown() error {
	atEnd.Lock()
	defer atEnd.Unlock()
	var errs []error
	for _, h := range atEnd.homes {
		errs = append(errs, h.close())
	}
	atEnd.homes = nil
	return errors.Join(errs...)
}

var atEnd struct {
	sync.Mutex
	homes []*home
}

// closeAtEnd leaves h to Shutdown.
func closeAtEnd(h *home) {
	atEnd.Lock()
	defer atEnd.Unlock()
	atEnd.homes = append(atEnd.homes, h)
}

// watch is the watcher's program; $1 is the folder. Reading ends when the test binary
// closes the pipe or dies. The servers work inside of the folder, which is how they are
// found, children of theirs included. SIGCONT comes first since a stalled process notes
// no other signal but SIGKILL, and SIGQUIT before SIGKILL since PostgreSQL then gives its
// shared memory back.
const watch = `
inside() {
	find /proc/[0-9]*/cwd -maxdepth 0 \( -lname "$1" -o -lname "$1/*" \) 2>/dev/null |
		while IFS=/ read -r _ _ pid _; do echo "$pid"; done
}
while read -r _; do :; done
for signal in CONT QUIT; do
	for pid in $(inside "$1"); do kill -s $signal "$pid"; done
done 2>/dev/null
tries=0
while pids=$(inside "$1") && [ -n "$pids" ]; do
	tries=$((tries + 1))
	[ $tries -gt 100 ] && for pid in $pids; do kill -s KILL "$pid"; done
	sleep 0.05
done 2>/dev/null
rm -rf "$1"
`

// A home is the temporary folder that one server works in, with its watcher.
type home struct {
	path    string
	user    *syscall.Credential // who owns the folder and runs the server; nil means this process's user
	watcher *os.Process
	living  io.Closer // the watcher cleans up once it is closed
}

// newHome makes a folder. kind becomes a part of its name.
func newHome(kind string, user *syscall.Credential) (*home, error) {
	// Processes are found by the folder's true path.
	tmp, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("find the folder for temporary files: %w", err)
	}
	path, err := os.MkdirTemp(tmp, "admitone-"+kind+"-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for %s: %w", kind, err)
	}
	h := &home{path: path, user: user}
	if err := h.guard(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return h, nil
}

// watchedDir makes a folder for a server of tb's own, which runs as this process's user and
// works in it. It is gone when tb ends, after the clean-ups that are registered later.
func watchedDir(tb testing.TB, kind string) string {
	tb.Helper()
	h, err := newHome(kind, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := h.close(); err != nil {
			tb.Error(err)
		}
	})
	return h.path
}

// guard gives the folder to its user and starts the watcher.
func (h *home) guard() error {
	if h.user != nil {
		if err := os.Chown(h.path, int(h.user.Uid), int(h.user.Gid)); err != nil {
			return fmt.Errorf("give the folder away: %w", err)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make the watcher's pipe: %w", err)
	}
	defer r.Close() //nolint:errcheck // the watcher has its own copy
	watcher, err := h.spawn("/", r, "/bin/sh", "-c", watch, "watch", h.path)
	if err != nil {
		return errors.Join(fmt.Errorf("start the watcher: %w", err), w.Close())
	}
	h.watcher, h.living = watcher, w
	return nil
}

// close returns when nothing works in the folder any more and the folder is gone.
func (h *home) close() error {
	if err := h.living.Close(); err != nil {
		return fmt.Errorf("tell the watcher: %w", err)
	}
	if _, err := h.watcher.Wait(); err != nil {
		return fmt.Errorf("wait for the watcher: %w", err)
	}
	if _, err := os.Stat(h.path); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is left over", h.path)
	}
	return nil
}

// spawn starts a program as the folder's user. Its output goes to the folder's log, never to
// that of the tests, which `go test` would wait for. It gets a session of its own, so that
// what ends the tests from a terminal leaves the order of the clean-up alone.
func (h *home) spawn(dir string, stdin *os.File, argv ...string) (*os.Process, error) {
	log, err := os.OpenFile(h.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the program has its own copy
	return os.StartProcess(argv[0], argv, &os.ProcAttr{
		Dir:   dir,
		Files: []*os.File{stdin, log, log},
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: h.user},
	})
}

// awaitStart blocks until a server that runs as process can be asked. It returns an error if that
// ends first, or takes too long.
func awaitStart(ctx context.Context, process *os.Process, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, func() (bool, error) {
		_, runs, err := family(process.Pid)
		if err != nil {
			return false, err
		}
		if !runs {
			return false, errors.New("it ended")
		}
		return ask(ctx) == nil, nil
	})
}

func (h *home) logPath() string { return filepath.Join(h.path, "log") }

// logTail returns the end of what the folder's programs printed, for an error.
func (h *home) logTail() string {
	const most = 2000
	text, err := os.ReadFile(h.logPath())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// freePort returns a port of 127.0.0.1 that nothing listens on. It lies below the range
// from which systems take the ports of outgoing connections, so that a server that was
// stopped finds its port free when it is started again.
func freePort(ctx context.Context) (int, error) {
	const low, high, tries = 15000, 32000, 100
	var last error
	for range tries {
		port := low + rand.IntN(high-low)
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}

// poll calls done every 20 ms until it returns true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// family returns pid and its children, and whether pid runs: one that ended and was not
// waited for yet does not.
func family(pid int) (pids []int, runs bool, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, false, fmt.Errorf("list processes: %w", err)
	}
	pids = []int{pid}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		// The name, in parentheses, may itself hold parentheses and spaces.
		_, rest, _ := strings.Cut(string(text), " (")
		f := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
		if len(f) < 2 {
			continue
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		switch {
		case id == pid:
			runs = f[0] != "Z"
		case f[1] == strconv.Itoa(pid) && f[0] != "Z":
			pids = append(pids, id)
		}
	}
	return pids, runs, nil
}
