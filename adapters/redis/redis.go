package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/admitone/admitone/adapters/memory"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

const (
	// DefaultTimeout bounds a call unless the configuration says: a look at the durable
	// store takes less, so that waiting longer for the fast one is no gain.
	DefaultTimeout = 50 * time.Millisecond
	// DefaultNear is how many events a Store remembers in process unless the configuration says.
	DefaultNear = 1 << 16

	// KeyPrefix tells the keys of this store from others in the same database.
	KeyPrefix = "a:"
	// keyDigest is how many bytes of an event's digest a key holds. With the prefix they are 14,
	// the most that Redis keeps in 16 bytes; one more would cost 16. The value holds the rest.
	keyDigest = 12
	// breakerFailures calls in a row make the store stop asking. Callers fail in crowds, so
	// that a stall is noticed within one time-out when there is much to do; a lone caller's
	// cut connection is not enough.
	breakerFailures = 5
	// breakerRest is how long it then does not ask, before one call tries again.
	breakerRest = time.Second
)

// Config is how a Store is made.
type Config struct {
	// URL says where Redis is; see New.
	URL string
	// Timeout bounds each call, with all it may wait for: a connection, the handshake, a place
	// in the pipeline, the answer. 0 means DefaultTimeout.
	Timeout time.Duration
	// Near is how many events, of those that this process has remembered, are also known
	// without asking Redis; 0 means DefaultNear. They end when they end in Redis.
	Near int
	// OnError is called with the error of each failed operation, also of those that are not
	// tried because Redis has failed before, but not of those that the caller gave up. It is
	// called by the goroutine of the failed call and must not block. May be nil.
	OnError func(error)
}

// A Store remembers handled events in Redis. Safe for concurrent use: what concurrent callers
// ask is sent together.
//
// A key is "a:" and 12 bytes of the event's digest. Its value is the other 4 and the content's
// mark as one decimal number, which Redis keeps as an integer. With its end and its share of
// Redis' tables that is at most 128 bytes of memory.
type Store struct {
	client   goredis.UniversalClient
	pipeline *pipeline
	breaker  *gobreaker.CircuitBreaker[struct{}]
	near     *memory.Store
	timeout  time.Duration
	onError  func(error)
}

var _ ports.FastStore = (*Store)(nil)

// New returns a store on the Redis at c.URL, which has one of the forms
//
//	redis://user:password@host:port/db
//	redis+cluster://user:password@host:port,host:port
//	redis+sentinel://user:password@host:port,host:port/master/db
//
// with rediss in place of redis for TLS. User and password are those of the Redis servers;
// Sentinels that want some of their own get them by the query parameters sentinel_username
// and sentinel_password. The other query parameters are those of go-redis, such as
// skip_verify=true.
//
// It asks no network: a Redis that is down is found out by the calls, and found again. An
// error says what is wrong with c, and holds no part of the URL, which may hold a password.
func New(c Config) (*Store, error) {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Timeout < 0 {
		return nil, fmt.Errorf("redis store: timeout must be positive, is %s", c.Timeout)
	}
	if c.Near == 0 {
		c.Near = DefaultNear
	}
	near, err := memory.New(memory.Config{Entries: c.Near})
	if err != nil {
		return nil, fmt.Errorf("redis store: near: %w", err)
	}
	client, err := connect(c.URL, c.Timeout)
	if err != nil {
		_ = near.Close()
		return nil, fmt.Errorf("redis store: %w", err)
	}
	s := &Store{client: client, near: near, timeout: c.Timeout, onError: c.OnError}
	s.pipeline = newPipeline(client, c.Timeout)
	s.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:      breakerRest,
		ReadyToTrip:  func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= breakerFailures },
		IsSuccessful: func(err error) bool { return err == nil || ofKey(err) },
		IsExcluded:   func(err error) bool { return errors.Is(err, errGivenUp) },
	})
	return s, nil
}

// Seen implements ports.FastStore.
func (s *Store) Seen(ctx context.Context, key domain.Digest) (ports.Mark, bool, error) {
	if content, handled, err := s.near.Seen(ctx, key); err == nil && handled {
		return content, true, nil
	}
	get := goredis.NewStringCmd(ctx, "get", name(key))
	err := s.do(ctx, get)
	if errors.Is(err, goredis.Nil) {
		return ports.Mark{}, false, nil
	}
	var content ports.Mark
	if err == nil {
		content, err = parse(key, get.Val())
	}
	if errors.Is(err, errOther) {
		return ports.Mark{}, false, nil
	}
	if err != nil {
		return ports.Mark{}, false, s.failed(fmt.Errorf("redis store: look up %s: %w", key, err))
	}
	return content, true, nil
}

// Remember implements ports.FastStore. The key and its end are set by one command, so that
// none is ever without.
func (s *Store) Remember(ctx context.Context, key domain.Digest, content ports.Mark, ttl time.Duration) error {
	if ttl <= 0 {
		return fmt.Errorf("redis store: ttl must be positive, is %s", ttl)
	}
	// Redis counts milliseconds and refuses 0 of them.
	ms := max(1, ttl.Milliseconds())
	set := goredis.NewBoolCmd(ctx, "set", name(key), format(key, content), "px", ms, "nx")
	err := s.do(ctx, set)
	if err != nil {
		err = s.failed(fmt.Errorf("redis store: remember %s: %w", key, err))
	}
	// What Redis did not take is handled all the same. What it had already it knows better.
	if err != nil || set.Val() {
		_ = s.near.Remember(ctx, key, content, ttl) // it fails only for a ttl that is none
	}
	return err
}

// Ready implements ports.FastStore.
func (s *Store) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis store: ping: %w", err)
	}
	return nil
}

// Close gives up the connections, and what is waiting for an answer.
func (s *Store) Close() error {
	s.pipeline.close()
	_ = s.near.Close()
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("redis store: close: %w", err)
	}
	return nil
}

// do has cmd executed, unless Redis has failed before, and returns its error. cmd may be
// read only if that is nil.
func (s *Store) do(ctx context.Context, cmd goredis.Cmder) error {
	_, err := s.breaker.Execute(func() (struct{}, error) {
		return struct{}{}, s.pipeline.do(ctx, cmd)
	})
	return err
}

func (s *Store) failed(err error) error {
	if s.onError != nil && !errors.Is(err, errGivenUp) {
		s.onError(err)
	}
	return err
}

func name(key domain.Digest) string { return KeyPrefix + string(key[:keyDigest]) }

// format writes the rest of an event's digest and a mark as a number, of which Redis keeps 8
// bytes and no text.
func format(key domain.Digest, m ports.Mark) string {
	var b [8]byte
	copy(b[:], key[keyDigest:])
	copy(b[4:], m[:])
	return strconv.FormatInt(int64(binary.BigEndian.Uint64(b[:])), 10) //nolint:gosec // all bits, the sign means nothing
}

// errOther: the value is that of another event, whose digest begins as this one's.
var errOther = errors.New("of another event")

// parse reads what format wrote for key.
func parse(key domain.Digest, s string) (m ports.Mark, err error) {
	n, err := strconv.ParseInt(s, 10, 64)
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n)) //nolint:gosec // all bits
	if err != nil || strconv.FormatInt(n, 10) != s {
		return m, fmt.Errorf("value of %d bytes is no number", len(s))
	}
	if [4]byte(b[:]) != [4]byte(key[keyDigest:]) {
		return m, errOther
	}
	copy(m[:], b[4:])
	return m, nil
}

// ofKey reports whether err is about the one key that was asked for and tells that Redis
// itself is well. All other errors that Redis answers with (LOADING, READONLY, NOAUTH, OOM,
// MOVED, …) hold for the next key as well.
func ofKey(err error) bool {
	return errors.Is(err, goredis.Nil) || strings.HasPrefix(err.Error(), "WRONGTYPE")
}
