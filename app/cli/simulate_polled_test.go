package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/admitone/admitone/channels/gmail"
)

// A server finds a vendor that it polls where --url says, and takes each mail in once.
func TestPolledVendorIsSimulatedWhereTheServerLooks(t *testing.T) {
	t.Parallel()
	type section = map[string]any
	vendor, listen, admin := "http://"+freeAddress(t), freeAddress(t), freeAddress(t)
	_, cred, err := gmail.New().SimulateVendor(vendor)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text, err := yaml.Marshal(section{
		"server": section{"listen": listen, "admin_listen": admin},
		"store":  section{"durable": section{"driver": "sqlite", "dsn": filepath.Join(dir, "a.db")}, "journal": section{"path": ""}},
		"tenants": []section{{"id": "demo", "installations": []section{{
			"id": "demo-gmail", "channel": "gmail", "account": cred.Account,
			"secrets": section{"credentials": cred.Secrets["credentials"][0]}, "settings": section(cred.Settings),
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "admitone.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, nil, "serve", "--config", file)
	eventually(t, "the server is ready", func() bool { return strings.Contains(get("http://"+admin+"/readyz"), `"ready":true`) })

	for _, event := range []string{"one", "two", "one"} { // the third run is a repeat, to a mailbox made anew
		got := admitone("simulate", "gmail", "--url", vendor, "--race", "3", "--retries", "2", "--event-id", event)
		if got.code != 0 || !strings.Contains(got.stdout, "5 sent, all fetched") {
			t.Fatalf("simulate gmail = %+v; want 5 mails fetched", got)
		}
	}
	eventually(t, "both mails are handled, once each", func() bool {
		return strings.Count(admitone("receipts", "list", "--admin", "http://"+admin).stdout, " handled ") == 2
	})
	if metrics := get("http://" + admin + "/metrics"); !strings.Contains(metrics, `admitone_poll_lag_seconds{installation="demo-gmail"}`) {
		t.Error("the lag of the mailbox is not among the metrics")
	}
	if got := admitone("simulate", "gmail", "--secret", "x"); got.code != 2 {
		t.Errorf("simulate gmail with a secret = %+v; want code 2", got)
	}
}
