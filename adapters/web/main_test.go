package web_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/ports"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inbound is a core that says what its functions say. Without them it takes POST on every
// path, with a limit of 64 bytes, and admits.
type inbound struct {
	route   func(channel, installation, method string) (ports.Route, error)
	deliver func(ctx context.Context, d ports.Delivery) ports.Answer

	mu        sync.Mutex
	delivered int
}

const limit = 64

func (i *inbound) Route(_ context.Context, channel, installation, method string) (ports.Route, error) {
	if i.route != nil {
		return i.route(channel, installation, method)
	}
	if method != http.MethodPost {
		return ports.Route{}, ports.ErrMethod
	}
	return ports.Route{MaxBody: limit}, nil
}

func (i *inbound) Deliver(ctx context.Context, d ports.Delivery) ports.Answer {
	i.mu.Lock()
	i.delivered++
	i.mu.Unlock()
	if i.deliver != nil {
		return i.deliver(ctx, d)
	}
	return ports.Answer{Status: http.StatusOK, Verdict: "admitted"}
}

func (i *inbound) deliveries() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.delivered
}

// journal is a log that a test can read.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// servePublic serves in over HTTP and returns its address and a client that follows nothing.
func servePublic(t *testing.T, in ports.Inbound) (url string, client *http.Client) {
	t.Helper()
	return serve(t, web.Public(web.PublicConfig{Inbound: in, Log: slog.New(slog.DiscardHandler)}))
}

func serve(t *testing.T, h http.Handler) (url string, client *http.Client) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	client = s.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s.URL, client
}
