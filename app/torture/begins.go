package torture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/google/uuid"
)

// What the application does with an attempt.
type outcome uint8

const (
	taken    outcome = iota + 1 // 200
	slowly                      // 200, after the server has probably lost patience
	declined                    // 429 or 503: the server may come again
	broken                      // 500: nobody can know
	cut                         // the connection is reset
	rejected                    // 400
)

// A begin is one attempt that reached the application.
type begin struct {
	receipt uuid.UUID
	event   uint32
	attempt uint16
	outcome outcome
}

const beginSize = 16 + 4 + 2 + 1

func (b begin) append(to []byte) []byte {
	to = append(to, b.receipt[:]...)
	to = binary.LittleEndian.AppendUint32(to, b.event)
	to = binary.LittleEndian.AppendUint16(to, b.attempt)
	return append(to, byte(b.outcome))
}

func parseBegin(from []byte) (b begin) {
	copy(b.receipt[:], from)
	b.event = binary.LittleEndian.Uint32(from[16:])
	b.attempt = binary.LittleEndian.Uint16(from[20:])
	b.outcome = outcome(from[22])
	return b
}

// A beginLog is the file in which the application notes each begin before it answers. What is
// noted at the same time is synced together. Safe for concurrent use.
type beginLog struct {
	file *os.File

	mu      sync.Mutex
	pending []byte
	waiting []chan error
	running bool
}

func newBeginLog(path string) (*beginLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the application's log: %w", err)
	}
	return &beginLog{file: f}, nil
}

// note returns when b is on disk.
func (l *beginLog) note(b begin) error {
	done := make(chan error, 1)
	l.mu.Lock()
	l.pending = b.append(l.pending)
	l.waiting = append(l.waiting, done)
	start := !l.running
	l.running = true
	l.mu.Unlock()
	if start {
		go l.run()
	}
	return <-done
}

func (l *beginLog) run() {
	for {
		l.mu.Lock()
		text, waiting := l.pending, l.waiting
		l.pending, l.waiting = nil, nil
		if len(waiting) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		_, err := l.file.Write(text)
		err = errors.Join(err, l.file.Sync())
		for _, w := range waiting {
			w <- err
		}
	}
}

// read calls each with every begin so far, in order.
func (l *beginLog) read(each func(begin)) error {
	in := bufio.NewReaderSize(io.NewSectionReader(l.file, 0, 1<<62), 1<<16)
	var buf [beginSize]byte
	for {
		if _, err := io.ReadFull(in, buf[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the application's log: %w", err)
		}
		each(parseBegin(buf[:]))
	}
}

func (l *beginLog) close() error { return l.file.Close() }
