package web_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// polls is a poll store that has one account, or fails.
type polls struct {
	ports.PollStore
	err error
}

func (p polls) Polls(context.Context) ([]ports.PollStatus, error) {
	return []ports.PollStatus{{
		PollAccount: ports.PollAccount{Tenant: "acme", Channel: "gmail", Account: "desk@example.com"},
		DueAt:       time.Now().Add(time.Minute), EnteredAt: time.Now().Add(-time.Hour), EndedAt: time.Now().Add(-time.Minute),
		Condition: domain.PollRevoked, Failures: 3, LastError: "ask for a token: the vendor refuses the credentials",
		Checkpoint: domain.Checkpoint{Generation: 1, Position: 1<<64 - 1},
	}}, p.err
}

func TestPollsAreTold(t *testing.T) {
	t.Parallel()
	res, body := serveAdmin(t, config(someLedger())).get("/api/v1/polls")
	var got struct{ Polls []web.Poll }
	if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != http.StatusOK || len(got.Polls) != 1 {
		t.Fatalf("polls = %d %s, %v; want one", res.StatusCode, body, err)
	}
	p := got.Polls[0]
	if p.Account != "desk@example.com" || p.Condition != "revoked" || p.Failures != 3 || p.Position != "18446744073709551615" {
		t.Errorf("the poll is %+v; want that of desk@example.com, with its position whole", p)
	}
	if p.LagSeconds < 3599 || p.LagSeconds > 3700 || p.CaughtUpAt != nil || p.EndedAt == nil {
		t.Errorf("the lag of what never caught up is %v, caught up at %v; want an hour, since it was entered", p.LagSeconds, p.CaughtUpAt)
	}
	cfg := config(someLedger())
	cfg.Polls = polls{err: domain.ErrUnavailable}
	if res, _ := serveAdmin(t, cfg).get("/api/v1/polls"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("polls without a store = %d; want 503", res.StatusCode)
	}
}
