package flaky_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/app/flaky"
)

// newEcho returns a proxy before a server that answers each byte with itself.
func newEcho(t *testing.T) *flaky.Proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close() //nolint:errcheck // nothing is left to be told by it
				_, _ = io.Copy(c, c)
			})
		}
	})
	p, err := flaky.NewProxy(t.Context(), l.Addr().String(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		_ = l.Close()
		running.Wait()
	})
	return p
}

func dial(t *testing.T, p *flaky.Proxy) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// echoed sends a byte and reports whether it has come back; if not, the connection has ended.
func echoed(c net.Conn) bool {
	if _, err := c.Write([]byte("x")); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}

func TestRefusedConnectionsAndNewOnesEndUntilItIsHealed(t *testing.T) {
	t.Parallel()
	p := newEcho(t)
	c := dial(t, p)
	if !echoed(c) {
		t.Error("nothing gets through a sound proxy")
	}
	p.Refuse()
	if echoed(c) || echoed(dial(t, p)) {
		t.Error("something gets through while connections are refused")
	}
	p.Heal()
	if !echoed(dial(t, p)) {
		t.Error("nothing gets through a proxy that was healed")
	}
}

func TestWhatWasSwallowedArrivesWhenItIsHealed(t *testing.T) {
	t.Parallel()
	p := newEcho(t)
	c := dial(t, p)
	p.Swallow()
	arrived := make(chan bool)
	go func() { arrived <- echoed(c) }()
	select {
	case <-arrived:
		t.Fatal("something gets through a hole")
	case <-time.After(50 * time.Millisecond):
	}
	p.Heal()
	if !<-arrived {
		t.Error("what was sent meanwhile did not arrive")
	}
}

func TestLostAnswerEndsTheConnection(t *testing.T) {
	t.Parallel()
	p := newEcho(t)
	c := dial(t, p)
	p.LoseAnswers()
	if echoed(c) {
		t.Error("an answer gets through")
	}
}

func TestSlowIsWhatClientsSend(t *testing.T) {
	t.Parallel()
	p := newEcho(t)
	c := dial(t, p)
	const delay = 100 * time.Millisecond
	p.Slow(delay)
	if begun := time.Now(); !echoed(c) || time.Since(begun) < delay {
		t.Errorf("an answer came after %s; want it after %s", time.Since(begun), delay)
	}
}

func TestCloseEndsConnectionsThatAreSwallowed(t *testing.T) {
	t.Parallel()
	p := newEcho(t)
	c := dial(t, p)
	p.Swallow()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a closed proxy still serves")
	}
}
