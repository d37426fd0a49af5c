package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// A ledger is an admin API that answers as routes say and keeps what it was asked.
type ledger struct {
	*httptest.Server
	asked []string // method, path, sorted query and body
	token string
}

func newLedger(t *testing.T, routes map[string]string) *ledger {
	t.Helper()
	l := &ledger{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked := strings.TrimSpace(r.Method + " " + r.URL.Path + " " + r.URL.Query().Encode())
		l.asked = append(l.asked, strings.TrimSpace(asked+" "+string(body)))
		l.token = r.Header.Get("Authorization")
		answer, ok := routes[asked]
		if !ok {
			answer = `404 {"status":404,"detail":"no such receipt"}`
		}
		if status, text, _ := strings.Cut(answer, " "); len(status) == 3 { // such as 409
			code, err := strconv.Atoi(status)
			if err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(code)
			answer = text
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *ledger) run(args ...string) result {
	return admitone(append([]string{"receipts", args[0], "--admin", l.URL}, args[1:]...)...)
}

const one = `{"id":"01a2","tenant":"acme","platform":"slack","channel":"slack","account":"T0ACME001","event_id":"A0/Ev1",` +
	`"message_key":"","kind":"mention","state":"lost","attempt":1,"deliveries":3,"vendor_attempt":2,"claimed_at":"2026-11-30T12:00:00Z",` +
	`"begun_at":null,"handled_at":null,"lease_until":null,"holder":"h","last_error":"the lease ran out","digest":"d","added_later":1}`

func TestListFollowsPagesUpToItsLimit(t *testing.T) {
	t.Parallel()
	page := func(n int, next string) string {
		return `{"receipts":[` + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + `],"next":"` + next + `"}`
	}
	l := newLedger(t, map[string]string{
		"GET /api/v1/receipts limit=5&platform=slack&q=Ev1&since=24h&state=lost&tenant=acme":          page(2, "b"),
		"GET /api/v1/receipts cursor=b&limit=3&platform=slack&q=Ev1&since=24h&state=lost&tenant=acme": page(3, "c"),
	})
	got := l.run("list", "--state", "lost", "--tenant", "acme", "--platform", "slack", "--since", "24h", "--query", "Ev1", "--limit", "5")
	if got.code != 0 || strings.Count(got.stdout, "01a2") != 5 || !strings.Contains(got.stdout, "there are more (--limit)") {
		t.Errorf("list = %+v after %q; want 5 receipts of 2 pages and that there are more", got, l.asked)
	}
	for _, say := range []string{"CLAIMED", "lost", "acme", "mention", "A0/Ev1", "the lease ran out"} {
		if !strings.Contains(got.stdout, say) {
			t.Errorf("the table lacks %q:\n%s", say, got.stdout)
		}
	}
}

func TestListAsJSONIsWhatTheServerSays(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string]string{"GET /api/v1/receipts limit=100": `{"receipts":[` + one + `],"next":""}`})
	var page struct {
		Receipts []map[string]any `json:"receipts"`
		Next     string           `json:"next"`
	}
	got := l.run("list", "--json")
	if err := json.Unmarshal([]byte(got.stdout), &page); err != nil || len(page.Receipts) != 1 || page.Receipts[0]["added_later"] == nil {
		t.Errorf("list --json = %+v, %v; want the receipt with every field", got, err)
	}
	none := newLedger(t, map[string]string{"GET /api/v1/receipts limit=100": `{"receipts":[],"next":""}`})
	if got := none.run("list", "--json"); got.code != 0 || !strings.Contains(got.stdout, `"receipts": []`) {
		t.Errorf("list --json of nothing = %+v; want an empty list", got)
	}
	if got := none.run("list"); got.code != 0 || got.stdout != "no receipts\n" {
		t.Errorf("list of nothing = %+v", got)
	}
}

// Ids come from strangers: a Message-ID can hold what a terminal obeys.
func TestTablesDoNotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	nasty := strings.Replace(one, "A0/Ev1", `\u001b]0;owned\u0007\tx\u202ey\nz`, 1)
	l := newLedger(t, map[string]string{
		"GET /api/v1/receipts limit=100": `{"receipts":[` + nasty + `],"next":""}`,
		"GET /api/v1/receipts/01a2":      strings.TrimSuffix(nasty, "}") + `,"history":[]}`,
	})
	for _, got := range []result{l.run("list"), l.run("show", "01a2")} {
		if got.code != 0 || strings.ContainsAny(got.stdout, "\x1b\x07\u202e\t") {
			t.Errorf("%+v; want no control characters", got)
		}
	}
}

func TestShowTellsFieldsAndHistory(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string]string{
		"GET /api/v1/receipts/01a2": strings.TrimSuffix(one, "}") +
			`,"history":[{"at":"2026-11-30T12:02:00Z","what":"lost","attempt":1,"state":"lost","reason":"the lease ran out","by":"somebody"}]}`,
	})
	got := l.run("show", "01a2")
	for _, say := range []string{"id ", "01a2", "T0ACME001", "deliveries ", "history\n", "lost 1", "somebody"} {
		if got.code != 0 || !strings.Contains(got.stdout, say) {
			t.Errorf("show = %+v; want %q in it", got, say)
		}
	}
	if got := l.run("show", "01a2", "--json"); !strings.Contains(got.stdout, `"added_later": 1`) {
		t.Errorf("show --json = %+v; want every field", got)
	}
	if got := l.run("show", "01a3"); got.code != 1 || !strings.Contains(got.stderr, "01a3: no such receipt (404)") {
		t.Errorf("show of what is not there = %+v; want code 1", got)
	}
}

func TestOneThatCanNotBeReplayedKeepsNoOtherBack(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string]string{
		"POST /api/v1/receipts/a/replay":  `{"replayed":1}`,
		"POST /api/v1/receipts/b/replay":  "409 {\"status\":409,\"detail\":\"not allowed in this state\"}",
		"POST /api/v1/receipts/c/replay":  `{"replayed":1}`,
		"POST /api/v1/receipts/a/discard": `{"discarded":1}`,
	})
	got := l.run("replay", "a", "b", "c")
	if got.code != 1 || got.stdout != "replayed a\nreplayed c\n" || !strings.Contains(got.stderr, "b not replayed: not allowed in this state (409)") {
		t.Errorf("replay = %+v; want a and c replayed and code 1", got)
	}
	if got := l.run("replay", "a", "c", "--json"); got.code != 0 || !strings.Contains(got.stdout, `"replayed": 2`) {
		t.Errorf("replay --json = %+v", got)
	}
	if got := l.run("discard", "a"); got.code != 0 || got.stdout != "discarded a\n" {
		t.Errorf("discard = %+v", got)
	}
}

func TestReplayByFilterStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string]string{"POST /api/v1/receipts/replay": `{"replayed":7}`})
	got := l.run("replay", "--state", "lost", "--tenant", "acme", "--since", "1h")
	want := []string{`POST /api/v1/receipts/replay {"limit":100,"since":"1h","state":"lost","tenant":"acme"}`}
	if got.code != 0 || got.stdout != "replayed 7 receipts\n" || fmt.Sprint(l.asked) != fmt.Sprint(want) {
		t.Errorf("replay = %+v after %q; want 7 receipts by %q", got, l.asked, want)
	}

	l = newLedger(t, map[string]string{"POST /api/v1/receipts/replay": `{"replayed":1000}`})
	if got := l.run("replay", "--platform", "email", "--limit", "2000"); got.stdout != "replayed 2000 receipts\nThere may be more; --limit says how many at once.\n" {
		t.Errorf("replay = %+v after %q; want two requests", got, l.asked)
	}
}

func TestStatsSumUpByTenantAndPlatform(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string]string{"GET /api/v1/stats": `{"counts":[
		{"tenant":"acme","platform":"slack","state":"handled","receipts":40},
		{"tenant":"acme","platform":"slack","state":"lost","receipts":2},
		{"tenant":"acme","platform":"email","state":"retrying","receipts":1}],
		"oldest_open":"2026-11-30T12:00:00Z","verdicts":{"admitted":43,"duplicate":9},"vendor_retries":8,"duplicates_of_unhandled":1}`})
	got := l.run("stats")
	for _, say := range []string{"acme    email     1 ", "acme    slack     42 ", "oldest open receipt", "43", "vendors' retries"} {
		if got.code != 0 || !strings.Contains(got.stdout, say) {
			t.Errorf("stats lacks %q:\n%+v", say, got)
		}
	}
	if got := l.run("stats", "--json"); !strings.Contains(got.stdout, `"vendor_retries": 8`) {
		t.Errorf("stats --json = %+v", got)
	}
}

func TestTheTokenIsSentAndItsLackIsTold(t *testing.T) {
	l := newLedger(t, map[string]string{"GET /api/v1/stats": `{"counts":[]}`})
	l.run("stats", "--token", "sesame")
	if l.token != "Bearer sesame" {
		t.Errorf("--token is sent as %q", l.token)
	}
	refusing := newLedger(t, map[string]string{"GET /api/v1/stats": "401 {\"status\":401,\"detail\":\"not authentic\"}"})
	if got := refusing.run("stats"); got.code != 1 || !strings.Contains(got.stderr, "ADMITONE_SERVER_ADMIN_TOKEN") {
		t.Errorf("without a token: %+v; want code 1 and where to give one", got)
	}
	if got := refusing.run("stats", "--token", "sesame"); got.code != 1 || !strings.Contains(got.stderr, "does not accept the token") || strings.Contains(got.stderr, "sesame") {
		t.Errorf("with a wrong token: %+v; want code 1 and no token", got)
	}
	t.Setenv("ADMITONE_SERVER_ADMIN_TOKEN", "from the environment")
	l.run("stats")
	if l.token != "Bearer from the environment" {
		t.Errorf("the variable is sent as %q", l.token)
	}
}

func TestWhatIsNoAdminAPIIsTold(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string]string{"GET /api/v1/stats": "<html>", "GET /api/v1/receipts limit=100": "422 " +
		`{"status":422,"detail":"validation failed","errors":[{"location":"query.since","message":"is neither"}]}`})
	if got := l.run("stats"); got.code != 1 || !strings.Contains(got.stderr, "does not answer as the admin API does") {
		t.Errorf("stats of a web page = %+v", got)
	}
	if got := l.run("list"); got.code != 1 || !strings.Contains(got.stderr, "validation failed; query.since is neither (422)") {
		t.Errorf("list refused = %+v", got)
	}
	l.Close()
	host, err := url.Parse(l.URL)
	if err != nil {
		t.Fatal(err)
	}
	if got := admitone("receipts", "stats", "--admin", host.Host); got.code != 1 || !strings.Contains(got.stderr, "nothing listens at "+l.URL) {
		t.Errorf("stats of nobody = %+v", got)
	}
}
