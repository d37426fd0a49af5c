package flaky

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"time"
)

// Requests with which a client of PostgreSQL may begin before its start-up message.
const (
	postgresTLS     = 80877103
	postgresGSS     = 80877104
	postgresStartUp = 10_000 // bytes at most
)

// What becomes of a message that is not passed on.
var (
	errLost = errors.New("lost on purpose")
	errCut  = errors.New("lost on purpose, and the connection with it")
)

// startup passes the first message of a client on. A request for encryption is refused: what is
// encrypted can't be looked at. It reports whether the connection may go on.
func (p *Proxy) startup(l *link) bool {
	for {
		var size [4]byte
		if _, err := io.ReadFull(l.client, size[:]); err != nil {
			return false
		}
		n := binary.BigEndian.Uint32(size[:])
		if n < 8 || n > postgresStartUp {
			return false
		}
		message := make([]byte, n)
		copy(message, size[:])
		if _, err := io.ReadFull(l.client, message[4:]); err != nil {
			return false
		}
		switch binary.BigEndian.Uint32(message[4:]) {
		case postgresTLS, postgresGSS:
			if _, err := l.client.Write([]byte("N")); err != nil {
				return false
			}
			continue
		}
		if !p.gate(false) {
			return false
		}
		_, err := l.server.Write(message)
		return err == nil
	}
}

func (p *Proxy) pumpFrontend(l *link) {
	meant := false // the transaction under way holds a statement of the loss
	p.pumpMessages(l.server, l.client, false, func(kind byte, body []byte) error {
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

// means reports whether the loss is about a prepared statement of that name.
func (p *Proxy) means(statement string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return (p.loss.Times > 0 || p.hold != nil) && strings.Contains(statement, p.loss.Statement)
}

// applies reports whether the store is to get the commit.
func (p *Proxy) applies() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loss.Applied || p.hold != nil
}

// spoilCommit decides on a commit that is about to be passed on.
func (p *Proxy) spoilCommit(l *link) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold != nil {
		p.holdUp()
		return nil
	}
	switch {
	case p.loss.Times == 0:
		return nil
	case p.pass:
		p.pass = false
		return nil
	}
	p.loss.Times--
	p.spoiled++
	p.pass = p.loss.EveryOther
	if !p.loss.Applied {
		return errCut
	}
	l.mu.Lock()
	l.deaf = true
	l.mu.Unlock()
	return nil
}

// holdUp lets a commit wait, and the others meanwhile go on. The caller holds mu.
func (p *Proxy) holdUp() {
	h := p.hold
	if h.gather > 0 {
		h.gather--
		p.mu.Unlock()
		<-time.After(gathering)
		p.mu.Lock()
		return
	}
	p.hold = nil // those after it pass
	p.spoiled++
	close(h.came)
	p.mu.Unlock()
	<-h.over
	p.mu.Lock()
}

func (p *Proxy) pumpBackend(l *link) {
	p.pumpMessages(l.client, l.server, true, func(kind byte, _ []byte) error {
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
func (p *Proxy) pumpMessages(to io.Writer, from io.Reader, answers bool, look func(kind byte, body []byte) error) {
	in := bufio.NewReaderSize(from, 64<<10)
	out := bufio.NewWriterSize(to, 64<<10)
	for {
		var head [5]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		body := make([]byte, max(binary.BigEndian.Uint32(head[1:]), 4)-4)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		switch err := look(head[0], body); {
		case errors.Is(err, errLost):
			continue
		case err != nil:
			_ = out.Flush() // the connection is cut next
			return
		}
		_, _ = out.Write(head[:]) // the next call tells
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
