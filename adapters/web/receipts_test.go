package web_test

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

func TestReceiptHasExactlyTheFieldsOfTheContract(t *testing.T) {
	t.Parallel()
	a := serveAdmin(t, config(someLedger()))
	fields := map[string]any{
		"id": handledID, "tenant": "acme", "platform": "slack", "channel": "slack", "account": "T0ACME001",
		"event_id": "A0/Ev0", "message_key": "message:C0:1", "kind": "message.created", "state": "handled",
		"attempt": 1.0, "deliveries": 3.0, "vendor_attempt": 2.0,
		"claimed_at": "2026-11-30T13:00:00.123456Z", "begun_at": "2026-11-30T13:00:01.123456Z",
		"handled_at": "2026-11-30T13:00:02.123456Z", "lease_until": "2026-11-30T13:01:00.123456Z",
		"holder": "web-1", "last_error": "", "digest": domain.DigestOf("x").String(),
	}
	res, body := a.get("/api/v1/receipts")
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("list = %d %s", res.StatusCode, res.Header.Get("Content-Type"))
	}
	page := object(t, body)
	if got := slices.Sorted(maps.Keys(page)); !slices.Equal(got, []string{"next", "receipts"}) {
		t.Errorf("page has %v; want next and receipts", got)
	}
	list, _ := page["receipts"].([]any)
	if len(list) != 2 || !reflect.DeepEqual(list[1], any(fields)) {
		t.Fatalf("receipts = %v; want two, the second %v", list, fields)
	}
	lost := members(list[0])
	for _, name := range []string{"begun_at", "handled_at", "lease_until"} {
		if v, there := lost[name]; !there || v != nil {
			t.Errorf("%s of a receipt that has none = %v; want null", name, v)
		}
	}
	if len(lost) != len(fields) {
		t.Errorf("an empty receipt has %d fields; want %d", len(lost), len(fields))
	}

	_, body = a.get("/api/v1/receipts/" + handledID)
	one := object(t, body)
	history, there := one["history"].([]any)
	delete(one, "history")
	if !there || !reflect.DeepEqual(one, fields) {
		t.Errorf("receipt = %v; want the same fields and its history", one)
	}
	want := map[string]any{
		"at": "2026-11-30T13:00:00.123456Z", "what": "lost", "attempt": 1.0,
		"state": "lost", "reason": "lease over", "by": "",
	}
	if len(history) != 1 || !reflect.DeepEqual(history[0], any(want)) {
		t.Errorf("history = %v; want %v", history, want)
	}
	if strings.Contains(body, "message text") {
		t.Error("the answer shows the payload")
	}
}

func TestEmptyListIsAList(t *testing.T) {
	t.Parallel()
	l := someLedger()
	l.receipts = func(ports.Filter) (ports.Page, error) { return ports.Page{}, nil }
	if _, body := serveAdmin(t, config(l)).get("/api/v1/receipts"); strings.TrimSpace(body) != `{"receipts":[],"next":""}` {
		t.Errorf("empty list = %s", body)
	}
}

func TestListFilter(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		query  string
		status int
		want   ports.Filter
	}{
		{"", 200, ports.Filter{Limit: 100}},
		{"?tenant=&platform=&state=&q=&since=&limit=&cursor=", 200, ports.Filter{Limit: 100}},
		{"?limit=0", 200, ports.Filter{Limit: 100}},
		{"?limit=1000&cursor=a%2Bb", 200, ports.Filter{Limit: 1000, Cursor: "a+b"}},
		{"?tenant=acme&platform=slack&state=lost&q=Ev0%2FX", 200, ports.Filter{Tenant: "acme", Platform: "slack", State: domain.Lost, Query: "Ev0/X", Limit: 100}},
		{"?since=2026-11-30T13:00:00%2B01:00", 200, ports.Filter{Since: noon, Limit: 100}},
		{"?limit=1001", 422, ports.Filter{}},
		{"?limit=-1", 422, ports.Filter{}},
		{"?limit=many", 422, ports.Filter{}},
		{"?state=unheard", 422, ports.Filter{}},
		{"?since=yesterday", 422, ports.Filter{}},
		{"?since=-1h", 422, ports.Filter{}},
		{"?q=%00", 422, ports.Filter{}},
		{"?tenant=%ff", 422, ports.Filter{}},
	} {
		t.Run(c.query, func(t *testing.T) {
			t.Parallel()
			var got ports.Filter
			l := someLedger()
			l.receipts = func(f ports.Filter) (ports.Page, error) { got = f; return ports.Page{}, nil }
			res, body := serveAdmin(t, config(l)).get("/api/v1/receipts" + c.query)
			got.Since = got.Since.UTC()
			if c.want.Since.IsZero() {
				c.want.Since = time.Time{}.UTC()
			}
			if res.StatusCode != c.status || got != c.want {
				t.Errorf("%s is answered %d with filter %+v; want %d with %+v: %s", c.query, res.StatusCode, got, c.status, c.want, body)
			}
		})
	}
}

func TestSinceMayBeADuration(t *testing.T) {
	t.Parallel()
	var got time.Time
	l := someLedger()
	l.receipts = func(f ports.Filter) (ports.Page, error) { got = f.Since; return ports.Page{}, nil }
	serveAdmin(t, config(l)).get("/api/v1/receipts?since=24h")
	if d := time.Since(got) - 24*time.Hour; d < 0 || d > time.Minute {
		t.Errorf("since=24h means %s; want a day ago", got)
	}
}

func TestReplayAndDiscard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, body string
		status     int
		answer     string
		nudges     int
	}{
		{"/" + lostID + "/replay", "", 200, `{"replayed":1}`, 1},
		{"/" + lostID + "/discard", "", 200, `{"discarded":1}`, 0},
		{"/" + handledID + "/discard", "", 409, "", 0},
		{"/01920000-0000-7000-8000-00000000ffff/replay", "", 404, "", 0},
		{"/nonsense/replay", "", 404, "", 0},
		{"/nonsense/discard", "", 404, "", 0},
		{"/replay", `{"state":"lost"}`, 200, `{"replayed":1}`, 1},
		{"/replay", ``, 400, "", 0},
		{"/replay", `{`, 400, "", 0},
		{"/replay", `{"state":"dispatching"}`, 422, "", 0},
		{"/replay", `{"since":"soon"}`, 422, "", 0},
		{"/replay", `{"limit":1001}`, 422, "", 0},
		{"/replay", `{"sate":"lost"}`, 422, "", 0},
		{"/replay", `{"tenant":"\u0000"}`, 422, "", 0},
	} {
		t.Run(c.path+c.body, func(t *testing.T) {
			t.Parallel()
			nudges := 0
			cfg := config(someLedger())
			cfg.Nudge = func() { nudges++ }
			res, body := serveAdmin(t, cfg).call(http.MethodPost, "/api/v1/receipts"+c.path, c.body)
			if res.StatusCode != c.status || nudges != c.nudges {
				t.Errorf("answer = %d after %d nudges; want %d after %d: %s", res.StatusCode, nudges, c.status, c.nudges, body)
			}
			if c.answer != "" && strings.TrimSpace(body) != c.answer {
				t.Errorf("body = %s; want %s", body, c.answer)
			}
			if c.status >= 400 {
				isProblem(t, res, body)
			}
		})
	}
}

func TestReplayByFilterLeavesHandledAloneUnlessNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body string
		want []ports.Filter
		n    int
	}{
		{`{"tenant":"acme","limit":10}`, []ports.Filter{
			{Tenant: "acme", State: domain.Failed, Limit: 10},
			{Tenant: "acme", State: domain.Lost, Limit: 3},
		}, 10},
		{`{}`, []ports.Filter{{State: domain.Failed, Limit: 100}, {State: domain.Lost, Limit: 93}}, 14},
		{`{"limit":7}`, []ports.Filter{{State: domain.Failed, Limit: 7}}, 7},
		{`{"state":"handled","platform":"slack"}`, []ports.Filter{{Platform: "slack", State: domain.Handled, Limit: 100}}, 7},
	} {
		t.Run(c.body, func(t *testing.T) {
			t.Parallel()
			var got []ports.Filter
			l := someLedger()
			l.replayAll = func(f ports.Filter, _ string) (int, error) {
				got = append(got, f)
				return min(f.Limit, 7), nil
			}
			_, body := serveAdmin(t, config(l)).call(http.MethodPost, "/api/v1/receipts/replay", c.body)
			if !slices.Equal(got, c.want) || object(t, body)["replayed"] != float64(c.n) {
				t.Errorf("%s asked for %+v and answered %s; want %+v and %d", c.body, got, body, c.want, c.n)
			}
		})
	}
}

func TestChangesTellWhoAsked(t *testing.T) {
	t.Parallel()
	var by []string
	l := someLedger()
	l.replay = func(_, who string) error { by = append(by, who); return nil }
	l.discard = l.replay
	l.replayAll = func(_ ports.Filter, who string) (int, error) { by = append(by, who); return 0, nil }
	a := serveAdmin(t, config(l))
	a.call(http.MethodPost, "/api/v1/receipts/"+lostID+"/replay", "")
	a.call(http.MethodPost, "/api/v1/receipts/"+lostID+"/discard", "")
	a.call(http.MethodPost, "/api/v1/receipts/replay", `{"state":"lost"}`)
	if len(by) != 3 {
		t.Fatalf("%d changes; want 3", len(by))
	}
	for _, who := range by {
		if !strings.HasPrefix(who, "admin API 127.0.0.1:") {
			t.Errorf("changed by %q; want the admin API and the remote address", who)
		}
	}
}
