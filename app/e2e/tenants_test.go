package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Of two tenants each has what every list of the admin API can show.
type twoTenants struct {
	*deployment
	in     *instance
	theirs map[string][]string // words by which a tenant's things are known, by tenant
}

const perTenant = 3

func newTwoTenants(t *testing.T, d *deployment) *twoTenants {
	t.Helper()
	two := &twoTenants{deployment: d, in: d.serve(nil), theirs: map[string][]string{}}
	d.app.reacts(func(dispatch) reaction { return reaction{status: http.StatusBadRequest} })
	for _, id := range []string{"acme-slack", "globex-slack"} {
		to := install(id)
		two.theirs[to.tenant] = append(two.theirs[to.tenant], to.account, to.id)
		for range perTenant {
			m := d.write(to)
			m.send(t, two.in).want(t, http.StatusOK, admitted)
			two.theirs[to.tenant] = append(two.theirs[to.tenant], m.from)
		}
		for i := range perTenant {
			kept := keptSlack(d, fmt.Sprintf("%s-kept-%d", to.tenant, i), fmt.Sprintf("T0KEPT%s%d", strings.ToUpper(to.tenant), i))
			kept.tenant = to.tenant
			two.in.keep(kept)
			two.theirs[to.tenant] = append(two.theirs[to.tenant], kept.id, kept.account)
		}
	}
	two.in.awaitStates(map[string]int{"failed": 2 * perTenant})
	for _, r := range two.in.receipts("") {
		two.theirs[r.Tenant] = append(two.theirs[r.Tenant], r.ID, r.EventID)
	}
	d.app.reacts(nil)
	return two
}

// wantOnly fails the test unless an answer speaks of tenant, n times, and of nothing of the others.
func (two *twoTenants) wantOnly(tenant string, n int, what, answer string) {
	two.t.Helper()
	for other, words := range two.theirs {
		if other == tenant {
			continue
		}
		for _, word := range append(words, `"`+other+`"`) {
			if strings.Contains(answer, word) {
				two.t.Errorf("%s tells %s of %s: it has %q", what, tenant, other, word)
			}
		}
	}
	if got := strings.Count(answer, `"tenant":"`+tenant+`"`); got != n {
		two.t.Errorf("%s has %d things of %s; want %d: %s", what, got, tenant, n, answer)
	}
}

// read returns the answer to a GET of the admin API as JSON without blanks.
func (two *twoTenants) read(path string) string {
	two.t.Helper()
	var answer json.RawMessage
	if status := two.in.ask(http.MethodGet, path, nil, &answer); status != http.StatusOK {
		two.t.Errorf("GET %s: status %d", path, status)
	}
	var parsed any
	if err := json.Unmarshal(answer, &parsed); err != nil {
		two.t.Fatalf("GET %s: %v", path, err)
	}
	text, err := json.Marshal(parsed)
	if err != nil {
		two.t.Fatal(err)
	}
	return string(text)
}

// command runs admitone against the admin API and returns what it prints.
func (two *twoTenants) command(args ...string) string {
	two.t.Helper()
	cmd := exec.CommandContext(two.t.Context(), program, append(args, "--admin", two.in.admin, "--token", adminToken)...)
	out, err := cmd.Output()
	if err != nil {
		two.t.Errorf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// tenantPaths returns the paths of the admin API that can be read for one tenant, as the API
// describes itself.
func (two *twoTenants) tenantPaths() (paths []string) {
	two.t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}
	if status := two.in.ask(http.MethodGet, "/api/v1/openapi.json", nil, &doc); status != http.StatusOK {
		two.t.Fatalf("openapi.json: status %d", status)
	}
	for path, methods := range doc.Paths {
		for _, p := range methods["get"].Parameters {
			if p.Name == "tenant" && p.In == "query" {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	return paths
}

// Who asks for one tenant is never shown or given what is another's, by any address of the admin
// API or command that takes a tenant, whatever else is asked for with it.
func TestNoAPIShowsOrChangesAnotherTenants(t *testing.T) {
	t.Parallel()
	onBoth(t, keeping, func(t *testing.T, d *deployment) {
		two := newTwoTenants(t, d)
		globex := two.in.receipts("tenant=globex")
		foreign := globex[0]

		things := map[string]int{
			"/api/v1/receipts": perTenant, "/api/v1/installations": perTenant, "/api/v1/conversations": perTenant,
		}
		for _, path := range two.tenantPaths() {
			n, ok := things[path]
			if !ok {
				t.Errorf("%s takes a tenant and is not in the matrix", path)
				continue
			}
			for query, want := range map[string]int{
				"":                      n,
				"&limit=1":              1,
				"&platform=slack":       n,
				"&cursor=" + foreign.ID: -1, // of any number of its own, none of others
				"&q=" + foreign.ID:      0,
				"&q=" + foreign.EventID: 0,
				"&q=" + url.QueryEscape(foreign.MessageKey): 0,
				"&state=failed":  n,
				"&since=24h":     n,
				"&tenant=globex": -1,
			} {
				if path != "/api/v1/receipts" && query != "" && query != "&limit=1" && !strings.HasPrefix(query, "&cursor") && !strings.HasPrefix(query, "&tenant") {
					continue // it knows no such parameter
				}
				answer := two.read(path + "?tenant=acme" + query)
				if want < 0 {
					want = strings.Count(answer, `"tenant":"acme"`)
				}
				two.wantOnly("acme", want, path+query, answer)
			}
			for _, nobody := range []string{"ACME", "acme,globex", "acme%", "*", "initech", `{"acme":1}`, "acme' OR '1'='1", "acme\" : 1, \"globex"} {
				two.wantOnly(nobody, 0, path+" of "+nobody, two.read(path+"?tenant="+url.QueryEscape(nobody)))
			}
		}

		for _, args := range [][]string{
			{"receipts", "list", "--tenant", "acme", "--json"},
			{"receipts", "list", "--tenant", "acme", "--json", "--state", "failed", "--platform", "slack", "--since", "24h"},
			{"installations", "list", "--tenant", "acme", "--json"},
		} {
			two.wantOnly("acme", perTenant, strings.Join(args, " "), strings.ReplaceAll(two.command(args...), `": "`, `":"`))
		}
		two.wantOnly("acme", 0, "a foreign id", strings.ReplaceAll(two.command("receipts", "list", "--tenant", "acme", "--json", "--query", foreign.ID), `": "`, `":"`))

		// each row of what is told of all says whose it is
		var stats struct {
			Counts []struct {
				Tenant   string
				Receipts int
			}
		}
		two.in.ask(http.MethodGet, "/api/v1/stats", nil, &stats)
		for _, c := range stats.Counts {
			if c.Receipts != perTenant || two.theirs[c.Tenant] == nil {
				t.Errorf("stats tell of %d receipts of %q; want %d of each", c.Receipts, c.Tenant, perTenant)
			}
		}
		if len(stats.Counts) != 2 {
			t.Errorf("stats have %d rows; want one for each tenant", len(stats.Counts))
		}

		// what is changed for one leaves the other as it was
		discarded := two.in.receipts("tenant=acme")[0]
		if status := two.in.ask(http.MethodPost, "/api/v1/receipts/"+discarded.ID+"/discard", nil, nil); status != http.StatusOK {
			t.Errorf("discard: status %d", status)
		}
		var replayed struct{ Replayed int }
		two.in.ask(http.MethodPost, "/api/v1/receipts/replay", settings{"tenant": "acme", "state": "failed"}, &replayed)
		if replayed.Replayed != perTenant-1 {
			t.Errorf("%d receipts of acme are replayed; want %d", replayed.Replayed, perTenant-1)
		}
		two.in.awaitStates(map[string]int{"handled": perTenant - 1, "discarded": 1, "failed": perTenant})
		two.wantUntouched(globex)
		two.command("installations", "pause", "acme-kept-0")
		two.command("installations", "remove", "acme-kept-1")
		if answer := two.read("/api/v1/installations?tenant=globex"); strings.Count(answer, `"state":"active"`) != perTenant {
			t.Errorf("of globex, which nobody asked to change: %s", answer)
		}
		two.command("receipts", "replay", "--tenant", "globex", "--state", "failed")
		two.in.awaitStates(map[string]int{"handled": 2*perTenant - 1, "discarded": 1})
	})
}

// wantUntouched fails the test unless globex' receipts are as they were.
func (two *twoTenants) wantUntouched(before []receipt) {
	two.t.Helper()
	for i, r := range two.in.receipts("tenant=globex") {
		if r.ID != before[i].ID || r.State != before[i].State || r.Attempt != before[i].Attempt || r.Holder != before[i].Holder {
			two.t.Errorf("a receipt of globex was %+v and is %+v; want it as it was", before[i], r)
		}
	}
}
