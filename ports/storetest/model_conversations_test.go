package storetest_test

import (
	"cmp"
	"context"
	"slices"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// record finds or opens the conversation of r, which has won or, with a bug, lost.
func (m *model) record(r *domain.Receipt) {
	if (r.Kind != domain.MessageCreated && !m.has("records every kind")) || r.Conversation == "" && !m.has("makes a conversation of none") {
		return
	}
	external := r.Conversation
	if m.has("keeps a mailbox in one conversation") && r.Key.Platform == "email" {
		external = ""
	}
	find := func() int {
		return slices.IndexFunc(m.conversations, func(c *ports.Conversation) bool {
			return (c.Status == domain.ConversationPending || m.has("joins what is closed")) && c.ExternalID == external &&
				(c.Tenant == r.Key.Tenant || m.has("joins other tenants' conversations")) &&
				c.Platform == r.Key.Platform && c.Account == r.Key.Account && !m.has("opens a conversation for each message")
		})
	}
	i := find()
	m.gap("looks, then opens")
	if !m.has("looks, then opens") {
		i = find()
	}
	if i < 0 {
		m.conversations = append(m.conversations, &ports.Conversation{
			ID: r.ID, Tenant: r.Key.Tenant, Platform: r.Key.Platform, Account: r.Key.Account, ExternalID: external,
			Status: domain.ConversationPending, OpenedAt: r.ClaimedAt.UTC(),
		})
		i = len(m.conversations) - 1
	}
	r.ConversationID = m.conversations[i].ID
}

// bury deletes the conversations that have no message left.
func (m *model) bury(tenant string) {
	if m.has("keeps conversations for ever") {
		return
	}
	m.conversations = slices.DeleteFunc(m.conversations, func(c *ports.Conversation) bool {
		lives := slices.ContainsFunc(m.rows, func(o *row) bool {
			return o.ConversationID == c.ID && (o.State.Open() || !m.has("buries conversations with their first message"))
		})
		return c.Tenant == tenant && !lives
	})
}

func (m *model) conversation(id string) *ports.Conversation {
	i := slices.IndexFunc(m.conversations, func(c *ports.Conversation) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return m.conversations[i]
}

func (m *model) Conversations(ctx context.Context, f ports.ConversationFilter) (p ports.ConversationPage, err error) {
	if err := m.lock(ctx); err != nil {
		return p, err
	}
	defer m.mu.Unlock()
	for _, c := range m.conversations {
		if (f.Tenant == "" || f.Tenant == c.Tenant) && (f.Platform == "" || f.Platform == c.Platform) &&
			(f.Status == "" || f.Status == c.Status || m.has("filters no statuses")) && (f.Cursor == "" || c.ID < f.Cursor) {
			p.Conversations = append(p.Conversations, *c)
		}
	}
	slices.SortFunc(p.Conversations, func(a, b ports.Conversation) int { return cmp.Compare(b.ID, a.ID) })
	if limit := cmp.Or(f.Limit, 100); len(p.Conversations) > limit {
		p.Conversations = p.Conversations[:limit]
		p.Next = p.Conversations[limit-1].ID
	}
	return p, nil
}

func (m *model) Messages(ctx context.Context, conversation string, limit int, cursor string) (p ports.Page, err error) {
	if err := m.lock(ctx); err != nil {
		return p, err
	}
	defer m.mu.Unlock()
	if m.conversation(conversation) == nil {
		return p, domain.ErrNoConversation
	}
	for _, o := range m.rows {
		if (o.ConversationID == conversation || m.has("lists all messages everywhere") && o.ConversationID != "") && (cursor == "" || o.ID < cursor) {
			r := o.Receipt
			r.Payload, r.ConversationID = domain.Payload{}, conversation
			p.Receipts = append(p.Receipts, r)
		}
	}
	slices.SortFunc(p.Receipts, func(a, b domain.Receipt) int { return cmp.Compare(b.ID, a.ID) })
	if limit = cmp.Or(limit, 100); len(p.Receipts) > limit {
		p.Receipts = p.Receipts[:limit]
		p.Next = p.Receipts[limit-1].ID
	}
	return p, nil
}

func (m *model) Payload(ctx context.Context, tenant, receipt string) (domain.Payload, error) {
	if err := m.lock(ctx); err != nil {
		return domain.Payload{}, err
	}
	defer m.mu.Unlock()
	if m.has("shows other tenants' payloads") {
		tenant = ""
	}
	o := m.find(tenant, receipt)
	if o == nil || o.bare {
		return domain.Payload{}, domain.ErrNotFound
	}
	return o.Payload, nil
}

func (m *model) CloseConversation(ctx context.Context, id, by string) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	c := m.conversation(id)
	switch {
	case c == nil:
		return domain.ErrNoConversation
	case c.Status == domain.ConversationClosed && !m.has("closes again"):
		return domain.ErrState
	}
	c.Status, c.ClosedAt, c.ClosedBy = domain.ConversationClosed, now(), by
	return nil
}
