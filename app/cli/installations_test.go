package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const oneInstallation = `{"id":"acme-slack","tenant":"acme","channel":"slack","account":"T0ACME001","state":"paused",` +
	`"secrets":{"signing_secret":2},"settings":{},"policy":{"fast_ttl":"30h"},"dispatch":{"url":"https://app.example.com"},` +
	`"unreadable":false,"quarantined":3,"created_at":"2026-11-30T12:00:00Z","changed_at":"2026-11-30T12:00:00Z"}`

func (l *ledger) installations(args ...string) result {
	return admitone(append([]string{"installations", args[0], "--admin", l.URL}, args[1:]...)...)
}

func TestInstallationsAreListedAndShown(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string]string{
		"GET /api/v1/installations limit=100&tenant=acme": `{"installations":[` + oneInstallation + `],"next":""}`,
		"GET /api/v1/installations limit=100":             `{"installations":[],"next":""}`,
		"GET /api/v1/installations/acme-slack":            oneInstallation,
	})
	for _, got := range []result{l.installations("list", "--tenant", "acme"), l.installations("show", "acme-slack")} {
		for _, say := range []string{"acme-slack", "paused", "T0ACME001", "signing_secret (2)"} {
			if got.code != 0 || !strings.Contains(got.stdout, say) {
				t.Errorf("%+v lacks %q", got, say)
			}
		}
	}
	if got := l.installations("list"); got.code != 0 || got.stdout != "no installations in the database\n" {
		t.Errorf("list of nothing = %+v", got)
	}
	if got := l.installations("list", "--json"); got.code != 0 || !strings.Contains(got.stdout, `"installations": []`) {
		t.Errorf("list --json of nothing = %+v", got)
	}
	if got := l.installations("show", "none"); got.code != 1 || !strings.Contains(got.stderr, "none") {
		t.Errorf("show of none = %+v; want code 1", got)
	}
}

func TestInstallationCommandsAskForWhatTheySay(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("from the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
		says string
	}{
		{
			[]string{
				"add", "x", "--tenant", "acme", "--channel", "slack", "--account", "T1", "--secret", "signing_secret=file:" + secret, "--secret",
				"signing_secret=b=c", "--setting", "addresses=[a, b]", "--policy", "backoff.max=1m", "--policy", "rate_limit=5",
				"--dispatch-url", "http://h/", "--paused",
			},
			`POST /api/v1/installations {"account":"T1","channel":"slack","dispatch":{"url":"http://h/"},"id":"x",` +
				`"policy":{"backoff":{"max":"1m"},"rate_limit":5},"secrets":{"signing_secret":["from the file","b=c"]},` +
				`"settings":{"addresses":["a","b"]},"state":"paused","tenant":"acme"}`,
			"/in/slack/x",
		},
		{[]string{"pause", "acme-slack"}, `PATCH /api/v1/installations/acme-slack {"state":"paused"}`, "paused"},
		{[]string{"resume", "acme-slack"}, `PATCH /api/v1/installations/acme-slack {"state":"active"}`, "resumed"},
		{[]string{"remove", "acme-slack"}, "DELETE /api/v1/installations/acme-slack", "removed"},
		{
			[]string{"rotate", "acme-slack", "--secret", "signing_secret=new"},
			`POST /api/v1/installations/acme-slack/rotate {"secrets":{"signing_secret":["new"]}}`, "signing_secret (2)",
		},
		{[]string{"rotate", "acme-slack", "--drop-old"}, `POST /api/v1/installations/acme-slack/rotate {"drop_old":true}`, "live now"},
		{[]string{"recheck", "acme-slack"}, "POST /api/v1/installations/acme-slack/recheck", "3 requests: 2 authentic, 1 not"},
	} {
		l := newLedger(t, map[string]string{
			"POST /api/v1/installations":                    oneInstallation,
			"PATCH /api/v1/installations/acme-slack":        oneInstallation,
			"DELETE /api/v1/installations/acme-slack":       `{"removed":1}`,
			"POST /api/v1/installations/acme-slack/rotate":  oneInstallation,
			"POST /api/v1/installations/acme-slack/recheck": `{"requests":3,"accepted":2,"refused":1}`,
		})
		got := l.installations(tt.args...)
		if got.code != 0 || !strings.Contains(got.stdout, tt.says) || !slices.Equal(l.asked, []string{tt.want}) {
			t.Errorf("%v = %+v, asked %q; want %q and %q", tt.args, got, l.asked, tt.want, tt.says)
		}
	}
}

func TestUnfitInstallationIsToldWithoutItsSecret(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string]string{
		"POST /api/v1/installations": `422 {"status":422,"detail":"validation failed","errors":[{"location":"body","message":"channel: unknown channel"}]}`,
	})
	got := l.installations("add", "x", "--tenant", "a", "--channel", "b", "--account", "c", "--secret", "signing_secret=hush")
	if got.code != 1 || !strings.Contains(got.stderr, "unknown channel") || strings.Contains(got.stderr+got.stdout, "hush") {
		t.Errorf("%+v; want code 1, what is wrong, and no secret", got)
	}
}
