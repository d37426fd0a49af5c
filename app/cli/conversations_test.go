package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
)

const aConversation = `{"id":"01c1","tenant":"acme","platform":"slack","account":"T0ACME001","external_id":"C0GENERAL","status":"pending",` +
	`"opened_at":"2026-11-30T12:00:00Z","closed_at":null,"closed_by":"","added_later":1}`

func aMessage(id, text, content string) string {
	return `{"id":"` + id + `","message_key":"k","event_id":"e","state":"handled","received_at":"2026-11-30T12:00:00Z","content":"` + content + `",` +
		`"sent_at":null,"thread":"","sender":{"id":"U0","name":"Ida"},"text":"` + text + `",` +
		`"attachments":[{"url":"https://files.example.com/1","type":"image/png","name":"a.png","size":3}]}`
}

func (l *ledger) conversations(args ...string) result {
	return admitone(append([]string{"conversations", args[0], "--admin", l.URL}, args[1:]...)...)
}

func TestConversationsAreListedUpToTheLimit(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string]string{
		"GET /api/v1/conversations limit=3&platform=slack&status=pending&tenant=acme":          `{"conversations":[` + aConversation + `,` + aConversation + `],"next":"b"}`,
		"GET /api/v1/conversations cursor=b&limit=1&platform=slack&status=pending&tenant=acme": `{"conversations":[` + aConversation + `],"next":"c"}`,
		"GET /api/v1/conversations limit=100":                                                  `{"conversations":[],"next":""}`,
		"GET /api/v1/conversations limit=1":                                                    `{"conversations":[` + aConversation + `],"next":""}`,
	})
	got := l.conversations("list", "--tenant", "acme", "--platform", "slack", "--status", "pending", "--limit", "3")
	if got.code != 0 || strings.Count(got.stdout, "01c1") != 3 || !strings.Contains(got.stdout, "there are more (--limit)") {
		t.Errorf("list = %+v after %q; want 3 conversations of 2 pages and that there are more", got, l.asked)
	}
	if got := l.conversations("list"); got.code != 0 || got.stdout != "no conversations\n" {
		t.Errorf("list of nothing = %+v", got)
	}
	var page struct {
		Conversations []map[string]any
		Next          *string
	}
	got = l.conversations("list", "--limit", "1", "--json")
	if err := json.Unmarshal([]byte(got.stdout), &page); err != nil || len(page.Conversations) != 1 || page.Conversations[0]["added_later"] == nil || page.Next == nil {
		t.Errorf("list --json = %+v, %v; want the conversation with every field", got, err)
	}
	for _, args := range [][]string{{"--status", "open"}, {"--limit", "0"}} {
		if got := l.conversations(append([]string{"list"}, args...)...); got.code != 2 {
			t.Errorf("list %q = %+v; want code 2", args, got)
		}
	}
}

// The last line is the last message; what strangers wrote can't steer the terminal.
func TestMessagesAreShownInTheirOrder(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string]string{
		"GET /api/v1/conversations/01c1/messages limit=20": `{"messages":[` + aMessage("01a3", "", "pruned") + `,` + aMessage("01a2", `second\n\u001b]0;owned\u0007`, "kept") +
			`,` + aMessage("01a1", "first", "kept") + `],"next":""}`,
		"GET /api/v1/conversations/01c1/messages limit=1": `{"messages":[` + aMessage("01a2", "second", "kept") + `],"next":"x"}`,
	})
	got := l.conversations("messages", "01c1")
	at := -1
	for _, say := range []string{"01a1", "Ida (U0)", "\n    first\n", "a.png image/png", "01a2", "\n    second\n", "01a3", "what it said is pruned"} {
		i := strings.Index(got.stdout, say)
		if got.code != 0 || i < at {
			t.Errorf("messages = %+v; want %q after what came before it", got, say)
		}
		at = i
	}
	if strings.ContainsAny(got.stdout, "\x1b\x07") {
		t.Errorf("%q; want no control characters", got.stdout)
	}
	if got := l.conversations("messages", "01c1", "--limit", "1"); !strings.Contains(got.stdout, "the last 1; there are more (--limit)") {
		t.Errorf("messages of more = %+v; want that there are more", got)
	}
	if got := l.conversations("messages", "01c9"); got.code != 1 || !strings.Contains(got.stderr, "(404)") {
		t.Errorf("messages of none = %+v; want code 1", got)
	}
}

func TestConversationIsClosed(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string]string{
		"POST /api/v1/conversations/01c1/close": `{"closed":1}`,
		"POST /api/v1/conversations/01c2/close": `409 {"status":409,"detail":"not allowed in this state"}`,
	})
	if got := l.conversations("close", "01c1"); got.code != 0 || got.stdout != "closed\n" {
		t.Errorf("close = %+v; want closed", got)
	}
	if got := l.conversations("close", "01c1", "--json"); got.code != 0 || !strings.Contains(got.stdout, `"closed": 1`) {
		t.Errorf("close --json = %+v; want what the server says", got)
	}
	if got := l.conversations("close", "01c2"); got.code != 1 || !strings.Contains(got.stderr, "01c2: not allowed in this state (409)") {
		t.Errorf("close of a closed one = %+v; want code 1", got)
	}
}
