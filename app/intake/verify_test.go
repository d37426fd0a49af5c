package intake_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A keyless endpoint verifies nothing, with the error that it is.
type keyless struct{ err error }

func (k keyless) Verify(*channels.Request) error { return k.err }

func (keyless) Extract(*channels.Request) (channels.Batch, error) {
	panic("what was not verified is read")
}

func TestWhatIsNotVerifiedIsNotRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err        error
		status     int
		retryAfter time.Duration
	}{
		{fmt.Errorf("forged: %w", domain.ErrUnauthenticated), http.StatusUnauthorized, 0},
		{fmt.Errorf("keys of the vendor: %w", domain.ErrUnavailable), http.StatusServiceUnavailable, 7 * time.Second},
		{fmt.Errorf("of no kind"), http.StatusUnauthorized, 0},
	} {
		d, err := intake.NewDirectory(domain.DefaultPolicy(), []intake.Installation{
			{ID: "one", Tenant: "t", Channel: "toy", Account: "a", Endpoint: keyless{tt.err}},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := intake.New(intake.Params{
			Config: intake.Config{Workers: 1, Queue: 1}, Channels: []channels.Channel{toy("toy", true)}, Installations: d,
			Metrics: intake.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		a := e.Deliver(t.Context(), ports.Delivery{Channel: "toy", Installation: "one", Method: http.MethodPost, ReceivedAt: time.Now()})
		if a.Status != tt.status || a.RetryAfter != tt.retryAfter || a.Verdict != "" || len(a.Body) != 0 {
			t.Errorf("%v is answered with %d %q, retry after %s; want %d without a verdict, %s",
				tt.err, a.Status, a.Verdict, a.RetryAfter, tt.status, tt.retryAfter)
		}
	}
}
