package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
	"github.com/admitone/admitone/ports/storetest"
)

// A fastFake is a right fast store of which each mutant breaks one part.
type fastFake struct {
	mu    sync.Mutex
	known map[domain.Digest]fastEntry

	key      func(domain.Digest) domain.Digest
	ttl      func(time.Duration) (time.Duration, bool) // false: without end
	mark     func(ports.Mark) ports.Mark
	replace  bool // a later Remember counts
	prolong  bool // a later Remember moves the end
	unlocked bool // look and write are two steps
	once     bool // an answer uses up what it tells
	always   bool // everything is handled
	lazy     bool // an ended context is answered with "not handled"
	mixed    bool // callers share one key between taking and using it
	unready  bool
	down     func() error

	last domain.Digest
}

type fastEntry struct {
	mark    ports.Mark
	end     time.Time
	endless bool
}

func (f *fastFake) Seen(ctx context.Context, key domain.Digest) (ports.Mark, bool, error) {
	if f.down != nil {
		return ports.Mark{}, false, f.down()
	}
	if ctx.Err() != nil {
		if f.lazy {
			return ports.Mark{}, false, nil
		}
		return ports.Mark{}, false, ctx.Err()
	}
	key = f.share(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.live(f.key(key))
	if f.once {
		delete(f.known, f.key(key))
	}
	return e.mark, ok || f.always, nil
}

func (f *fastFake) Remember(_ context.Context, key domain.Digest, mark ports.Mark, ttl time.Duration) error {
	if f.down != nil {
		return f.down()
	}
	key = f.key(f.share(key))
	ttl, ends := f.ttl(ttl)
	e := fastEntry{mark: f.mark(mark), end: time.Now().Add(ttl), endless: !ends}
	f.mu.Lock()
	defer f.mu.Unlock()
	old, ok := f.live(key)
	if f.unlocked {
		f.mu.Unlock()
		runtime.Gosched()
		f.mu.Lock()
	}
	switch {
	case !ok || f.replace:
		f.known[key] = e
	case f.prolong:
		old.end = e.end
		f.known[key] = old
	}
	return nil
}

func (f *fastFake) Ready(context.Context) error {
	if f.unready {
		return errors.New("not ready")
	}
	if f.down != nil {
		return f.down()
	}
	return nil
}

func (f *fastFake) Close() error { return nil }

func (f *fastFake) live(key domain.Digest) (fastEntry, bool) {
	e, ok := f.known[key]
	if !ok || !e.endless && !time.Now().Before(e.end) {
		return fastEntry{}, false
	}
	return e, true
}

func (f *fastFake) share(key domain.Digest) domain.Digest {
	if !f.mixed {
		return key
	}
	f.mu.Lock()
	f.last = key
	f.mu.Unlock()
	runtime.Gosched()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func newFastFake() *fastFake {
	return &fastFake{
		known: map[domain.Digest]fastEntry{},
		key:   func(d domain.Digest) domain.Digest { return d },
		ttl:   func(d time.Duration) (time.Duration, bool) { return d, true },
		mark:  func(m ports.Mark) ports.Mark { return m },
	}
}

var fastMutants = []struct {
	name    string
	promise string // whose check must fail
	breaks  func(*fastFake)
}{
	{"sees everything", "NotSeenBefore", func(f *fastFake) { f.always = true }},
	{"remembers nothing", "SeenAfterRemember", func(f *fastFake) {
		f.ttl = func(time.Duration) (time.Duration, bool) { return -1, true }
	}},
	{"answers once", "SeenAfterRemember", func(f *fastFake) { f.once = true }},
	{"loses the content", "SeenAfterRemember", func(f *fastFake) {
		f.mark = func(ports.Mark) ports.Mark { return ports.Mark{} }
	}},
	{"last content wins", "FirstRememberCounts", func(f *fastFake) { f.replace = true }},
	{"last end wins", "FirstEndCounts", func(f *fastFake) { f.prolong = true }},
	{"forgets nothing", "ForgetsAfterTTL", func(f *fastFake) {
		f.ttl = func(time.Duration) (time.Duration, bool) { return 0, false }
	}},
	{"counts whole seconds, rounded down", "ForgetsAfterTTL", func(f *fastFake) {
		f.ttl = func(d time.Duration) (time.Duration, bool) { return d.Truncate(time.Second), true }
	}},
	{"reads zero as for ever", "NothingWithoutEnd", func(f *fastFake) {
		f.ttl = func(d time.Duration) (time.Duration, bool) { return d, d > 0 }
	}},
	{"folds case", "KeysAreExact", func(f *fastFake) {
		f.key = func(d domain.Digest) domain.Digest { return domain.Digest(bytes.ToLower(d[:])) }
	}},
	{"ends keys at NUL", "KeysAreExact", func(f *fastFake) {
		f.key = func(d domain.Digest) domain.Digest {
			before, _, _ := bytes.Cut(d[:], []byte{0})
			var short domain.Digest
			copy(short[:], before)
			return short
		}
	}},
	{"keeps half of a key", "KeysAreExact", func(f *fastFake) {
		f.key = func(d domain.Digest) domain.Digest { clear(d[8:]); return d }
	}},
	{"trims content", "MarksAreExact", func(f *fastFake) {
		f.mark = func(m ports.Mark) ports.Mark {
			var trimmed ports.Mark
			copy(trimmed[:], bytes.TrimSpace(m[:]))
			return trimmed
		}
	}},
	{"says absent when out of time", "EndedContextIsNoAnswer", func(f *fastFake) { f.lazy = true }},
	{"looks, then writes", "OneMarkAmongMany", func(f *fastFake) { f.unlocked = true }},
	{"mixes callers up", "ManyAtOnce", func(f *fastFake) { f.mixed = true }},
	{"is never ready", "ReadyWhenUp", func(f *fastFake) { f.unready = true }},
	{"says absent when down", "DownIsAnError", func(f *fastFake) {
		if f.down != nil {
			f.down = func() error { return nil }
		}
	}},
}

// The test runs itself once for each mutant, in a process that must fail by the named promise,
// and once for the store that they are made from, in one that must not.
func TestFastKitCatches(t *testing.T) {
	const variable = "ADMITONE_FAST_MUTANT"
	if mutant := os.Getenv(variable); mutant != "" {
		open := func(down func() error) func(*testing.T) ports.FastStore {
			return func(*testing.T) ports.FastStore {
				f := newFastFake()
				f.down = down
				for _, m := range fastMutants {
					if m.name == mutant {
						m.breaks(f)
					}
				}
				return f
			}
		}
		storetest.Fast(t, open(nil), open(func() error { return errors.New("down") }))
		return
	}
	run := func(t *testing.T, mutant string) (string, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFastKitCatches$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"="+mutant, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	t.Run("nothing in a right store", func(t *testing.T) {
		t.Parallel()
		if out, err := run(t, "none"); err != nil {
			t.Errorf("the kit refuses a right store: %v\n%s", err, out)
		}
	})
	for _, m := range fastMutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, m.name)
			if err == nil || !strings.Contains(out, "--- FAIL: TestFastKitCatches/"+m.promise+" ") {
				t.Errorf("the kit passes a store that %s: %s did not fail (%v)\n%s", m.name, m.promise, err, out)
			}
		})
	}
}
