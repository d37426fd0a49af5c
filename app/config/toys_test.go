package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/app/config"
	"github.com/admitone/admitone/channels"
)

// toys are channels as far as a configuration sees them, with the names that the contract
// gives to their secrets and settings.
var toys = []channels.Channel{
	toy("slack", "slack", 24*time.Hour+6*time.Minute, true, nil, "signing_secret"),
	toy("telegram", "telegram", 24*time.Hour, false, nil, "secret_token"),
	toy("teams", "teams", time.Hour, true, []string{"app_id", "openid_metadata"}),
	toy("cfworker", "email", 5*24*time.Hour, true, []string{"addresses"}, "signing_key"),
	toy("gmail", "email", time.Hour, false, []string{"endpoint", "poll_interval", "query"}, "credentials"),
	func() channels.Channel {
		c := toy("twilio", "twilio", 4*time.Hour, true, nil, "auth_token")
		c.Secrets = append(c.Secrets, channels.Secret{Name: "shared_key", Optional: true})
		c.Vendor.ComesAgain = false
		return c
	}(),
}

func toy(name, platform string, window time.Duration, appWide bool, settings []string, secrets ...string) channels.Channel {
	c := channels.Channel{
		Name: name, Platform: platform, AppWide: appWide, Settings: settings,
		Vendor: channels.Vendor{RetryWindow: window, ComesAgain: true},
	}
	for _, s := range secrets {
		c.Secrets = append(c.Secrets, channels.Secret{Name: s})
	}
	return c
}

// load loads text as a file in a folder of its own.
func load(t *testing.T, text string, environ ...string) (*config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "admitone.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(path, environ, toys)
}

func mustLoad(t *testing.T, text string, environ ...string) *config.Config {
	t.Helper()
	c, err := load(t, text, environ...)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return c
}

// wantErrors fails unless err is the join of errors with just these texts, in whatever order.
func wantErrors(t *testing.T, err error, want ...string) {
	t.Helper()
	var got []string
	if joined := interface{ Unwrap() []error }(nil); errors.As(err, &joined) {
		for _, e := range joined.Unwrap() {
			got = append(got, e.Error())
			if k := (*config.KeyError)(nil); !errors.As(e, &k) {
				t.Errorf("%q is no KeyError", e)
			}
		}
	} else if err != nil {
		t.Fatalf("Load = %v; want errors by key", err)
	}
	for _, w := range want {
		found := false
		for _, g := range got {
			found = found || g == w
		}
		if !found {
			t.Errorf("lacks the error\n\t%s", w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d errors; want %d", len(got), len(want))
	}
	if t.Failed() {
		t.Logf("the errors are\n\t%s", strings.Join(got, "\n\t"))
	}
}

const acme = `
tenants:
  - id: acme
    installations:
      - id: acme-slack
        channel: slack
        account: T0ACME001
        secrets: {signing_secret: "s3cret"}
`
