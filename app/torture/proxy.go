package torture

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A proxy stands between one instance and a store and breaks the network between them. Safe
// for concurrent use.
type proxy struct {
	listener net.Listener
	target   string
	postgres bool // the protocol is PostgreSQL's
	running  sync.WaitGroup

	mu    sync.Mutex
	links map[*link]bool
	down  bool
	hole  chan struct{} // not nil while nothing gets through; closed at its end
	delay time.Duration // of what the instance sends
	mute  bool          // whatever the store answers is lost, and the connection with it
	spoil spoil
	fired int // commits spoiled so far
}

// A spoil cuts connections at a commit, left times, and lets one pass in between; or it holds a
// commit up.
type spoil struct {
	statement string // part of the names of the prepared statements whose transactions are meant
	applied   bool   // whether the commit reaches the store: then its answer is lost
	left      int
	pass      bool          // the next one gets through
	hold      chan struct{} // not nil: one is held until this is closed
	gather    int           // and so many before it, for a while: what waits behind them comes together
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

func newProxy(ctx context.Context, target string, postgres bool) (*proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &proxy{listener: l, target: target, postgres: postgres, links: map[*link]bool{}}
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

// close ends every connection.
func (p *proxy) close() {
	_ = p.listener.Close() // nobody is served any more
	p.heal()
	p.set(func() { p.down = true })
	p.running.Wait()
}

func (p *proxy) address() string { return p.listener.Addr().String() }

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
func (p *proxy) swallow() {
	p.set(func() {
		if p.hole == nil {
			p.hole = make(chan struct{})
		}
	})
}

// slow delays all that the instance sends.
func (p *proxy) slow(d time.Duration) { p.set(func() { p.delay = d }) }

// loseAnswers lets all requests through and none of the answers.
func (p *proxy) loseAnswers() { p.set(func() { p.mute = true }) }

// spoilCommits makes the next n commits of transactions with a statement end in a cut
// connection: after they were applied, so that the answer is lost, or before they arrive.
func (p *proxy) spoilCommits(statement string, applied bool, n int) {
	p.set(func() { p.spoil = spoil{statement: statement, applied: applied, left: n} })
}

// holdCommit holds a commit of a transaction with a statement up for a time, with all that has
// gathered behind those before, unless ctx ends before there is one. It reports whether there was.
func (p *proxy) holdCommit(ctx context.Context, statement string, takes time.Duration) bool {
	hold := make(chan struct{})
	before := p.spoiled()
	p.set(func() { p.spoil = spoil{statement: statement, left: 1, hold: hold, gather: 2} })
	defer close(hold)
	came, cancel := context.WithTimeout(ctx, takes)
	defer cancel()
	if poll(came, 10*time.Millisecond, func() (bool, error) { return p.spoiled() > before, nil }) != nil {
		return false
	}
	wait(ctx, takes)
	return true
}

// spoiled returns how many commits were.
func (p *proxy) spoiled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired
}

// heal ends whatever is broken.
func (p *proxy) heal() {
	p.set(func() {
		p.down, p.delay, p.mute, p.spoil = false, 0, false, spoil{}
		if p.hole != nil {
			close(p.hole)
			p.hole = nil
		}
	})
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

func (p *proxy) pumpTo(l *link)   { p.pump(l.server, l.client, false) }
func (p *proxy) pumpFrom(l *link) { p.pump(l.client, l.server, true) }

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
