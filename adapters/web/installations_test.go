package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// installations are kept in memory. away, if set, is what every call returns.
type installations struct {
	mu   sync.Mutex
	m    map[string]ports.Installation
	away error
}

const hushed = "secret-that-no-answer-shows"

func someInstallations() *installations {
	return &installations{m: map[string]ports.Installation{"acme-slack": {
		ID: "acme-slack", Tenant: "acme", Channel: "slack", Account: "T0ACME001",
		Secrets:  map[string][]string{"signing_secret": {hushed, "older"}},
		Settings: map[string]any{"public_url": "https://hooks.example.com"}, Policy: json.RawMessage(`{"fast_ttl":"30h"}`),
		DispatchURL: "https://user:" + hushed + "@app.example.com/acme?token=" + hushed, CreatedAt: claimed, ChangedAt: claimed,
	}}}
}

func (i *installations) find(id string) (ports.Installation, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	in, ok := i.m[id]
	if i.away != nil {
		return in, i.away
	}
	if !ok {
		return in, domain.ErrNotInstalled
	}
	return in, nil
}

func (i *installations) FindInstallation(_ context.Context, ref ports.InstallationRef) (ports.Installation, error) {
	return i.find(ref.ID)
}

func (i *installations) Installations(_ context.Context, f ports.InstallationFilter) (p ports.InstallationPage, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for id, in := range i.m {
		if f.ID == "" || f.ID == id {
			p.Installations = append(p.Installations, in)
		}
	}
	return p, i.away
}

func (i *installations) AddInstallation(_ context.Context, in ports.Installation) (ports.Installation, error) {
	if _, err := i.find(in.ID); err == nil {
		return in, domain.ErrTaken
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	in.CreatedAt, in.ChangedAt = time.Now(), time.Now()
	i.m[in.ID] = in
	return in, i.away
}

func (i *installations) ChangeInstallation(_ context.Context, id string, change func(*ports.Installation) error) (ports.Installation, error) {
	in, err := i.find(id)
	if err == nil {
		err = change(&in)
	}
	if err == nil {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.m[id] = in
	}
	return in, err
}

func (i *installations) RemoveInstallation(_ context.Context, id string) error {
	_, err := i.find(id)
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.m, id)
	return err
}

func (*installations) WatchInstallations(context.Context, func(string))           {}
func (*installations) ResealInstallations(context.Context, int) (int, error)      { return 0, nil }
func (*installations) Confine(context.Context, ports.Confined, int) (bool, error) { return false, nil }
func (*installations) Release(context.Context, string, string) error              { return nil }
func (*installations) PruneConfined(context.Context) (int, error)                 { return 0, nil }
func (*installations) CountConfined(context.Context, string, string) (int, error) { return 4, nil }

func (*installations) Confined(context.Context, string, string, string, int) ([]ports.Confined, error) {
	return nil, nil
}

// check refuses every channel but slack.
func (i *installations) check(in ports.Installation) error {
	if in.Channel != "slack" {
		return errors.Join(errors.New("channel: unknown channel"), errors.New("tenant: second fault"))
	}
	return nil
}

func TestInstallationIsShownWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	a := serveAdmin(t, config(someLedger()))
	want := map[string]any{
		"id": "acme-slack", "tenant": "acme", "channel": "slack", "account": "T0ACME001", "state": "active",
		"secrets": map[string]any{"signing_secret": 2.0}, "settings": map[string]any{"public_url": "https://hooks.example.com"},
		"policy": map[string]any{"fast_ttl": "30h"}, "dispatch": map[string]any{"url": "https://app.example.com/acme"},
		"unreadable": false, "created_at": "2026-11-30T13:00:00.123456Z", "changed_at": "2026-11-30T13:00:00.123456Z",
	}
	_, body := a.get("/api/v1/installations")
	page := object(t, body)
	if list, _ := page["installations"].([]any); len(list) != 1 || !reflect.DeepEqual(list[0], any(want)) || page["next"] != "" {
		t.Errorf("list = %s; want one, %v", body, want)
	}
	want["quarantined"] = 4.0
	if _, one := a.get("/api/v1/installations/acme-slack"); !reflect.DeepEqual(object(t, one), want) {
		t.Errorf("one = %s; want %v", one, want)
	}
}

// Whatever is asked, and however wrongly, no answer and no log repeats a secret.
func TestNoAnswerShowsASecret(t *testing.T) {
	t.Parallel()
	log := new(journal)
	for _, away := range []error{nil, errors.New("driver says " + hushed), domain.ErrUnavailable} {
		kept := someInstallations()
		cfg := config(someLedger())
		cfg.Installations, cfg.CheckInstallation, cfg.Log = kept, kept.check, log.logger()
		a := serveAdmin(t, cfg)
		if away != nil {
			kept.away = away
		}
		for _, c := range []struct{ method, path, body string }{
			{"GET", "", ""},
			{"GET", "/acme-slack", ""},
			{"POST", "", `{"id":"x","channel":"slack","account":"T","secrets":{"signing_secret":"` + hushed + `"}}`}, // no tenant
			{"POST", "", `{"id":"x","tenant":"acme","channel":"none","account":"T","secrets":{"signing_secret":"` + hushed + `"}}`},
			{"POST", "", `{"id":"x","tenant":"acme","channel":"slack","account":"T","secrets":{"signing_secret":["` + hushed + `"]}}`},
			{"POST", "", `{"id":"x","secrets":{"signing_secret":{"a":"` + hushed + `"}}}`},
			{"POST", "", `{"id":"x","secrets":"` + hushed + `"}`},
			{"POST", "", `{"secrets":{"signing_secret":"` + hushed + `"`},
			{"PATCH", "/acme-slack", `{"secrets":{"signing_secret":"` + hushed + `"},"state":"none"}`},
			{"PATCH", "/acme-slack", `{"secrets":{"signing_secret":"` + hushed + `"},"settings":["` + hushed + `"]}`},
			{"POST", "/acme-slack/rotate", `{"secrets":{"signing_secret":["` + hushed + `","b"]}}`},
			{"POST", "/acme-slack/rotate", `{"secrets":{"signing_secret":"` + hushed + `"}}`},
			{"POST", "/acme-slack/rotate", `{"secrets":{"signing_secret":7},"x":"` + hushed + `"}`},
		} {
			res, body := a.call(c.method, "/api/v1/installations"+c.path, c.body)
			if strings.Contains(body, hushed) {
				t.Errorf("%s %s %s is answered %d %s", c.method, c.path, c.body, res.StatusCode, body)
			}
		}
	}
	if strings.Contains(strings.ReplaceAll(log.String(), "driver says "+hushed, ""), hushed) {
		t.Error("the log repeats a secret")
	}
}

func TestRotationKeepsTwoValues(t *testing.T) {
	t.Parallel()
	kept := someInstallations()
	cfg := config(someLedger())
	var told []string
	cfg.Installations, cfg.CheckInstallation = kept, kept.check
	cfg.InstallationChanged = func(id string) { told = append(told, id) }
	a := serveAdmin(t, cfg)
	for _, step := range []struct {
		body string
		want []string
	}{
		{`{"secrets":{"signing_secret":"new"}}`, []string{"new", hushed}},
		{`{"secrets":{"signing_secret":"new"}}`, []string{"new", hushed}}, // asked for twice
		{`{"secrets":{"signing_secret":"newer"}}`, []string{"newer", "new"}},
		{`{"drop_old":true}`, []string{"newer"}},
		{`{"secrets":{"signing_secret":"last"},"drop_old":true}`, []string{"last"}},
	} {
		res, body := a.call(http.MethodPost, "/api/v1/installations/acme-slack/rotate", step.body)
		in, err := kept.find("acme-slack")
		if res.StatusCode != http.StatusOK || err != nil || !slices.Equal(in.Secrets["signing_secret"], step.want) {
			t.Errorf("%s = %d %s; the values are %v, want %v", step.body, res.StatusCode, body, in.Secrets["signing_secret"], step.want)
		}
	}
	if !slices.Equal(told, slices.Repeat([]string{"acme-slack"}, 5)) {
		t.Errorf("this instance is told of %v; want of each change", told)
	}
}

func TestChangeLeavesWhatItDoesNotName(t *testing.T) {
	t.Parallel()
	kept := someInstallations()
	cfg := config(someLedger())
	cfg.Installations, cfg.CheckInstallation = kept, kept.check
	a := serveAdmin(t, cfg)
	want, err := kept.find("acme-slack")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		body string
		edit func()
	}{
		{`{"state":"paused"}`, func() { want.Paused = true }},
		{`{"settings":{"n":12345678901234567890}}`, func() { want.Settings = map[string]any{"n": json.Number("12345678901234567890")} }},
		{`{"policy":{}}`, func() { want.Policy = nil }},
		{`{"policy":{"rate_limit":5}}`, func() { want.Policy = json.RawMessage(`{"rate_limit":5}`) }},
		{`{"secrets":{"other":["a","b"],"signing_secret":[]}}`, func() { want.Secrets = map[string][]string{"other": {"a", "b"}} }},
		{`{"dispatch":{"url":""},"state":"active"}`, func() { want.DispatchURL, want.Paused = "", false }},
	} {
		step.edit()
		res, body := a.call(http.MethodPatch, "/api/v1/installations/acme-slack", step.body)
		if got, err := kept.find("acme-slack"); err != nil || res.StatusCode != http.StatusOK || !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %d %s: %+v; want %+v", step.body, res.StatusCode, body, got, want)
		}
	}
	res, body := a.call(http.MethodPost, "/api/v1/installations", `{"id":"x","tenant":"acme","channel":"none","account":"T"}`)
	if res.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "unknown channel") || !strings.Contains(body, "second fault") {
		t.Errorf("an unfit one = %d %s; want 422 and each fault", res.StatusCode, body)
	}
}

func TestSecretsWithoutAKeyAreRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	kept := someInstallations()
	kept.away = ports.ErrNoKey
	cfg := config(someLedger())
	cfg.Installations, cfg.CheckInstallation = kept, kept.check
	res, body := serveAdmin(t, cfg).call(http.MethodPost, "/api/v1/installations", `{"id":"x","tenant":"acme","channel":"slack","account":"T"}`)
	if res.StatusCode != http.StatusConflict || !strings.Contains(body, "store.durable.secret_key") {
		t.Errorf("%d %s; want 409 that names the setting", res.StatusCode, body)
	}
}

var _ ports.Installations = (*installations)(nil)

// Whether there is such an installation can't always be told: then the vendor is made to come
// again, and its body is not read.
func TestDeliveryThatCanNotBeRoutedIsToComeAgain(t *testing.T) {
	t.Parallel()
	in := &inbound{route: func(string, string, string) (ports.Route, error) {
		return ports.Route{RetryAfter: 1500 * time.Millisecond}, domain.ErrUnavailable
	}}
	url, client := servePublic(t, in)
	res, body := do(t, client, request(t, http.MethodPost, url+"/in/slack/x", strings.NewReader("{}")))
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "2" || body != "" || in.deliveries() != 0 {
		t.Errorf("%d, Retry-After %q, %q, %d deliveries; want 503, 2, no body and none",
			res.StatusCode, res.Header.Get("Retry-After"), body, in.deliveries())
	}
}
