package storetest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// largeReceipt takes at least 10 kB of a journal.
func largeReceipt(id string) domain.Receipt {
	r := journalReceipt(id)
	r.Payload.Body = bytes.Repeat([]byte{'x', 0, 0xff, '\n'}, 2500)
	return r
}

// fillJournal appends large receipts until the journal is full, and returns their ids.
func fillJournal(t *testing.T, j ports.Journal) []string {
	t.Helper()
	for i := range JournalBound/10_000 + 1 {
		err := j.Append(t.Context(), []domain.Receipt{largeReceipt(strconv.Itoa(i))})
		if errors.Is(err, ports.ErrFull) {
			return journalIDs(i)
		}
		if err != nil {
			t.Fatalf("Append = %v; want nil or ErrFull", err)
		}
	}
	t.Fatalf("more than %d bytes of payload were kept; want ErrFull", JournalBound)
	return nil
}

func journalBoundRefuses(t *testing.T, b journalBench) {
	t.Helper()
	j := b.open(t)
	kept := fillJournal(t, j)
	if len(kept) < JournalBound/10_000/2 {
		t.Errorf("full with %d entries of 10 kB; want a bound of %d bytes to be used", len(kept), JournalBound)
	}
	wantJournal(t, j, kept...)
	wantSize(t, b.dir, JournalBound)
	// What has no room has none of its parts, the small one neither.
	err := j.Append(t.Context(), []domain.Receipt{journalReceipt("small"), largeReceipt("large")})
	if !errors.Is(err, ports.ErrFull) {
		t.Errorf("Append to a full journal = %v; want ErrFull", err)
	}
	wantJournal(t, j, kept...)
	j = b.reopen(t, j)
	wantJournal(t, j, kept...)
	if err := j.Append(t.Context(), []domain.Receipt{largeReceipt("large")}); !errors.Is(err, ports.ErrFull) {
		t.Errorf("Append to a full journal that was opened again = %v; want ErrFull", err)
	}
	huge := journalReceipt("huge")
	huge.Payload.Body = make([]byte, JournalBound+1)
	if err := j.Append(t.Context(), []domain.Receipt{huge}); !errors.Is(err, ports.ErrFull) {
		t.Errorf("Append of more than the bound = %v; want ErrFull", err)
	}
	wantJournal(t, j, kept...)
	wantSize(t, b.dir, JournalBound)
	closeJournal(t, j)

	// Callers that come together must not share the room of one.
	j = journalBench{dir: t.TempDir(), opener: b.opener}.open(t)
	defer closeJournal(t, j)
	var wg sync.WaitGroup
	for i := range 2 * JournalBound / 10_000 {
		wg.Go(func() {
			if err := j.Append(t.Context(), []domain.Receipt{largeReceipt(strconv.Itoa(i))}); err != nil && !errors.Is(err, ports.ErrFull) {
				t.Errorf("Append = %v; want nil or ErrFull", err)
			}
		})
	}
	wg.Wait()
	if n := j.Len(); n > JournalBound/10_000 {
		t.Errorf("callers that came together made it keep %d entries of 10 kB; want at most %d bytes", n, JournalBound)
	}
}

func journalBoundFrees(t *testing.T, b journalBench) {
	t.Helper()
	j := b.open(t)
	kept := fillJournal(t, j)
	removeFrom(t, j, oldestOf(t, j, len(kept)/2)...)
	if err := j.Append(t.Context(), []domain.Receipt{largeReceipt("large")}); err != nil {
		t.Errorf("Append after the older half was removed = %v; want nil", err)
	}
	want := append(kept[len(kept)/2:], "large")
	wantJournal(t, j, want...)
	j = b.reopen(t, j)
	defer closeJournal(t, j)
	wantJournal(t, j, want...)
	for range 3 { // and not only once
		removeFrom(t, j, oldestOf(t, j, len(kept)+1)...)
		wantJournal(t, j)
		if again := fillJournal(t, j); len(again) != len(kept) {
			t.Errorf("after all was removed the journal is full with %d entries; want %d as at first", len(again), len(kept))
		}
		wantSize(t, b.dir, JournalBound)
	}
}

func journalEmptyIsCheap(t *testing.T, b journalBench) {
	t.Helper()
	const cheap = 64 << 10
	j := b.open(t)
	wantJournal(t, j)
	if err := j.Append(t.Context(), nil); err != nil {
		t.Errorf("Append of nothing = %v; want nil", err)
	}
	wantJournal(t, j)
	wantSize(t, b.dir, cheap)
	kept := fillJournal(t, j)
	removeFrom(t, j, oldestOf(t, j, len(kept))...)
	wantJournal(t, j)
	wantSize(t, b.dir, cheap)
	j = b.reopen(t, j)
	defer closeJournal(t, j)
	wantJournal(t, j)
	wantSize(t, b.dir, cheap)
}

// wantSize checks how much the files of a folder hold.
func wantSize(t *testing.T, dir string, atMost int64) {
	t.Helper()
	var size int64
	for _, n := range fileSizes(t, dir) {
		size += n
	}
	if size > atMost {
		t.Errorf("the files of the journal have %d bytes; want at most %d", size, atMost)
	}
}

// fileSizes returns the size of each file in a folder, by its path in it.
func fileSizes(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	sizes := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		sizes[name] = info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sizes
}
