package journal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/admitone/admitone/domain"
)

const (
	markAt     = 4
	lengthAt   = 8
	checksumAt = 12
	headerSize = 16
)

var (
	live       = []byte("LIVE")
	gone       = []byte("GONE")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	fileName   = regexp.MustCompile(`^([0-9a-f]{16})-([0-9a-f]{8})\.v([0-9]+)\.journal$`)
)

// A segment is one file of the journal and what is known of its frames. Its fields are guarded
// by Journal.mu, but for the first three, which do not change.
type segment struct {
	path string
	salt [4]byte
	seed uint32 // checksum of the file's name

	first   uint64  // sequence number of entries[0]; those behind count on
	entries []entry // synced ones
	live    int     // how many of entries are not removed
	head    int     // none of entries before is live
	size    int64   // of the file, in bytes
	damaged bool    // it is not to be deleted
}

// An entry is where a frame stands in its file.
type entry struct {
	offset  int64
	size    uint32 // of the whole frame
	removed bool
}

// newSegment draws a name for a file in folder.
func newSegment(folder string, first uint64) *segment {
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // it never returns an error
	s, _ := parseSegment(folder, fmt.Sprintf("%016x-%x.v1.journal", first, salt))
	return s
}

// parseSegment returns the segment in the file called name, or nil if that is none.
func parseSegment(folder, name string) (*segment, error) {
	parts := fileName.FindStringSubmatch(name)
	if parts == nil {
		return nil, nil //nolint:nilnil // the folder may hold other files
	}
	path := filepath.Join(folder, name)
	if parts[3] != "1" {
		return nil, fmt.Errorf("%s was written by another version of this program", path)
	}
	s := &segment{path: path, seed: crc32.Checksum([]byte(name), castagnoli)}
	first, err := strconv.ParseUint(parts[1], 16, 64)
	salt, saltErr := strconv.ParseUint(parts[2], 16, 32)
	if err := errors.Join(err, saltErr); err != nil {
		return nil, err
	}
	s.first = first
	binary.BigEndian.PutUint32(s.salt[:], uint32(salt))
	return s, nil
}

// appendFrame appends a frame for r to b that lacks what only its file can tell it.
func appendFrame(b []byte, r *domain.Receipt) ([]byte, uint32, error) {
	start := len(b)
	b = append(b, make([]byte, headerSize)...)
	b = appendReceipt(b, r)
	n := len(b) - start
	if n > math.MaxInt32 {
		return nil, 0, errors.New("the receipt is larger than 2 GiB")
	}
	copy(b[start+markAt:], live)
	binary.BigEndian.PutUint32(b[start+lengthAt:], uint32(n-headerSize)) //nolint:gosec // bounded above
	return b, uint32(n), nil                                             //nolint:gosec // bounded above
}

// seal makes frame one of s.
func (s *segment) seal(frame []byte) {
	copy(frame, s.salt[:])
	binary.BigEndian.PutUint32(frame[checksumAt:], s.checksum(frame))
}

func (s *segment) checksum(frame []byte) uint32 {
	sum := crc32.Update(s.seed, castagnoli, frame[lengthAt:checksumAt])
	return crc32.Update(sum, castagnoli, frame[headerSize:])
}

// frame returns the whole frame that b begins with, or nil if it begins with none of s.
func (s *segment) frame(b []byte) []byte {
	if len(b) <= headerSize || !bytes.HasPrefix(b, s.salt[:]) {
		return nil
	}
	n := int64(binary.BigEndian.Uint32(b[lengthAt:]))
	if n == 0 || n > int64(len(b)-headerSize) {
		return nil
	}
	b = b[:headerSize+n]
	if s.checksum(b) != binary.BigEndian.Uint32(b[checksumAt:]) {
		return nil
	}
	return b
}

// scan fills s with what its file holds, and returns how many bytes of that are no frame.
// If frames stand behind such bytes, s is damaged.
func (s *segment) scan(file []byte) (unreadable int) {
	s.size = int64(len(file))
	for at := 0; at < len(file); {
		if frame := s.frame(file[at:]); frame != nil {
			e := entry{offset: int64(at), size: uint32(len(frame)), removed: bytes.Equal(frame[markAt:lengthAt], gone)} //nolint:gosec // its length comes from 32 bits
			s.entries = append(s.entries, e)
			if !e.removed {
				s.live++
			}
			s.damaged = unreadable > 0
			at += len(frame)
			continue
		}
		skip := len(file) - at
		if next := bytes.Index(file[at+1:], s.salt[:]); next >= 0 {
			skip = 1 + next
		}
		unreadable += skip
		at += skip
	}
	return unreadable
}
