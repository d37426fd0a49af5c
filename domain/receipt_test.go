package domain_test

import (
	"testing"
	"time"

	"github.com/admitone/admitone/domain"
)

func TestStatesFollowTheContract(t *testing.T) {
	t.Parallel()
	want := map[domain.State][]domain.State{
		domain.Claimed:     {domain.Dispatching},
		domain.Dispatching: {domain.Handled, domain.Retrying, domain.Failed, domain.Lost},
		domain.Retrying:    {domain.Dispatching, domain.Discarded},
		domain.Handled:     {domain.Retrying}, // by replay
		domain.Failed:      {domain.Retrying, domain.Discarded},
		domain.Lost:        {domain.Retrying, domain.Discarded},
		domain.Discarded:   {domain.Retrying},
	}
	for _, from := range domain.States {
		allowed := map[domain.State]bool{}
		for _, to := range want[from] {
			allowed[to] = true
		}
		for _, to := range domain.States {
			if got := from.MayBecome(to); got != allowed[to] {
				t.Errorf("%s.MayBecome(%s) = %v; want %v", from, to, got, allowed[to])
			}
		}
	}
}

func TestWhatMayBeDoneByHand(t *testing.T) {
	t.Parallel()
	for state, want := range map[domain.State]struct{ open, replay, discard bool }{
		domain.Claimed:     {open: true},
		domain.Dispatching: {open: true},
		domain.Retrying:    {open: true, discard: true},
		domain.Handled:     {replay: true},
		domain.Failed:      {replay: true, discard: true},
		domain.Lost:        {replay: true, discard: true},
		domain.Discarded:   {replay: true},
	} {
		if state.Open() != want.open || state.Replayable() != want.replay || state.Discardable() != want.discard {
			t.Errorf("%s: open %v, replayable %v, discardable %v; want %+v", state, state.Open(), state.Replayable(), state.Discardable(), want)
		}
	}
}

func TestReceiptExpiresAtItsTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		receipt domain.Receipt
		want    bool
	}{
		"lease runs":       {domain.Receipt{State: domain.Dispatching, LeaseUntil: now.Add(1)}, false},
		"lease is over":    {domain.Receipt{State: domain.Dispatching, LeaseUntil: now}, true},
		"retry not yet":    {domain.Receipt{State: domain.Retrying, DueAt: now.Add(1)}, false},
		"retry due":        {domain.Receipt{State: domain.Retrying, DueAt: now}, true},
		"claimed":          {domain.Receipt{State: domain.Claimed}, false},
		"handled long ago": {domain.Receipt{State: domain.Handled}, false},
	} {
		if got := c.receipt.Expired(now); got != c.want {
			t.Errorf("%s: Expired = %v; want %v", name, got, c.want)
		}
	}
}
