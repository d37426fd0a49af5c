package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

var _ ports.PollStore = (*Store)(nil)

// Of accounts that an instance does not want: those of installations that are gone or paused. What
// another instance wants it takes long before unwantedAfter.
const (
	unwantedAfter = time.Minute
	putOffFor     = 10 * time.Minute
	putOffLimit   = 1000 // at a time
)

// A pollRow is a row of polls.
type pollRow struct {
	Tenant     string
	Channel    string
	Account    string
	Holder     string
	Fence      int64
	DueAt      time.Time
	Generation int64
	Position   string
	State      string
	Condition  string
	Failures   int
	LastError  string
	EnteredAt  time.Time
	EndedAt    *time.Time
	CaughtUpAt *time.Time
	Forsaken   bool // due for unwantedAfter
}

func (r pollRow) account() ports.PollAccount {
	return ports.PollAccount{Tenant: r.Tenant, Channel: r.Channel, Account: r.Account}
}

func (r pollRow) checkpoint() (domain.Checkpoint, error) {
	position, err := strconv.ParseUint(r.Position, 10, 64)
	if err != nil {
		return domain.Checkpoint{}, fmt.Errorf("sqlstore: position of a poll: %w", err)
	}
	return domain.Checkpoint{Generation: r.Generation, Position: position, State: r.State}, nil
}

// positionOf is written so that the order of texts is that of numbers.
func positionOf(c domain.Checkpoint) string { return fmt.Sprintf("%020d", c.Position) }

// EnterPolls implements ports.PollStore. What was never taken, or put off since, has no taken_at.
func (s *Store) EnterPolls(ctx context.Context, accounts []ports.PollAccount) error {
	const chunk = 500
	// in one order, so that of two instances which enter the same accounts none waits crosswise
	accounts = slices.SortedFunc(slices.Values(accounts), func(a, b ports.PollAccount) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.Account, b.Account))
	})
	for batch := range slices.Chunk(accounts, chunk) {
		var values []string
		var args []any
		theirs := map[string]bool{}
		for _, a := range batch {
			theirs[a.Tenant] = true
			values = append(values, "(?, ?, ?, '', 0, ?, 0, ?, '', ?, 0, '', ?)")
			args = append(args, a.Tenant, a.Channel, a.Account, s.now(), positionOf(domain.Checkpoint{}), domain.PollWorks, s.now())
		}
		tenants := slices.Sorted(maps.Keys(theirs))
		if err := s.enter(ctx, tenants...); err != nil {
			return classify(err)
		}
		err := s.writes(ctx, of(tenants...), func(tx *gorm.DB) error {
			return tx.Exec(`
				INSERT INTO polls (tenant, channel, account, holder, fence, due_at, generation, position, state, condition,
					failures, last_error, entered_at)
				VALUES `+strings.Join(values, ", ")+`
				ON CONFLICT (tenant, channel, account) DO UPDATE SET due_at = excluded.due_at
				WHERE (polls.condition = ? OR polls.taken_at IS NULL) AND polls.holder = '' AND polls.due_at > excluded.due_at`, append(args, domain.PollRevoked)...).Error
		})
		if err != nil {
			return classify(err)
		}
	}
	return nil
}

// TakePolls implements ports.PollStore.
func (s *Store) TakePolls(ctx context.Context, holder string, wanted func(ports.PollAccount) bool, limit int, ttl time.Duration,
) ([]ports.Poll, error) {
	var due []pollRow
	// those that this instance does not want stand among them
	err := s.reads(ctx, everyone, func(tx *gorm.DB) error {
		return tx.Raw(`
			SELECT tenant, channel, account, due_at <= ? AS forsaken FROM polls WHERE due_at <= ? ORDER BY due_at LIMIT ?`,
			s.in(-unwantedAfter), s.now(), limit+10_000).Scan(&due).Error
	})
	if err != nil {
		return nil, classify(err)
	}
	var forsaken []pollRow
	due = slices.DeleteFunc(due, func(r pollRow) bool {
		if wanted(r.account()) {
			return false
		}
		if r.Forsaken && len(forsaken) < putOffLimit {
			forsaken = append(forsaken, r)
		}
		return true
	})
	if err := s.putOff(ctx, forsaken); err != nil {
		return nil, classify(err)
	}
	due = due[:min(len(due), limit)]
	if len(due) == 0 {
		return nil, nil
	}
	keys := make([][]any, len(due))
	order := make(map[ports.PollAccount]int, len(due))
	var theirs voice
	for i, r := range due {
		theirs.tenants = append(theirs.tenants, r.Tenant)
		keys[i] = []any{r.Tenant, r.Channel, r.Account}
		order[r.account()] = i
	}
	var got []pollRow
	err = s.writes(ctx, theirs, func(tx *gorm.DB) error {
		return tx.Raw(`
			WITH found AS MATERIALIZED (
				SELECT p.tenant, p.channel, p.account FROM polls p
				WHERE (p.tenant, p.channel, p.account) IN ? AND p.due_at <= ? ?)
			UPDATE polls SET holder = ?, fence = fence + 1, due_at = ?, taken_at = ?
			FROM found WHERE polls.tenant = found.tenant AND polls.channel = found.channel AND polls.account = found.account
			RETURNING polls.tenant, polls.channel, polls.account, fence, generation, position, state, condition, failures`,
			keys, s.now(), s.locked(), holder, s.in(ttl), s.now()).Scan(&got).Error
	})
	if err != nil {
		return nil, classify(err)
	}
	slices.SortFunc(got, func(a, b pollRow) int { return order[a.account()] - order[b.account()] })
	polls := make([]ports.Poll, len(got))
	for i, r := range got {
		c, err := r.checkpoint()
		if err != nil {
			return nil, err
		}
		polls[i] = ports.Poll{
			PollLease: ports.PollLease{PollAccount: r.account(), Fence: r.Fence}, Checkpoint: c,
			Condition: domain.PollCondition(r.Condition), Failures: r.Failures,
		}
	}
	return polls, nil
}

// putOff makes rows that are still due come later, so that they do not stand before those that
// somebody wants. Leases on them are over.
func (s *Store) putOff(ctx context.Context, rows []pollRow) error {
	if len(rows) == 0 {
		return nil
	}
	keys := make([][]any, len(rows))
	var theirs voice
	for i, r := range rows {
		theirs.tenants = append(theirs.tenants, r.Tenant)
		keys[i] = []any{r.Tenant, r.Channel, r.Account}
	}
	return s.writes(ctx, theirs, func(tx *gorm.DB) error {
		return tx.Exec(`
			WITH found AS MATERIALIZED (
				SELECT p.tenant, p.channel, p.account FROM polls p
				WHERE (p.tenant, p.channel, p.account) IN ? AND p.due_at <= ? ?)
			UPDATE polls SET holder = '', due_at = ?, taken_at = NULL
			FROM found WHERE polls.tenant = found.tenant AND polls.channel = found.channel AND polls.account = found.account`,
			keys, s.in(-unwantedAfter), s.locked(), s.in(putOffFor)).Error
	})
}

// KeepPoll implements ports.PollStore.
func (s *Store) KeepPoll(ctx context.Context, lease ports.PollLease, ttl time.Duration) error {
	n, err := s.changePoll(ctx, lease, "due_at = ?", "", s.in(ttl))
	if err == nil && n == 0 {
		return domain.ErrFenced
	}
	return err
}

// SaveCheckpoint implements ports.PollStore.
func (s *Store) SaveCheckpoint(ctx context.Context, lease ports.PollLease, c domain.Checkpoint) error {
	position := positionOf(c)
	n, err := s.changePoll(ctx, lease, "generation = ?, position = ?, state = ?",
		" AND (generation < ? OR generation = ? AND position <= ?)",
		c.Generation, position, c.State, c.Generation, c.Generation, position)
	if err != nil || n > 0 {
		return err
	}
	if n, err = s.changePoll(ctx, lease, "fence = fence", ""); err != nil {
		return err
	}
	if n > 0 { // the lease holds: it is the checkpoint
		return domain.ErrState
	}
	return domain.ErrFenced
}

// EndPoll implements ports.PollStore.
func (s *Store) EndPoll(ctx context.Context, lease ports.PollLease, end ports.PollEnd) error {
	failures, caughtUp := "failures + 1", "caught_up_at"
	if end.Condition == domain.PollWorks {
		failures = "0"
	}
	if end.CaughtUp {
		caughtUp = "taken_at"
	}
	n, err := s.changePoll(ctx, lease,
		"holder = '', due_at = ?, ended_at = ?, condition = ?, last_error = ?, failures = "+failures+", caught_up_at = "+caughtUp, "",
		s.in(end.Wait), s.now(), end.Condition, end.Reason)
	if err == nil && n == 0 {
		return domain.ErrFenced
	}
	return err
}

// changePoll sets columns of the account that is held under lease, and returns how many rows
// that were: none if the lease is over, or if what and says does not hold. args are those of
// set and then of and.
func (s *Store) changePoll(ctx context.Context, lease ports.PollLease, set, and string, args ...any) (int64, error) {
	inSet := strings.Count(set, "?")
	all := slices.Concat(args[:inSet], []any{lease.Tenant, lease.Channel, lease.Account, lease.Fence, s.now()}, args[inSet:])
	n := int64(0)
	err := s.writes(ctx, of(lease.Tenant), func(tx *gorm.DB) error {
		res := tx.Exec(`
			UPDATE polls SET `+set+`
			WHERE tenant = ? AND channel = ? AND account = ? AND fence = ? AND holder <> '' AND due_at > ?`+and, all...)
		n = res.RowsAffected
		return res.Error
	})
	return n, classify(err)
}

// Polls implements ports.PollStore.
func (s *Store) Polls(ctx context.Context) ([]ports.PollStatus, error) {
	var rows []pollRow
	err := s.reads(ctx, everyone, func(tx *gorm.DB) error {
		return tx.Raw(`
			SELECT tenant, channel, account, CASE WHEN due_at > ? THEN holder ELSE '' END AS holder, due_at, generation, position,
				condition, failures, last_error, entered_at, ended_at, caught_up_at
			FROM polls ORDER BY tenant, channel, account`, s.now()).Scan(&rows).Error
	})
	if err != nil {
		return nil, classify(err)
	}
	all := make([]ports.PollStatus, len(rows))
	for i, r := range rows {
		c, err := r.checkpoint()
		if err != nil {
			return nil, err
		}
		all[i] = ports.PollStatus{
			PollAccount: r.account(), Holder: r.Holder, DueAt: r.DueAt.UTC(), EnteredAt: r.EnteredAt.UTC(), EndedAt: timeOf(r.EndedAt),
			CaughtUpAt: timeOf(r.CaughtUpAt), Condition: domain.PollCondition(r.Condition), Failures: r.Failures,
			LastError: r.LastError, Checkpoint: c,
		}
	}
	return all, nil
}
