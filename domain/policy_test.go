package domain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/domain"
)

func TestWhatFollowsFromAnOutcome(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	p := domain.DefaultPolicy()
	for outcome, want := range map[domain.Outcome]struct{ atMost, atLeast domain.State }{
		domain.Taken:       {domain.Handled, domain.Handled},
		domain.NotReceived: {domain.Retrying, domain.Retrying},
		domain.Declined:    {domain.Retrying, domain.Retrying},
		domain.Ambiguous:   {domain.Failed, domain.Retrying},
		domain.Rejected:    {domain.Failed, domain.Failed},
	} {
		for guarantee, state := range map[domain.Guarantee]domain.State{domain.AtMostOnce: want.atMost, domain.AtLeastOnce: want.atLeast} {
			step := p.After(outcome, guarantee, 1, now)
			if step.State != state {
				t.Errorf("%s under %s = %s; want %s", outcome, guarantee, step.State, state)
			}
			if (step.State == domain.Retrying) != step.DueAt.Equal(now.Add(p.Backoff.Initial)) {
				t.Errorf("%s under %s is due at %s", outcome, guarantee, step.DueAt)
			}
			last := p.After(outcome, guarantee, p.MaxAttempts, now)
			if last.State == domain.Retrying {
				t.Errorf("%s at the last attempt under %s = retrying; want an end", outcome, guarantee)
			}
		}
	}
}

func TestWhatFollowsFromAnExpiredLease(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	p := domain.DefaultPolicy()
	for _, c := range []struct {
		guarantee domain.Guarantee
		attempt   int
		want      domain.State
	}{
		{domain.AtMostOnce, 1, domain.Lost},
		{domain.AtMostOnce, 8, domain.Lost},
		{domain.AtLeastOnce, 1, domain.Retrying},
		{domain.AtLeastOnce, 7, domain.Retrying},
		{domain.AtLeastOnce, 8, domain.Failed},
	} {
		if step := p.AfterExpiry(c.guarantee, c.attempt, now); step.State != c.want {
			t.Errorf("lease of attempt %d ran out under %s: %s; want %s", c.attempt, c.guarantee, step.State, c.want)
		}
	}
}

func TestBackoffDoublesUpToItsBound(t *testing.T) {
	t.Parallel()
	b := domain.Backoff{Initial: time.Second, Max: 5 * time.Minute}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for i, w := range want {
		if got := b.Delay(i + 1); got != w*time.Second {
			t.Errorf("Delay(%d) = %s; want %s", i+1, got, w*time.Second)
		}
	}
	if got := b.Delay(1 << 30); got != b.Max {
		t.Errorf("Delay of very many attempts = %s; want %s", got, b.Max)
	}
}

func TestConflictIsAdmittedWhereSendersChooseIDs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		on       domain.OnConflict
		platform string
		want     bool
	}{
		{"", "slack", false},
		{"", "email", true},
		{domain.ConflictSuppress, "email", false},
		{domain.ConflictAdmit, "slack", true},
	} {
		if got := (domain.ClaimPolicy{OnConflict: c.on}).Admits(c.platform); got != c.want {
			t.Errorf("on_conflict %q admits on %s: %v; want %v", c.on, c.platform, got, c.want)
		}
	}
}

func TestApartHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	e := domain.Event{ID: "m:<x@example.com>", MessageKey: "message:m:<x@example.com>", Digest: domain.DigestOf("content")}
	got := domain.Apart(e)
	mark := "#" + e.Digest.String()[:16]
	if got.ID != e.ID+mark || got.MessageKey != e.MessageKey+mark {
		t.Errorf("Apart = %q, %q; want %q after both", got.ID, got.MessageKey, mark)
	}
	e.ID, e.MessageKey = strings.Repeat("x", 250), ""
	if got := domain.Apart(e); len(got.ID) > domain.MaxID || got.MessageKey != "" {
		t.Errorf("Apart of a long id = %q, message key %q", got.ID, got.MessageKey)
	}
}

func TestJournalTakesWhatDoesNotComeAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		on         domain.StoreDown
		comesAgain bool
		want       bool
	}{
		{domain.StoreDownAuto, true, false},
		{domain.StoreDownAuto, false, true},
		{domain.StoreDownRefuse, false, false},
		{domain.StoreDownJournal, true, true},
	} {
		if got := (domain.ClaimPolicy{OnStoreDown: c.on}).Journals(c.comesAgain); got != c.want {
			t.Errorf("on_store_down %s, vendor comes again %v: journals %v; want %v", c.on, c.comesAgain, got, c.want)
		}
	}
}

func TestPolicyRefusesWhatBreaksItsPromise(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*domain.ClaimPolicy)
		want   string
	}{
		"unknown guarantee":               {func(p *domain.ClaimPolicy) { p.Guarantee = "exactly-once" }, "guarantee:"},
		"retention under fast_ttl":        {func(p *domain.ClaimPolicy) { p.FastTTL = p.Retention + 1 }, "retention:"},
		"retention under the window":      {func(p *domain.ClaimPolicy) { p.Retention, p.FastTTL = time.Hour, time.Hour }, "retention:"},
		"lease not over the time-out":     {func(p *domain.ClaimPolicy) { p.Lease = 10 * time.Second }, "lease:"},
		"no attempt":                      {func(p *domain.ClaimPolicy) { p.MaxAttempts = 0 }, "max_attempts:"},
		"backoff upside down":             {func(p *domain.ClaimPolicy) { p.Backoff.Max = 1 }, "backoff.max:"},
		"no backoff":                      {func(p *domain.ClaimPolicy) { p.Backoff.Initial = 0 }, "backoff.initial:"},
		"unknown choice for a lost store": {func(p *domain.ClaimPolicy) { p.OnStoreDown = "panic" }, "on_store_down:"},
		"unknown choice for a conflict":   {func(p *domain.ClaimPolicy) { p.OnConflict = "merge" }, "on_conflict:"},
	} {
		p := domain.DefaultPolicy()
		if err := p.Validate(24*time.Hour, 10*time.Second); err != nil {
			t.Fatalf("Validate of the default = %v", err)
		}
		c.change(&p)
		if err := p.Validate(24*time.Hour, 10*time.Second); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Validate = %v; want an error about %s", name, err, c.want)
		}
	}
}
