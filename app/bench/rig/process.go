// Package rig starts the processes that a benchmark measures, on free ports of the loopback
// address and in a folder of its own, and tells what they use of the machine.
//
// The servers for tests won't do: their PostgreSQL gives up durability for speed, and they are
// not to be linked into a program.
package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// patience is how long a process may take to start, and to end when it is asked to.
const patience = 30 * time.Second

// A Process is a program that runs until Stop, or until this one ends.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how; to be read after done
}

// A Command is what is to be started. Output that no file takes is thrown away.
type Command struct {
	Argv   []string
	Dir    string
	Env    []string // nil: that of this process
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	User   *syscall.Credential // nil: this process's user
}

// Start starts c.
func Start(c Command) (*Process, error) {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...) //nolint:noctx // it is ended by Stop, in its own way
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, c.Stdin, c.Stdout, c.Stderr
	cmd.SysProcAttr = attributes(c.User)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID returns the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop sends sig, waits for the end, and kills the process if that takes too long.
func (p *Process) Stop(sig os.Signal) {
	_ = p.cmd.Process.Signal(sig) // it may have ended
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// await calls ready until it returns nil. It gives up when the process or ctx ends.
func (p *Process) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("it ended: %w", errors.Join(p.err, err))
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// AwaitPort waits until the process takes connections at addr.
func (p *Process) AwaitPort(ctx context.Context, addr string) error {
	return p.await(ctx, func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// FreeAddr returns an address of the loopback interface that nothing listens on.
func FreeAddr(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr) // it is one of FreeAddr's
	return port
}
