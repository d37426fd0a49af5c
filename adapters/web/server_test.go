package web_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/web"
)

func start(t *testing.T, s *web.Server) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
}

func server(h http.HandlerFunc) *web.Server {
	return web.NewServer(web.ServerConfig{Listen: "127.0.0.1:0", Handler: h, Log: slog.New(slog.DiscardHandler)})
}

func client(t *testing.T) *http.Client {
	t.Helper()
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestStartFailsWhereTheAddressIsTaken(t *testing.T) {
	t.Parallel()
	first := server(nil)
	start(t, first)
	second := web.NewServer(web.ServerConfig{Listen: first.Addr(), Log: slog.New(slog.DiscardHandler)})
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), first.Addr()) {
		t.Errorf("Start on a taken address = %v; want an error that names it", err)
	}
	if err := second.Stop(t.Context()); err != nil {
		t.Errorf("Stop after a failed Start = %v; want nil", err)
	}
}

func TestStopWorksWithoutStartAndTwice(t *testing.T) {
	t.Parallel()
	s := server(nil)
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("Stop without Start = %v; want nil", err)
		}
	}
	s = server(nil)
	start(t, s)
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("Stop = %v; want nil", err)
		}
	}
}

func TestStopWaitsForRunningRequestsAndTakesNoMore(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	s := server(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			close(entered)
			<-release
		}
		w.WriteHeader(http.StatusAccepted)
	})
	start(t, s)
	answered := make(chan int, 1)
	c := client(t)
	go func() {
		res, err := c.Do(request(t, http.MethodPost, "http://"+s.Addr(), nil))
		if err != nil {
			answered <- 0
			return
		}
		_ = res.Body.Close()
		answered <- res.StatusCode
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(t.Context()) }()
	for {
		res, err := client(t).Do(request(t, http.MethodGet, "http://"+s.Addr(), nil))
		if err != nil {
			break
		}
		_ = res.Body.Close()
	}
	select {
	case err := <-stopped:
		t.Fatalf("Stop returned %v while a request ran", err)
	default:
	}
	close(release)
	if got := <-answered; got != http.StatusAccepted {
		t.Errorf("the running request is answered %d; want 202", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop = %v; want nil", err)
	}
}

func TestStopCutsOffWhatOutlastsIt(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	s := server(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	c := client(t)
	go func() {
		res, err := c.Do(request(t, http.MethodPost, "http://"+s.Addr(), nil))
		if err == nil {
			_ = res.Body.Close()
		}
		failed <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop = %v; want its context's error", err)
	}
	if err := <-failed; err == nil {
		t.Error("the request was answered; want it cut off")
	}
}

func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	var served atomic.Int32
	s := server(func(http.ResponseWriter, *http.Request) { served.Add(1) })
	start(t, s)
	for size, want := range map[int]int{60 << 10: http.StatusOK, 1 << 20: http.StatusRequestHeaderFieldsTooLarge} {
		req := request(t, http.MethodPost, "http://"+s.Addr(), nil)
		req.Header.Set("X-Slack-Signature", strings.Repeat("x", size))
		res, err := client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%d bytes of header are answered %d; want %d", size, res.StatusCode, want)
		}
	}
	if got := served.Load(); got != 1 {
		t.Errorf("%d requests reached the handler; want 1", got)
	}
}

func TestSlowHeaderIsCut(t *testing.T) {
	t.Parallel()
	s := web.NewServer(web.ServerConfig{
		Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), ReadTimeout: 50 * time.Millisecond,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("half a header reached the handler") }),
	})
	start(t, s)
	conn := dial(t, s.Addr())
	if _, err := io.WriteString(conn, "POST /in/slack HTTP/1.1\r\nHost"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("read after a slow header = %v; want the connection closed", err)
	}
}

// A connection that a balancer or a client opened in advance does not hold a stop up.
func TestStopDoesNotWaitForUnusedConnections(t *testing.T) {
	s := web.NewServer(web.ServerConfig{Listen: "127.0.0.1:0", Handler: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler)})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	// by the answer to a later one, the first connection is accepted as well
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // net/http waits 5
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("Stop with an unused connection = %v; want nil", err)
	}
}
