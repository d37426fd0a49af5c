package storetest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
	"github.com/admitone/admitone/ports/storetest"
)

// pollMutants are the bugs that the model of a poll store can have, and the promise whose
// check must tell.
var pollMutants = map[string]string{
	"enters without making due":          "EnteredIsDue",
	"begins anew what is entered again":  "EnteringAgainChangesNothing",
	"forgets refused credentials":        "RefusedCredentialsAreTriedWhenEntered",
	"looks, then takes":                  "OneTakesAmongMany",
	"gives leases to all":                "HeldIsNotTaken",
	"gives the holder its lease again":   "HeldIsNotTaken",
	"keeps leases for ever":              "OverIsTakenByAnother",
	"gives each take the same fence":     "OverIsTakenByAnother",
	"counts what is not wanted":          "OnlyWantedIsTaken",
	"takes in any order":                 "TakesTheLongestDueFirst",
	"keeps nothing":                      "KeptIsNotTaken",
	"saves for anyone":                   "FencedChangesNothing",
	"ends for anyone":                    "FencedChangesNothing",
	"keeps for anyone":                   "FencedChangesNothing",
	"looks at the holder, not the fence": "FencedChangesNothing",
	"saves after the lease":              "OverChangesNothing",
	"forgets the state":                  "CheckpointIsKept",
	"has no room for great positions":    "CheckpointIsKept",
	"goes back":                          "CheckpointNeverGoesBack",
	"compares positions as texts":        "CheckpointNeverGoesBack",
	"does not know generations":          "CheckpointNeverGoesBack",
	"is due at once":                     "EndSaysWhenItIsDue",
	"counts no failures":                 "FailuresAreCounted",
	"counts failures for ever":           "FailuresAreCounted",
	"catches up when the poll ends":      "CaughtUpIsWhenThePollBegan",
	"always catches up":                  "CaughtUpIsWhenThePollBegan",
	"is blind to tenants":                "AccountsApart",
	"folds case":                         "AccountsApart",
	"tells the state":                    "StatusTells",
}

func TestModelKeepsThePromisesOfPolls(t *testing.T) {
	t.Parallel()
	storetest.Polls(t, openPolls(""))
}

func openPolls(bug string) func(*testing.T) storetest.PollSubject {
	return func(*testing.T) storetest.PollSubject {
		return storetest.PollSubject{Store: &pollModel{bug: bug, rows: map[ports.PollAccount]*pollRow{}, looked: newGap()}}
	}
}

// The test runs itself once for each mutant, in a process that must fail by the named promise.
func TestPollKitCatches(t *testing.T) {
	const variable = "ADMITONE_POLL_MUTANT"
	if bug := os.Getenv(variable); bug != "" {
		storetest.Polls(t, openPolls(bug))
		return
	}
	t.Parallel()
	var caught atomic.Int32
	t.Cleanup(func() { t.Logf("mutation score: %d of %d", caught.Load(), len(pollMutants)) })
	for bug, promise := range pollMutants {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestPollKitCatches$/^"+promise+"$")
			cmd.Env = append(os.Environ(), variable+"="+bug, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestPollKitCatches/"+promise+" ") {
				t.Fatalf("the kit passes a store that %s: %s did not fail (%v)\n%s", bug, promise, err, out)
			}
			caught.Add(1)
		})
	}
}

type pollRow struct {
	ports.PollStatus
	fence int64
	taken time.Time
	state string
}

// A pollModel is a poll store in memory with one bug, or none.
type pollModel struct {
	bug    string
	looked gap

	mu   sync.Mutex
	rows map[ports.PollAccount]*pollRow
}

func (m *pollModel) has(bug string) bool { return m.bug == bug }

func (m *pollModel) key(a ports.PollAccount) ports.PollAccount {
	switch {
	case m.has("is blind to tenants"):
		a.Tenant = ""
	case m.has("folds case"):
		a.Account = strings.ToLower(a.Account)
	}
	return a
}

func (m *pollModel) EnterPolls(_ context.Context, accounts []ports.PollAccount) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range accounts {
		r := m.rows[m.key(a)]
		switch {
		case r == nil || m.has("begins anew what is entered again"):
			r = &pollRow{PollStatus: ports.PollStatus{PollAccount: a, EnteredAt: time.Now(), DueAt: time.Now(), Condition: domain.PollWorks}}
			if m.has("enters without making due") {
				r.DueAt = time.Now().Add(time.Hour)
			}
			m.rows[m.key(a)] = r
		case r.Condition == domain.PollRevoked && r.Holder == "" && !m.has("forgets refused credentials"):
			r.DueAt = time.Now()
		}
	}
	return nil
}

func (m *pollModel) TakePolls(_ context.Context, holder string, wanted func(ports.PollAccount) bool, limit int, ttl time.Duration,
) ([]ports.Poll, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var due []*pollRow
	for _, r := range m.rows {
		free := !time.Now().Before(r.DueAt)
		switch {
		case m.has("gives leases to all"):
			free = true
		case m.has("gives the holder its lease again"):
			free = free || r.Holder == holder
		case m.has("keeps leases for ever"):
			free = free && r.Holder == ""
		}
		if free {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *pollRow) int { return a.DueAt.Compare(b.DueAt) })
	if m.has("takes in any order") {
		slices.Reverse(due)
	}
	want := func(r *pollRow) bool { return !wanted(r.PollAccount) }
	if m.has("counts what is not wanted") {
		slices.SortFunc(due, func(a, b *pollRow) int { return strings.Compare(b.Account, a.Account) })
		due = due[:min(len(due), limit)]
	}
	due = slices.DeleteFunc(due, want)
	due = due[:min(len(due), limit)]
	if m.has("looks, then takes") {
		m.mu.Unlock()
		m.looked.wait()
		m.mu.Lock()
	}
	var polls []ports.Poll
	for _, r := range due {
		r.Holder, r.taken, r.DueAt = holder, time.Now(), time.Now().Add(ttl)
		if !m.has("gives each take the same fence") {
			r.fence++
		}
		c := r.Checkpoint
		if c.State = r.state; m.has("forgets the state") {
			c.State = ""
		}
		polls = append(polls, ports.Poll{
			PollLease: ports.PollLease{PollAccount: r.PollAccount, Fence: r.fence}, Checkpoint: c, Condition: r.Condition, Failures: r.Failures,
		})
	}
	return polls, nil
}

// holds reports whether lease still holds for what is called change.
func (m *pollModel) holds(r *pollRow, lease ports.PollLease, change string) bool {
	switch {
	case m.has(change + " for anyone"):
		return true
	case m.has("looks at the holder, not the fence"):
		return r.Holder != "" && time.Now().Before(r.DueAt)
	case m.has(change + " after the lease"):
		return r.fence == lease.Fence
	}
	return r.fence == lease.Fence && r.Holder != "" && time.Now().Before(r.DueAt)
}

func (m *pollModel) KeepPoll(_ context.Context, lease ports.PollLease, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rows[m.key(lease.PollAccount)]
	if !m.holds(r, lease, "keeps") {
		return domain.ErrFenced
	}
	if !m.has("keeps nothing") {
		r.DueAt = time.Now().Add(ttl)
	}
	return nil
}

func (m *pollModel) SaveCheckpoint(_ context.Context, lease ports.PollLease, c domain.Checkpoint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rows[m.key(lease.PollAccount)]
	if !m.holds(r, lease, "saves") {
		return domain.ErrFenced
	}
	before := c.Before(r.Checkpoint)
	switch {
	case m.has("goes back"):
		before = false
	case m.has("does not know generations"):
		before = c.Position < r.Checkpoint.Position
	case m.has("compares positions as texts"):
		before = c.Generation == r.Checkpoint.Generation &&
			string(appendUint(nil, c.Position)) < string(appendUint(nil, r.Checkpoint.Position))
	}
	if before {
		return domain.ErrState
	}
	if m.has("has no room for great positions") {
		c.Position &= 1<<63 - 1
	}
	r.Checkpoint, r.state = c, c.State
	if !m.has("tells the state") {
		r.Checkpoint.State = ""
	}
	return nil
}

func appendUint(b []byte, n uint64) []byte {
	if n >= 10 {
		b = appendUint(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

func (m *pollModel) EndPoll(_ context.Context, lease ports.PollLease, end ports.PollEnd) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rows[m.key(lease.PollAccount)]
	if !m.holds(r, lease, "ends") {
		return domain.ErrFenced
	}
	r.Holder, r.EndedAt, r.DueAt, r.Condition, r.LastError = "", time.Now(), time.Now().Add(end.Wait), end.Condition, end.Reason
	if m.has("is due at once") {
		r.DueAt = time.Now()
	}
	switch {
	case end.Condition != domain.PollWorks && !m.has("counts no failures"):
		r.Failures++
	case end.Condition == domain.PollWorks && !m.has("counts failures for ever"):
		r.Failures = 0
	}
	if end.CaughtUp || m.has("always catches up") {
		if r.CaughtUpAt = r.taken; m.has("catches up when the poll ends") {
			r.CaughtUpAt = time.Now()
		}
	}
	return nil
}

func (m *pollModel) Polls(context.Context) ([]ports.PollStatus, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []ports.PollStatus
	for _, r := range m.rows {
		s := r.PollStatus
		if !time.Now().Before(s.DueAt) {
			s.Holder = ""
		}
		all = append(all, s)
	}
	return all, nil
}
