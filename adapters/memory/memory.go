// Package memory is the fast store of a single process: a bounded cache. It forgets
// everything at a restart, and other instances do not see what it holds; both cost a look
// at the durable store, no more.
package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// DefaultEntries is how many events are remembered unless the configuration says. At some
// 100 B each it is 25 MB, and 25 hours of three events a second.
const DefaultEntries = 1 << 18

// Config is how a Store is made.
type Config struct {
	// Entries is how many events are remembered at most; 0 means DefaultEntries. Beyond
	// that, the ones that are asked for least are forgotten before their time.
	Entries int
}

// A Store remembers handled events in the memory of this process. Safe for concurrent use.
type Store struct {
	cache *otter.Cache[domain.Digest, entry]
}

type entry struct {
	content ports.Mark
	ttl     time.Duration
}

var _ ports.FastStore = (*Store)(nil)

// New returns an empty store. An error says what is wrong with c.
func New(c Config) (*Store, error) {
	if c.Entries == 0 {
		c.Entries = DefaultEntries
	}
	if c.Entries < 0 {
		return nil, fmt.Errorf("memory store: entries must be positive, is %d", c.Entries)
	}
	cache, err := otter.New(&otter.Options[domain.Digest, entry]{
		MaximumSize: c.Entries,
		ExpiryCalculator: otter.ExpiryCreatingFunc(func(e otter.Entry[domain.Digest, entry]) time.Duration {
			return e.Value.ttl
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("memory store: %w", err)
	}
	return &Store{cache: cache}, nil
}

// Seen implements ports.FastStore. It never blocks and never fails.
func (s *Store) Seen(_ context.Context, key domain.Digest) (ports.Mark, bool, error) {
	e, ok := s.cache.GetIfPresent(key)
	return e.content, ok, nil
}

// Remember implements ports.FastStore. It never blocks, and fails only if ttl is not positive.
func (s *Store) Remember(_ context.Context, key domain.Digest, content ports.Mark, ttl time.Duration) error {
	if ttl <= 0 {
		return fmt.Errorf("memory store: ttl must be positive, is %s", ttl)
	}
	s.cache.SetIfAbsent(key, entry{content: content, ttl: ttl})
	return nil
}

// Ready implements ports.FastStore. It always returns nil.
func (s *Store) Ready(context.Context) error { return nil }

// Close ends the cache's upkeep.
func (s *Store) Close() error {
	s.cache.StopAllGoroutines()
	return nil
}
