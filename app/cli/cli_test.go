package cli_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/admitone/admitone/app"
)

func TestWrongUsageIsToldWithCodeTwo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"sing"}, `unknown command "sing"`},
		{[]string{"receipts", "sing"}, `unknown command "sing"; admitone receipts --help`},
		{[]string{"version", "again"}, "unknown command"},
		{[]string{"version", "--loud"}, "--loud"},
		{[]string{"serve", "--config"}, "--config"},
		{[]string{"check", "admitone.yaml"}, "admitone.yaml"},
		{[]string{"migrate"}, "1 arg"},
		{[]string{"migrate", "sideways"}, "sideways"},
		{[]string{"demo", "now"}, "now"},
		{[]string{"simulate"}, "one channel: slack, twilio"},
		{[]string{"simulate", "slak"}, `no channel "slak"; there are slack`},
		{[]string{"simulate", "slack", "twilio"}, "one channel"},
		{[]string{"simulate", "slack", "--retries", "-1"}, "--retries"},
		{[]string{"simulate", "slack", "--retries", "many"}, "--retries"},
		{[]string{"simulate", "slack", "--race", "0"}, "--race"},
		{[]string{"simulate", "slack", "--interval", "-1s"}, "--interval"},
		{[]string{"simulate", "slack", "--url", "localhost"}, "--url"},
		{[]string{"simulate", "slack", "--url", "ftp://localhost"}, "--url"},
		{[]string{"simulate", "slack", "--secret", ""}, "--secret"},
		{[]string{"receipts", "list", "--admin", "ftp://localhost"}, "--admin"},
		{[]string{"receipts", "list", "--state", "gone"}, "claimed, dispatching"},
		{[]string{"receipts", "list", "--since", "yesterday"}, "--since"},
		{[]string{"receipts", "list", "--since", "-1h"}, "--since"},
		{[]string{"receipts", "list", "--limit", "0"}, "--limit"},
		{[]string{"receipts", "show"}, "1 arg"},
		{[]string{"receipts", "discard"}, "at least 1 arg"},
		{[]string{"receipts", "replay"}, "ids of receipts, or a filter"},
		{[]string{"receipts", "replay", "0192", "--state", "lost"}, "either ids or a filter"},
		{[]string{"receipts", "stats", "demo"}, "demo"},
		{[]string{"installations", "add"}, "1 arg"},
		{[]string{"installations", "add", "x", "--tenant", "acme", "--channel", "slack"}, "--account is needed"},
		{[]string{"installations", "add", "x", "--tenant", "a", "--channel", "b", "--account", "c", "--secret", "s"}, "NAME=VALUE"},
		{[]string{"installations", "add", "x", "--tenant", "a", "--channel", "b", "--account", "c", "--policy", "lease"}, "NAME=VALUE"},
		{[]string{"installations", "list", "--limit", "0"}, "--limit"},
		{[]string{"installations", "pause"}, "1 arg"},
		{[]string{"installations", "rotate", "x"}, "--drop-old"},
	} {
		got := admitone(tt.args...)
		if got.code != 2 || got.stdout != "" || !strings.Contains(got.stderr, tt.says) {
			t.Errorf("admitone %q = %+v; want code 2, nothing on stdout and %q on stderr", tt.args, got, tt.says)
		}
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"", "demo", "serve", "check", "migrate", "channels", "simulate", "version",
		"installations", "installations list", "installations show", "installations add", "installations pause",
		"installations resume", "installations rotate", "installations recheck", "installations remove",
		"conversations", "conversations list", "conversations messages", "conversations close",
		"receipts", "receipts list", "receipts show", "receipts replay", "receipts discard", "receipts stats",
	} {
		got := admitone(append(strings.Fields(command), "--help")...)
		usage := "Usage:\n  admitone"
		if command != "" {
			usage += " " + command
		}
		if got.code != 0 || !strings.Contains(got.stdout, usage) || got.stderr != "" {
			t.Errorf("admitone %s --help = %+v; want code 0 and %q", command, got, usage)
		}
	}
}

func TestHelpListsEveryCommand(t *testing.T) {
	t.Parallel()
	got := admitone()
	for _, command := range []string{"demo", "serve", "check", "migrate", "receipts", "installations", "conversations", "channels", "simulate", "version"} {
		if !strings.Contains(got.stdout, "\n  "+command+" ") {
			t.Errorf("admitone alone does not list %s:\n%s", command, got.stdout)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	got := admitone("version")
	if got.code != 0 || !strings.HasPrefix(got.stdout, "admitone ") || !strings.Contains(got.stdout, "\ncommit ") ||
		!strings.Contains(got.stdout, runtime.Version()) {
		t.Errorf("admitone version = %+v; want version, commit and %s", got, runtime.Version())
	}
}

// A keyRow is one of `admitone channels --json`.
type keyRow struct {
	Channel         string `json:"channel"`
	Platform        string `json:"platform"`
	EventID         string `json:"event_id"`
	Scope           string `json:"scope"`
	Fallback        string `json:"fallback"`
	MessageKey      string `json:"message_key"`
	Unnumbered      string `json:"unnumbered"`
	Deadline        string `json:"deadline"`
	RetryWindow     string `json:"retry_window"`
	AfterAnError    string `json:"after_an_error"`
	ComesAgain      bool   `json:"comes_again_after_503"`
	Acknowledgement string `json:"acknowledgement"`
	Source          string `json:"source"`
}

func keyTable(t *testing.T) []keyRow {
	t.Helper()
	got := admitone("channels", "--json")
	var rows []keyRow
	if err := json.Unmarshal([]byte(got.stdout), &rows); err != nil || got.code != 0 {
		t.Fatalf("admitone channels --json = %+v, %v", got, err)
	}
	return rows
}

func TestKeyTableTellsOfEveryChannel(t *testing.T) {
	t.Parallel()
	rows := keyTable(t)
	text := admitone("channels").stdout
	for i, c := range app.Channels() {
		if i >= len(rows) || rows[i].Channel != c.Name || rows[i].EventID != c.Vendor.EventID {
			t.Fatalf("row %d is not that of %s: %+v", i, c.Name, rows)
		}
		v := reflect.ValueOf(rows[i])
		for f := range v.NumField() {
			if v.Field(f).Kind() == reflect.String && v.Field(f).Len() == 0 {
				t.Errorf("%s: %s is empty", c.Name, v.Type().Field(f).Name)
			}
		}
		for _, say := range []string{strings.ToUpper(c.Name), c.Vendor.EventID, c.Vendor.Behaviour} {
			if !strings.Contains(text, say) {
				t.Errorf("admitone channels does not say %q", say)
			}
		}
	}
}

const channelsHead = `# Channels: what makes two deliveries the same event

Made from the channels themselves: ` + "`admitone channels`" + ` prints the same, with ` + "`--json`" + ` for programs.
An event id is unique within its scope and the same at every retry; equal message keys are one
message under whatever event ids. The retry window is how long the vendor may send an event again,
and so the shortest retention of receipts that recognises every retry.
`

func TestChannelsAreDocumented(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(channelsHead)
	cell := func(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
	yes := map[bool]string{true: "yes", false: "no"}
	b.WriteString("\n| channel | platform | event id | message key | vendor waits | retry window | comes again after 503 |\n|---|---|---|---|---|---|---|\n")
	rows := keyTable(t)
	for _, r := range rows {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s | %s | %s |\n", r.Channel, r.Channel, r.Platform, cell(r.EventID), cell(r.MessageKey),
			r.Deadline, r.RetryWindow, yes[r.ComesAgain])
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "\n## %s\n\n| | |\n|---|---|\n", r.Channel)
		for _, f := range [][2]string{
			{"platform", r.Platform},
			{"event id", r.EventID},
			{"unique within", r.Scope},
			{"where the id is missing", r.Fallback},
			{"message key", r.MessageKey},
			{"no id, never repeated", r.Unnumbered},
			{"vendor waits", r.Deadline},
			{"retry window", r.RetryWindow},
			{"after an error", r.AfterAnError},
			{"comes again after 503", yes[r.ComesAgain]},
			{"acknowledgement", r.Acknowledgement},
			{"source", r.Source},
		} {
			fmt.Fprintf(&b, "| %s | %s |\n", f[0], cell(f[1]))
		}
	}
	same(t, "../../docs/channels.md", b.String())
}
