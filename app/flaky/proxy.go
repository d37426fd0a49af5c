// Package flaky stands between clients and a server and breaks the network between them in the
// ways in which networks break.
package flaky

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A Proxy passes connections on to one server until it is told to break them. Safe for concurrent
// use.
type Proxy struct {
	listener net.Listener
	target   string
	postgres bool // the protocol is PostgreSQL's
	running  sync.WaitGroup

	mu      sync.Mutex
	links   map[*link]bool
	down    bool
	hole    chan struct{} // not nil while nothing gets through; closed at its end
	delay   time.Duration // of what clients send
	mute    bool          // whatever the server answers is lost, and the connection with it
	loss    Loss
	pass    bool // the next commit gets through
	hold    *hold
	spoiled int // commits so far
}

// A Loss cuts connections to PostgreSQL at the commits of some transactions. The zero Loss cuts none.
type Loss struct {
	Statement  string // part of the names of the prepared statements whose transactions are meant
	Applied    bool   // the commit reaches the server, and its answer is lost; else it does not arrive
	Times      int    // so many commits
	EveryOther bool   // lets one through after each, so that what is tried again succeeds
}

// A hold keeps one commit waiting.
type hold struct {
	gather     int // so many before it wait for a while: what queues behind them comes together
	came, over chan struct{}
}

// gathering is how long a commit is held to make the next one big. Behind the first settle events
// gather that are to begin, and behind the second their settles.
const gathering = 500 * time.Millisecond

// A link is one connection through the proxy.
type link struct {
	client, server net.Conn

	mu   sync.Mutex
	deaf bool // the answer to a commit under way is being lost
}

// NewProxy listens on a free port of 127.0.0.1 for clients of target, a host and port. With
// postgres, the protocol is PostgreSQL's without TLS, and commits can be spoiled. Close ends it.
func NewProxy(ctx context.Context, target string, postgres bool) (*Proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{listener: l, target: target, postgres: postgres, links: map[*link]bool{}}
	p.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(c) })
		}
	})
	return p, nil
}

// Close ends every connection and returns when none is served any more. Nobody listens at Address
// then. To call it again does nothing.
func (p *Proxy) Close() {
	_ = p.listener.Close() // nobody is served any more
	p.Heal()
	p.set(func() { p.down = true })
	p.running.Wait()
}

// Address returns the host and port on which the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// set changes what is broken and cuts every connection if the server is down then.
func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	if p.down {
		for l := range p.links {
			l.cut()
		}
	}
}

// Refuse closes all connections, and new ones at once.
func (p *Proxy) Refuse() { p.set(func() { p.down = true }) }

// Swallow lets nothing through, as a network does that drops packets. What was sent
// meanwhile arrives when it ends.
func (p *Proxy) Swallow() {
	p.set(func() {
		if p.hole == nil {
			p.hole = make(chan struct{})
		}
	})
}

// Slow delays all that clients send.
func (p *Proxy) Slow(d time.Duration) { p.set(func() { p.delay = d }) }

// LoseAnswers lets all requests through and none of the answers.
func (p *Proxy) LoseAnswers() { p.set(func() { p.mute = true }) }

// Spoil loses the next commits that l means, instead of those that were to be lost so far.
func (p *Proxy) Spoil(l Loss) { p.set(func() { p.loss, p.pass = l, false }) }

// HoldCommit holds a commit of a transaction with a statement up for a time, with all that has
// gathered behind those before, unless ctx ends before there is one. It reports whether there was.
func (p *Proxy) HoldCommit(ctx context.Context, statement string, takes time.Duration) bool {
	h := &hold{gather: 2, came: make(chan struct{}), over: make(chan struct{})}
	p.set(func() { p.loss, p.hold = Loss{Statement: statement}, h })
	defer p.set(func() { // whether one came or not
		close(h.over)
		if p.hold == h {
			p.hold = nil
		}
	})
	end := time.NewTimer(takes)
	defer end.Stop()
	select {
	case <-h.came:
	case <-end.C:
		return false
	case <-ctx.Done():
		return false
	}
	end.Reset(takes)
	select {
	case <-end.C:
	case <-ctx.Done():
	}
	return true
}

// Spoiled returns how many commits were lost or held up so far.
func (p *Proxy) Spoiled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spoiled
}

// Heal ends whatever is broken.
func (p *Proxy) Heal() {
	p.set(func() {
		p.down, p.delay, p.mute, p.loss, p.hold = false, 0, false, Loss{}, nil
		if p.hole != nil {
			close(p.hole)
			p.hole = nil
		}
	})
}

func (p *Proxy) serve(client net.Conn) {
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
	there, back := p.pumpTo, p.pumpFrom
	if p.postgres {
		there, back = p.pumpFrontend, p.pumpBackend
		if !p.startup(l) {
			l.cut()
			return
		}
	}
	var pumps sync.WaitGroup
	pumps.Go(func() {
		defer l.cut()
		there(l)
	})
	pumps.Go(func() {
		defer l.cut()
		back(l)
	})
	pumps.Wait()
}

func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// gate waits until something may pass, and reports whether it may at all.
func (p *Proxy) gate(answer bool) bool {
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

func (p *Proxy) pumpTo(l *link)   { p.pump(l.server, l.client, false) }
func (p *Proxy) pumpFrom(l *link) { p.pump(l.client, l.server, true) }

func (p *Proxy) pump(to io.Writer, from io.Reader, answers bool) {
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
