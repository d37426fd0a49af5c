package app_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/goleak"

	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/app/config"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

const patience = 20 * time.Second

// toy is a channel whose code panics where the body says.
func toy() channels.Channel {
	return channels.Channel{
		Name: "toy", Platform: "toy", Secrets: []channels.Secret{{Name: "key"}},
		Vendor: channels.Vendor{
			EventID: "the body", Behaviour: "comes again", Deadline: 5 * time.Second, RetryWindow: time.Hour, ComesAgain: true,
		},
		Example: channels.Credentials{Account: "toys", Secrets: map[string][]string{"key": {"toy-key"}}},
		Open:    func(channels.Credentials) (channels.Endpoint, error) { return toyEndpoint{}, nil },
		Decode: func(e domain.Event) (domain.Content, error) {
			fall(e.Payload.Body, "decode")
			return domain.Content{Text: string(e.Payload.Body), Raw: []byte("{}")}, nil
		},
		Simulate: func(_ channels.Credentials, s channels.Simulation) (*http.Request, error) {
			return http.NewRequest(http.MethodPost, s.URL, strings.NewReader(s.EventID)) //nolint:noctx // nobody sends it
		},
	}
}

type toyEndpoint struct{}

func (toyEndpoint) Verify(r *channels.Request) error {
	fall(r.Body, "verify")
	return nil
}

func (toyEndpoint) Extract(r *channels.Request) (channels.Batch, error) {
	fall(r.Body, "extract")
	return channels.Batch{Events: []domain.Event{{
		ID: string(r.Body), Kind: domain.Other, Digest: domain.DigestOf(string(r.Body)), Payload: domain.Payload{Body: r.Body},
	}}}, nil
}

func fall(body []byte, where string) {
	if bytes.Contains(body, []byte(where)) {
		panic("there is " + where)
	}
}

// A recorder is a dispatcher that keeps what it gets and panics where the event says.
type recorder struct {
	mu    sync.Mutex
	texts []string
}

func (r *recorder) Dispatch(_ context.Context, d ports.Dispatch) domain.Result {
	fall([]byte(d.Key.EventID), "dispatch")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, d.Key.Tenant+": "+d.Content.Text)
	return domain.Result{Outcome: domain.Taken}
}

func (*recorder) Close() error { return nil }

func load(t *testing.T, text string, chs []channels.Channel) (*config.Config, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "admitone.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(file, nil, chs)
}

const embedded = `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
store:
  durable: {dsn: "DIR/admitone.db"}
  journal: {path: "DIR/journal"}
`

func TestEveryPartFindsWhatItNeeds(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, embedded, app.Channels())
	if err != nil {
		t.Fatal(err)
	}
	if err := fx.ValidateApp(app.Options(cfg, app.Channels(), slog.New(slog.DiscardHandler))); err != nil {
		t.Error(err)
	}
}

func TestServerStartsStopsAndLeavesNothingRunning(t *testing.T) { //nolint:paralleltest // it looks for goroutines
	before := goleak.IgnoreCurrent()
	chs := app.Channels()
	cfg, err := load(t, embedded, chs)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second on what the first left
		a := fx.New(app.Options(cfg, chs, slog.New(slog.DiscardHandler)))
		if err := a.Start(t.Context()); err != nil {
			t.Fatalf("start: %v", err)
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Fatalf("stop: %v", err)
		}
	}
	goleak.VerifyNone(t, before)
}

func TestWhatCannotStartTellsWhy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, config, want string }{
		{"a database that is not there", `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
store: {durable: {driver: postgres, dsn: "postgres://admitone:hidden@127.0.0.1:1/none"}}
`, "store.durable:"},
		{"a secret that is none", embedded + `
tenants: [{id: acme, installations: [{id: bot, channel: telegram, account: "7", secrets: {secret_token: "hidden words"}}]}]
`, "installation bot: secret_token"},
		{"an address that is not ours", strings.Replace(embedded, `"127.0.0.1:0"`, `"192.0.2.1:1"`, 1), "listen on 192.0.2.1:1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg, err := load(t, tt.config, app.Channels())
			if err == nil {
				err = begin(t, cfg)
			}
			if err == nil {
				t.Fatal("it starts; want an error")
			}
			if !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("error %q; want it to begin with %q, and no secret", err, tt.want)
			}
		})
	}
}

// begin starts a server as the command does and returns the root of what stopped it.
func begin(t *testing.T, cfg *config.Config) error {
	t.Helper()
	a := fx.New(app.Options(cfg, app.Channels(), slog.New(slog.DiscardHandler)))
	if err := a.Err(); err != nil {
		return dig.RootCause(err)
	}
	if err := a.Start(t.Context()); err != nil {
		return dig.RootCause(err)
	}
	return a.Stop(t.Context())
}

// BR-45: one odd payload ends nothing but itself, wherever it makes code panic.
func TestPanicEndsNothingButItsEvent(t *testing.T) {
	t.Parallel()
	chs := append(app.Channels(), toy())
	cfg, err := load(t, embedded+`
tenants:
  - id: acme
    installations: [{id: toys, channel: toy, account: toys, secrets: {key: k}}]
  - id: globex
    installations: [{id: others, channel: toy, account: others, secrets: {key: k}}]
`, chs)
	if err != nil {
		t.Fatal(err)
	}
	var (
		public  app.Public
		ledger  ports.Ledger
		got     recorder
		started = fx.New(app.Options(cfg, chs, slog.New(slog.DiscardHandler)),
			fx.Decorate(func(ports.Dispatcher) ports.Dispatcher { return &got }), fx.Populate(&public, &ledger))
	)
	if err := started.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := started.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("stop: %v", err)
		}
	}()
	send := func(installation, body string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+public.Addr()+"/in/toy/"+installation, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close() //nolint:errcheck // nothing is read
		return a.StatusCode
	}
	for range 3 {
		for body, want := range map[string]int{
			"panic in verify": http.StatusUnauthorized, "panic in extract": http.StatusOK, "panic in decode": http.StatusOK, "panic in dispatch": http.StatusOK,
		} {
			if status := send("toys", body); status != want {
				t.Errorf("%s is answered with %d; want %d", body, status, want)
			}
		}
	}
	if status := send("others", "all is well"); status != http.StatusOK {
		t.Errorf("the other tenant is answered with %d; want 200", status)
	}
	want := map[string]domain.State{
		domain.UnreadableID([]byte("panic in extract")): domain.Failed, "panic in decode": domain.Failed, "panic in dispatch": domain.Failed,
		"all is well": domain.Handled,
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := settled(ctx, ledger, want); err != nil {
		t.Error(err)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if fmt.Sprint(got.texts) != "[globex: all is well]" {
		t.Errorf("dispatched %v; want the other tenant's event alone", got.texts)
	}
}

// settled waits until the ledger holds the receipts of want, by event id, and no others.
func settled(ctx context.Context, ledger ports.Ledger, want map[string]domain.State) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		page, err := ledger.Receipts(ctx, ports.Filter{})
		if err != nil {
			return err
		}
		var wrong []error
		for _, r := range page.Receipts {
			if state, ok := want[r.Key.EventID]; !ok || r.State != state || r.State == domain.Failed && !strings.Contains(r.LastError, "panic") {
				wrong = append(wrong, fmt.Errorf("receipt of %s is %s (%s)", r.Key.EventID, r.State, r.LastError))
			}
		}
		if len(page.Receipts) != len(want) {
			wrong = append(wrong, fmt.Errorf("%d receipts; want %d", len(page.Receipts), len(want)))
		}
		if len(wrong) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(wrong...)
		}
	}
}
