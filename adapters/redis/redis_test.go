package redis_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/redis"
	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
	"github.com/admitone/admitone/ports/storetest"
)

// generous is a time-out that a busy machine keeps, for tests that are not about time.
const generous = 5 * time.Second

func open(tb testing.TB, c redis.Config) *redis.Store {
	tb.Helper()
	s, err := redis.New(c)
	if err != nil {
		tb.Fatalf("New = %v; want nil", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("Close() = %v; want nil", err)
		}
	})
	return s
}

func remember(tb testing.TB, s *redis.Store, key domain.Digest, content ports.Mark, ttl time.Duration) {
	tb.Helper()
	if err := s.Remember(tb.Context(), key, content, ttl); err != nil {
		tb.Fatalf("Remember = %v; want nil", err)
	}
}

func wantSeen(tb testing.TB, s *redis.Store, key domain.Digest, want ports.Mark) {
	tb.Helper()
	content, handled, err := s.Seen(tb.Context(), key)
	if err != nil || !handled || content != want {
		tb.Errorf("Seen of a remembered key = %x, %t, %v; want %x, true, nil", content, handled, err, want)
	}
}

func wantAbsent(tb testing.TB, s *redis.Store, key domain.Digest) {
	tb.Helper()
	if _, handled, err := s.Seen(tb.Context(), key); handled || err != nil {
		tb.Errorf("Seen of a key never remembered = %t, %v; want false, nil", handled, err)
	}
}

func wantError(tb testing.TB, s *redis.Store, key domain.Digest) {
	tb.Helper()
	if _, handled, err := s.Seen(tb.Context(), key); handled || err == nil {
		tb.Errorf("Seen = %t, %v; want an error, never a guess", handled, err)
	}
}

// eventually repeats look until it returns true.
func eventually(tb testing.TB, within time.Duration, what string, look func() bool) {
	tb.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !look() {
		select {
		case <-deadline.C:
			tb.Fatalf("after %s: %s", within, what)
		case <-tick.C:
		}
	}
}

func openDown(t *testing.T) ports.FastStore {
	t.Helper()
	server := servertest.Redis(t)
	s, err := redis.New(redis.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	server.Stop()
	return s
}

func TestStoreKeepsThePromisesOfAFastStore(t *testing.T) {
	t.Parallel()
	storetest.Fast(t, func(t *testing.T) ports.FastStore {
		t.Helper()
		s, err := redis.New(redis.Config{URL: servertest.Redis(t).URL(), Timeout: generous})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, openDown)
}

// A pair remembers through one store and looks through another, so that nothing is answered
// by what a process remembers of its own.
type pair struct{ writer, reader *redis.Store }

func (p pair) Seen(ctx context.Context, key domain.Digest) (ports.Mark, bool, error) {
	return p.reader.Seen(ctx, key)
}

func (p pair) Remember(ctx context.Context, key domain.Digest, content ports.Mark, ttl time.Duration) error {
	return p.writer.Remember(ctx, key, content, ttl)
}
func (p pair) Ready(ctx context.Context) error { return p.reader.Ready(ctx) }
func (p pair) Close() error                    { return nil }

func TestInstancesShareWhatIsHandled(t *testing.T) {
	t.Parallel()
	storetest.Fast(t, func(t *testing.T) ports.FastStore {
		t.Helper()
		c := redis.Config{URL: servertest.Redis(t).URL(), Timeout: generous}
		return pair{open(t, c), open(t, c)}
	}, nil)
}

func TestKeyTakesAtMost128Bytes(t *testing.T) {
	t.Parallel()
	const keys, limit = 100_000, 128
	server := servertest.Redis(t)
	s := open(t, redis.Config{URL: server.URL(), Timeout: generous, Near: 1})
	before := usedMemory(t, server)
	var wg sync.WaitGroup
	for caller := range 50 {
		wg.Go(func() {
			for i := range keys / 50 {
				key := domain.DigestOf(strconv.Itoa(caller), strconv.Itoa(i))
				if err := s.Remember(t.Context(), key, ports.MarkOf(key), 25*time.Hour); err != nil {
					t.Errorf("Remember = %v; want nil", err)
				}
			}
		})
	}
	wg.Wait()
	if n := server.Do("DBSIZE"); n != ":"+strconv.Itoa(keys) {
		t.Fatalf("DBSIZE = %s; want %d", n, keys)
	}
	key := domain.DigestOf("0", "0")
	usage := integer(t, server.Do("MEMORY", "USAGE", "a:"+string(key[:12]), "SAMPLES", "0"))
	each := (usedMemory(t, server) - before) / keys
	t.Logf("MEMORY USAGE %d B, used_memory over %d keys %d B each", usage, keys, each)
	if usage > limit {
		t.Errorf("MEMORY USAGE of a key = %d B; want at most %d", usage, limit)
	}
	// with the tables of keys and of ends, which MEMORY USAGE leaves out
	if each > limit {
		t.Errorf("used_memory grew by %d B a key; want at most %d", each, limit)
	}
}

func usedMemory(t *testing.T, server *servertest.RedisServer) int {
	t.Helper()
	for line := range strings.Lines(server.Do("INFO", "memory")) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			return integer(t, ":"+n)
		}
	}
	t.Fatal("INFO memory lacks used_memory")
	return 0
}

func integer(t *testing.T, reply string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimPrefix(reply, ":"))
	if err != nil {
		t.Fatalf("reply %q is no integer", reply)
	}
	return n
}

func TestEachKeyHasItsEnd(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	s := open(t, redis.Config{URL: server.URL(), Timeout: generous})
	for _, ttl := range []time.Duration{
		time.Nanosecond, time.Millisecond, 999 * time.Millisecond, time.Second,
		1500 * time.Millisecond, 25 * time.Hour, 30 * 24 * time.Hour,
	} {
		key := domain.DigestOf(ttl.String())
		remember(t, s, key, ports.Mark{}, ttl)
		left := integer(t, server.Do("PTTL", "a:"+string(key[:12])))
		// -2: gone already, which the shortest may be.
		if left == -1 || int64(left) > max(1, ttl.Milliseconds()) || left == -2 && ttl >= time.Second {
			t.Errorf("PTTL after Remember for %s = %d; want an end no later", ttl, left)
		}
	}
	if err := s.Remember(t.Context(), domain.DigestOf("none"), ports.Mark{}, 0); err == nil {
		t.Error("Remember for 0 = nil; want an error")
	}
}

// What a flush or a failover has dropped (BR-122) is absent, and can be remembered anew.
func TestEmptiedRedisIsAbsentToOthers(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	c := redis.Config{URL: server.URL(), Timeout: generous}
	a, b := open(t, c), open(t, c)
	key := domain.DigestOf("a")
	remember(t, a, key, ports.Mark{1}, time.Hour)
	wantSeen(t, b, key, ports.Mark{1})
	server.Do("FLUSHALL")
	wantAbsent(t, b, key)
	remember(t, b, key, ports.Mark{2}, time.Hour)
	wantSeen(t, b, key, ports.Mark{2})
}

func TestNearKnowsNoLongerThanRedis(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	s := open(t, redis.Config{URL: server.URL(), Timeout: generous})
	key := domain.DigestOf("a")
	remember(t, s, key, ports.Mark{1}, 200*time.Millisecond)
	server.Do("FLUSHALL")
	wantSeen(t, s, key, ports.Mark{1}) // by the process alone
	eventually(t, generous, "still seen after its end", func() bool {
		_, handled, err := s.Seen(t.Context(), key)
		return !handled && err == nil
	})
}

func TestWhatRedisDidNotTakeIsKnownNear(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	s := open(t, redis.Config{URL: server.URL()})
	server.Stop()
	key := domain.DigestOf("a")
	if err := s.Remember(t.Context(), key, ports.Mark{1}, time.Hour); err == nil {
		t.Error("Remember with Redis down = nil; want an error")
	}
	wantSeen(t, s, key, ports.Mark{1})
	wantError(t, s, domain.DigestOf("b"))
}

func TestOnErrorHearsOfEachFailedCall(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	var heard atomic.Int64
	s := open(t, redis.Config{URL: server.URL(), Timeout: generous, OnError: func(err error) {
		if err == nil {
			t.Error("OnError(nil); want an error")
		}
		heard.Add(1)
	}})
	wantAbsent(t, s, domain.DigestOf("a"))
	remember(t, s, domain.DigestOf("b"), ports.Mark{}, time.Hour)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Seen(ended, domain.DigestOf("c")); err == nil {
		t.Error("Seen with an ended context = nil; want an error")
	}
	if n := heard.Load(); n != 0 {
		t.Errorf("OnError was called %d times though nothing failed; want 0", n)
	}
	server.Stop()
	const calls = 20 // beyond where the breaker opens
	for range calls {
		wantError(t, s, domain.DigestOf("a"))
	}
	if n := heard.Load(); n != calls {
		t.Errorf("OnError was called %d times for %d failed calls", n, calls)
	}
}

// What is under way when the store is closed gets its answer: it may be the last outcomes of a drain.
func TestCloseWaitsForWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	s, err := redis.New(redis.Config{URL: scripted(t, func(command string) string {
		if command != "set" {
			return "-ERR unknown command"
		}
		close(asked)
		<-answer
		return "+OK"
	}), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	remembered, closed := make(chan error, 1), make(chan error, 1)
	go func() { remembered <- s.Remember(t.Context(), domain.DigestOf("a"), ports.Mark{1}, time.Hour) }()
	<-asked
	go func() { closed <- s.Close() }()
	wantError(t, s, domain.DigestOf("late")) // which returns once the store is being closed
	select {
	case err = <-closed:
		t.Errorf("Close() = %v while a command is under way; want it to wait", err)
		closed <- err
	case <-time.After(100 * time.Millisecond):
	}
	close(answer)
	if err := <-remembered; err != nil {
		t.Errorf("Remember, whose answer came during Close = %v; want nil", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close() = %v; want nil", err)
	}
}

func TestCloseEndsWhatWaits(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	s, err := redis.New(redis.Config{URL: server.URL(), Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	server.Stall()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { wantError(t, s, domain.DigestOf(strconv.Itoa(i))) })
	}
	begun := time.Now()
	if err := s.Close(); err != nil {
		t.Errorf("Close() = %v; want nil", err)
	}
	wg.Wait()
	wantError(t, s, domain.DigestOf("late")) // no call may follow, but none may crash
	if took := time.Since(begun); took > generous {
		t.Errorf("Close of a stalled store took %s; want about the time-out", took)
	}
}
