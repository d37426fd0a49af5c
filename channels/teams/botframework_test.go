package teams_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/teams"
	"github.com/admitone/admitone/domain"
)

const botframework = "testdata/botframework"

// installBotframework installs Microsoft's own verifier in the version that its lock pins, if
// it is not there.
var installBotframework = sync.OnceValue(func() error {
	wanted, err := pinned(filepath.Join(botframework, "package-lock.json"))
	if err != nil {
		return err
	}
	if present, err := pinned(filepath.Join(botframework, "node_modules", ".package-lock.json")); err == nil && present == wanted {
		return nil
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = botframework
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci in %s (task deps installs npm): %w: %s", botframework, err, out)
	}
	return nil
})

func pinned(lock string) (string, error) {
	text, err := os.ReadFile(lock)
	return gjson.GetBytes(text, `packages.node_modules/botframework-connector.version`).String(), err
}

// A question is one request that Microsoft's verifier is asked about.
type question struct {
	Authorization string          `json:"authorization"`
	Activity      json.RawMessage `json:"activity"`
	Now           int64           `json:"now"`
}

// askBotframework returns why Microsoft's verifier refuses each of requests; nil if it does not.
func askBotframework(t *testing.T, metadata string, requests []*channels.Request) []*string {
	t.Helper()
	if err := installBotframework(); err != nil {
		t.Fatalf("Microsoft's verifier: %v", err)
	}
	questions := make([]question, len(requests))
	for i, r := range requests {
		questions[i] = question{r.Header.Get("Authorization"), r.Body, r.Now.Unix()}
	}
	input, err := json.Marshal(map[string]any{"appId": appID, "metadata": metadata, "requests": questions})
	if err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(t.Context(), "node", "verify.js")
	node.Dir, node.Stdin = botframework, bytes.NewReader(input)
	var stderr bytes.Buffer
	node.Stderr = &stderr
	output, err := node.Output()
	if err != nil {
		t.Fatalf("Microsoft's verifier: %v: %s", err, &stderr)
	}
	var answers []*string
	if err := json.Unmarshal(output, &answers); err != nil || len(answers) != len(requests) {
		t.Fatalf("Microsoft's verifier gives %d answers to %d questions, %v: %s", len(answers), len(requests), err, output)
	}
	return answers
}

// ownRules are the fixtures of which we and Microsoft's library say otherwise, and why.
var ownRules = map[string]string{
	"refused_without_service_url":           "the library compares no service URL if the body has none",
	"refused_without_exp":                   "the library takes a token that never expires",
	"message_rs512_claim_spelt_service_url": "the library knows one of the claim's two spellings",
}

func TestMicrosoftsVerifierAgrees(t *testing.T) {
	t.Parallel()
	forSlack := jwk("slack", `,"endorsements":["slack"]`)
	m := newMicrosoft(t, strings.Replace(allKeys(t), `[`, `[`+forSlack+`,`, 1))
	e := open(t, m.credentials())

	type asked struct {
		name    string
		request *channels.Request
	}
	var all []asked
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		t.Fatalf("fixtures: %d, %v", len(files), err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".http")
		all = append(all, asked{name, load(t, name)})
	}
	// What the other tests sign themselves, and each way in which it can be wrong.
	signed := func(name, kid string, claims map[string]any) {
		r := request(kid, now)
		r.Header.Set("Authorization", "Bearer "+token(kid, now, claims))
		all = append(all, asked{name, r})
	}
	signed("own token", "own", nil)
	signed("refused: own token for another bot", "own", map[string]any{"aud": "11111111-2222-3333-4444-555555555555"})
	signed("refused: own token of another issuer", "own", map[string]any{"iss": "https://api.botframework.example"})
	signed("own token just within the tolerance", "own", map[string]any{"nbf": now.Unix() - 3600, "exp": now.Unix() - 299})
	signed("refused: own token out of date", "own", map[string]any{"nbf": now.Unix() - 3600, "exp": now.Unix() - 301})
	signed("refused: own token not yet valid", "own", map[string]any{"nbf": now.Unix() + 301, "exp": now.Unix() + 3600})
	signed("refused: own token of a key for another channel", "slack", nil)
	signed("refused: own token of a key that nobody knows", "unknown", nil)
	signed("refused: own token for another service", "own", map[string]any{"serviceurl": "https://smba.trafficmanager.example/"})
	simulated, err := teams.New().Simulate(m.credentials(), channels.Simulation{
		URL: "http://127.0.0.1/in/teams/acme-teams", Account: tenant, EventID: "1", Message: "1", From: "ada", Text: "hello", Now: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	if _, err := body.ReadFrom(simulated.Body); err != nil {
		t.Fatal(err)
	}
	all = append(all, asked{"simulated", &channels.Request{
		Method: http.MethodPost, URL: "/in/teams", Header: simulated.Header, Body: body.Bytes(), Now: now,
	}})

	requests := make([]*channels.Request, len(all))
	for i, a := range all {
		requests[i] = a.request
	}
	for i, reason := range askBotframework(t, m.URL+"/openidconfiguration", requests) {
		a := all[i]
		ours := e.Verify(a.request)
		if ours != nil && !errors.Is(ours, domain.ErrUnauthenticated) {
			t.Fatalf("%s: Verify: %v", a.name, ours)
		}
		if (ours != nil) != strings.HasPrefix(a.name, "refused") {
			t.Errorf("%s: Verify: %v", a.name, ours)
		}
		theirs := "accepted"
		if reason != nil {
			theirs = "refused: " + *reason
		}
		_, exempt := ownRules[a.name]
		if agree := (ours == nil) == (reason == nil); agree == exempt {
			t.Errorf("%s: ours %v, Microsoft's %s", a.name, ours, theirs)
		}
		t.Logf("%s: %s", a.name, theirs)
	}
}
