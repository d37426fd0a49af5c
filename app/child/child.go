// Package child runs this binary as a server in a process of its own, for the commands that
// show the server at work or put it to the test.
package child

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// FreePort returns an address on this machine that nobody listens on. Its port lies below the
// range from which systems take those of outgoing connections, so that it stays free while
// the server is dead.
func FreePort(ctx context.Context) (string, error) {
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

// A Process is a server in a process of its own. A nil one has ended.
type Process struct {
	log     string
	process *os.Process
	ended   chan struct{}
	code    int // once ended is closed
}

// Start runs this binary as a server in dir with a configuration, and appends what it writes to
// dir/server.log. It does not wait until the server is ready. The server dies with this
// process, whatever ends it, where the system offers that.
func Start(dir, config string) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	p := &Process{log: filepath.Join(dir, "server.log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the server's log: %w", err)
	}
	cmd := exec.Command(program, "serve", "--config", config) //nolint:noctx // it is ended by Kill and Stop
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
			p.code = cmd.ProcessState.ExitCode()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	p.process = cmd.Process
	return p, nil
}

// Ended is closed when the server has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Runs reports whether the server has not ended.
func (p *Process) Runs() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// ExitCode returns that of a server that has ended; -1 if a signal ended it.
func (p *Process) ExitCode() int {
	<-p.ended
	return p.code
}

// Kill ends the server as a power cut would, by SIGKILL where there is one, and waits for that.
func (p *Process) Kill() error {
	if err := p.process.Kill(); err != nil {
		return fmt.Errorf("kill the server: %w", err)
	}
	<-p.ended
	return nil
}

// Stop lets the server drain, and kills it if that takes longer than patience. It reports
// whether the server ended by itself.
func (p *Process) Stop(patience time.Duration) bool {
	if !p.Runs() {
		return true
	}
	if p.process.Signal(syscall.SIGTERM) == nil {
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-p.ended:
			return true
		case <-t.C:
		}
	}
	_ = p.Kill() // it fails only if the server has ended
	return false
}

// LogTail returns at most the last n lines that the server wrote.
func (p *Process) LogTail(n int) string {
	if p == nil {
		return ""
	}
	text, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-n):], "\n  ")
}
