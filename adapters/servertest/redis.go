package servertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a server may take to start, and to end when it is asked to.
const patience = 20 * time.Second

// A RedisServer is a redis-server process. It keeps nothing on disk: a restart empties it.
// Its methods fail the test on any error, but for Crash; they are not safe for concurrent use.
type RedisServer struct {
	tb   testing.TB
	dir  string
	args []string
	port int
	cmd  *exec.Cmd
	done chan struct{} // closed once cmd has ended
	out  bytes.Buffer
}

// Redis starts a redis-server with args added to its command line, such as "--maxmemory",
// "2mb", waits until it answers, and ends it with the test.
func Redis(tb testing.TB, args ...string) *RedisServer {
	tb.Helper()
	s := newRedis(tb)
	s.args = append([]string{"--save", "", "--appendonly", "no", "--dir", s.dir}, args...)
	s.Start()
	tb.Cleanup(s.Kill)
	return s
}

// Sentinel starts a Redis Sentinel that watches master under the name name, and ends it
// with the test. More lines for its configuration may follow, such as "sentinel auth-pass …".
func Sentinel(tb testing.TB, master *RedisServer, name string, lines ...string) *RedisServer {
	tb.Helper()
	s := newRedis(tb)
	file := filepath.Join(s.dir, "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1\n", name, master.port) + strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatalf("write the sentinel's configuration: %v", err)
	}
	s.args = []string{file, "--sentinel", "--dir", s.dir}
	s.Start()
	tb.Cleanup(s.Kill)
	return s
}

// newRedis returns one that is not started yet.
func newRedis(tb testing.TB) *RedisServer {
	tb.Helper()
	port, err := freePort(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return &RedisServer{tb: tb, dir: watchedDir(tb, "redis"), port: port}
}

// Addr returns the server's host:port, the same after each restart.
func (s *RedisServer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the address of database 0 as redis://host:port/0, without a password.
func (s *RedisServer) URL() string { return "redis://" + s.Addr() + "/0" }

// Start starts the server on its port and waits until it answers. A running one is left alone.
func (s *RedisServer) Start() {
	s.tb.Helper()
	if s.cmd != nil {
		return
	}
	if err := s.start(context.Background()); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *RedisServer) start(ctx context.Context) error {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("redis-server is needed for this test and is not installed: %w", err)
	}
	s.out.Reset()
	args := append(append([]string{}, s.args...), "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1")
	cmd := exec.Command(program, args...) //nolint:noctx // it lives until Stop or the end of the test, and that one's context ends too early for clean-ups
	cmd.Stdout, cmd.Stderr = &s.out, &s.out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	s.cmd, s.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait() // how it ended is told by what it wrote
		close(done)
	}(s.done)
	return s.awaitAnswer(ctx)
}

// Stop ends the server in order and waits for its end. A stopped one is left alone.
func (s *RedisServer) Stop() {
	s.tb.Helper()
	if err := s.end(syscall.SIGTERM); err != nil {
		s.tb.Error(err)
	}
}

// Kill ends the server with SIGKILL and waits for its end. A stopped one is left alone.
func (s *RedisServer) Kill() {
	s.tb.Helper()
	if err := s.end(syscall.SIGKILL); err != nil {
		s.tb.Error(err)
	}
}

// Crash ends the server as Kill does, and returns what starts it again as Start does, empty.
// Neither fails a test, so that both may be called outside of its goroutine.
func (s *RedisServer) Crash() (restart func(context.Context) error, err error) {
	if err := s.end(syscall.SIGKILL); err != nil {
		return nil, err
	}
	return s.start, nil
}

// Restart ends the server and starts it on the same port; it has forgotten everything.
func (s *RedisServer) Restart() {
	s.tb.Helper()
	s.Stop()
	s.Start()
}

// Stall makes the server stand still with SIGSTOP: it takes connections and answers nothing.
func (s *RedisServer) Stall() {
	s.tb.Helper()
	s.signal(syscall.SIGSTOP)
}

// Resume ends a Stall.
func (s *RedisServer) Resume() {
	s.tb.Helper()
	s.signal(syscall.SIGCONT)
}

// Do sends one command and returns its reply: a string's bytes, or the line that Redis writes
// on the wire, such as "+OK", ":104", "-ERR …", or "$-1" for a key that is not there. Of a list
// it returns the first line only.
func (s *RedisServer) Do(command ...string) string {
	s.tb.Helper()
	reply, err := s.roundTrip(context.Background(), command...)
	if err != nil {
		s.tb.Fatalf("redis %s: %v", command[0], err)
	}
	return reply
}

func (s *RedisServer) signal(sig os.Signal) {
	s.tb.Helper()
	if s.cmd == nil {
		s.tb.Fatalf("redis-server is not running: no %v", sig)
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("signal redis-server with %v: %v", sig, err)
	}
}

// end returns an error if the server had to be killed since it did not end by sig.
func (s *RedisServer) end(sig os.Signal) error {
	if s.cmd == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(syscall.SIGCONT) // a stalled one takes no other signal but SIGKILL
	_ = s.cmd.Process.Signal(sig)
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	defer func() { s.cmd = nil }()
	select {
	case <-s.done:
		return nil
	case <-timeout.C:
		_ = s.cmd.Process.Kill()
		<-s.done
		return fmt.Errorf("redis-server did not end within %s of %v", patience, sig)
	}
}

func (s *RedisServer) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		reply, err := s.roundTrip(ctx, "PING")
		if err == nil && (reply == "+PONG" || strings.HasPrefix(reply, "-NOAUTH")) {
			return nil
		}
		select {
		case <-s.done:
			s.cmd = nil
			return fmt.Errorf("redis-server ended while starting:\n%s", s.out.String())
		case <-ctx.Done():
			ended := s.end(syscall.SIGKILL)
			return errors.Join(fmt.Errorf("redis-server does not answer after %s: %q\n%s", patience, reply, s.out.String()), err, ended)
		case <-tick.C:
		}
	}
}

func (s *RedisServer) roundTrip(ctx context.Context, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer conn.Close() //nolint:errcheck // nothing is left to be told by it
	_ = conn.SetDeadline(time.Now().Add(patience))
	var out bytes.Buffer
	fmt.Fprintf(&out, "*%d\r\n", len(command))
	for _, arg := range command {
		fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		return "", fmt.Errorf("send: %w", err)
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("receive: %w", err)
	}
	line = strings.TrimSuffix(line, "\r\n")
	size, err := strconv.Atoi(strings.TrimPrefix(line, "$"))
	if !strings.HasPrefix(line, "$") || err != nil || size < 0 {
		return line, nil
	}
	bulk := make([]byte, size)
	if _, err := io.ReadFull(in, bulk); err != nil {
		return "", fmt.Errorf("receive: %w", err)
	}
	return string(bulk), nil
}
