package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gofrs/flock"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

const (
	// maxSegment is the size from which on a file is not appended to any more. Space is given
	// back file by file, so a journal of 1 GiB frees it in parts of 1.6 %.
	maxSegment = 16 << 20
	// parts is how many files a small bound is divided into.
	parts = 16
	// maxRead bounds the payloads that one call of Oldest holds in memory, but for a first
	// entry that is larger alone.
	maxRead = 32 << 20
)

const notGivenUp = "a file of the journal could not be given up yet"

// ErrInUse is returned by Open for a folder that is another journal's.
var ErrInUse = errors.New("the journal is in use by another process")

// Config says where a journal is and how large it may become.
type Config struct {
	// Path is a folder on a local disk, made if it is not there.
	Path string
	// MaxBytes bounds the size of the journal's files, in bytes. Removed entries count until
	// all of their file are removed.
	MaxBytes int64
	// Logger is told of what can't be read; nil means nobody is.
	Logger *slog.Logger
}

// A Journal keeps events in files. Safe for concurrent use.
type Journal struct {
	folder     string
	maxBytes   int64
	maxSegment int64
	logger     *slog.Logger
	lock       *flock.Flock
	create     func(path string) (file, error)
	count      atomic.Int64

	// read is held by those who open files that others delete. It is locked before mu.
	read sync.Mutex

	mu       sync.Mutex
	segments []*segment // oldest first
	next     uint64     // sequence number of the next entry
	used     int64      // bytes of the files and of what is to be appended
	pending  []*call
	writing  bool
	closed   bool
	idle     chan struct{} // closed when closed and not writing

	// active is the last of segments while it may be appended to, and output is its file. Who
	// is writing may use them without mu.
	active *segment
	output file
}

var _ ports.Journal = (*Journal)(nil)

// Open opens the journal in a folder, and makes it if it is not there. It reads all that the
// journal holds, and returns ErrInUse if the folder is open already, in this process or another.
func Open(c Config) (*Journal, error) { return open(c, create) }

func open(c Config, create func(string) (file, error)) (*Journal, error) {
	if c.MaxBytes <= 0 {
		return nil, fmt.Errorf("journal: the bound must be positive, is %d bytes", c.MaxBytes)
	}
	folder, err := filepath.Abs(c.Path)
	if err == nil {
		err = createFolder(folder)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	lock := flock.New(filepath.Join(folder, "lock"), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("journal: lock %s: %w", folder, err)
	}
	if !locked {
		return nil, fmt.Errorf("journal: %s: %w", folder, ErrInUse)
	}
	j := &Journal{
		folder:     folder,
		maxBytes:   c.MaxBytes,
		maxSegment: min(maxSegment, c.MaxBytes/parts),
		logger:     cmp.Or(c.Logger, slog.New(slog.DiscardHandler)),
		lock:       lock,
		create:     create,
		next:       1,
		idle:       make(chan struct{}),
	}
	if err := j.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("journal: %w", err), lock.Close())
	}
	return j, nil
}

// load reads what earlier processes left.
func (j *Journal) load() error {
	files, err := os.ReadDir(j.folder) // sorted by name, and so by age
	if err != nil {
		return err
	}
	for _, f := range files {
		s, err := parseSegment(j.folder, f.Name())
		if err != nil {
			return err
		}
		if s == nil {
			continue
		}
		data, err := os.ReadFile(s.path)
		if err != nil {
			return err
		}
		if unreadable := s.scan(data); s.damaged {
			j.logger.Error("a file of the journal has bytes that can't be read, and entries behind them",
				"file", s.path, "bytes", unreadable, "entries", s.live)
		} else if unreadable > 0 {
			j.logger.Warn("the end of a file of the journal can't be read: a write that was cut short",
				"file", s.path, "bytes", unreadable, "entries", s.live)
		}
		// A file may have been begun anew with the numbers of one whose end could not be cut off.
		s.first = max(s.first, j.next)
		j.next = s.first + uint64(len(s.entries))
		j.used += s.size
		j.count.Add(int64(s.live))
		j.segments = append(j.segments, s)
	}
	return j.sweep()
}

// Len implements ports.Journal.
func (j *Journal) Len() int { return int(j.count.Load()) }

// A place is where a live entry was found.
type place struct {
	of *segment
	entry
	index int
}

func (p place) seq() uint64 { return p.of.first + uint64(p.index) } //nolint:gosec // an index is not negative

// Oldest implements ports.Journal. It returns fewer than limit entries, but one at least, if
// their payloads are large. An entry that the disk gives back changed is logged, passed over
// and forgotten, and its file kept. An entry that the disk doesn't give back is an error, once
// it is the oldest, and stays.
func (j *Journal) Oldest(ctx context.Context, limit int) ([]ports.JournalEntry, error) {
	j.read.Lock()
	defer j.read.Unlock()
	var (
		found   []ports.JournalEntry
		spoiled []place
		input   *os.File
		path    string
		err     error
	)
	for _, p := range j.oldest(limit) {
		if err = ctx.Err(); err != nil {
			break
		}
		if p.of.path != path {
			_ = input.Close() // nothing was written to it
			path = p.of.path
			if input, err = os.Open(path); err != nil {
				break
			}
		}
		frame := make([]byte, p.size)
		if _, err = input.ReadAt(frame, p.offset); err != nil && !errors.Is(err, io.EOF) {
			break
		}
		err = nil // the file was cut off by somebody, and the frame tells
		r, ok := p.of.receipt(frame)
		if !ok {
			spoiled = append(spoiled, p)
			continue
		}
		found = append(found, ports.JournalEntry{Seq: p.seq(), Receipt: r})
	}
	_ = input.Close() // nothing was written to it
	j.forget(spoiled)
	if err != nil && len(found) == 0 {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return found, nil
}

// oldest returns where the oldest entries are.
func (j *Journal) oldest(limit int) []place {
	j.mu.Lock()
	defer j.mu.Unlock()
	var (
		places []place
		size   int64
	)
	for _, s := range j.segments {
		for i := s.head; i < len(s.entries); i++ {
			e := s.entries[i]
			if e.removed {
				continue
			}
			size += int64(e.size)
			if len(places) >= limit || size > maxRead && len(places) > 0 {
				return places
			}
			places = append(places, place{of: s, entry: e, index: i})
		}
	}
	return places
}

// receipt returns what stands in a frame of s, unless it was changed by the disk.
func (s *segment) receipt(frame []byte) (domain.Receipt, bool) {
	if len(s.frame(frame)) != len(frame) {
		return domain.Receipt{}, false
	}
	r, err := parseReceipt(frame[headerSize:])
	return r, err == nil
}

func (j *Journal) forget(spoiled []place) {
	if len(spoiled) == 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range spoiled {
		j.logger.Error("an entry of the journal can't be read any more and is lost", "file", p.of.path, "offset", p.offset)
		p.of.damaged = true
		j.strike(p.of, p.index)
	}
	if err := j.sweep(); err != nil {
		j.logger.Warn(notGivenUp, "error", err)
	}
}

// strike makes an entry a removed one, in memory, and reports whether it was live.
func (j *Journal) strike(s *segment, index int) bool {
	if s.entries[index].removed {
		return false
	}
	s.entries[index].removed = true
	s.live--
	for s.head < len(s.entries) && s.entries[s.head].removed {
		s.head++
	}
	j.count.Add(-1)
	return true
}

// Remove implements ports.Journal. It needs no space, and is done whatever becomes of ctx. After
// an error the entries are forgotten by this process and may come again in the next.
func (j *Journal) Remove(_ context.Context, entries []ports.JournalEntry) error {
	j.read.Lock()
	defer j.read.Unlock()
	struck := make(map[*segment][]int64)
	j.mu.Lock()
	for _, e := range entries {
		s, index, ok := j.find(e.Seq)
		if ok && j.strike(s, index) {
			struck[s] = append(struck[s], s.entries[index].offset)
		}
	}
	errs := []error{j.sweep()}
	for s := range struck {
		if !slices.Contains(j.segments, s) {
			delete(struck, s) // the whole file is gone
		}
	}
	j.mu.Unlock()
	for s, offsets := range struck {
		errs = append(errs, mark(s.path, offsets))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// find returns where the entry with the number seq is.
func (j *Journal) find(seq uint64) (*segment, int, bool) {
	i, _ := slices.BinarySearchFunc(j.segments, seq, func(s *segment, seq uint64) int {
		if s.first+uint64(len(s.entries)) <= seq {
			return -1
		}
		return 1
	})
	if i == len(j.segments) || seq < j.segments[i].first {
		return nil, 0, false
	}
	return j.segments[i], int(seq - j.segments[i].first), true //nolint:gosec // it is less than the length of entries
}

// mark writes on disk that the entries at offsets are removed.
func mark(path string, offsets []int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // all of it was removed meanwhile
	}
	if err != nil {
		return err
	}
	for _, offset := range offsets {
		if _, err = f.WriteAt(gone, offset+markAt); err != nil {
			break
		}
	}
	return errors.Join(err, f.Close())
}

// sweep gives up the files that hold no entry any more, but for one that is being written. A
// file that can't be given up is tried again the next time.
func (j *Journal) sweep() error {
	var errs []error
	j.segments = slices.DeleteFunc(j.segments, func(s *segment) bool {
		if s.live > 0 || s == j.active && j.writing {
			return false
		}
		if s == j.active {
			j.active = nil
			errs = append(errs, j.output.Close())
		}
		var err error
		if s.damaged {
			err = os.Rename(s.path, s.path+".damaged")
		} else {
			err = os.Remove(s.path)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
			return false
		}
		j.used -= s.size
		return true
	})
	return errors.Join(errs...)
}

// Close implements ports.Journal. It waits until what was appended is synced. A second call
// does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	first := !j.closed
	j.closed = true
	if first && !j.writing {
		close(j.idle)
	}
	j.mu.Unlock()
	<-j.idle
	if !first {
		return nil
	}
	var err error
	if j.active != nil {
		err = j.output.Close()
	}
	if err := errors.Join(err, j.lock.Close()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}
