package redis_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/admitone/admitone/adapters/redis"
	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/domain"
)

// BenchmarkSeen tells looks per second, and the ratio to a go-redis client with one
// command a call, for a lone caller and for many. The two take turns in short rounds, so
// that what else the machine does falls on both.
func BenchmarkSeen(b *testing.B) {
	server := servertest.Redis(b)
	o, err := goredis.ParseURL(server.URL())
	if err != nil {
		b.Fatal(err)
	}
	plain := goredis.NewClient(o)
	defer plain.Close() //nolint:errcheck // the benchmark is over
	s := open(b, redis.Config{URL: server.URL(), Timeout: generous})
	ctx := b.Context()

	onePlain := func(key domain.Digest) error {
		err := plain.Get(ctx, "a:"+string(key[:12])).Err()
		if err == goredis.Nil { //nolint:errorlint // as cheap as it can be, since it is measured
			return nil
		}
		return err
	}
	onePipelined := func(key domain.Digest) error {
		_, _, err := s.Seen(ctx, key)
		return err
	}
	for _, callers := range []int{1, 64, 256} {
		b.Run("callers="+strconv.Itoa(callers), func(b *testing.B) {
			const round = 2000
			var n [2]int
			var took [2]time.Duration
			for b.Loop() {
				for i, one := range []func(domain.Digest) error{onePlain, onePipelined} {
					begun := time.Now()
					if err := spread(callers, round, one); err != nil {
						b.Fatal(err)
					}
					took[i] += time.Since(begun)
					n[i] += round
				}
			}
			rate := func(i int) float64 { return float64(n[i]) / took[i].Seconds() }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(rate(0), "plain/s")
			b.ReportMetric(rate(1), "pipelined/s")
			b.ReportMetric(rate(1)/rate(0), "ratio")
		})
	}
}

// spread calls one n times from callers goroutines.
func spread(callers, n int, one func(domain.Digest) error) error {
	var (
		wg   sync.WaitGroup
		next atomic.Int64
		errs = make(chan error, callers)
	)
	for range callers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := one(domain.Digest{0: byte(i), 1: byte(i >> 8)}); err != nil {
					errs <- fmt.Errorf("look up: %w", err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}
