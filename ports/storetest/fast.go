// Package storetest holds the kits that the adapters of stores pass: one named check for each
// promise of the port, each on a fresh store. A failure tells the promise that was broken.
package storetest

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

const (
	fastLong  = time.Hour
	fastShort = 300 * time.Millisecond
	// fastLate is how much longer than its ttl a key may be remembered on a busy machine.
	fastLate = 3 * time.Second
	// fastBound is how long a call to a store that is out of reach may take.
	fastBound = 2 * time.Second
)

// Fast checks each promise of ports.FastStore. open returns a store that remembers nothing,
// a fresh one for each promise. down returns one whose server is out of reach; it is nil for
// a store that stands on none. The kit closes what it opens.
func Fast(t *testing.T, open func(t *testing.T) ports.FastStore, down func(t *testing.T) ports.FastStore) {
	t.Helper()
	for _, promise := range []struct {
		name  string
		check func(t *testing.T, s ports.FastStore)
	}{
		{"NotSeenBefore", fastNotSeenBefore},
		{"SeenAfterRemember", fastSeenAfterRemember},
		{"FirstRememberCounts", fastFirstRememberCounts},
		{"FirstEndCounts", fastFirstEndCounts},
		{"ForgetsAfterTTL", fastForgetsAfterTTL},
		{"NothingWithoutEnd", fastNothingWithoutEnd},
		{"KeysAreExact", fastKeysAreExact},
		{"MarksAreExact", fastMarksAreExact},
		{"EndedContextIsNoAnswer", fastEndedContextIsNoAnswer},
		{"OneMarkAmongMany", fastOneMarkAmongMany},
		{"ManyAtOnce", fastManyAtOnce},
		{"ReadyWhenUp", fastReadyWhenUp},
	} {
		t.Run(promise.name, func(t *testing.T) {
			s := open(t)
			defer closeFast(t, s)
			promise.check(t, s)
		})
	}
	if down == nil {
		return
	}
	t.Run("DownIsAnError", func(t *testing.T) {
		s := down(t)
		defer closeFast(t, s)
		fastDownIsAnError(t, s)
	})
}

func closeFast(t *testing.T, s ports.FastStore) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close() = %v; want nil", err)
	}
}

func fastKey(parts ...string) domain.Digest { return domain.DigestOf(parts...) }

func fastMark(s string) ports.Mark { return ports.MarkOf(domain.DigestOf("content", s)) }

func fastNotSeenBefore(t *testing.T, s ports.FastStore) {
	t.Helper()
	wantFastAbsent(t, s, fastKey("never remembered"))
}

func fastSeenAfterRemember(t *testing.T, s ports.FastStore) {
	t.Helper()
	key, mark := fastKey("a"), fastMark("a")
	remember(t, s, key, mark, fastLong)
	// Twice: what is remembered is not used up by being asked for.
	wantFastSeen(t, s, key, mark)
	wantFastSeen(t, s, key, mark)
}

func fastFirstRememberCounts(t *testing.T, s ports.FastStore) {
	t.Helper()
	key, first, second := fastKey("a"), fastMark("first"), fastMark("second")
	remember(t, s, key, first, fastLong)
	remember(t, s, key, second, fastLong)
	wantFastSeen(t, s, key, first)
}

func fastFirstEndCounts(t *testing.T, s ports.FastStore) {
	t.Helper()
	key := fastKey("a")
	before := time.Now()
	remember(t, s, key, fastMark("a"), fastShort)
	remember(t, s, key, fastMark("a"), fastLong)
	wantFastForgotten(t, s, key, before)
}

func fastForgetsAfterTTL(t *testing.T, s ports.FastStore) {
	t.Helper()
	brief, long := fastKey("brief"), fastKey("long")
	remember(t, s, long, fastMark("long"), fastLong)
	before := time.Now()
	remember(t, s, brief, fastMark("brief"), fastShort)
	wantFastForgotten(t, s, brief, before)
	wantFastSeen(t, s, long, fastMark("long"))
	// What was forgotten can be remembered anew, with other content.
	remember(t, s, brief, fastMark("anew"), fastLong)
	wantFastSeen(t, s, brief, fastMark("anew"))
}

// A key without an end would suppress an event for ever; Redis reads a ttl of 0 that way.
func fastNothingWithoutEnd(t *testing.T, s ports.FastStore) {
	t.Helper()
	for _, ttl := range []time.Duration{0, -time.Second} {
		key := fastKey("no end", ttl.String())
		_ = s.Remember(t.Context(), key, fastMark("a"), ttl) // an error and silence are both right
		wantFastAbsent(t, s, key)
	}
	key := fastKey("shortest")
	remember(t, s, key, fastMark("a"), time.Nanosecond)
	wantFastForgotten(t, s, key, time.Now().Add(-fastShort))
}

func fastKeysAreExact(t *testing.T, s ports.FastStore) {
	t.Helper()
	// Neighbours of a key in each byte, bytes that delimit, end or escape something somewhere,
	// and the two cases of a letter.
	var base domain.Digest
	for i := range base {
		base[i] = 'a' + byte(i)
	}
	remember(t, s, base, fastMark("base"), fastLong)
	for i := range base {
		for _, b := range []byte{0, '\n', '\r', ' ', '*', ':', '{', '}', '%', '_', base[i] - 'a' + 'A', base[i] ^ 1, 0x80, 0xff} {
			other := base
			other[i] = b
			wantFastAbsent(t, s, other)
		}
	}
	for _, b := range []byte{0, '\n', ' ', ':', '}'} {
		key := base
		key[3] = b
		remember(t, s, key, fastMark("with a delimiter"), fastLong)
		key[15]++ // behind it
		wantFastAbsent(t, s, key)
	}
	for name, key := range map[string]domain.Digest{
		"zeros": {}, "ones": {0: 0xff, 15: 0xff}, "line ends": {0: '\r', 1: '\n', 14: '\r', 15: '\n'},
	} {
		remember(t, s, key, fastMark(name), fastLong)
		wantFastSeen(t, s, key, fastMark(name))
	}
	wantFastSeen(t, s, base, fastMark("base"))
}

func fastMarksAreExact(t *testing.T, s ports.FastStore) {
	t.Helper()
	for _, mark := range []ports.Mark{
		{},
		{3: 1},
		{0: 1},
		ports.Mark([]byte("1234")), ports.Mark([]byte("0001")),
		ports.Mark([]byte("-123")), ports.Mark([]byte("\r\n\x00\xff")),
	} {
		key := fastKey("mark", string(mark[:]))
		remember(t, s, key, mark, fastLong)
		wantFastSeen(t, s, key, mark)
	}
}

func fastEndedContextIsNoAnswer(t *testing.T, s ports.FastStore) {
	t.Helper()
	key := fastKey("a")
	remember(t, s, key, fastMark("a"), fastLong)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Either is right, an error or the true answer; "not handled" is a guess.
	content, handled, err := s.Seen(ctx, key)
	if err == nil && (!handled || content != fastMark("a")) {
		t.Errorf("Seen of a remembered key with an ended context = %x, %t, nil; want an error or the truth", content, handled)
	}
	wantFastSeen(t, s, key, fastMark("a"))
}

func fastOneMarkAmongMany(t *testing.T, s ports.FastStore) {
	t.Helper()
	const n = 32
	for round := range 20 {
		key := fastKey("race", string(rune('a'+round)))
		var (
			wg    sync.WaitGroup
			begin = make(chan struct{})
			told  [n]ports.Mark
		)
		for i := range n {
			wg.Go(func() {
				<-begin
				remember(t, s, key, numbered(i), fastLong)
				content, handled, err := s.Seen(t.Context(), key)
				if err != nil || !handled {
					t.Errorf("Seen after a Remember = %t, %v; want true, nil", handled, err)
				}
				told[i] = content
			})
		}
		close(begin)
		wg.Wait()
		for _, content := range told {
			if content != told[0] || binary.BigEndian.Uint32(content[:]) >= n {
				t.Fatalf("%d callers that remembered one key see %x; want one content, that of the first", n, told)
			}
		}
	}
}

// Each caller must get the answer to its own question, whatever is sent together.
func fastManyAtOnce(t *testing.T, s ports.FastStore) {
	t.Helper()
	var wg sync.WaitGroup
	for caller := range 32 {
		wg.Go(func() {
			for i := range 50 {
				n := caller*1000 + i
				mark := numbered(n)
				key := fastKey("many", string(mark[:]))
				wantFastAbsent(t, s, key)
				remember(t, s, key, mark, fastLong)
				wantFastSeen(t, s, key, mark)
			}
		})
	}
	wg.Wait()
}

func fastReadyWhenUp(t *testing.T, s ports.FastStore) {
	t.Helper()
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("Ready() = %v; want nil", err)
	}
}

func fastDownIsAnError(t *testing.T, s ports.FastStore) {
	t.Helper()
	// Often enough that a circuit breaker, if there is one, is seen closed and open.
	for i := range 20 {
		key := fastKey("down", string(rune('a'+i)))
		begun := time.Now()
		if content, handled, err := s.Seen(t.Context(), key); err == nil || handled {
			t.Errorf("Seen of a store that is down = %x, %t, %v; want an error, never a guess", content, handled, err)
		}
		if err := s.Remember(t.Context(), fastKey("down too", string(rune('a'+i))), fastMark("a"), fastLong); err == nil {
			t.Error("Remember of a store that is down = nil; want an error")
		}
		if took := time.Since(begun); took > fastBound {
			t.Errorf("a look at a store that is down took %s; want a bound", took)
		}
	}
	if err := s.Ready(t.Context()); err == nil {
		t.Error("Ready of a store that is down = nil; want an error")
	}
}

func numbered(n int) ports.Mark {
	var m ports.Mark
	binary.BigEndian.PutUint32(m[:], uint32(n))
	return m
}

func remember(t *testing.T, s ports.FastStore, key domain.Digest, mark ports.Mark, ttl time.Duration) {
	t.Helper()
	if err := s.Remember(t.Context(), key, mark, ttl); err != nil {
		t.Errorf("Remember(%s, %x, %s) = %v; want nil", key, mark, ttl, err)
	}
}

func wantFastSeen(t *testing.T, s ports.FastStore, key domain.Digest, want ports.Mark) {
	t.Helper()
	content, handled, err := s.Seen(t.Context(), key)
	if err != nil || !handled || content != want {
		t.Errorf("Seen(%s) of a remembered key = %x, %t, %v; want %x, true, nil", key, content, handled, err, want)
	}
}

func wantFastAbsent(t *testing.T, s ports.FastStore, key domain.Digest) {
	t.Helper()
	content, handled, err := s.Seen(t.Context(), key)
	if err != nil || handled {
		t.Errorf("Seen(%s) of a key never remembered = %x, %t, %v; want false, nil", key, content, handled, err)
	}
}

// wantFastForgotten waits for the end of a key that was remembered for fastShort after begun.
func wantFastForgotten(t *testing.T, s ports.FastStore, key domain.Digest, begun time.Time) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		_, handled, err := s.Seen(t.Context(), key)
		age := time.Since(begun)
		switch {
		case err != nil:
			t.Fatalf("Seen(%s) = %v; want nil", key, err)
		case !handled && age < fastShort:
			t.Fatalf("forgotten %s after Remember; want %s", age, fastShort)
		case !handled:
			return
		case age > fastShort+fastLate:
			t.Fatalf("still seen %s after Remember; want forgotten after %s", age, fastShort)
		}
		<-tick.C
	}
}
