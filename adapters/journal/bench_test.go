package journal_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/journal"
	"github.com/admitone/admitone/domain"
)

// BenchmarkAppend tells appends per second, and the ratio to a plain file that is written and
// synced once for each, for a lone caller and for many. The two take turns in short rounds, so
// that what else the disk does falls on both.
func BenchmarkAppend(b *testing.B) {
	receipt := domain.Receipt{
		ID: "01890a5d-ac96-774b-bcce-b302099a8057", Key: domain.Key{Tenant: "acme", Platform: "twilio", Account: "AC1", EventID: "SM1"},
		Channel: "twilio", Installation: "main", Kind: domain.MessageCreated, Guarantee: domain.AtMostOnce, State: domain.Claimed,
		Deliveries: 1, ClaimedAt: time.Now(), Payload: domain.Payload{MediaType: "application/json", Body: bytes.Repeat([]byte("x"), 500)},
	}
	line := journal.AppendReceipt(nil, &receipt)
	for _, callers := range []int{1, 64} {
		b.Run("callers="+strconv.Itoa(callers), func(b *testing.B) {
			plain, err := os.OpenFile(filepath.Join(b.TempDir(), "plain"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			if err != nil {
				b.Fatal(err)
			}
			defer plain.Close() //nolint:errcheck // the benchmark is over
			j, err := journal.Open(journal.Config{Path: b.TempDir(), MaxBytes: 64 << 30})
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close() //nolint:errcheck // the benchmark is over
			var mu sync.Mutex
			onPlain := func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				if _, err := plain.Write(line); err != nil {
					return err
				}
				return plain.Sync()
			}
			onJournal := func(ctx context.Context) error { return j.Append(ctx, []domain.Receipt{receipt}) }

			round := int64(200 * callers)
			var n [2]int64
			var took [2]time.Duration
			for b.Loop() {
				for i, one := range []func(context.Context) error{onPlain, onJournal} {
					each := round
					if i == 0 {
						each = 200 // it gains nothing by callers
					}
					begun := time.Now()
					spread(b, callers, each, one)
					took[i] += time.Since(begun)
					n[i] += each
				}
			}
			rate := func(i int) float64 { return float64(n[i]) / took[i].Seconds() }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(rate(0), "plain/s")
			b.ReportMetric(rate(1), "journal/s")
			b.ReportMetric(rate(1)/rate(0), "ratio")
		})
	}
}

// spread calls one n times from callers goroutines.
func spread(b *testing.B, callers int, n int64, one func(context.Context) error) {
	b.Helper()
	var (
		wg   sync.WaitGroup
		next atomic.Int64
	)
	for range callers {
		wg.Go(func() {
			for next.Add(1) <= n {
				if err := one(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
