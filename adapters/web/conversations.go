package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A Conversation is a conversation as the admin API shows it.
type Conversation struct {
	ID         string     `json:"id" format:"uuid" doc:"That of the receipt which opened it."`
	Tenant     string     `json:"tenant"`
	Platform   string     `json:"platform"`
	Account    string     `json:"account"`
	ExternalID string     `json:"external_id" doc:"The vendor's id; of mail, the Message-ID that began the thread."`
	Status     string     `json:"status" enum:"pending,closed"`
	OpenedAt   *time.Time `json:"opened_at"`
	ClosedAt   *time.Time `json:"closed_at"`
	ClosedBy   string     `json:"closed_by"`
}

// A Message is a message of a conversation as the admin API shows it. What it said is known as
// long as its payload is kept.
type Message struct {
	ID          string       `json:"id" format:"uuid" doc:"That of its receipt."`
	MessageKey  string       `json:"message_key"`
	EventID     string       `json:"event_id"`
	State       string       `json:"state" enum:"claimed,dispatching,retrying,handled,failed,lost,discarded" doc:"Of its receipt."`
	ReceivedAt  *time.Time   `json:"received_at"`
	Content     string       `json:"content" enum:"kept,pruned,unreadable" doc:"Whether it is known what the message said. If not, the fields below are empty."`
	SentAt      *time.Time   `json:"sent_at" doc:"By the vendor's clock; null if it does not say."`
	Thread      string       `json:"thread" doc:"The vendor's id of the thread within the conversation."`
	Sender      Sender       `json:"sender"`
	Text        string       `json:"text"`
	Attachments []Attachment `json:"attachments" nullable:"false"`
}

// A Sender is who sent a message.
type Sender struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// An Attachment is a file that came with a message.
type Attachment struct {
	URL  string `json:"url"`
	Type string `json:"type"`
	Name string `json:"name"`
	Size int64  `json:"size" doc:"In bytes; 0 if not told."`
}

// The values of Message.Content.
const (
	contentKept       = "kept"
	contentPruned     = "pruned"
	contentUnreadable = "unreadable"
)

type conversationsInput struct {
	Tenant   string `query:"tenant"`
	Platform string `query:"platform"`
	Status   string `query:"status" enum:"pending,closed"`
	Limit    int    `query:"limit" minimum:"0" maximum:"1000" default:"100"`
	Cursor   string `query:"cursor" doc:"next of the page before."`
}

type conversationsOutput struct {
	Body struct {
		Conversations []Conversation `json:"conversations" nullable:"false"`
		Next          string         `json:"next" doc:"The cursor of the next page; empty on the last one."`
	}
}

type messagesInput struct {
	ID     string `path:"id"`
	Limit  int    `query:"limit" minimum:"0" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" doc:"next of the page before."`
}

type messagesOutput struct {
	Body struct {
		Messages []Message `json:"messages" nullable:"false"`
		Next     string    `json:"next" doc:"The cursor of the next page; empty on the last one."`
	}
}

type closeOutput struct {
	Body struct {
		Closed int `json:"closed"`
	}
}

func (a *admin) registerConversations() {
	tags := []string{"conversations"}
	register(a, huma.Operation{
		OperationID: "list-conversations", Method: http.MethodGet, Path: "/api/v1/conversations", Tags: tags,
		Summary: "A page of conversations, those opened last first",
		Errors:  []int{http.StatusUnprocessableEntity},
	}, a.conversations)
	register(a, huma.Operation{
		OperationID: "list-messages", Method: http.MethodGet, Path: "/api/v1/conversations/{id}/messages", Tags: tags,
		Summary: "A page of a conversation's messages, newest first",
		Errors:  []int{http.StatusNotFound, http.StatusUnprocessableEntity},
	}, a.messages)
	register(a, huma.Operation{
		OperationID: "close-conversation", Method: http.MethodPost, Path: "/api/v1/conversations/{id}/close", Tags: tags,
		Summary:     "Close a pending conversation",
		Description: "The next message opens another.",
		Errors:      []int{http.StatusNotFound, http.StatusConflict},
	}, a.closeConversation)
}

func (a *admin) conversations(ctx context.Context, in *conversationsInput) (*conversationsOutput, error) {
	if err := texts("query", field{"tenant", in.Tenant}, field{"platform", in.Platform}, field{"cursor", in.Cursor}); err != nil {
		return nil, err
	}
	page, err := a.Conversations.Conversations(ctx, ports.ConversationFilter{
		Tenant: in.Tenant, Platform: in.Platform, Status: domain.ConversationStatus(in.Status), Limit: in.Limit, Cursor: in.Cursor,
	})
	if err != nil {
		return nil, fmt.Errorf("list conversations: %w", err)
	}
	out := new(conversationsOutput)
	out.Body.Conversations, out.Body.Next = each(page.Conversations, conversationOf), page.Next
	return out, nil
}

func conversationOf(c ports.Conversation) Conversation {
	return Conversation{
		ID: c.ID, Tenant: c.Tenant, Platform: c.Platform, Account: c.Account, ExternalID: c.ExternalID, Status: string(c.Status),
		OpenedAt: instant(c.OpenedAt), ClosedAt: instant(c.ClosedAt), ClosedBy: c.ClosedBy,
	}
}

func (a *admin) messages(ctx context.Context, in *messagesInput) (*messagesOutput, error) {
	page, err := a.Conversations.Messages(ctx, in.ID, in.Limit, in.Cursor)
	if err != nil {
		return nil, fmt.Errorf("list messages: %w", err)
	}
	out := new(messagesOutput)
	out.Body.Next = page.Next
	out.Body.Messages = make([]Message, len(page.Receipts))
	for i, r := range page.Receipts {
		if out.Body.Messages[i], err = a.message(ctx, r); err != nil {
			return nil, fmt.Errorf("read message: %w", err)
		}
	}
	return out, nil
}

// message reads what one message says. It does so one by one: a payload may be a whole mail.
func (a *admin) message(ctx context.Context, r domain.Receipt) (Message, error) {
	m := Message{
		ID: r.ID, MessageKey: r.MessageKey, EventID: r.Key.EventID, State: string(r.State), ReceivedAt: instant(r.ClaimedAt),
		Content: contentKept, Attachments: []Attachment{},
	}
	var err error
	r.Payload, err = a.Conversations.Payload(ctx, r.Key.Tenant, r.ID)
	if errors.Is(err, domain.ErrNotFound) {
		m.Content = contentPruned
		return m, nil
	}
	if err != nil {
		return m, err
	}
	c, err := a.Content(r)
	if err != nil {
		a.Log.WarnContext(ctx, "a message can't be read", "receipt", r.ID, "tenant", r.Key.Tenant, "channel", r.Channel)
		m.Content = contentUnreadable
		return m, nil //nolint:nilerr // that it can't be read is the answer
	}
	m.SentAt, m.Thread, m.Sender, m.Text = instant(c.Time), c.Conversation.Thread, Sender(c.Sender), c.Text
	for _, f := range c.Attachments {
		m.Attachments = append(m.Attachments, Attachment(f))
	}
	return m, nil
}

func (a *admin) closeConversation(ctx context.Context, in *changeInput) (*closeOutput, error) {
	if err := a.Conversations.CloseConversation(ctx, in.ID, in.by); err != nil {
		return nil, fmt.Errorf("close conversation: %w", err)
	}
	out := new(closeOutput)
	out.Body.Closed = 1
	return out, nil
}
