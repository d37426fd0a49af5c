package web_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/ports"
)

const mail = 26 << 20

func TestBodyUpToTheLimitIsDeliveredAndNoByteMore(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, limit - 1, limit, limit + 1, 10 * limit, 1 << 20} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d chunked=%t", size, chunked), func(t *testing.T) {
				t.Parallel()
				got := -1
				in := &inbound{deliver: func(_ context.Context, d ports.Delivery) ports.Answer {
					got = len(d.Body)
					return ports.Answer{Status: http.StatusOK}
				}}
				url, client := servePublic(t, in)
				req := request(t, http.MethodPost, url+"/in/slack", bytes.NewReader(make([]byte, size)))
				if chunked {
					req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(make([]byte, size))), -1
				}
				res, body := do(t, client, req)
				if size <= limit && (res.StatusCode != http.StatusOK || got != size) {
					t.Errorf("%d bytes are answered %d and delivered as %d; want 200 and all", size, res.StatusCode, got)
				}
				if size > limit && (res.StatusCode != http.StatusRequestEntityTooLarge || in.deliveries() != 0) {
					t.Errorf("%d bytes are answered %d, %d deliveries; want 413 and none", size, res.StatusCode, in.deliveries())
				}
				isEmpty(t, res, body)
			})
		}
	}
}

func TestMailIsDeliveredWhole(t *testing.T) {
	t.Parallel()
	want := make([]byte, mail)
	_, _ = rand.NewChaCha8([32]byte{}).Read(want)
	same := false
	url, client := servePublic(t, &inbound{
		route: func(string, string, string) (ports.Route, error) { return ports.Route{MaxBody: mail}, nil },
		deliver: func(_ context.Context, d ports.Delivery) ports.Answer {
			same = bytes.Equal(d.Body, want)
			return ports.Answer{Status: http.StatusOK}
		},
	})
	res, _ := do(t, client, request(t, http.MethodPost, url+"/in/cfworker/acme", bytes.NewReader(want)))
	if res.StatusCode != http.StatusOK || !same {
		t.Errorf("a mail of exactly the limit is answered %d, same bytes: %t; want 200 and true", res.StatusCode, same)
	}
}

// endless is a body that never stops and counts what was read of it.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) { e.read += int64(len(p)); return len(p), nil }

func (*endless) Close() error { return nil }

func TestMemoryFollowsWhatArrivesNotWhatIsPromised(t *testing.T) {
	const top = 1 << 20
	for _, c := range []struct {
		name     string
		declared int64
		body     io.ReadCloser
		want     int
		memory   uint64
	}{
		{"endless without length", -1, new(endless), http.StatusRequestEntityTooLarge, 4 * top},
		{"longer than told", 100, new(endless), http.StatusRequestEntityTooLarge, 4 * top},
		{"much told", 2 << 30, new(endless), http.StatusRequestEntityTooLarge, 64 << 10},
		{"much told within the limit, little sent", top, io.NopCloser(strings.NewReader("hi")), http.StatusOK, 64 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := web.Public(web.PublicConfig{
				Inbound: fixed{ports.Route{MaxBody: top}, ports.Answer{Status: http.StatusOK}},
				Log:     slog.New(slog.DiscardHandler),
			})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/in/slack", nil)
			r.Body, r.ContentLength = c.body, c.declared
			w := httptest.NewRecorder()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			h.ServeHTTP(w, r)
			runtime.ReadMemStats(&after)
			if w.Code != c.want {
				t.Errorf("answer = %d; want %d", w.Code, c.want)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > c.memory {
				t.Errorf("%d bytes allocated; want at most %d", used, c.memory)
			}
			if e, ok := c.body.(*endless); ok && e.read > top+1 {
				t.Errorf("%d bytes read; want at most one past the limit", e.read)
			}
		})
	}
}

func TestUnknownPathIsRefusedUnread(t *testing.T) {
	t.Parallel()
	h := web.Public(web.PublicConfig{
		Inbound: &inbound{route: func(string, string, string) (ports.Route, error) { return ports.Route{}, ports.ErrMethod }},
		Log:     slog.New(slog.DiscardHandler),
	})
	body := new(endless)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/in/slack", nil)
	r.Body, r.ContentLength = body, -1
	h.ServeHTTP(httptest.NewRecorder(), r)
	if body.read != 0 {
		t.Errorf("%d bytes read; want none", body.read)
	}
}

func TestBodyBrokenOffIsNotDelivered(t *testing.T) {
	t.Parallel()
	half := strings.Repeat("a", 30)
	for _, c := range []struct{ name, sent string }{
		{"fewer bytes than told", "Content-Length: 60\r\n\r\n" + half},
		{"chunk broken off", "Transfer-Encoding: chunked\r\n\r\n3c\r\n" + half},
		{"no last chunk", "Transfer-Encoding: chunked\r\n\r\n1e\r\n" + half + "\r\n"},
		{"not a chunk", "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + half},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			refused := make(chan string, 1)
			in := new(inbound)
			url, client := serve(t, web.Public(web.PublicConfig{
				Inbound: in, Log: slog.New(slog.DiscardHandler),
				Refused: func(channel, reason string) { refused <- channel + " " + reason },
			}))
			conn := dial(t, url)
			if _, err := io.WriteString(conn, "POST /in/twilio/acme HTTP/1.1\r\nHost: x\r\n"+c.sent); err != nil {
				t.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if res := readResponse(t, conn); res.StatusCode != http.StatusBadRequest {
				t.Errorf("answer = %d; want 400", res.StatusCode)
			}
			if got := <-refused; got != "twilio broken_body" {
				t.Errorf("counted as %q; want twilio broken_body", got)
			}
			if in.deliveries() != 0 {
				t.Error("half a body was delivered")
			}
			if res, _ := do(t, client, request(t, http.MethodPost, url+"/in/twilio/acme", strings.NewReader("whole"))); res.StatusCode != http.StatusOK || in.deliveries() != 1 {
				t.Errorf("the whole delivery is answered %d, %d deliveries; want 200 and 1", res.StatusCode, in.deliveries())
			}
		})
	}
}

func TestSlowBodyIsCut(t *testing.T) {
	t.Parallel()
	in := new(inbound)
	s := web.NewServer(web.ServerConfig{
		Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), ReadTimeout: 100 * time.Millisecond,
		Handler: web.Public(web.PublicConfig{Inbound: in, Log: slog.New(slog.DiscardHandler)}),
	})
	start(t, s)
	conn := dial(t, s.Addr())
	if _, err := io.WriteString(conn, "POST /in/slack HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"); err != nil {
		t.Fatal(err)
	}
	if res := readResponse(t, conn); res.StatusCode != http.StatusBadRequest {
		t.Errorf("answer = %d; want 400", res.StatusCode)
	}
	if in.deliveries() != 0 {
		t.Error("part of a body was delivered")
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the answer: %v; want the connection closed", err)
	}
}

func TestTooLargeIsCounted(t *testing.T) {
	t.Parallel()
	var got string
	url, client := serve(t, web.Public(web.PublicConfig{
		Inbound: new(inbound), Log: slog.New(slog.DiscardHandler),
		Refused: func(channel, reason string) { got = channel + " " + reason },
	}))
	do(t, client, request(t, http.MethodPost, url+"/in/cfworker", bytes.NewReader(make([]byte, limit+1))))
	if got != "cfworker too_large" {
		t.Errorf("counted as %q; want cfworker too_large", got)
	}
}

func TestKeptBodyIsNotOverwritten(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	kept := map[string][]byte{}
	url, client := servePublic(t, &inbound{deliver: func(_ context.Context, d ports.Delivery) ports.Answer {
		keep := d.Body[0] == 'k'
		if keep {
			mu.Lock()
			kept[string(d.Body)] = d.Body
			mu.Unlock()
		}
		return ports.Answer{Status: http.StatusOK, KeepBody: keep}
	}})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 50 {
				kind := "free"
				if j%2 == 0 {
					kind = "kept"
				}
				do(t, client, request(t, http.MethodPost, url+"/in/slack", strings.NewReader(fmt.Sprintf("%s %d %d", kind, i, j))))
			}
		})
	}
	group.Wait()
	if len(kept) != 8*25 {
		t.Fatalf("%d bodies kept; want %d", len(kept), 8*25)
	}
	for want, body := range kept {
		if string(body) != want {
			t.Errorf("a kept body became %q; want %q", body, want)
		}
	}
}

func TestAnswerMayQuoteTheBody(t *testing.T) {
	t.Parallel()
	url, client := servePublic(t, &inbound{deliver: func(_ context.Context, d ports.Delivery) ports.Answer {
		return ports.Answer{Status: http.StatusOK, ContentType: "text/plain", Body: d.Body}
	}})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 50 {
				want := strings.Repeat(fmt.Sprint(i), limit)
				if _, body := do(t, client, request(t, http.MethodPost, url+"/in/slack", strings.NewReader(want))); body != want {
					t.Errorf("challenge came back as %q; want %q", body, want)
				}
			}
		})
	}
	group.Wait()
}

func TestLargeBufferIsNotKept(t *testing.T) {
	t.Parallel()
	var room int
	h := web.Public(web.PublicConfig{Log: slog.New(slog.DiscardHandler), Inbound: &inbound{
		route: func(string, string, string) (ports.Route, error) { return ports.Route{MaxBody: mail}, nil },
		deliver: func(_ context.Context, d ports.Delivery) ports.Answer {
			room = cap(d.Body)
			return ports.Answer{Status: http.StatusOK}
		},
	}})
	for _, size := range []int{10, 4 << 20, 10} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/in/cfworker", bytes.NewReader(make([]byte, size)))
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if room > 1<<20 {
		t.Errorf("10 bytes came in a buffer of %d; want no large one used again", room)
	}
}

// readResponse reads the head of an answer from a connection.
func readResponse(t *testing.T, conn net.Conn) head {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return head{res.StatusCode, res.Header}
}
