package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startPatience is how long a server may take to become ready.
const startPatience = 20 * time.Second

// freePort returns an address on this machine that nobody listens on. Its port lies below the
// range from which systems take those of outgoing connections, so that it stays free while
// the server is dead.
func freePort(ctx context.Context) (string, error) {
	const low, high, tries = 15000, 32000, 100
	var last error
	for range tries {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(low+rand.IntN(high-low))) //nolint:gosec // not to be secret
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			last = err
			continue
		}
		return address, l.Close()
	}
	return "", fmt.Errorf("find a free port: %w", last)
}

// A child is a server in a process of its own.
type child struct {
	log     string
	process *os.Process
	ended   chan struct{}
}

// startServer runs this binary as a server in dir and waits until it is ready. The server dies
// with this process, whatever ends it, where the system offers that.
func startServer(ctx context.Context, dir, config string, admin adminAPI) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	c := &child{log: filepath.Join(dir, "server.log"), ended: make(chan struct{})}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the server's log: %w", err)
	}
	cmd := exec.Command(program, "serve", "--config", config) //nolint:noctx // it is ended by kill and stop
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	// What is set for another server is not meant for this one.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ADMITONE_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	started := make(chan error)
	go func() {
		// The system takes the thread that began a process for its parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		dieWithParent(cmd)
		err := cmd.Start()
		_ = log.Close() // the server has its own copy
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(c.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	c.process = cmd.Process
	if err := c.ready(ctx, admin); err != nil {
		return c, err
	}
	return c, nil
}

func (c *child) ready(ctx context.Context, admin adminAPI) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("the server was not ready within %s", startPatience))
	defer cancel()
	return poll(ctx, func() (bool, error) {
		if !c.runs() {
			return false, errors.New("the server ended instead of becoming ready")
		}
		var out struct{}
		return admin.do(ctx, http.MethodGet, "/readyz", nil, nil, &out) == nil, nil
	})
}

// runs reports whether the server has not ended.
func (c *child) runs() bool {
	if c == nil {
		return false
	}
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// kill ends the server as a power cut would, by SIGKILL where there is one.
func (c *child) kill() error {
	if err := c.process.Kill(); err != nil {
		return fmt.Errorf("kill the server: %w", err)
	}
	<-c.ended
	return nil
}

// stop lets the server drain, and kills it if that takes too long.
func (c *child) stop(patience time.Duration) {
	if !c.runs() {
		return
	}
	if c.process.Signal(syscall.SIGTERM) == nil {
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-c.ended:
			return
		case <-t.C:
		}
	}
	_ = c.kill() // it fails only if the server has ended
}

// logTail returns at most the last n lines that the server wrote.
func (c *child) logTail(n int) string {
	if c == nil {
		return ""
	}
	text, err := os.ReadFile(c.log)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-n):], "\n  ")
}

// poll calls done every few milliseconds until it returns true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
