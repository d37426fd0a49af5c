package redis_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/redis"
	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// scripted is a server that answers each command of the Redis protocol by the function.
// An empty answer closes the connection.
func scripted(t *testing.T, answer func(command string) string) (url string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close() //nolint:errcheck // a test's end of a connection
				stop := context.AfterFunc(t.Context(), func() { _ = conn.Close() })
				defer stop()
				in := bufio.NewReader(conn)
				for {
					command, err := readCommand(in)
					if err != nil {
						return
					}
					reply := answer(command)
					if reply == "" {
						return
					}
					if _, err := io.WriteString(conn, reply+"\r\n"); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	return "redis://" + l.Addr().String()
}

func readCommand(in *bufio.Reader) (string, error) {
	var n int
	if _, err := fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
		return "", err
	}
	var name string
	for i := range n {
		var size int
		if _, err := fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
			return "", err
		}
		arg := make([]byte, size+2)
		if _, err := io.ReadFull(in, arg); err != nil {
			return "", err
		}
		if i == 0 {
			name = strings.ToLower(string(arg[:size]))
		}
	}
	return name, nil
}

// Helpers that tell "absent" and "could not ask" with one value acknowledge and drop every
// event of an outage (BR-33), or turn a cache's trouble into a refusal (BR-34).
func TestWhateverRedisAnswersIsNeverAGuess(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"-LOADING Redis is loading the dataset in memory",
		"-READONLY You can't write against a read only replica.",
		"-NOAUTH Authentication required.",
		"-OOM command not allowed when used memory > 'maxmemory'.",
		"-MOVED 3999 127.0.0.1:6381",
		"-ASK 3999 127.0.0.1:6381",
		"-CLUSTERDOWN Hash slot not served",
		"-MASTERDOWN Link with MASTER is down",
		"-BUSY Redis is busy running a script.",
		"-MISCONF Redis is configured to save RDB snapshots",
		"-TRYAGAIN Multiple keys request during rehashing of slot",
		"-WRONGTYPE Operation against a key holding the wrong kind of value",
		"-ERR max number of clients reached",
		"+OK", "$0\r\n", "$3\r\nabc", "$3\r\n012", "*0", "nonsense", "",
	} {
		t.Run(strings.Fields(reply + " nothing")[0], func(t *testing.T) {
			t.Parallel()
			s := open(t, redis.Config{URL: scripted(t, func(command string) string {
				if command == "hello" {
					return "-ERR unknown command"
				}
				return reply
			}), Timeout: generous})
			wantError(t, s, domain.DigestOf("a"))
			if err := s.Remember(t.Context(), domain.DigestOf("b"), ports.Mark{}, time.Hour); err == nil && reply != "+OK" {
				if !strings.HasPrefix(reply, ":") && !strings.HasPrefix(reply, "$") {
					t.Errorf("Remember answered with %q = nil; want an error", reply)
				}
			}
		})
	}
}

// value is what a store writes for key and a mark that ends in last.
func value(key domain.Digest, last byte) string {
	b := append(key[12:16:16], 0, 0, 0, last)
	return strconv.FormatInt(int64(binary.BigEndian.Uint64(b)), 10)
}

func TestAValueOfAnotherKindIsAnErrorOfItsKeyAlone(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	s := open(t, redis.Config{URL: server.URL(), Timeout: generous})
	list, short, good := domain.DigestOf("list"), domain.DigestOf("short"), domain.DigestOf("good")
	server.Do("RPUSH", "a:"+string(list[:12]), "1")
	server.Do("SET", "a:"+string(short[:12]), "true")
	server.Do("SET", "a:"+string(good[:12]), value(good, 42))
	// Often enough that a breaker which took it for Redis' own trouble would open.
	for range 20 {
		wantError(t, s, list)
		wantError(t, s, short)
	}
	wantSeen(t, s, good, ports.Mark{3: 42})
}

// A key's value, once Redis has answered an error to SET, may stand or not (BR-36): Seen tells
// which, and the store does not undo it.
func TestLostAnswerToRememberIsAnError(t *testing.T) {
	t.Parallel()
	key := domain.DigestOf("a")
	stored := value(key, 42)
	s := open(t, redis.Config{URL: scripted(t, func(command string) string {
		switch command {
		case "set":
			return ""
		case "get":
			return fmt.Sprintf("$%d\r\n%s", len(stored), stored)
		}
		return "-ERR unknown command"
	}), Timeout: generous, Near: 1})
	if err := s.Remember(t.Context(), key, ports.Mark{3: 42}, time.Hour); err == nil {
		t.Error("Remember whose answer was lost = nil; want an error")
	}
	wantSeen(t, s, key, ports.Mark{3: 42})
}

func TestFullRedisIsAnErrorAndDropsNothing(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	s := open(t, redis.Config{URL: server.URL(), Timeout: generous})
	err := s.Remember(t.Context(), domain.DigestOf("a"), ports.Mark{}, time.Hour)
	if err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Remember in a full Redis = %v; want its OOM", err)
	}
	wantAbsent(t, s, domain.DigestOf("b")) // reading goes on
}

// Dialling for 5 s, reading for 3 s, three tries and a wait for the pool make acknowledgements
// take 15 s (BR-120): each call, and all of them together, are bounded.
func TestStalledRedisIsPaidForOnce(t *testing.T) {
	t.Parallel()
	const (
		timeout = 100 * time.Millisecond
		callers = 50
		bound   = 2 * time.Second // for a machine that is busy with other tests
	)
	server := servertest.Redis(t)
	for _, warm := range []bool{true, false} {
		s := open(t, redis.Config{URL: server.URL(), Timeout: timeout})
		if warm {
			eventually(t, generous, "no answer", func() bool {
				_, _, err := s.Seen(t.Context(), domain.DigestOf("a"))
				return err == nil
			})
		}
		server.Stall()
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() { wantError(t, s, domain.DigestOf("stalled", strconv.Itoa(i))) })
		}
		wg.Wait()
		if took := time.Since(begun); took < timeout/2 || took > bound {
			t.Errorf("%d callers at once waited %s; want about %s (connected: %t)", callers, took, timeout, warm)
		}
		begun = time.Now()
		for i := range 1000 {
			wantError(t, s, domain.DigestOf("later", strconv.Itoa(i)))
		}
		if took := time.Since(begun); took > bound {
			t.Errorf("1000 calls after those took %s; want no wait (connected: %t)", took, warm)
		}
		server.Resume()
		eventually(t, 10*time.Second, "not in use again", func() bool {
			_, _, err := s.Seen(t.Context(), domain.DigestOf("a"))
			return err == nil
		})
	}
}

func TestUnreachableAddressIsBounded(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it accepts nothing
	s := open(t, redis.Config{URL: "redis://" + l.Addr().String()})
	begun := time.Now()
	wantError(t, s, domain.DigestOf("a"))
	if err := s.Ready(t.Context()); err == nil {
		t.Error("Ready = nil; want an error")
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("two calls to one that takes connections and says nothing took %s; want about 100ms", took)
	}
}

func TestCallersDeadlineIsKept(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	s := open(t, redis.Config{URL: server.URL(), Timeout: time.Minute})
	wantAbsent(t, s, domain.DigestOf("a"))
	server.Stall()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, handled, err := s.Seen(ctx, domain.DigestOf("a")); handled || err == nil {
		t.Errorf("Seen = %t, %v; want an error", handled, err)
	}
	if took := time.Since(begun); took > generous {
		t.Errorf("Seen took %s with a deadline of 50ms", took)
	}
}

func TestOneCallersEndIsNotAnothers(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	s := open(t, redis.Config{URL: server.URL(), Timeout: generous})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for j := range 50 {
				key := domain.DigestOf(strconv.Itoa(i), strconv.Itoa(j))
				if i%2 == 0 {
					wantAbsent(t, s, key)
					continue
				}
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				if _, handled, _ := s.Seen(ctx, key); handled {
					t.Error("Seen of a key never remembered = true; want false or an error")
				}
				cancel()
			}
		})
	}
	wg.Wait()
}

// Stale connections must not outlive a restart (BR-121), and what it forgot is absent (BR-122).
func TestRestartsAreSurvivedUnderLoad(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	s := open(t, redis.Config{URL: server.URL(), Timeout: time.Second, Near: 1})
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i := range 8 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := domain.DigestOf(strconv.Itoa(i), strconv.Itoa(n))
				if _, handled, _ := s.Seen(ctx, key); handled {
					t.Error("Seen of a key never remembered = true; want false or an error")
				}
			}
		})
	}
	defer load.Wait()
	defer stop()
	for n := range 5 {
		server.Restart()
		key := domain.DigestOf("known", strconv.Itoa(n))
		eventually(t, 10*time.Second, "not in use again after a restart", func() bool {
			_ = s.Remember(t.Context(), key, ports.Mark{1}, time.Hour)
			return server.Do("EXISTS", "a:"+string(key[:12])) == ":1"
		})
	}
}

func TestStartsWithRedisDownAndFindsItLater(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	server.Stop()
	s := open(t, redis.Config{URL: server.URL(), Timeout: time.Second})
	for range 10 {
		wantError(t, s, domain.DigestOf("a"))
	}
	server.Start()
	eventually(t, 10*time.Second, "not found", func() bool {
		_, _, err := s.Seen(t.Context(), domain.DigestOf("a"))
		return err == nil
	})
}
