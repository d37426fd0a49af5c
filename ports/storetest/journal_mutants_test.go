package storetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
	"github.com/admitone/admitone/ports/storetest"
)

// A journalFake is a right journal of which each mutant breaks one part: a file of lines, each
// an entry with its checksum. It is written anew when entries are removed.
type journalFake struct {
	mu      sync.Mutex
	path    string
	lock    *os.File
	entries []ports.JournalEntry
	next    uint64
	size    int64
	mutant  journalMutant
}

type journalMutant struct {
	memory    bool // nothing is written
	late      bool // written at the next call
	sorted    bool // by id
	newest    bool // the last come first
	unlimited bool
	forgetful bool // removals are not written
	prefix    bool // removes the oldest, whatever it is told
	reuse     bool // places begin anew when it is empty
	partial   bool // keeps of a call what there is room for
	alone     bool // forgets to count what it holds already
	rigid     bool // room is not given back
	unlocked  bool // size and place are looked at before they are used
	text      bool // a payload is text
	seconds   bool // times are whole seconds
	deaf      bool // an ended context is not heeded
	shared    bool // any number of openers
	wide      bool // takes all of the bound at once
	trusting  bool // a line needs no checksum
	strict    bool // a line that can't be read is an error
	stuck     bool // does not cut off a torn line, and appends to it
	miscounts bool
}

func openJournalFake(dir string, m journalMutant) (ports.Journal, error) {
	j := &journalFake{path: filepath.Join(dir, "lines"), next: 1, mutant: m}
	var err error
	if j.lock, err = os.Create(filepath.Join(dir, "lock")); err != nil {
		return nil, err
	}
	if !m.shared {
		if err := syscall.Flock(int(j.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return nil, errors.Join(err, j.lock.Close())
		}
	}
	if err := j.load(); err != nil {
		return nil, errors.Join(err, j.lock.Close())
	}
	if m.wide {
		err = os.WriteFile(filepath.Join(dir, "room"), make([]byte, storetest.JournalBound/2), 0o600)
	}
	return j, err
}

func (j *journalFake) load() error {
	data, err := os.ReadFile(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		e, ok := parseLine(line, j.mutant.trusting)
		if !ok && j.mutant.strict {
			return errors.New("a line can't be read")
		}
		if !ok {
			if !j.mutant.stuck {
				data = data[:j.size]
			}
			break
		}
		j.size += int64(len(line))
		j.entries = append(j.entries, e)
		j.next = e.Seq + 1
	}
	return os.WriteFile(j.path, data, 0o600)
}

func (j *journalFake) line(e ports.JournalEntry) string {
	if j.mutant.text {
		e.Receipt.Payload.Body = []byte(strings.ToValidUTF8(string(e.Receipt.Payload.Body), "?"))
	}
	if j.mutant.seconds {
		e.Receipt.ClaimedAt = e.Receipt.ClaimedAt.Truncate(1e9)
	}
	b, _ := json.Marshal(e)
	return fmt.Sprintf("%08x %s\n", crc32.ChecksumIEEE(b), b)
}

func parseLine(line string, trusting bool) (ports.JournalEntry, bool) {
	var e ports.JournalEntry
	sum, b, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if !trusting && (!ok || !strings.HasSuffix(line, "\n") || sum != fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(b)))) {
		return e, false
	}
	return e, json.Unmarshal([]byte(b), &e) == nil
}

func (j *journalFake) Append(ctx context.Context, receipts []domain.Receipt) error {
	if ctx.Err() != nil && !j.mutant.deaf {
		return ctx.Err()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	next, used := j.next, j.size
	if j.mutant.unlocked {
		j.mu.Unlock()
		runtime.Gosched()
		j.mu.Lock()
	}
	if j.mutant.alone {
		used = 0
	}
	var lines strings.Builder
	var entries []ports.JournalEntry
	for _, r := range receipts {
		e := ports.JournalEntry{Seq: next, Receipt: r}
		line := j.line(e)
		if used+int64(lines.Len()+len(line)) > storetest.JournalBound {
			if j.mutant.partial {
				break
			}
			return ports.ErrFull
		}
		e, _ = parseLine(line, true)
		entries = append(entries, e)
		lines.WriteString(line)
		next++
	}
	if err := j.write(lines.String()); err != nil {
		return err
	}
	j.entries = append(j.entries, entries...)
	j.next = next
	j.size = used + int64(lines.Len())
	if len(entries) < len(receipts) {
		return ports.ErrFull
	}
	return nil
}

func (j *journalFake) write(lines string) error {
	if j.mutant.memory {
		return nil
	}
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if j.mutant.late {
		go func() {
			_, _ = f.WriteString(lines)
			_ = f.Close()
		}()
		return nil
	}
	_, err = f.WriteString(lines)
	return errors.Join(err, f.Close())
}

func (j *journalFake) Oldest(_ context.Context, limit int) ([]ports.JournalEntry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	entries := slices.Clone(j.entries)
	if j.mutant.sorted {
		slices.SortFunc(entries, func(a, b ports.JournalEntry) int { return strings.Compare(a.Receipt.ID, b.Receipt.ID) })
	}
	if j.mutant.newest {
		slices.Reverse(entries)
	}
	if j.mutant.unlimited {
		return entries, nil
	}
	return entries[:min(limit, len(entries))], nil
}

func (j *journalFake) Remove(_ context.Context, entries []ports.JournalEntry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mutant.prefix {
		entries = j.entries[:min(len(entries), len(j.entries))]
	}
	gone := map[uint64]bool{}
	for _, e := range entries {
		gone[e.Seq] = true
	}
	j.entries = slices.DeleteFunc(slices.Clone(j.entries), func(e ports.JournalEntry) bool { return gone[e.Seq] })
	if j.mutant.reuse && len(j.entries) == 0 {
		j.next = 1
	}
	if j.mutant.forgetful || j.mutant.memory {
		return nil
	}
	var lines strings.Builder
	for _, e := range j.entries {
		lines.WriteString(j.line(e))
	}
	if !j.mutant.rigid {
		j.size = int64(lines.Len())
	}
	return os.WriteFile(j.path, []byte(lines.String()), 0o600)
}

func (j *journalFake) Len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mutant.miscounts {
		return int(j.next - 1)
	}
	return len(j.entries)
}

func (j *journalFake) Close() error { return j.lock.Close() }

var journalMutants = []struct {
	name    string
	promise string // whose check must fail
	mutant  journalMutant
}{
	{"keeps all in memory", "AppendIsThereAfterReopen", journalMutant{memory: true}},
	{"counts what was removed", "RemoveForgets", journalMutant{miscounts: true}},
	{"goes by ids", "OrderKept", journalMutant{sorted: true}},
	{"gives the newest first", "OrderKept", journalMutant{newest: true}},
	{"gives all", "LimitIsObeyed", journalMutant{unlimited: true}},
	{"removes in memory only", "RemoveForgets", journalMutant{forgetful: true}},
	{"removes from the front", "RemoveForgets", journalMutant{prefix: true}},
	{"gives places twice", "RemoveForgets", journalMutant{reuse: true}},
	{"keeps a part of a call", "BoundRefuses", journalMutant{partial: true}},
	{"counts one call only", "BoundRefuses", journalMutant{alone: true}},
	{"never gives room back", "BoundFrees", journalMutant{rigid: true}},
	{"looks, then writes", "ConcurrentAppends", journalMutant{unlocked: true}},
	{"keeps text", "PayloadUnchanged", journalMutant{text: true}},
	{"keeps seconds", "PayloadUnchanged", journalMutant{seconds: true}},
	{"heeds no context", "EndedContextKeepsNothing", journalMutant{deaf: true}},
	{"takes two openers", "SecondOpenerRefused", journalMutant{shared: true}},
	{"takes its room at once", "EmptyIsCheap", journalMutant{wide: true}},
	{"trusts what it reads", "TornTailIsDropped", journalMutant{trusting: true}},
	{"refuses a torn end", "TornTailIsDropped", journalMutant{strict: true}},
	{"appends to a torn end", "TornTailIsDropped", journalMutant{stuck: true}},
	{"writes after it answered", "KilledProcessLosesNothing", journalMutant{late: true}},
}

const journalMutantVariable = "ADMITONE_JOURNAL_MUTANT"

// The test runs itself once for each mutant, in a process that must fail by the named promise,
// and once for the journal that they are made from, in one that must not.
func TestJournalKitCatches(t *testing.T) {
	if name := os.Getenv(journalMutantVariable); name != "" {
		var mutant journalMutant
		for _, m := range journalMutants {
			if m.name == name {
				mutant = m.mutant
			}
		}
		storetest.Journal(t, func(_ *testing.T, dir string) (ports.Journal, error) { return openJournalFake(dir, mutant) })
		return
	}
	run := func(t *testing.T, mutant, promise string) (string, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestJournalKitCatches$/^"+promise+"$", "-test.v")
		cmd.Env = append(os.Environ(), journalMutantVariable+"="+mutant, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	t.Run("nothing in a right journal", func(t *testing.T) {
		t.Parallel()
		if out, err := run(t, "none", ".*"); err != nil {
			t.Errorf("the kit refuses a right journal: %v\n%s", err, out)
		}
	})
	for _, m := range journalMutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, m.name, m.promise)
			if err == nil || !strings.Contains(out, "--- FAIL: TestJournalKitCatches/"+m.promise+" ") {
				t.Errorf("the kit passes a journal that %s: %s did not fail (%v)\n%s", m.name, m.promise, err, out)
			}
		})
	}
}
