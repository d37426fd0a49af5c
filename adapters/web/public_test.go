package web_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

func TestPathNamesChannelAndInstallationAndIsNeverRedirected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		target                string
		channel, installation string
	}{
		{"/in/slack", "slack", ""},
		{"/in/slack/", "slack", ""},
		{"/in/slack//", "slack", ""},
		{"/in/slack?a=1&b=%2F+x", "slack", ""},
		{"/in/slack/?a=1", "slack", ""},
		{"/in/slack/acme-slack", "slack", "acme-slack"},
		{"/in/slack/acme-slack/", "slack", "acme-slack"},
		{"/in/slack/acme-slack/events", "slack", "acme-slack"},
		{"/in/slack/acme-slack/a//b/../c/", "slack", "acme-slack"},
		{"/in/slack/acme-slack/a%2Fb?x=%zz", "slack", "acme-slack"},
		{"/in/SLACK", "SLACK", ""},
		{"/in//slack", "", "slack"},
	} {
		t.Run(c.target, func(t *testing.T) {
			t.Parallel()
			var got ports.Delivery
			url, _ := servePublic(t, &inbound{deliver: func(_ context.Context, d ports.Delivery) ports.Answer {
				got = d
				return ports.Answer{Status: http.StatusOK}
			}})
			status := raw(t, url, "POST "+c.target+" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi").StatusCode
			if status != http.StatusOK {
				t.Fatalf("POST %s = %d; want 200", c.target, status)
			}
			if got.Channel != c.channel || got.Installation != c.installation || got.Target != c.target {
				t.Errorf("POST %s delivered as channel %q, installation %q, target %q", c.target, got.Channel, got.Installation, got.Target)
			}
		})
	}
}

func TestAbsoluteFormTargetIsPathAndQuery(t *testing.T) {
	t.Parallel()
	var got string
	url, _ := servePublic(t, &inbound{deliver: func(_ context.Context, d ports.Delivery) ports.Answer {
		got = d.Target
		return ports.Answer{Status: http.StatusOK}
	}})
	raw(t, url, "POST http://hooks.example/in/slack?a=%2f HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	if got != "/in/slack?a=%2f" {
		t.Errorf("target = %q; want path and query", got)
	}
}

func TestDeliveryIsWhatTheVendorSent(t *testing.T) {
	t.Parallel()
	compressed := "\x1f\x8b\x08 not unpacked"
	var got ports.Delivery
	url, client := servePublic(t, &inbound{deliver: func(_ context.Context, d ports.Delivery) ports.Answer {
		got = d
		got.Body = bytes.Clone(d.Body)
		return ports.Answer{Status: http.StatusOK}
	}})
	before := time.Now()
	req := request(t, http.MethodPost, url+"/in/cfworker/acme", strings.NewReader(compressed))
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Add("X-Twice", "a")
	req.Header.Add("X-Twice", "b")
	do(t, client, req)
	if string(got.Body) != compressed || got.Method != http.MethodPost {
		t.Errorf("delivered %s %q; want POST and the bytes as received", got.Method, got.Body)
	}
	if got.Header.Get("Content-Encoding") != "gzip" || len(got.Header.Values("X-Twice")) != 2 {
		t.Errorf("headers = %v; want them as received", got.Header)
	}
	if got.ReceivedAt.Before(before) || got.ReceivedAt.After(time.Now()) {
		t.Errorf("received at %s; want now", got.ReceivedAt)
	}
}

func TestErrorsHaveTheirStatusAndNoBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"unknown path", domain.ErrNotFound, http.StatusNotFound},
		{"wrapped", fmt.Errorf("channel x: %w", domain.ErrNotFound), http.StatusNotFound},
		{"method", ports.ErrMethod, http.StatusMethodNotAllowed},
		{"store down", fmt.Errorf("look up: %w", domain.ErrUnavailable), http.StatusServiceUnavailable},
		{"not authentic", fmt.Errorf("bad: %w", domain.ErrUnauthenticated), http.StatusUnauthorized},
		{"echo's", echo.NewHTTPError(http.StatusTooManyRequests, "slow down"), http.StatusTooManyRequests},
		{"echo's, wrapped", fmt.Errorf("x: %w", echo.NewHTTPError(http.StatusTeapot, "secret")), http.StatusTeapot},
		{"anything else", errors.New("secret detail"), http.StatusInternalServerError},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := &inbound{route: func(string, string, string) (ports.Route, error) { return ports.Route{}, c.err }}
			url, client := servePublic(t, in)
			res, body := do(t, client, request(t, http.MethodPost, url+"/in/slack", strings.NewReader("{}")))
			if res.StatusCode != c.want {
				t.Errorf("%v is answered %d; want %d", c.err, res.StatusCode, c.want)
			}
			isEmpty(t, res, body)
			if in.deliveries() != 0 {
				t.Error("delivered in spite of the error")
			}
		})
	}
}

func TestPathOutsideInIsNotFound(t *testing.T) {
	t.Parallel()
	url, client := servePublic(t, &inbound{})
	for _, path := range []string{"/", "/in", "/in/", "/healthz", "/api/v1/receipts", "/IN/slack", "//in/slack"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			res, body := do(t, client, request(t, method, url+path, nil))
			if res.StatusCode != http.StatusNotFound {
				t.Errorf("%s %s = %d; want 404", method, path, res.StatusCode)
			}
			isEmpty(t, res, body)
		}
	}
}

func TestForeignMethodIsToldTheAllowedOnes(t *testing.T) {
	t.Parallel()
	in := &inbound{route: func(_, _, method string) (ports.Route, error) {
		if method != http.MethodPost && method != http.MethodGet {
			return ports.Route{}, ports.ErrMethod
		}
		return ports.Route{MaxBody: limit}, nil
	}}
	url, client := servePublic(t, in)
	for _, method := range []string{http.MethodPut, http.MethodOptions, http.MethodHead, "BREW"} {
		res, body := do(t, client, request(t, method, url+"/in/wechat/acme", nil))
		if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET, POST" {
			t.Errorf("%s = %d, Allow %q; want 405 and GET, POST", method, res.StatusCode, res.Header.Get("Allow"))
		}
		isEmpty(t, res, body)
	}
}

func TestAnswerIsWrittenAsTheCoreSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		answer  ports.Answer
		status  int
		body    string
		headers map[string]string // empty: absent
	}{
		{
			"bare",
			ports.Answer{Status: 200, Verdict: "admitted"},
			200, "",
			map[string]string{"Admitone-Verdict": "admitted", "Content-Type": "", "Retry-After": "", "Content-Length": "0"},
		},
		{
			"with body",
			ports.Answer{Status: 200, ContentType: "text/xml", Body: []byte("<Response/>"), Verdict: "duplicate"},
			200, "<Response/>",
			map[string]string{"Admitone-Verdict": "duplicate", "Content-Type": "text/xml"},
		},
		{
			"type without body",
			ports.Answer{Status: 200, ContentType: "application/json"},
			200, "",
			map[string]string{"Admitone-Verdict": "", "Content-Type": ""},
		},
		{
			"body without type",
			ports.Answer{Status: 200, Body: []byte("would be sent as a message")},
			200, "",
			map[string]string{"Content-Type": ""},
		},
		{
			"refused",
			ports.Answer{Status: 503, RetryAfter: 30 * time.Second, Verdict: "refused"},
			503, "",
			map[string]string{"Retry-After": "30", "Admitone-Verdict": "refused"},
		},
		{
			"part of a second",
			ports.Answer{Status: 503, RetryAfter: 1500 * time.Millisecond},
			503, "",
			map[string]string{"Retry-After": "2"},
		},
		{
			"not authentic",
			ports.Answer{Status: 401},
			401, "",
			map[string]string{"Admitone-Verdict": "", "Content-Type": ""},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url, client := servePublic(t, &inbound{deliver: func(context.Context, ports.Delivery) ports.Answer { return c.answer }})
			res, body := do(t, client, request(t, http.MethodPost, url+"/in/slack", nil))
			if res.StatusCode != c.status || body != c.body {
				t.Errorf("answer = %d %q; want %d %q", res.StatusCode, body, c.status, c.body)
			}
			for name, want := range c.headers {
				if got := res.Header.Get(name); got != want {
					t.Errorf("%s = %q; want %q", name, got, want)
				}
			}
		})
	}
}

func TestPanicIsAnsweredLoggedAndSurvived(t *testing.T) {
	t.Parallel()
	log := new(journal)
	in := &inbound{deliver: func(_ context.Context, d ports.Delivery) ports.Answer {
		if string(d.Body) == "bad" {
			panic("index out of range")
		}
		return ports.Answer{Status: http.StatusOK}
	}}
	url, client := serve(t, web.Public(web.PublicConfig{Inbound: in, Log: log.logger()}))
	for range 3 {
		res, body := do(t, client, request(t, http.MethodPost, url+"/in/slack?token=hush", strings.NewReader("bad")))
		if res.StatusCode != http.StatusInternalServerError {
			t.Errorf("panic is answered %d; want 500", res.StatusCode)
		}
		isEmpty(t, res, body)
	}
	if res, _ := do(t, client, request(t, http.MethodPost, url+"/in/slack", strings.NewReader("good"))); res.StatusCode != http.StatusOK {
		t.Errorf("the next delivery is answered %d; want 200", res.StatusCode)
	}
	if text := log.String(); !strings.Contains(text, "index out of range") || !strings.Contains(text, "public_test.go") {
		t.Errorf("log = %q; want the panic and where it came from", text)
	} else if strings.Contains(text, "hush") {
		t.Error("the log tells the query")
	}
}

func TestClientThatGoesAwayDoesNotHurt(t *testing.T) {
	t.Parallel()
	entered, gone, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	in := &inbound{deliver: func(ctx context.Context, d ports.Delivery) ports.Answer {
		if string(d.Body) != "first" {
			return ports.Answer{Status: http.StatusOK}
		}
		close(entered)
		<-gone
		<-ctx.Done()
		ended <- ctx.Err()
		return ports.Answer{Status: http.StatusOK, ContentType: "text/plain", Body: bytes.Repeat([]byte("x"), 1<<20)}
	}}
	url, client := servePublic(t, in)
	conn := dial(t, url)
	if _, err := io.WriteString(conn, "POST /in/slack HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nfirst"); err != nil {
		t.Fatal(err)
	}
	<-entered
	_ = conn.Close()
	close(gone)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("context of a client that went = %v; want it cancelled", err)
	}
	if res, _ := do(t, client, request(t, http.MethodPost, url+"/in/slack", nil)); res.StatusCode != http.StatusOK {
		t.Errorf("the next delivery is answered %d; want 200", res.StatusCode)
	}
}

// A head is an answer without its body.
type head struct {
	StatusCode int
	Header     http.Header
}

// raw sends text as it is.
func raw(t *testing.T, url, text string) head {
	t.Helper()
	conn := dial(t, url)
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return readResponse(t, conn)
}

func dial(t *testing.T, url string) *net.TCPConn {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTCP("tcp", nil, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func do(t *testing.T, client *http.Client, req *http.Request) (head, string) {
	t.Helper()
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return head{res.StatusCode, res.Header}, string(body)
}

func isEmpty(t *testing.T, res head, body string) {
	t.Helper()
	if body != "" || res.Header.Get("Content-Type") != "" {
		t.Errorf("%d has body %q of type %q; want none", res.StatusCode, body, res.Header.Get("Content-Type"))
	}
}

// quiet is an answer that is thrown away.
type quiet struct{ h http.Header }

func (w quiet) Header() http.Header         { return w.h }
func (w quiet) Write(p []byte) (int, error) { return len(p), nil }
func (w quiet) WriteHeader(int)             {}

// The public path beside the least that a handler could do: read with a limit, answer.
func BenchmarkDelivery(b *testing.B) {
	payload := bytes.Repeat([]byte("x"), 2<<10)
	in := fixed{ports.Route{MaxBody: 1 << 20}, ports.Answer{Status: http.StatusOK, Verdict: "admitted"}}
	for _, h := range []struct {
		name    string
		handler http.Handler
	}{
		{"public", web.Public(web.PublicConfig{Inbound: in, Log: slog.New(slog.DiscardHandler)})},
		{"bare", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
			if err != nil {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
				return
			}
			a := in.Deliver(r.Context(), ports.Delivery{Body: body})
			w.Header().Set("Admitone-Verdict", a.Verdict)
			w.WriteHeader(a.Status)
		})},
	} {
		b.Run(h.name, func(b *testing.B) {
			b.ReportAllocs()
			body := bytes.NewReader(payload)
			r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/in/slack/acme-slack?x=1", nil)
			r.Body, r.ContentLength = io.NopCloser(body), int64(len(payload))
			w := quiet{h: make(http.Header)}
			for b.Loop() {
				body.Reset(payload)
				h.handler.ServeHTTP(w, r)
			}
		})
	}
}

type fixed struct {
	route  ports.Route
	answer ports.Answer
}

func (f fixed) Route(context.Context, string, string, string) (ports.Route, error) {
	return f.route, nil
}

func (f fixed) Deliver(context.Context, ports.Delivery) ports.Answer { return f.answer }
