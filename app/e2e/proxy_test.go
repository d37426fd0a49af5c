package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A proxy stands before a store and breaks its network. Safe for concurrent use.
type proxy struct {
	listener net.Listener
	target   string
	postgres bool // the protocol is PostgreSQL's

	mu    sync.Mutex
	links map[*link]bool
	down  bool
	hole  chan struct{} // not nil while nothing gets through; closed at its end
	delay time.Duration // of what clients send
	mute  bool          // whatever the store answers is lost, and the connection with it
	fault fault
	fired int
}

// A fault cuts connections at a commit, left times.
type fault struct {
	statement string // part of the names of the prepared statements whose transactions are meant
	applied   bool   // whether the commit reaches the store: then its answer is lost
	left      int
}

// A link is one connection through the proxy.
type link struct {
	client, server net.Conn

	mu   sync.Mutex
	deaf bool // the answer to a commit under way is being lost
}

func newProxy(t testing.TB, target string, postgres bool) *proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &proxy{listener: l, target: target, postgres: postgres, links: map[*link]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.heal()
		p.set(func() { p.down = true })
		running.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// set changes what is broken and cuts every connection if the store is down then.
func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	if p.down {
		for l := range p.links {
			l.cut()
		}
	}
}

// refuse closes all connections, and new ones at once.
func (p *proxy) refuse() { p.set(func() { p.down = true }) }

// swallow lets nothing through, as a network does that drops packets. What was sent
// meanwhile arrives when it ends.
func (p *proxy) swallow() { p.set(func() { p.hole = make(chan struct{}) }) }

// slow delays all that clients send.
func (p *proxy) slow(d time.Duration) { p.set(func() { p.delay = d }) }

// loseAnswers lets all requests through and none of the answers.
func (p *proxy) loseAnswers() { p.set(func() { p.mute = true }) }

// heal ends whatever is broken.
func (p *proxy) heal() {
	p.set(func() {
		p.down, p.delay, p.mute, p.fault = false, 0, false, fault{}
		if p.hole != nil {
			close(p.hole)
			p.hole = nil
		}
	})
}

// spoil makes the next n commits of transactions with a statement, "claim", "begin" or "handled",
// end in a cut connection: after they were applied, so that the answer is lost, or before they arrive.
func (p *proxy) spoil(statement string, applied bool, n int) {
	p.set(func() { p.fault, p.fired = fault{statement, applied, n}, 0 })
}

// spoiled returns how many commits were spoiled.
func (p *proxy) spoiled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close() //nolint:errcheck // nothing is left to be told by it
	p.mu.Lock()
	down := p.down
	p.mu.Unlock()
	if down {
		return
	}
	server, err := net.Dial("tcp", p.target) //nolint:noctx // it ends with the proxy
	if err != nil {
		return
	}
	l := &link{client: client, server: server}
	p.mu.Lock()
	p.links[l] = true
	if p.down { // since
		l.cut()
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()
	var pumps sync.WaitGroup
	pumps.Go(func() {
		defer l.cut()
		if p.postgres {
			p.pumpFrontend(l)
			return
		}
		p.pump(server, client, false)
	})
	pumps.Go(func() {
		defer l.cut()
		if p.postgres {
			p.pumpBackend(l)
			return
		}
		p.pump(client, server, true)
	})
	pumps.Wait()
}

func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// gate waits until something may pass, and reports whether it may at all.
func (p *proxy) gate(answer bool) bool {
	p.mu.Lock()
	hole, delay, mute := p.hole, p.delay, p.mute
	p.mu.Unlock()
	if hole != nil {
		<-hole
	}
	if !answer && delay > 0 {
		<-time.After(delay)
	}
	return !answer || !mute
}

func (p *proxy) pump(to io.Writer, from io.Reader, answers bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !p.gate(answers) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// What becomes of a message that is not passed on.
var (
	errLost = errors.New("lost on purpose")
	errCut  = errors.New("lost on purpose, and the connection with it")
)

func (p *proxy) pumpFrontend(l *link) {
	in := bufio.NewReaderSize(l.client, 64<<10)
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return
	}
	startup := make([]byte, binary.BigEndian.Uint32(size[:]))
	copy(startup, size[:])
	if _, err := io.ReadFull(in, startup[4:]); err != nil || !p.gate(false) {
		return
	}
	if _, err := l.server.Write(startup); err != nil {
		return
	}
	meant := false // the transaction under way holds a statement of the fault
	p.pumpMessages(l.server, in, false, func(kind byte, body []byte) error {
		name, rest, _ := bytes.Cut(body, []byte{0})
		second, _, _ := bytes.Cut(rest, []byte{0})
		switch kind {
		case 'B': // bind: a portal, then the statement
			meant = meant || p.means(string(second))
		case 'P': // parse: a name, then the text; a statement by itself has no commit but the sync
			if meant && len(name) == 0 && strings.EqualFold(string(second), "commit") && !p.applies() {
				return p.spoilCommit(l)
			}
		case 'S': // sync
			if meant {
				meant = false
				return p.spoilCommit(l)
			}
		}
		return nil
	})
}

// means reports whether the fault is about a prepared statement of that name.
func (p *proxy) means(statement string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault.left > 0 && strings.Contains(statement, p.fault.statement)
}

func (p *proxy) applies() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault.applied
}

// spoilCommit decides on a commit that is about to be passed on.
func (p *proxy) spoilCommit(l *link) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault.left == 0 {
		return nil
	}
	p.fault.left--
	p.fired++
	if !p.fault.applied {
		return errCut
	}
	l.mu.Lock()
	l.deaf = true
	l.mu.Unlock()
	return nil
}

func (p *proxy) pumpBackend(l *link) {
	p.pumpMessages(l.client, bufio.NewReaderSize(l.server, 64<<10), true, func(kind byte, _ []byte) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case l.deaf && kind == 'Z': // ready for the next query: the commit is done
			return errCut
		case l.deaf:
			return errLost
		}
		return nil
	})
}

// pumpMessages passes messages on to which look does not object, until a connection ends.
func (p *proxy) pumpMessages(to io.Writer, in *bufio.Reader, answers bool, look func(kind byte, body []byte) error) {
	out := bufio.NewWriterSize(to, 64<<10)
	for {
		var head [5]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		switch err := look(head[0], body); {
		case errors.Is(err, errLost):
			continue
		case err != nil:
			_ = out.Flush()
			return
		}
		_, _ = out.Write(head[:])
		if _, err := out.Write(body); err != nil {
			return
		}
		if in.Buffered() == 0 {
			if !p.gate(answers) || out.Flush() != nil {
				return
			}
		}
	}
}
