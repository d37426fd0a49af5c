package journal_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/admitone/admitone/adapters/journal"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A disk makes files that fail when told to.
type disk struct {
	mu       sync.Mutex
	files    int
	syncs    int
	create   error
	write    error // after half of what was to be written
	sync     error
	truncate error
	hold     chan struct{} // syncs and new files wait for it
}

func (d *disk) open(path string) (journal.File, error) {
	if d.hold != nil {
		<-d.hold
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.create != nil {
		return nil, d.create
	}
	d.files++
	f, err := journal.Create(path)
	return &diskFile{File: f, disk: d}, err
}

// fail sets what fails.
func (d *disk) fail(create, write, sync, truncate error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.create, d.write, d.sync, d.truncate = create, write, sync, truncate
}

type diskFile struct {
	journal.File
	disk  *disk
	wrong bool
}

var errAbandoned = errors.New("a file that failed was used again")

func (f *diskFile) WriteAt(b []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.wrong {
		return 0, errAbandoned
	}
	if f.disk.write != nil {
		f.wrong = true
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		return n, f.disk.write
	}
	return f.File.WriteAt(b, off)
}

func (f *diskFile) Sync() error {
	if f.disk.hold != nil {
		<-f.disk.hold
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.syncs++
	if f.wrong {
		return errAbandoned
	}
	if f.disk.sync != nil {
		f.wrong = true
		return f.disk.sync
	}
	return f.File.Sync()
}

func (f *diskFile) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.truncate != nil {
		return f.disk.truncate
	}
	return f.File.Truncate(size)
}

const bound = 1 << 20

func openOn(t *testing.T, d *disk, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.OpenOn(journal.Config{Path: dir, MaxBytes: bound}, d.open)
	if err != nil {
		t.Fatalf("Open = %v; want nil", err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Errorf("Close() = %v; want nil", err)
		}
	})
	return j
}

func openIn(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	return openOn(t, &disk{}, dir)
}

func receipts(ids ...string) []domain.Receipt {
	var all []domain.Receipt
	for _, id := range ids {
		all = append(all, domain.Receipt{ID: id, State: domain.Claimed, Payload: domain.Payload{Body: []byte("payload of " + id)}})
	}
	return all
}

func add(t *testing.T, j *journal.Journal, ids ...string) {
	t.Helper()
	if err := j.Append(t.Context(), receipts(ids...)); err != nil {
		t.Fatalf("Append(%v) = %v; want nil", ids, err)
	}
}

func want(t *testing.T, j *journal.Journal, ids ...string) []ports.JournalEntry {
	t.Helper()
	entries, err := j.Oldest(t.Context(), 1000)
	if err != nil {
		t.Fatalf("Oldest = %v; want nil", err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Receipt.ID)
	}
	if !slices.Equal(got, ids) || j.Len() != len(ids) {
		t.Fatalf("the journal holds %v, Len() = %d; want %v", got, j.Len(), ids)
	}
	return entries
}

func remove(t *testing.T, j *journal.Journal, entries ...ports.JournalEntry) {
	t.Helper()
	if err := j.Remove(t.Context(), entries); err != nil {
		t.Fatalf("Remove = %v; want nil", err)
	}
}

func journalFiles(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestWhatArrivesDuringASyncIsSyncedTogether(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{hold: make(chan struct{})}
		j := openOn(t, d, dir)
		d.hold = make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { add(t, j, "first") })
		synctest.Wait() // its sync runs
		for i := range 50 {
			wg.Go(func() { add(t, j, strconv.Itoa(i)) })
		}
		synctest.Wait() // all others wait for it
		if n := j.Len(); n != 0 {
			t.Errorf("Len() = %d before anything is synced; want 0", n)
		}
		close(d.hold)
		wg.Wait()
		if d.syncs != 2 || j.Len() != 51 {
			t.Errorf("%d entries were synced by %d syncs; want 51 by 2", j.Len(), d.syncs)
		}
	})
}

func TestContextThatEndsTellsWhatIsKnown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{hold: make(chan struct{})}
		j := openOn(t, d, dir)
		ctx, cancel := context.WithCancel(t.Context())
		var (
			wg               sync.WaitGroup
			running, waiting error
		)
		wg.Go(func() { running = j.Append(ctx, receipts("running")) })
		synctest.Wait()
		large := receipts("large")
		large[0].Payload.Body = make([]byte, bound*9/10)
		wg.Go(func() { waiting = j.Append(ctx, large) })
		synctest.Wait()
		cancel()
		wg.Wait()
		if !errors.Is(running, domain.ErrUnknown) {
			t.Errorf("Append whose sync runs when its context ends = %v; want ErrUnknown", running)
		}
		if !errors.Is(waiting, context.Canceled) || errors.Is(waiting, domain.ErrUnknown) {
			t.Errorf("Append that waits when its context ends = %v; want context.Canceled alone", waiting)
		}
		close(d.hold)
		synctest.Wait()
		want(t, j, "running")
		if err := j.Append(t.Context(), large); err != nil {
			t.Errorf("Append in the room that one had asked for which gave up = %v; want nil", err)
		}
	})
}

func TestCloseWaitsForSyncs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{hold: make(chan struct{})}
		j := openOn(t, d, dir)
		var wg sync.WaitGroup
		wg.Go(func() { add(t, j, "a") })
		synctest.Wait()
		wg.Go(func() { add(t, j, "b") })
		synctest.Wait()
		closed := false
		wg.Go(func() {
			if err := j.Close(); err != nil {
				t.Errorf("Close() = %v; want nil", err)
			}
			closed = true
		})
		synctest.Wait()
		if closed {
			t.Error("Close returned while a sync ran")
		}
		if err := j.Append(t.Context(), receipts("late")); err == nil {
			t.Error("Append after Close = nil; want an error")
		}
		close(d.hold)
		wg.Wait()
	})
	want(t, openIn(t, dir), "a", "b")
}

func TestRemovalDuringASyncSparesWhatIsSynced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		j := openOn(t, d, dir)
		add(t, j, "a")
		d.hold = make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { add(t, j, "b") })
		synctest.Wait() // it is written to the file of a
		remove(t, j, want(t, j, "a")...)
		want(t, j)
		close(d.hold)
		wg.Wait()
		want(t, j, "b")
		if err := j.Close(); err != nil {
			t.Errorf("Close() = %v; want nil", err)
		}
	})
	want(t, openIn(t, dir), "b")
}

func TestFileThatEmptiesWhileTheNextBeginsIsGivenUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		j := openOn(t, d, dir)
		large := receipts("a")
		large[0].Payload.Body = make([]byte, bound/8) // more than a file takes
		if err := j.Append(t.Context(), large); err != nil {
			t.Fatalf("Append = %v; want nil", err)
		}
		d.hold = make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { add(t, j, "b") })
		synctest.Wait() // its file is about to be made
		remove(t, j, want(t, j, "a")...)
		close(d.hold)
		wg.Wait()
		want(t, j, "b")
		if names := journalFiles(t, dir, "*.journal"); len(names) != 1 {
			t.Errorf("the journal has files %v; want that of b alone", names)
		}
	})
}

func TestDiskErrorKeepsNothingAndIsNotTriedOnTheSameFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		create, write, sync error
		with                error
	}{
		"create": {create: syscall.ENOSPC, with: syscall.ENOSPC},
		"write":  {write: syscall.ENOSPC, with: syscall.ENOSPC},
		"sync":   {sync: syscall.EIO, with: syscall.EIO},
	} {
		for _, begun := range []bool{false, true} {
			if begun && c.create != nil {
				continue // there is nothing to create
			}
			t.Run(name+" begun="+strconv.FormatBool(begun), func(t *testing.T) {
				t.Parallel()
				dir, d := t.TempDir(), &disk{}
				j := openOn(t, d, dir)
				var kept []string
				if begun {
					add(t, j, "a", "b")
					kept = []string{"a", "b"}
				}
				d.fail(c.create, c.write, c.sync, nil)
				for range 3 {
					if err := j.Append(t.Context(), receipts("x", "y")); !errors.Is(err, c.with) || errors.Is(err, errAbandoned) {
						t.Fatalf("Append = %v; want %v", err, c.with)
					}
					want(t, j, kept...)
				}
				d.fail(nil, nil, nil, nil)
				add(t, j, "c")
				kept = append(kept, "c")
				want(t, j, kept...)
				if err := j.Close(); err != nil {
					t.Errorf("Close() = %v; want nil", err)
				}
				want(t, openIn(t, dir), kept...)
			})
		}
	}
}

func TestFailedCallsTakeNoRoom(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), &disk{}
	j := openOn(t, d, dir)
	add(t, j, "a")
	large := receipts("large")
	large[0].Payload.Body = make([]byte, bound*9/10)
	for range 3 {
		d.fail(nil, nil, syscall.EIO, nil)
		if err := j.Append(t.Context(), large); !errors.Is(err, syscall.EIO) {
			t.Fatalf("Append = %v; want EIO", err)
		}
		d.fail(syscall.ENOSPC, nil, nil, nil)
		if err := j.Append(t.Context(), large); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("Append = %v; want ENOSPC", err)
		}
	}
	d.fail(nil, nil, nil, nil)
	if err := j.Append(t.Context(), large); err != nil {
		t.Errorf("Append after failed ones = %v; want nil", err)
	}
	want(t, j, "a", "large")
}

// What could not be taken back was not kept for anybody. It may turn up, behind what was.
func TestEntriesThatCannotBeTakenBackHarmNothing(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), &disk{}
	j := openOn(t, d, dir)
	add(t, j, "a")
	d.fail(nil, nil, syscall.EIO, syscall.EIO)
	if err := j.Append(t.Context(), receipts("x", "y")); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Append = %v; want EIO", err)
	}
	d.fail(nil, nil, nil, nil)
	add(t, j, "b")
	add(t, j, "c")
	want(t, j, "a", "b", "c")
	if err := j.Close(); err != nil {
		t.Errorf("Close() = %v; want nil", err)
	}
	j = openIn(t, dir)
	entries := want(t, j, "a", "x", "y", "b", "c")
	remove(t, j, entries[1], entries[3])
	want(t, j, "a", "y", "c")
	add(t, j, "d")
	remove(t, j, want(t, j, "a", "y", "c", "d")...)
	if names := journalFiles(t, dir, "*journal*"); len(names) > 0 {
		t.Errorf("an empty journal has files %v; want none", names)
	}
}
