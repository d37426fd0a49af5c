package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// ledger is a ledger that says what its functions say.
type ledger struct {
	receipts   func(f ports.Filter) (ports.Page, error)
	receipt    func(id string) (domain.Receipt, []ports.Entry, error)
	replay     func(id, by string) error
	replayAll  func(f ports.Filter, by string) (int, error)
	discard    func(id, by string) error
	counts     func() ([]ports.Count, error)
	oldestOpen func() (time.Time, error)
}

func (l *ledger) Receipts(_ context.Context, f ports.Filter) (ports.Page, error) {
	return l.receipts(f)
}

func (l *ledger) Receipt(_ context.Context, id string) (domain.Receipt, []ports.Entry, error) {
	return l.receipt(id)
}

func (l *ledger) Replay(_ context.Context, id, by string) error { return l.replay(id, by) }

func (l *ledger) ReplayAll(_ context.Context, f ports.Filter, by string) (int, error) {
	return l.replayAll(f, by)
}

func (l *ledger) Discard(_ context.Context, id, by string) error { return l.discard(id, by) }

func (l *ledger) Counts(context.Context) ([]ports.Count, error) { return l.counts() }

func (l *ledger) OldestOpen(context.Context) (time.Time, error) { return l.oldestOpen() }

const (
	handledID = "01920000-0000-7000-8000-000000000001"
	lostID    = "01920000-0000-7000-8000-000000000002"
)

var claimed = time.Date(2026, 11, 30, 14, 0, 0, 123456000, time.FixedZone("CET", 3600))

func handledReceipt() domain.Receipt {
	return domain.Receipt{
		ID:         handledID,
		Key:        domain.Key{Tenant: "acme", Platform: "slack", Account: "T0ACME001", EventID: "A0/Ev0"},
		Channel:    "slack",
		MessageKey: "message:C0:1",
		Kind:       domain.MessageCreated,
		Digest:     domain.DigestOf("x"),
		State:      domain.Handled,
		Attempt:    1, Deliveries: 3, VendorAttempt: 2,
		ClaimedAt: claimed, BegunAt: claimed.Add(time.Second), HandledAt: claimed.Add(2 * time.Second), LeaseUntil: claimed.Add(time.Minute),
		Holder:  "web-1",
		Payload: domain.Payload{MediaType: "application/json", Body: []byte("message text")},
	}
}

func lostReceipt() domain.Receipt {
	return domain.Receipt{ID: lostID, State: domain.Lost, LastError: "lease over", ClaimedAt: claimed}
}

// someLedger holds two receipts.
func someLedger() *ledger {
	find := func(id string) (domain.Receipt, error) {
		for _, r := range []domain.Receipt{handledReceipt(), lostReceipt()} {
			if r.ID == id {
				return r, nil
			}
		}
		return domain.Receipt{}, fmt.Errorf("receipt %s: %w", id, domain.ErrNotFound)
	}
	return &ledger{
		receipts: func(ports.Filter) (ports.Page, error) {
			return ports.Page{Receipts: []domain.Receipt{lostReceipt(), handledReceipt()}, Next: "more"}, nil
		},
		receipt: func(id string) (domain.Receipt, []ports.Entry, error) {
			r, err := find(id)
			return r, []ports.Entry{{At: claimed, What: "lost", Attempt: 1, State: domain.Lost, Reason: "lease over"}}, err
		},
		replay:    func(id, _ string) error { _, err := find(id); return err },
		replayAll: func(ports.Filter, string) (int, error) { return 1, nil },
		discard: func(id, _ string) error {
			r, err := find(id)
			if err == nil && !r.State.Discardable() {
				return fmt.Errorf("receipt %s: %w", id, domain.ErrState)
			}
			return err
		},
		counts: func() ([]ports.Count, error) {
			return []ports.Count{{Tenant: "acme", Platform: "slack", State: domain.Handled, N: 7}}, nil
		},
		oldestOpen: func() (time.Time, error) { return claimed, nil },
	}
}

func config(l *ledger) web.AdminConfig {
	kept := someInstallations()
	return web.AdminConfig{
		Ledger:              l,
		Conversations:       &conversations{},
		Content:             content,
		Polls:               polls{},
		Installations:       kept,
		Quarantine:          kept,
		CheckInstallation:   kept.check,
		InstallationChanged: func(string) {},
		Recheck: func(_ context.Context, id string) (ports.Recheck, error) {
			_, err := kept.find(id)
			return ports.Recheck{Requests: 3, Accepted: 2, Refused: 1}, err
		},
		Ready: func(context.Context) web.Readiness {
			return web.Readiness{Ready: true, Dependencies: []web.Dependency{{Name: "durable store", Ready: true, Needed: true}}}
		},
		Stats: func(context.Context) web.Counters {
			return web.Counters{Verdicts: map[domain.Verdict]int64{domain.Admitted: 5}, VendorRetries: 2, DuplicatesOfUnhandled: 1}
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = io.WriteString(w, "admitone_queue_depth 0\n")
		}),
		Nudge: func() {},
		Log:   slog.New(slog.DiscardHandler),
	}
}

// api calls one admin listener.
type api struct {
	t      *testing.T
	url    string
	client *http.Client
}

func serveAdmin(t *testing.T, cfg web.AdminConfig) api {
	t.Helper()
	h, err := web.Admin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	url, client := serve(t, h)
	return api{t, url, client}
}

func (a api) call(method, path, body string, header ...string) (head, string) {
	a.t.Helper()
	req := request(a.t, method, a.url+path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return do(a.t, a.client, req)
}

func (a api) get(path string) (head, string) {
	a.t.Helper()
	return a.call(http.MethodGet, path, "")
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%q is no JSON object: %v", text, err)
	}
	return m
}

// members returns the members of a JSON object; none if v is no object.
func members(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func TestErrorsTellNothingOfTheInside(t *testing.T) {
	t.Parallel()
	const inside = `ERROR: duplicate key value violates unique constraint "receipts_key" (SQLSTATE 23505) postgres://admin:hunter2@db`
	for _, c := range []struct {
		err    error
		status int
	}{
		{errors.New(inside), 500},
		{fmt.Errorf("%s: %w", inside, domain.ErrUnavailable), 503},
		{fmt.Errorf("%s: %w", inside, domain.ErrUnknown), 503},
		{fmt.Errorf("%s: %w", inside, domain.ErrNotFound), 404},
		{fmt.Errorf("%s: %w", inside, domain.ErrState), 409},
		{fmt.Errorf("%s: %w", inside, context.DeadlineExceeded), 503},
		{fmt.Errorf("%s: %w", inside, context.Canceled), 503},
	} {
		l := &ledger{
			receipts:   func(ports.Filter) (ports.Page, error) { return ports.Page{}, c.err },
			receipt:    func(string) (domain.Receipt, []ports.Entry, error) { return domain.Receipt{}, nil, c.err },
			replay:     func(string, string) error { return c.err },
			replayAll:  func(ports.Filter, string) (int, error) { return 0, c.err },
			discard:    func(string, string) error { return c.err },
			counts:     func() ([]ports.Count, error) { return nil, nil },
			oldestOpen: func() (time.Time, error) { return time.Time{}, c.err },
		}
		log := new(journal)
		cfg := config(l)
		cfg.Log = log.logger()
		a := serveAdmin(t, cfg)
		for _, op := range []struct{ method, path, body string }{
			{"GET", "/api/v1/receipts", ""},
			{"GET", "/api/v1/receipts/" + lostID, ""},
			{"POST", "/api/v1/receipts/" + lostID + "/replay", ""},
			{"POST", "/api/v1/receipts/" + lostID + "/discard", ""},
			{"POST", "/api/v1/receipts/replay", `{"state":"lost"}`},
			{"GET", "/api/v1/stats", ""},
		} {
			res, body := a.call(op.method, op.path, op.body)
			if res.StatusCode != c.status {
				t.Errorf("%s %s after %v = %d; want %d", op.method, op.path, c.err, res.StatusCode, c.status)
			}
			isProblem(t, res, body)
			for _, secret := range []string{"hunter2", "SQLSTATE", "receipts_key", "postgres"} {
				if strings.Contains(body, secret) {
					t.Errorf("%s %s shows %q: %s", op.method, op.path, secret, body)
				}
			}
		}
		if logged := strings.Count(log.String(), "request failed"); c.status >= 500 && logged != 6 || c.status < 500 && logged != 0 {
			t.Errorf("after %v %d of 6 requests were logged", c.err, logged)
		}
	}
}

func isProblem(t *testing.T, res head, body string) {
	t.Helper()
	if got := res.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("%d has type %q; want application/problem+json", res.StatusCode, got)
	}
	if p := object(t, body); p["status"] != float64(res.StatusCode) || p["title"] != http.StatusText(res.StatusCode) {
		t.Errorf("%d has body %s", res.StatusCode, body)
	}
}

func TestTokenIsDemandedWhereverOneIsSet(t *testing.T) {
	t.Parallel()
	cfg := config(someLedger())
	cfg.Tokens = []string{"new-token", "old-token"}
	a := serveAdmin(t, cfg)
	for _, c := range []struct {
		path, authorization string
		want                int
	}{
		{"/api/v1/receipts", "", 401},
		{"/api/v1/receipts", "Bearer new-token", 200},
		{"/api/v1/receipts", "bearer old-token", 200},
		{"/api/v1/receipts", "Bearer ", 401},
		{"/api/v1/receipts", "Bearer new-token2", 401},
		{"/api/v1/receipts", "Bearer new-toke", 401},
		{"/api/v1/receipts", "Basic new-token", 401},
		{"/api/v1/receipts", "new-token", 401},
		{"/api/v1/receipts?token=new-token", "", 401},
		{"/api/v1/stats", "", 401},
		{"/api/v1/openapi.json", "", 401},
		{"/api/v1/openapi.json", "Bearer new-token", 200},
		{"/nowhere", "", 401},
		{"/nowhere", "Bearer new-token", 404},
		{"/healthz/", "", 401},
		{"/healthz", "", 200},
		{"/readyz", "", 200},
		{"/metrics", "", 200},
	} {
		res, body := a.call(http.MethodGet, c.path, "", "Authorization", c.authorization)
		if res.StatusCode != c.want {
			t.Errorf("%s with %q = %d; want %d", c.path, c.authorization, res.StatusCode, c.want)
		}
		if res.StatusCode == http.StatusUnauthorized {
			isProblem(t, res, body)
			if got := res.Header.Get("WWW-Authenticate"); got != `Bearer realm="admitone"` {
				t.Errorf("WWW-Authenticate = %q", got)
			}
		}
	}
}

func TestEmptyTokenOpensNothing(t *testing.T) {
	t.Parallel()
	cfg := config(someLedger())
	cfg.Tokens = []string{""}
	a := serveAdmin(t, cfg)
	for _, authorization := range []string{"", "Bearer", "Bearer "} {
		if res, _ := a.call(http.MethodGet, "/api/v1/receipts", "", "Authorization", authorization); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%q = %d; want 401", authorization, res.StatusCode)
		}
	}
}

func TestPagesOfOtherSitesMayChangeNothing(t *testing.T) {
	t.Parallel()
	l := someLedger()
	l.replay = func(string, string) error { t.Error("replayed"); return nil }
	a := serveAdmin(t, config(l))
	res, body := a.call(http.MethodPost, "/api/v1/receipts/"+lostID+"/replay", "", "Sec-Fetch-Site", "cross-site")
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("a cross-site POST = %d; want 403", res.StatusCode)
	}
	isProblem(t, res, body)
}

func TestReadinessTellsEachDependency(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ready web.Readiness
		want  int
		body  string
	}{
		{
			web.Readiness{Ready: true, Dependencies: []web.Dependency{{Name: "fast store", Detail: "time-out"}}},
			200,
			`{"ready":true,"dependencies":[{"name":"fast store","ready":false,"needed":false,"detail":"time-out"}]}`,
		},
		{web.Readiness{}, 503, `{"ready":false,"dependencies":[]}`},
	} {
		cfg := config(someLedger())
		cfg.Ready = func(ctx context.Context) web.Readiness {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("readiness is asked without a deadline")
			}
			return c.ready
		}
		a := serveAdmin(t, cfg)
		res, body := a.get("/readyz")
		if res.StatusCode != c.want || strings.TrimSpace(body) != c.body {
			t.Errorf("readyz = %d %s; want %d %s", res.StatusCode, body, c.want, c.body)
		}
		if res, _ := a.call(http.MethodHead, "/readyz", ""); res.StatusCode != c.want {
			t.Errorf("HEAD readyz = %d; want %d", res.StatusCode, c.want)
		}
		if res, _ := a.get("/healthz"); res.StatusCode != http.StatusOK {
			t.Errorf("healthz = %d; want 200 whatever readyz says", res.StatusCode)
		}
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	_, body := serveAdmin(t, config(someLedger())).get("/api/v1/stats")
	const want = `{"counts":[{"tenant":"acme","platform":"slack","state":"handled","receipts":7}],` +
		`"oldest_open":"2026-11-30T13:00:00.123456Z",` +
		`"verdicts":{"admitted":5,"duplicate":0,"ignored":0,"refused":0,"unnumbered":0},` +
		`"vendor_retries":2,"duplicates_of_unhandled":1}`
	if strings.TrimSpace(body) != want {
		t.Errorf("stats = %s; want %s", body, want)
	}
	empty := someLedger()
	empty.counts = func() ([]ports.Count, error) { return nil, nil }
	empty.oldestOpen = func() (time.Time, error) { return time.Time{}, nil }
	_, body = serveAdmin(t, config(empty)).get("/api/v1/stats")
	if !strings.HasPrefix(body, `{"counts":[],"oldest_open":null,`) {
		t.Errorf("stats of an empty ledger = %s; want no time and an empty list", body)
	}
}

func TestMetricsAreTheInjectedOnes(t *testing.T) {
	t.Parallel()
	res, body := serveAdmin(t, config(someLedger())).get("/metrics")
	if body != "admitone_queue_depth 0\n" || res.Header.Get("Content-Type") != "text/plain; version=0.0.4" {
		t.Errorf("metrics = %q of type %q", body, res.Header.Get("Content-Type"))
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	t.Parallel()
	a := serveAdmin(t, config(someLedger()))
	for _, path := range []string{"/", "/console", "/api/v1/conversation", "/api/v1/conversations/", "/api/v1", "/docs", "/openapi.json", "/in/slack", "/api/v1/receipts/", "//healthz"} {
		res, body := a.get(path)
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("%s = %d; want 404", path, res.StatusCode)
		}
		isProblem(t, res, body)
	}
	res, body := a.call(http.MethodDelete, "/api/v1/receipts/"+lostID, "")
	if res.StatusCode != http.StatusMethodNotAllowed || !strings.Contains(res.Header.Get("Allow"), "GET") {
		t.Errorf("DELETE = %d, Allow %q; want 405 and GET", res.StatusCode, res.Header.Get("Allow"))
	}
	isProblem(t, res, body)
}

func TestAdminPanicIsAnsweredAndLogged(t *testing.T) {
	t.Parallel()
	log := new(journal)
	cfg := config(someLedger())
	cfg.Log = log.logger()
	cfg.Stats = func(context.Context) web.Counters { panic("no map") }
	a := serveAdmin(t, cfg)
	res, body := a.get("/api/v1/stats")
	if res.StatusCode != http.StatusInternalServerError || strings.Contains(body, "no map") {
		t.Errorf("panic is answered %d %s; want a neutral 500", res.StatusCode, body)
	}
	isProblem(t, res, body)
	if !strings.Contains(log.String(), "no map") || !strings.Contains(log.String(), "admin_test.go") {
		t.Errorf("log = %q; want the panic and where it came from", log.String())
	}
}

func TestHalfAnAnswerDoesNotLookWhole(t *testing.T) {
	t.Parallel()
	cfg := config(someLedger())
	cfg.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<16))
		panic("half way")
	})
	a := serveAdmin(t, cfg)
	res, err := a.client.Do(request(t, http.MethodGet, a.url+"/metrics", nil))
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	if err == nil {
		t.Error("a broken answer was read to its end; want an error")
	}
	if res, _ := a.get("/healthz"); res.StatusCode != http.StatusOK {
		t.Errorf("healthz after it = %d; want 200", res.StatusCode)
	}
}
