package storetest

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The last entry is cut off, garbled and lost to zeros at each of its bytes. Whatever the
// files end with then, the entries before are there, and nothing is that was never appended.
func journalTornTailIsDropped(t *testing.T, b journalBench) {
	t.Helper()
	j := b.open(t)
	appendJournal(t, j, "a")
	appendJournal(t, j, "b", "c")
	appendJournal(t, j, "d")
	before := fileSizes(t, b.dir)
	appendJournal(t, j, "last")
	files := map[string][]byte{}
	var tail string
	for name, size := range fileSizes(t, b.dir) {
		data, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
		if size > before[name] {
			tail = name
		}
	}
	closeJournal(t, j)
	if tail == "" {
		t.Fatal("no file grew by an Append; want the entry in the files when it returns")
	}
	root := t.TempDir()
	for at := int(before[tail]); at < len(files[tail]); at++ {
		for name, tear := range map[string]func(b []byte) []byte{
			"cut off":       func(b []byte) []byte { return b[:at] },
			"a bit flipped": func(b []byte) []byte { b[at] ^= 0x10; return b },
			"a byte lost":   func(b []byte) []byte { b[at] = ^b[at]; return b },
			"zeros from":    func(b []byte) []byte { clear(b[at:]); return b },
			"noise behind":  func(b []byte) []byte { return append(b[:at], bytes.Repeat([]byte{0xa5, byte(at)}, 40)...) },
		} {
			dir := filepath.Join(root, fmt.Sprintf("%d %s", at, name))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for path, data := range files {
				if path == tail {
					data = tear(bytes.Clone(data))
				}
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, path), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			torn := journalBench{dir: dir, opener: b.opener}
			tornIsDropped(t, torn, fmt.Sprintf("%s at byte %d of %d", name, at, len(files[tail])), at%16 == 0)
			if t.Failed() {
				return
			}
		}
	}
}

// tornIsDropped checks a journal whose entry "last" was torn as what says, and goes on with it.
func tornIsDropped(t *testing.T, b journalBench, what string, goOn bool) {
	t.Helper()
	j, err := b.opener(t, b.dir)
	if err != nil {
		t.Errorf("open a journal, %s = %v; want what was written before", what, err)
		return
	}
	entries := oldestOf(t, j, 10)
	want := journalReceipts("a", "b", "c", "d", "last")
	if len(entries) != 4 && len(entries) != 5 { // it may still be there whole, if nothing of it was changed that counts
		t.Errorf("%s: the journal holds %v; want what was written before", what, idsOf(entries))
	}
	for i, e := range entries[:min(len(entries), 5)] {
		if e.Receipt.ID != want[i].ID || e.Receipt.Key != want[i].Key || !bytes.Equal(e.Receipt.Payload.Body, want[i].Payload.Body) {
			t.Errorf("%s: entry %d is %q; want %q, unchanged or not at all", what, i, e.Receipt.ID, want[i].ID)
		}
	}
	if goOn {
		ids := append(idsOf(entries), "more")
		appendJournal(t, j, "more")
		wantJournal(t, j, ids...)
		j = b.reopen(t, j)
		wantJournal(t, j, ids...)
		removeFrom(t, j, oldestOf(t, j, 10)...)
		j = b.reopen(t, j)
		wantJournal(t, j)
	}
	closeJournal(t, j)
}

const (
	// journalVictim is the environment variable that tells a process in which folder to append
	// until it is killed.
	journalVictim = "ADMITONE_JOURNAL_VICTIM"
	kills         = 20
	killCallers   = 4
	killedWithin  = 30 * time.Millisecond
)

// A process tells each entry that was kept, and is killed at any moment. The next one finds
// them all, in the order in which each caller appended them.
func journalKilledProcessLosesNothing(t *testing.T, b journalBench) {
	t.Helper()
	if dir := os.Getenv(journalVictim); dir != "" {
		appendUntilKilled(t, journalBench{dir: dir, opener: b.opener})
		return
	}
	told := make([][]string, killCallers)
	for kill := range kills {
		for _, id := range killOne(t, b.dir) {
			caller, err := strconv.Atoi(id[strings.LastIndex(id, "/")+1:])
			if err != nil {
				t.Fatalf("the process told %q", id)
			}
			told[caller] = append(told[caller], id)
		}
		j := b.open(t)
		ids := idsOf(oldestOf(t, j, 1<<20))
		for _, want := range told {
			wantInOrder(t, ids, want)
		}
		if kill%3 == 2 { // so that processes are killed on an empty one too
			removeFrom(t, j, oldestOf(t, j, 1<<20)...)
			told = make([][]string, killCallers)
		}
		closeJournal(t, j)
		if t.Failed() {
			return
		}
	}
}

// killOne starts a process, kills it and returns what it told to be kept.
func killOne(t *testing.T, dir string) []string {
	t.Helper()
	parts := strings.Split(t.Name(), "/")
	for i := range parts {
		parts[i] = "^" + regexp.QuoteMeta(parts[i]) + "$"
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+strings.Join(parts, "/"))
	// who is killed leaves its temporary folders behind
	cmd.Env = append(os.Environ(), journalVictim+"="+dir, "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var (
		ids    []string
		output strings.Builder
		death  *time.Timer
		lines  = bufio.NewReader(out)
	)
	for {
		line, err := lines.ReadString('\n')
		if err != nil { // what has no end of line was not told
			break
		}
		id, ok := strings.CutPrefix(line, "kept ")
		if !ok {
			output.WriteString(line)
			continue
		}
		if death == nil {
			death = time.AfterFunc(rand.N(killedWithin), func() { _ = cmd.Process.Kill() })
		}
		ids = append(ids, strings.TrimSuffix(id, "\n"))
	}
	err = cmd.Wait()
	if len(ids) == 0 {
		t.Fatalf("the process to be killed kept nothing: %v\n%s", err, output.String())
	}
	return ids
}

func appendUntilKilled(t *testing.T, b journalBench) {
	t.Helper()
	j := b.open(t)
	var wg sync.WaitGroup
	for caller := range killCallers {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d.%d/%d", os.Getpid(), i, caller)
				if err := j.Append(t.Context(), journalReceipts(id)); err != nil {
					t.Errorf("Append = %v; want nil", err)
					return
				}
				if _, err := os.Stdout.WriteString("kept " + id + "\n"); err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	closeJournal(t, j)
}
