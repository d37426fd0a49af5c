package sqlstore_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// A proxy stands between a store and a Postgres server and can end a connection at a chosen
// message of the protocol (https://www.postgresql.org/docs/current/protocol-flow.html).
type proxy struct {
	DSN string

	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	// rules decide about each message; nil lets all pass.
	toServer, toClient func(*link, message) verdict
	rewrite            func(message) []byte // returns the body with which a message goes on to the server
	delay              time.Duration
}

// A link is one connection through the proxy. Its rules may note what they have seen.
type link struct {
	mu     sync.Mutex
	writes bool // a statement that changes receipts was sent and is not yet answered
}

type message struct {
	kind byte
	body []byte
}

type verdict int

const (
	pass verdict = iota
	cut          // end the connection instead of passing the message on
)

// newProxy returns a proxy to the server of dsn, which must not use TLS.
func newProxy(t *testing.T, dsn string) *proxy {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("parse the DSN: %v", err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	p := &proxy{listener: l, target: u.Host, conns: map[net.Conn]bool{}}
	u.Host = l.Addr().String()
	p.DSN = u.String()
	p.wg.Go(func() { p.accept(t.Context()) })
	t.Cleanup(func() {
		_ = l.Close()
		p.cutAll()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(ctx, "tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		l := new(link)
		end := func() {
			_ = client.Close()
			_ = server.Close()
		}
		p.wg.Go(func() { defer end(); p.relay(l, client, server, true) })
		p.wg.Go(func() { defer end(); p.relay(l, server, client, false) })
	}
}

// cutAll ends every connection.
func (p *proxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// set replaces the rules.
func (p *proxy) set(toServer, toClient func(*link, message) verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toServer, p.toClient = toServer, toClient
}

// slow holds whatever commits a transaction up.
func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// relay passes messages on, as many at once as have arrived.
func (p *proxy) relay(l *link, from, to net.Conn, up bool) {
	in := bufio.NewReaderSize(from, 1<<16)
	out := bufio.NewWriterSize(to, 1<<16)
	first := up // the first message of a client has no kind
	for {
		m, raw, err := readMessage(in, first)
		if err != nil {
			return
		}
		p.mu.Lock()
		rule := p.toServer
		if !up {
			rule = p.toClient
		}
		delay, rewrite := p.delay, p.rewrite
		p.mu.Unlock()
		// a statement is carried out when it arrives; what commits it comes later
		if up && !first && delay > 0 && (m.kind == 'S' || m.asksForCommit()) {
			if err := out.Flush(); err != nil {
				return
			}
			<-time.After(delay)
		}
		if rule != nil && !first && rule(l, m) == cut {
			return
		}
		if rewrite != nil && up && !first {
			m.body = rewrite(m)
			raw = binary.BigEndian.AppendUint32([]byte{m.kind}, uint32(len(m.body)+4))
			raw = append(raw, m.body...)
		}
		first = false
		if _, err := out.Write(raw); err != nil {
			return
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return
			}
		}
	}
}

func readMessage(in *bufio.Reader, first bool) (m message, raw []byte, err error) {
	n := 5
	if first {
		n = 4
	}
	raw = make([]byte, n)
	if _, err := io.ReadFull(in, raw); err != nil {
		return m, nil, err
	}
	if !first {
		m.kind = raw[0]
	}
	size := int(binary.BigEndian.Uint32(raw[n-4:])) - 4
	if size < 0 || size > 1<<28 {
		return m, nil, errors.New("not a message")
	}
	m.body = make([]byte, size)
	if _, err := io.ReadFull(in, m.body); err != nil {
		return m, nil, err
	}
	return m, append(raw, m.body...), nil
}

// changes reports whether m asks for a change of receipts: it binds a statement that the store
// has prepared for it.
func (m message) changes() bool {
	if m.kind != 'B' {
		return false
	}
	_, rest, _ := bytes.Cut(m.body, []byte{0}) // the portal's name
	name, _, _ := bytes.Cut(rest, []byte{0})
	return strings.HasPrefix(string(name), "admitone_")
}

// asksForCommit reports whether m sends the text of a commit.
func (m message) asksForCommit() bool {
	return (m.kind == 'Q' || m.kind == 'P') && bytes.Contains(bytes.ToLower(m.body), []byte("commit\x00"))
}

// cutsAnswers cuts connections, times times, after the server has committed a change of receipts
// and before its answer is passed on.
func cutsAnswers(times int) (toServer, toClient func(*link, message) verdict, left func() int) {
	var mu sync.Mutex
	toServer = func(l *link, m message) verdict {
		if m.changes() || m.asksForCommit() {
			l.mu.Lock()
			l.writes = true
			l.mu.Unlock()
		}
		return pass
	}
	toClient = func(l *link, m message) verdict {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.writes || m.kind != 'Z' {
			return pass
		}
		l.writes = false
		mu.Lock()
		defer mu.Unlock()
		if times == 0 {
			return pass
		}
		times--
		return cut
	}
	return toServer, toClient, func() int { mu.Lock(); defer mu.Unlock(); return times }
}

// cutsRequests cuts connections, times times, instead of passing on what would commit a change.
func cutsRequests(times int) (toServer func(*link, message) verdict, left func() int) {
	var mu sync.Mutex
	toServer = func(_ *link, m message) verdict {
		mu.Lock()
		defer mu.Unlock()
		if times == 0 || !m.changes() && !m.asksForCommit() {
			return pass
		}
		times--
		return cut
	}
	return toServer, func() int { mu.Lock(); defer mu.Unlock(); return times }
}
