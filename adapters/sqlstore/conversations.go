package sqlstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

var _ ports.Conversations = (*Store)(nil)

// pgContents writes what stands beside receipts that were won: their payloads and, of messages,
// the message in its pending conversation, which it opens if there is none. For a message that an
// earlier try has recorded it opens nothing: its conversation may be closed since. It is a statement
// of its own, since that of the claim does not see what was committed while it waited for the locks
// of the conversations. Who holds these locks finds each conversation: nobody opens or closes one
// meanwhile.
var pgContents = pgStatement{"admitone_contents", `
WITH mine AS MATERIALIZED (
	SELECT v.tenant, v.id, v.media_type, v.body, v.key, c.id AS conversation_id,
		r.kind = 'message.created' AS message, r.platform, r.account, r.conversation, r.claimed_at
	FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bytea[], $5::uuid[]) v (tenant, id, media_type, body, key)
	JOIN receipts r ON r.tenant = v.tenant AND r.id = v.id
	LEFT JOIN conversations c ON c.open_key = v.key
), paid AS (
	INSERT INTO payloads (tenant, receipt_id, media_type, body) SELECT tenant, id, media_type, body FROM mine
	ON CONFLICT DO NOTHING
), opened AS (
	INSERT INTO conversations (tenant, id, platform, account, external_id, status, open_key, opened_at)
	SELECT tenant, id, platform, account, conversation, 'pending', key, claimed_at FROM mine
	WHERE message AND key IS NOT NULL AND conversation_id IS NULL
		AND NOT EXISTS (SELECT FROM messages m WHERE m.tenant = mine.tenant AND m.id = mine.id)
	ON CONFLICT DO NOTHING
	RETURNING id, open_key
)
INSERT INTO messages (tenant, id, conversation_id)
SELECT tenant, id, coalesce(conversation_id, (SELECT o.id FROM opened o WHERE o.open_key = mine.key)) FROM mine
WHERE message
ON CONFLICT DO NOTHING
RETURNING id, conversation_id`}

const liteOpen = `
INSERT INTO conversations (tenant, id, platform, account, external_id, status, open_key, opened_at)
VALUES (?, ?, ?, ?, ?, 'pending', ?, ?)
ON CONFLICT DO NOTHING`

const liteMessage = `
INSERT INTO messages (tenant, id, conversation_id)
VALUES (@tenant, @id, (SELECT c.id FROM conversations c WHERE c.tenant = @tenant AND c.open_key = @key))
RETURNING coalesce(conversation_id, '')`

// A conversationRow is a row of conversations.
type conversationRow struct {
	Tenant     string
	ID         string
	Platform   string
	Account    string
	ExternalID string
	Status     string
	OpenedAt   time.Time
	ClosedAt   *time.Time
	ClosedBy   string
}

const conversationColumns = `c.tenant, c.id, c.platform, c.account, c.external_id, c.status, c.opened_at, c.closed_at, c.closed_by`

func (r conversationRow) key() string { return r.ID }

func (r conversationRow) lane() int64 {
	return domain.Key{Tenant: r.Tenant, Platform: r.Platform, Account: r.Account}.Lane(r.ExternalID)
}

func (r conversationRow) conversation() ports.Conversation {
	return ports.Conversation{
		ID: r.ID, Tenant: r.Tenant, Platform: r.Platform, Account: r.Account, ExternalID: r.ExternalID,
		Status: domain.ConversationStatus(r.Status), OpenedAt: r.OpenedAt.UTC(), ClosedAt: timeOf(r.ClosedAt), ClosedBy: r.ClosedBy,
	}
}

// Conversations implements ports.Conversations.
func (s *Store) Conversations(ctx context.Context, f ports.ConversationFilter) (ports.ConversationPage, error) {
	limit := pageLimit(f.Limit)
	tenants, err := s.meant(ctx, f.Tenant)
	if err != nil {
		return ports.ConversationPage{}, err
	}
	cond, args := "c.tenant = ?", []any{nil}
	for _, also := range []struct{ cond, value string }{
		{"c.platform = ?", f.Platform}, {"c.status = ?", string(f.Status)},
	} {
		if also.value != "" {
			cond, args = cond+" AND "+also.cond, append(args, also.value)
		}
	}
	if id, err := uuid.Parse(f.Cursor); err == nil {
		cond, args = cond+" AND c.id < ?", append(args, s.id(id.String()))
	}
	var rows []conversationRow
	err = s.readsEach(ctx, tenants, func(tx *gorm.DB, tenant string) error {
		args[0] = tenant
		var some []conversationRow
		err := tx.Raw(`SELECT `+conversationColumns+` FROM conversations c WHERE `+cond+` ORDER BY c.id DESC LIMIT ?`,
			append(args, limit+1)...).Scan(&some).Error
		rows = newest(rows, some, limit+1)
		return err
	})
	if err != nil {
		return ports.ConversationPage{}, classify(err)
	}
	var p ports.ConversationPage
	rows, p.Next = cutPage(rows, limit)
	for _, r := range rows {
		p.Conversations = append(p.Conversations, r.conversation())
	}
	return p, nil
}

// Messages implements ports.Conversations.
func (s *Store) Messages(ctx context.Context, conversation string, limit int, cursor string) (ports.Page, error) {
	c, err := s.findConversation(ctx, conversation)
	if err != nil {
		return ports.Page{}, err
	}
	limit = pageLimit(limit)
	cond, args := "", []any{c.Tenant, s.id(c.ID)}
	if id, err := uuid.Parse(cursor); err == nil {
		cond, args = " AND m.id < ?", append(args, s.id(id.String()))
	}
	var rows []receiptRow
	err = s.reads(ctx, of(c.Tenant), func(tx *gorm.DB) error {
		return tx.Raw(`
			SELECT `+receiptColumns+` FROM messages m JOIN receipts r ON r.tenant = m.tenant AND r.id = m.id
			WHERE m.tenant = ? AND m.conversation_id = ?`+cond+` ORDER BY m.id DESC LIMIT ?`, append(args, limit+1)...).Scan(&rows).Error
	})
	if err != nil {
		return ports.Page{}, classify(err)
	}
	rows, next := cutPage(rows, limit)
	for i := range rows {
		rows[i].ConversationID = c.ID
	}
	return ports.Page{Receipts: receipts(rows), Next: next}, nil
}

// Payload implements ports.Conversations.
func (s *Store) Payload(ctx context.Context, tenant, receipt string) (domain.Payload, error) {
	id, err := uuid.Parse(receipt)
	if err != nil {
		return domain.Payload{}, domain.ErrNotFound
	}
	var rows []receiptRow
	err = s.reads(ctx, of(tenant), func(tx *gorm.DB) error {
		return tx.Raw(`SELECT media_type, body FROM payloads WHERE tenant = ? AND receipt_id = ?`, tenant, s.id(id.String())).Scan(&rows).Error
	})
	if err != nil {
		return domain.Payload{}, classify(err)
	}
	if len(rows) == 0 {
		return domain.Payload{}, domain.ErrNotFound
	}
	return rows[0].receipt().Payload, nil
}

// CloseConversation implements ports.Conversations.
func (s *Store) CloseConversation(ctx context.Context, id, by string) error {
	c, err := s.findConversation(ctx, id)
	if err != nil {
		return err
	}
	err = s.writes(ctx, of(c.Tenant), func(tx *gorm.DB) error {
		if err := s.lock(tx, c.lane()); err != nil {
			return err
		}
		res := tx.Exec(`UPDATE conversations SET status = 'closed', open_key = NULL, closed_at = ?, closed_by = ? WHERE tenant = ? AND id = ? AND status = 'pending'`,
			s.now(), by, c.Tenant, s.id(c.ID))
		if res.Error == nil && res.RowsAffected == 0 {
			return domain.ErrState
		}
		return res.Error
	})
	if errors.Is(err, domain.ErrState) {
		return err
	}
	return classify(err)
}

func (s *Store) findConversation(ctx context.Context, id string) (conversationRow, error) {
	return findByID[conversationRow](ctx, s, conversationColumns, "conversations c", "c", id, domain.ErrNoConversation)
}

// lock takes the locks of conversations, as claims do, until the transaction ends. SQLite has one
// writer, which holds them all.
func (s *Store) lock(tx *gorm.DB, lanes ...int64) error {
	if s.dialect == migrations.SQLite || len(lanes) == 0 {
		return nil
	}
	slices.Sort(lanes) // in one order, so that nobody waits crosswise
	// past gorm, which would make a parameter of each element
	_, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context,
		`SELECT count(pg_advisory_xact_lock(lane)) FROM unnest($1::bigint[]) lane`, lanes)
	return err
}

// emptied returns the conversations that the end of receipts may leave without a message, locked:
// none of them gets another in the transaction. Whatever else it locks must be locked after that,
// since claims wait for their conversations first.
func (s *Store) emptied(tx *gorm.DB, tenant string, ended []receiptRow, before time.Time) (found []conversationRow, err error) {
	if len(ended) == 0 {
		return nil, nil
	}
	err = tx.Raw(`
		WITH theirs AS MATERIALIZED (SELECT DISTINCT m.conversation_id AS id FROM messages m WHERE m.tenant = ? AND m.id IN ?)
		SELECT `+conversationColumns+` FROM theirs JOIN conversations c ON c.tenant = ? AND c.id = theirs.id
		WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.tenant = c.tenant AND m.conversation_id = c.id AND m.id >= ?)`,
		tenant, s.ids(ended), tenant, s.id(idBefore(before))).Scan(&found).Error
	if err != nil {
		return nil, err
	}
	lanes := make([]int64, len(found))
	for i, c := range found {
		lanes[i] = c.lane()
	}
	return found, s.lock(tx, lanes...)
}

// deleteEmpty deletes those of a tenant's conversations that have no message left.
func (s *Store) deleteEmpty(tx *gorm.DB, tenant string, conversations []conversationRow) error {
	if len(conversations) == 0 {
		return nil
	}
	ids := make([]any, len(conversations))
	for i, c := range conversations {
		ids[i] = s.id(c.ID)
	}
	return tx.Exec(`
		DELETE FROM conversations WHERE tenant = ? AND id IN ? AND NOT EXISTS (
			SELECT 1 FROM messages m WHERE m.tenant = conversations.tenant AND m.conversation_id = conversations.id)`, tenant, ids).Error
}
