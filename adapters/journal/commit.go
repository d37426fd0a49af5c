package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// errClosed is told to callers that break the promise that no call follows Close.
var errClosed = errors.New("journal: closed")

// A call is one of Append that waits to be synced with others.
type call struct {
	ctx    context.Context
	frames []byte
	sizes  []uint32 // of each frame
	err    error
	done   chan struct{}
}

// Append implements ports.Journal. What arrives while a sync runs is synced next, together. If
// ctx ends first, the error is domain.ErrUnknown if the receipts may be kept none the less.
// After any other error they are not, unless the disk failed in a way that also keeps the
// journal from taking them back; then they may turn up in the next process.
func (j *Journal) Append(ctx context.Context, receipts []domain.Receipt) error {
	if len(receipts) == 0 {
		return nil
	}
	c := &call{ctx: ctx, sizes: make([]uint32, len(receipts)), done: make(chan struct{})}
	for i := range receipts {
		var err error
		if c.frames, c.sizes[i], err = appendFrame(c.frames, &receipts[i]); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	if err := j.submit(c); err != nil {
		return err
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	if j.withdraw(c) {
		return fmt.Errorf("journal: %w", ctx.Err())
	}
	select {
	case <-c.done:
		return c.err
	default:
		return fmt.Errorf("journal: %w: %w", domain.ErrUnknown, ctx.Err())
	}
}

// submit hands c to the one who writes, or makes one that ends when there is nothing to write.
func (j *Journal) submit(c *call) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := int64(len(c.frames))
	switch {
	case j.closed:
		return errClosed
	case c.ctx.Err() != nil:
		return fmt.Errorf("journal: %w", c.ctx.Err())
	case n > j.maxBytes-j.used:
		return fmt.Errorf("journal: %w: %d of %d bytes are used, and %d more are asked for", ports.ErrFull, j.used, j.maxBytes, n)
	}
	j.used += n
	if j.writing {
		j.pending = append(j.pending, c)
		return nil
	}
	j.writing = true
	go j.write([]*call{c})
	return nil
}

// withdraw takes c back and reports whether nobody was about to write it.
func (j *Journal) withdraw(c *call) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.Index(j.pending, c)
	if i < 0 {
		return false
	}
	j.pending = slices.Delete(j.pending, i, i+1)
	j.used -= int64(len(c.frames))
	return true
}

// write appends batch, and what arrives meanwhile, until there is nothing more.
func (j *Journal) write(batch []*call) {
	for len(batch) > 0 {
		err := j.commit(batch)
		written := batch
		batch = j.take()
		for _, c := range written {
			if err != nil {
				c.err = fmt.Errorf("journal: %w", err)
			}
			close(c.done)
		}
	}
}

// take returns the calls to write together: all that wait, but no more than fill a file. If
// there are none, nobody is writing any more.
func (j *Journal) take() []*call {
	j.mu.Lock()
	defer j.mu.Unlock()
	var size int64
	n := 0
	for n < len(j.pending) && (n == 0 || size < j.maxSegment) {
		size += int64(len(j.pending[n].frames))
		n++
	}
	batch := slices.Clone(j.pending[:n])
	j.pending = slices.Delete(j.pending, 0, n)
	if n > 0 {
		return batch
	}
	j.writing = false
	if err := j.sweep(); err != nil { // the entries of the active file may have been removed meanwhile
		j.logger.Warn(notGivenUp, "error", err)
	}
	if j.closed {
		close(j.idle)
	}
	return nil
}

// commit writes and syncs batch, and makes its entries known. After an error nothing of it is kept.
func (j *Journal) commit(batch []*call) error {
	if err := j.begin(); err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, c := range batch {
			j.used -= int64(len(c.frames))
		}
		return err
	}
	var (
		s       = j.active
		end     = s.size
		entries []entry
		err     error
	)
	for _, c := range batch {
		frames := c.frames
		for _, size := range c.sizes {
			s.seal(frames[:size])
			entries = append(entries, entry{offset: end + int64(len(c.frames)-len(frames)), size: size})
			frames = frames[size:]
		}
		if err == nil {
			_, err = j.output.WriteAt(c.frames, end)
		}
		end += int64(len(c.frames))
	}
	if err == nil {
		err = j.output.Sync()
	}
	if err != nil {
		return errors.Join(err, j.abandon(end))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s.size = end
	s.entries = append(s.entries, entries...)
	s.live += len(entries)
	j.next += uint64(len(entries))
	j.count.Add(int64(len(entries)))
	return nil
}

// begin sees to it that there is a file to append to.
func (j *Journal) begin() error {
	if j.active != nil && j.active.size < j.maxSegment {
		return nil
	}
	s := newSegment(j.folder, j.next)
	output, err := j.create(s.path)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.active != nil {
		_ = j.output.Close() // all of it is synced
	}
	j.active, j.output = s, output
	j.segments = append(j.segments, s)
	return nil
}

// abandon gives up the active file, after its bytes from its size up to end could not be
// written or synced, and takes them back if it can.
func (j *Journal) abandon(end int64) error {
	err := j.output.Truncate(j.active.size)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.active.size = end // they may be there
	} else {
		j.used -= end - j.active.size
	}
	err = errors.Join(err, j.output.Close())
	j.active = nil
	return errors.Join(err, j.sweep())
}
