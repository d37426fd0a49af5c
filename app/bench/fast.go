package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/admitone/admitone/adapters/redis"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

const (
	fastKeys    = 100_000
	fastCallers = 64
	fastDB      = 2
	generous    = 5 * time.Second // a loaded machine makes nothing fail
)

// fast measures the fast store alone: the memory of its keys, and looks as it makes them
// beside looks of one command a call.
func (b *bench) fast(ctx context.Context) (err error) {
	url := b.redis.URL(fastDB)
	writer, err := redis.New(redis.Config{URL: url, Timeout: generous}) //nolint:contextcheck // each call brings its own
	if err != nil {
		return err
	}
	defer writer.Close() //nolint:errcheck // the benchmark is over
	// one that remembers nothing itself, so that each look goes to Redis
	reader, err := redis.New(redis.Config{URL: url, Timeout: generous}) //nolint:contextcheck // each call brings its own
	if err != nil {
		return err
	}
	defer reader.Close() //nolint:errcheck // the benchmark is over
	o, err := goredis.ParseURL(url)
	if err != nil {
		return err
	}
	plain := goredis.NewClient(o)
	defer plain.Close() //nolint:errcheck // the benchmark is over

	before, err := usedMemory(ctx, plain)
	if err != nil {
		return err
	}
	err = spread(fastCallers, fastKeys, func(key domain.Digest) error {
		return writer.Remember(ctx, key, ports.Mark{1, 2, 3, 4}, 25*time.Hour)
	})
	if err != nil {
		return err
	}
	after, err := usedMemory(ctx, plain)
	if err != nil {
		return err
	}

	const looks = 20_000
	turns := [2]func(domain.Digest) error{
		func(key domain.Digest) error { return plain.Get(ctx, "a:"+string(key[:12])).Err() },
		func(key domain.Digest) error {
			_, handled, err := reader.Seen(ctx, key)
			if err == nil && !handled {
				err = errors.New("a key is missing")
			}
			return err
		},
	}
	var rates [2][]float64
	for range 3 * b.rounds {
		for i, look := range turns {
			start := time.Now()
			if err := spread(fastCallers, looks, look); err != nil {
				return err
			}
			rates[i] = append(rates[i], looks/time.Since(start).Seconds())
		}
	}
	b.tellFast(float64(after-before)/fastKeys, rates[0], rates[1])
	return nil
}

func usedMemory(ctx context.Context, c *goredis.Client) (int64, error) {
	info, err := c.Info(ctx, "memory").Result()
	if err != nil {
		return 0, fmt.Errorf("ask Redis for its memory: %w", err)
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	number, _, _ := strings.Cut(rest, "\r\n")
	return strconv.ParseInt(number, 10, 64)
}

// spread calls one with each of n keys, from callers goroutines.
func spread(callers, n int, one func(domain.Digest) error) error {
	var next atomic.Uint64
	var wg sync.WaitGroup
	errs := make(chan error, callers)
	for range callers {
		wg.Go(func() {
			for i := next.Add(1); i <= uint64(n); i = next.Add(1) { //nolint:gosec // n is positive
				var key domain.Digest
				// digests differ from their first byte on
				binary.BigEndian.PutUint64(key[:], i*0x9E3779B97F4A7C15)
				if err := one(key); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}
