package web

import (
	"errors"
	"fmt"
	"io"
)

const (
	// maxPooled is the largest buffer that is kept for the next delivery: nearly all events
	// fit, and a rare mail does not hold its megabytes for ever.
	maxPooled = 1 << 20
	// firstRead holds most events of chat platforms whole.
	firstRead = 4 << 10
)

var (
	errTooLarge   = errors.New("body over the limit")
	errBrokenBody = errors.New("body broken off")
)

// readBody reads r to its end into buf, which it grows as bytes arrive, and returns what it
// read. declared is the sender's word for the length, -1 if it gave none: it refuses early
// what is too large, and spares room, but never makes any.
func readBody(buf []byte, r io.Reader, declared, limit int64) ([]byte, error) {
	buf = buf[:0]
	if declared > limit {
		return buf, errTooLarge
	}
	for {
		if len(buf) == cap(buf) {
			buf = grow(buf, declared, limit)
		}
		n, err := r.Read(buf[len(buf):min(int64(cap(buf)), limit+1)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return buf, errTooLarge
		}
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, fmt.Errorf("%w: %w", errBrokenBody, err)
		}
	}
}

// grow doubles the room, up to the byte past the limit or past the declared end by which
// more than that is noticed.
func grow(buf []byte, declared, limit int64) []byte {
	size := min(max(2*int64(cap(buf)), firstRead), limit+1)
	if declared >= int64(cap(buf)) {
		size = min(size, declared+1)
	}
	larger := make([]byte, len(buf), size)
	copy(larger, buf)
	return larger
}

func (p *public) buffer() *[]byte {
	if b, ok := p.buffers.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

func (p *public) recycle(b *[]byte) {
	if cap(*b) <= maxPooled {
		p.buffers.Put(b)
	}
}
