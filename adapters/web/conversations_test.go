package web_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

const (
	pendingID = "01920000-0000-7000-8000-000000000003"
	closedID  = "01920000-0000-7000-8000-000000000004"
	prunedID  = "01920000-0000-7000-8000-000000000005"
	brokenID  = "01920000-0000-7000-8000-000000000006"
)

// conversations holds a pending one with three messages and a closed one. away, if set, is what
// every call returns.
type conversations struct {
	away   error
	asked  ports.ConversationFilter
	closed []string
}

func (c *conversations) Conversations(_ context.Context, f ports.ConversationFilter) (ports.ConversationPage, error) {
	c.asked = f
	return ports.ConversationPage{Conversations: []ports.Conversation{
		{
			ID: pendingID, Tenant: "acme", Platform: "slack", Account: "T0ACME001", ExternalID: "C0GENERAL",
			Status: domain.ConversationPending, OpenedAt: claimed,
		},
		{ID: closedID, Status: domain.ConversationClosed, OpenedAt: claimed, ClosedAt: claimed, ClosedBy: "ann"},
	}, Next: closedID}, c.away
}

func (c *conversations) Messages(_ context.Context, id string, limit int, cursor string) (ports.Page, error) {
	if c.away != nil {
		return ports.Page{}, c.away
	}
	if id != pendingID || limit != 2 || cursor != "" {
		return ports.Page{}, domain.ErrNoConversation
	}
	bare := handledReceipt()
	bare.Payload = domain.Payload{}
	return ports.Page{Receipts: []domain.Receipt{bare, {ID: prunedID, State: domain.Handled}, {ID: brokenID, State: domain.Failed}}, Next: prunedID}, nil
}

func (c *conversations) Payload(_ context.Context, _, receipt string) (domain.Payload, error) {
	if receipt == prunedID {
		return domain.Payload{}, domain.ErrNotFound
	}
	return domain.Payload{Body: []byte("of " + receipt)}, c.away
}

func (c *conversations) CloseConversation(_ context.Context, id, by string) error {
	switch {
	case c.away != nil:
		return c.away
	case id == pendingID:
		c.closed = append(c.closed, by)
		return nil
	case id == closedID:
		return domain.ErrState
	}
	return domain.ErrNoConversation
}

// content reads the payloads of conversations but one.
func content(r domain.Receipt) (domain.Content, error) {
	if string(r.Payload.Body) != "of "+r.ID || r.ID == brokenID {
		return domain.Content{}, errors.Join(domain.ErrUnreadable, errors.New("text of a message"))
	}
	return domain.Content{
		Text: "good morning", Time: claimed, Sender: domain.Sender{ID: "U0", Name: "Ida"},
		Conversation: domain.Conversation{ExternalID: "C0GENERAL", Thread: "1.2"},
		Attachments:  []domain.Attachment{{URL: "https://files.example.com/1", Type: "image/png", Name: "a.png", Size: 3}},
	}, nil
}

func TestConversationsAreListed(t *testing.T) {
	t.Parallel()
	cfg := config(someLedger())
	kept := &conversations{}
	cfg.Conversations = kept
	a := serveAdmin(t, cfg)
	res, body := a.get("/api/v1/conversations?tenant=acme&platform=slack&status=pending&limit=2&cursor=x")
	want := map[string]any{
		"conversations": []any{
			map[string]any{
				"id": pendingID, "tenant": "acme", "platform": "slack", "account": "T0ACME001", "external_id": "C0GENERAL", "status": "pending",
				"opened_at": "2026-11-30T13:00:00.123456Z", "closed_at": nil, "closed_by": "",
			},
			map[string]any{
				"id": closedID, "tenant": "", "platform": "", "account": "", "external_id": "", "status": "closed",
				"opened_at": "2026-11-30T13:00:00.123456Z", "closed_at": "2026-11-30T13:00:00.123456Z", "closed_by": "ann",
			},
		},
		"next": closedID,
	}
	if got := object(t, body); res.StatusCode != http.StatusOK || !reflect.DeepEqual(got, want) {
		t.Errorf("conversations = %d %s; want %v", res.StatusCode, body, want)
	}
	asked := ports.ConversationFilter{Tenant: "acme", Platform: "slack", Status: domain.ConversationPending, Limit: 2, Cursor: "x"}
	if kept.asked != asked {
		t.Errorf("the store was asked for %+v; want %+v", kept.asked, asked)
	}
	for _, q := range []string{"status=open", "limit=1001", "tenant=a%00", "platform=%ff", "cursor=%00"} {
		if res, body := a.get("/api/v1/conversations?" + q); res.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("conversations?%s = %d %s; want 422", q, res.StatusCode, body)
		}
	}
}

// What a message said is read from its payload, for as long as that is kept.
func TestMessagesAreReadFromTheirPayloads(t *testing.T) {
	t.Parallel()
	cfg := config(someLedger())
	log := new(journal)
	cfg.Log = log.logger()
	a := serveAdmin(t, cfg)
	res, body := a.get("/api/v1/conversations/" + pendingID + "/messages?limit=2")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("messages = %d %s; want 200", res.StatusCode, body)
	}
	got := object(t, body)
	all, _ := got["messages"].([]any)
	if len(all) != 3 || got["next"] != prunedID {
		t.Fatalf("messages = %s; want three, and what is next", body)
	}
	want := map[string]any{
		"id": handledID, "message_key": "message:C0:1", "event_id": "A0/Ev0", "state": "handled", "content": "kept",
		"received_at": "2026-11-30T13:00:00.123456Z", "sent_at": "2026-11-30T13:00:00.123456Z", "thread": "1.2",
		"sender": map[string]any{"id": "U0", "name": "Ida"}, "text": "good morning",
		"attachments": []any{map[string]any{"url": "https://files.example.com/1", "type": "image/png", "name": "a.png", "size": 3.0}},
	}
	if !reflect.DeepEqual(all[0], want) {
		t.Errorf("a message is %v; want %v", all[0], want)
	}
	for i, state := range map[int]string{1: "pruned", 2: "unreadable"} {
		m := members(all[i])
		if m["content"] != state || m["text"] != "" || m["sent_at"] != nil || !reflect.DeepEqual(m["attachments"], []any{}) {
			t.Errorf("a message of which nothing is known is %v; want it %s and empty", m, state)
		}
	}
	if strings.Contains(log.String(), "text of a message") || !strings.Contains(log.String(), brokenID) {
		t.Errorf("the log is %q; want the receipt that can't be read, and nothing of its text", log)
	}
}

func TestConversationIsClosedOnce(t *testing.T) {
	t.Parallel()
	cfg := config(someLedger())
	kept := &conversations{}
	cfg.Conversations = kept
	a := serveAdmin(t, cfg)
	for id, want := range map[string]int{pendingID: http.StatusOK, closedID: http.StatusConflict, lostID: http.StatusNotFound, "none": http.StatusNotFound} {
		res, body := a.call(http.MethodPost, "/api/v1/conversations/"+id+"/close", "")
		if res.StatusCode != want {
			t.Errorf("close %s = %d %s; want %d", id, res.StatusCode, body, want)
		}
		if want == http.StatusOK && object(t, body)["closed"] != 1.0 {
			t.Errorf("close = %s; want one closed", body)
		}
		if want == http.StatusNotFound && object(t, body)["detail"] != "no such conversation" {
			t.Errorf("close of none = %s", body)
		}
	}
	if len(kept.closed) != 1 || !strings.HasPrefix(kept.closed[0], "admin API ") {
		t.Errorf("closed by %q; want the caller, once", kept.closed)
	}
	kept.away = domain.ErrUnavailable
	for _, op := range [][2]string{
		{"GET", "/api/v1/conversations"},
		{"GET", "/api/v1/conversations/" + pendingID + "/messages?limit=2"},
		{"POST", "/api/v1/conversations/" + pendingID + "/close"},
	} {
		if res, body := a.call(op[0], op[1], ""); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s without a store = %d %s; want 503", op, res.StatusCode, body)
		}
	}
}
