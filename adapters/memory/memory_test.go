package memory_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/admitone/admitone/adapters/memory"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
	"github.com/admitone/admitone/ports/storetest"
)

func open(t *testing.T, c memory.Config) *memory.Store {
	t.Helper()
	s, err := memory.New(c)
	if err != nil {
		t.Fatalf("New(%+v) = %v; want nil", c, err)
	}
	return s
}

func TestStoreKeepsThePromisesOfAFastStore(t *testing.T) {
	t.Parallel()
	storetest.Fast(t, func(t *testing.T) ports.FastStore {
		t.Helper()
		return open(t, memory.Config{})
	}, nil)
}

func TestStoreForgetsAtTheEndAndNoSooner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memory.Config{})
		defer s.Close() //nolint:errcheck // it returns nil
		key, ttl := domain.DigestOf("a"), 25*time.Hour
		if err := s.Remember(t.Context(), key, ports.Mark{1}, ttl); err != nil {
			t.Fatal(err)
		}
		for _, at := range []struct {
			wait time.Duration
			want bool
		}{{ttl - time.Second, true}, {2 * time.Second, false}} {
			time.Sleep(at.wait)
			if _, handled, err := s.Seen(t.Context(), key); handled != at.want || err != nil {
				t.Errorf("Seen after another %s = %t, %v; want %t", at.wait, handled, err, at.want)
			}
		}
	})
}

func TestStoreHoldsNoMoreThanItsEntries(t *testing.T) {
	t.Parallel()
	const entries = 100
	s := open(t, memory.Config{Entries: entries})
	defer s.Close() //nolint:errcheck // it returns nil
	ctx := t.Context()
	for i := range 100 * entries {
		if err := s.Remember(ctx, domain.DigestOf(strconv.Itoa(i)), ports.Mark{}, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	// What is too much is dropped by upkeep that runs beside the calls.
	deadline := time.Now().Add(10 * time.Second)
	for {
		held := 0
		for i := range 100 * entries {
			if _, handled, _ := s.Seen(ctx, domain.DigestOf(strconv.Itoa(i))); handled {
				held++
			}
		}
		if held <= entries {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d events are remembered; want at most %d", held, entries)
		}
	}
}

func TestNewRefusesASizeThatIsNone(t *testing.T) {
	t.Parallel()
	if _, err := memory.New(memory.Config{Entries: -1}); err == nil {
		t.Error("New with -1 entries = nil; want an error")
	}
}
