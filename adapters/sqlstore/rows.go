package sqlstore

import (
	"encoding/json"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
)

// A receiptRow is a row of receipts, and of payloads and messages where they were joined.
type receiptRow struct {
	Tenant        string
	ID            string
	Seq           int64
	Platform      string
	Channel       string
	Installation  string
	Account       string
	EventID       string
	MessageKey    string
	Kind          string
	Conversation  string
	Digest        string
	Guarantee     string
	State         string
	Attempt       int
	Deliveries    int
	VendorAttempt int
	ClaimedAt     time.Time
	BegunAt       *time.Time
	HandledAt     *time.Time
	LeaseUntil    *time.Time
	DueAt         *time.Time
	Holder        string
	LastError     string
	MediaType     string
	Body          []byte
	// ConversationID is of messages, where they were joined.
	ConversationID string
}

func (r receiptRow) key() string { return r.ID }

// receiptColumns are named one by one: a statement that a plan was kept for must not change
// its shape when a later migration adds a column.
const receiptColumns = `r.tenant, r.id, r.seq, r.platform, r.channel, r.installation, r.account, r.event_id, r.message_key, r.kind,
	r.conversation, r.digest, r.guarantee, r.state, r.attempt, r.deliveries, r.vendor_attempt, r.claimed_at, r.begun_at,
	r.handled_at, r.lease_until, r.due_at, r.holder, r.last_error`

func (r receiptRow) receipt() domain.Receipt {
	return domain.Receipt{
		ID:             r.ID,
		Key:            domain.Key{Tenant: r.Tenant, Platform: r.Platform, Account: r.Account, EventID: r.EventID},
		Channel:        r.Channel,
		Installation:   r.Installation,
		MessageKey:     r.MessageKey,
		Kind:           domain.Kind(r.Kind),
		Conversation:   r.Conversation,
		ConversationID: r.ConversationID,
		Digest:         parseDigest(r.Digest),
		Guarantee:      domain.Guarantee(r.Guarantee),
		State:          domain.State(r.State),
		Attempt:        r.Attempt,
		Deliveries:     r.Deliveries,
		VendorAttempt:  r.VendorAttempt,
		ClaimedAt:      r.ClaimedAt.UTC(),
		BegunAt:        timeOf(r.BegunAt),
		HandledAt:      timeOf(r.HandledAt),
		LeaseUntil:     timeOf(r.LeaseUntil),
		DueAt:          timeOf(r.DueAt),
		Holder:         r.Holder,
		LastError:      r.LastError,
		Seq:            r.Seq,
		Payload:        domain.Payload{MediaType: r.MediaType, Body: r.Body},
	}
}

func receipts(rows []receiptRow) []domain.Receipt {
	out := make([]domain.Receipt, len(rows))
	for i, r := range rows {
		out[i] = r.receipt()
	}
	return out
}

// in is the moment d from now by the store's clock: that of the database where several
// machines share one, so that leases do not depend on how their clocks agree.
func (s *Store) in(d time.Duration) clause.Expr {
	if s.dialect == migrations.Postgres {
		return gorm.Expr("now() + make_interval(secs => ?)", d.Seconds())
	}
	return gorm.Expr("?", time.Now().Add(d))
}

func (s *Store) now() clause.Expr { return s.in(0) }

// id types text as a receipt's id or a digest.
func (s *Store) id(text string) clause.Expr {
	if s.dialect == migrations.Postgres {
		return gorm.Expr("?::uuid", text)
	}
	return gorm.Expr("?", text)
}

func (s *Store) ids(rows []receiptRow) []any {
	ids := make([]any, len(rows))
	for i, r := range rows {
		ids[i] = s.id(r.ID)
	}
	return ids
}

// named returns a table v of the keys of rows, column1 and column2, as SQLite calls them. Postgres gets one
// argument however many they are: it would plan a list of each length anew, and keep the plan.
func (s *Store) named(rows []receiptRow) clause.Expr {
	if s.dialect == migrations.Postgres {
		type key struct {
			Tenant string `json:"column1"`
			ID     string `json:"column2"`
		}
		keys := make([]key, len(rows))
		for i, r := range rows {
			keys[i] = key{r.Tenant, r.ID}
		}
		text, _ := json.Marshal(keys) // strings always can be
		return gorm.Expr("jsonb_to_recordset(?::jsonb) AS v (column1 text, column2 uuid)", string(text))
	}
	args := make([]any, 0, 2*len(rows))
	for _, r := range rows {
		args = append(args, r.Tenant, r.ID)
	}
	return gorm.Expr("(VALUES "+strings.TrimSuffix(strings.Repeat("(?, ?), ", len(rows)), ", ")+") AS v", args...)
}

// locked ends a subquery that must not wait for rows which others are changing.
func (s *Store) locked() clause.Expr {
	if s.dialect == migrations.Postgres {
		return gorm.Expr("FOR UPDATE SKIP LOCKED")
	}
	return gorm.Expr("")
}

// kept ends a subquery for a row that must not be deleted before the transaction ends: it
// waits for one which is just deleting it, and then finds nothing.
func (s *Store) kept() clause.Expr {
	if s.dialect == migrations.Postgres {
		return gorm.Expr("FOR KEY SHARE")
	}
	return gorm.Expr("")
}
