package e2e_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A conversation is one as the admin API shows it.
type conversation struct {
	ID         string     `json:"id"`
	Tenant     string     `json:"tenant"`
	Platform   string     `json:"platform"`
	Account    string     `json:"account"`
	ExternalID string     `json:"external_id"`
	Status     string     `json:"status"`
	ClosedAt   *time.Time `json:"closed_at"`
}

// conversations returns those that a query such as "tenant=acme" selects.
func (in *instance) conversations(query string) []conversation {
	in.t.Helper()
	var page struct{ Conversations []conversation }
	if status := in.ask(http.MethodGet, "/api/v1/conversations?limit=1000&"+query, nil, &page); status != http.StatusOK {
		in.t.Fatalf("conversations: status %d", status)
	}
	return page.Conversations
}

// texts returns what the messages of a conversation said, oldest first.
func (in *instance) texts(conversation string) (texts []string) {
	in.t.Helper()
	var page struct {
		Messages []struct{ Text, Content string }
	}
	if status := in.ask(http.MethodGet, "/api/v1/conversations/"+conversation+"/messages?limit=1000", nil, &page); status != http.StatusOK {
		in.t.Fatalf("messages: status %d", status)
	}
	for _, m := range page.Messages {
		if m.Content != "kept" {
			in.t.Errorf("a message's content is %s; want kept", m.Content)
		}
		texts = append([]string{m.Text}, texts...)
	}
	return texts
}

// wantOneConversation checks that the messages of texts, and no others, stand in the conversation
// under which the application got each of them, and returns its id.
func (d *deployment) wantOneConversation(in *instance, texts ...string) string {
	d.t.Helper()
	id := ""
	for _, text := range texts {
		for _, got := range d.app.of(text) {
			if got.Data.Conversation.ID == "" || id != "" && got.Data.Conversation.ID != id {
				d.t.Errorf("%q came in conversation %q; want %q", text, got.Data.Conversation.ID, id)
			}
			id = got.Data.Conversation.ID
		}
	}
	if id == "" {
		d.t.Fatalf("the application got none of %q", texts)
	}
	found := map[string]int{}
	for _, text := range in.texts(id) {
		found[strings.TrimSpace(text)]++
	}
	for _, text := range texts {
		if found[text] != 1 {
			d.t.Errorf("%q stands %d times in its conversation; want once", text, found[text])
		}
	}
	if len(found) != len(texts) {
		d.t.Errorf("the conversation has %d messages; want %d", len(found), len(texts))
	}
	return id
}

// BR-109: first messages that come at once, over two instances, open one conversation, of every
// vendor and for each tenant its own. Copies of them change nothing.
func TestFirstMessagesOfACustomerMakeOneConversation(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	a, b := d.two()
	const each = 8
	var all, ids []string
	for _, name := range []string{"acme-slack", "globex-slack", "acme-twilio", "bot-a", "globex-bot"} {
		var sent []message
		var texts []string
		for range each {
			m := d.write(install(name)).in("15550199")
			sent, texts = append(sent, m), append(texts, m.text)
		}
		for _, got := range storm(2*each, func(i int) *http.Request { return sent[i/2].again(i%2).request(t, []*instance{a, b}[i%2]) }) {
			if got.status != http.StatusOK {
				t.Errorf("%s: a delivery got %v", name, got)
			}
		}
		all = append(all, texts...)
		d.rest()
		ids = append(ids, d.wantOneConversation(a, texts...))
	}
	d.once(all...)
	if got := b.conversations(""); len(got) != len(ids) {
		t.Errorf("%d conversations; want %d", len(got), len(ids))
	}
	theirs := b.conversations("tenant=globex&status=pending")
	for _, c := range theirs {
		if c.Tenant != "globex" {
			t.Errorf("globex is shown a conversation of %s", c.Tenant)
		}
	}
	if len(theirs) != 2 {
		t.Errorf("globex has %d conversations; want 2", len(theirs))
	}
}

func TestClosedConversationIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		write := func() string {
			m := d.write(install("acme-slack")).in("15550199")
			m.send(t, in).want(t, http.StatusOK, "admitted")
			d.rest()
			return m.text
		}
		one, two := write(), write()
		first := d.wantOneConversation(in, one, two)
		out, err := exec.CommandContext(t.Context(), program, "conversations", "close", first, "--admin", in.admin, "--token", adminToken).CombinedOutput()
		if err != nil {
			t.Fatalf("close: %v: %s", err, out)
		}
		if status := in.ask(http.MethodPost, "/api/v1/conversations/"+first+"/close", nil, nil); status != http.StatusConflict {
			t.Errorf("closed again: status %d; want 409", status)
		}
		three := write()
		second := d.wantOneConversation(in, three)
		d.wantOneConversation(in, one, two)
		for _, c := range in.conversations("") {
			if want := map[string]string{first: "closed", second: "pending"}[c.ID]; c.Status != want || (c.ClosedAt == nil) == (want == "closed") {
				t.Errorf("conversation %+v; want it %s", c, want)
			}
		}
		out, err = exec.CommandContext(t.Context(), program, "conversations", "messages", second, "--admin", in.admin, "--token", adminToken).CombinedOutput()
		if err != nil || !strings.Contains(string(out), three) {
			t.Errorf("messages = %s, %v; want %q", out, err, three)
		}
		d.once(one, two, three)
	})
}

// A sender of mail has a conversation for each thread, however its mails arrive.
func TestMailThreadsAreConversations(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		send := func(id, header string) string {
			text := d.text()
			raw := strings.Replace(string(mail(id+"@example.org", id, text)), "\r\n\r\n", "\r\n"+header+"\r\n", 1)
			deliver(signMail(t, in, []byte(raw))).want(t, http.StatusOK, "admitted")
			d.rest()
			return text
		}
		root, other := send("root", ""), send("other", "")
		replies := []string{
			send("reply1", "In-Reply-To: <root@example.org>\r\n"),
			send("reply2", "References: <root@example.org> <reply1@example.org>\r\nIn-Reply-To: <reply1@example.org>\r\n"),
		}
		d.wantOneConversation(in, append(replies, root)...)
		d.wantOneConversation(in, other)
		got := in.conversations("platform=email")
		if len(got) != 2 {
			t.Errorf("the mailbox has %d conversations; want 2", len(got))
		}
		for _, c := range got {
			if want := map[string]bool{"root@example.org": true, "other@example.org": true}; !want[c.ExternalID] || c.Status != "pending" {
				t.Errorf("conversation %+v; want a pending one of a thread", c)
			}
		}
	})
}

// A retry, a replay and another instance dispatch a message in the conversation that it was
// recorded in, though it was closed meanwhile.
func TestMessageKeepsItsConversationAtEveryAttempt(t *testing.T) {
	t.Parallel()
	onBoth(t, settings{"policy": settings{"backoff": settings{"initial": "50ms", "max": "50ms"}}}, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		d.app.reacts(func(got dispatch) reaction {
			if got.Attempt == 1 {
				return reaction{status: http.StatusServiceUnavailable}
			}
			return reaction{}
		})
		m := d.write(install("acme-slack"))
		m.send(t, in).want(t, http.StatusOK, "admitted")
		all := d.rest()
		id := d.wantOneConversation(in, m.text)
		if status := in.ask(http.MethodPost, "/api/v1/conversations/"+id+"/close", nil, nil); status != http.StatusOK {
			t.Fatalf("close: status %d", status)
		}
		if status := in.ask(http.MethodPost, fmt.Sprintf("/api/v1/receipts/%s/replay", all[0].ID), nil, nil); status != http.StatusOK {
			t.Fatalf("replay: status %d", status)
		}
		await(t, "the replay is dispatched", func() bool { return len(d.app.of(m.text)) == 3 })
		d.rest()
		d.wantOneConversation(in, m.text)
	})
}
