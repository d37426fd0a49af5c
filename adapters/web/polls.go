package web

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/admitone/admitone/ports"
)

// A Poll is where the polling of an account stands, as the admin API shows it.
type Poll struct {
	Tenant     string     `json:"tenant"`
	Channel    string     `json:"channel"`
	Account    string     `json:"account"`
	Condition  string     `json:"condition" enum:"ok,failing,revoked" doc:"How the last round ended. Revoked: the vendor refuses the credentials; a person is needed."`
	Holder     string     `json:"holder" doc:"Instance that polls it now; empty if none does."`
	LagSeconds float64    `json:"lag_seconds" doc:"How long ago everything was known to be seen."`
	CaughtUpAt *time.Time `json:"caught_up_at" doc:"When a round began last that saw everything."`
	EndedAt    *time.Time `json:"ended_at" doc:"When a round ended last, well or not."`
	DueAt      *time.Time `json:"due_at" doc:"When it is polled next; while it is, when its holder counts as gone."`
	Failures   int        `json:"failures" doc:"Rounds that failed, one after the other."`
	LastError  string     `json:"last_error"`
	Position   string     `json:"position" doc:"The checkpoint, in the vendor's own order: of Gmail a historyId."`
}

type pollsOutput struct {
	Body struct {
		Polls []Poll `json:"polls" nullable:"false"`
	}
}

func (a *admin) registerPolls() {
	register(a, huma.Operation{
		OperationID: "polls", Method: http.MethodGet, Path: "/api/v1/polls", Tags: []string{"polls"},
		Summary: "Accounts that are polled, and where that stands",
	}, a.polls)
}

func (a *admin) polls(ctx context.Context, _ *struct{}) (*pollsOutput, error) {
	all, err := a.Polls.Polls(ctx)
	if err != nil {
		return nil, fmt.Errorf("read polls: %w", err)
	}
	out := new(pollsOutput)
	out.Body.Polls = each(all, pollOf)
	return out, nil
}

func pollOf(p ports.PollStatus) Poll {
	return Poll{
		Tenant: p.Tenant, Channel: p.Channel, Account: p.Account, Condition: string(p.Condition), Holder: p.Holder,
		LagSeconds: p.Lag(time.Now()).Seconds(), CaughtUpAt: instant(p.CaughtUpAt), EndedAt: instant(p.EndedAt), DueAt: instant(p.DueAt),
		Failures: p.Failures, LastError: p.LastError, Position: strconv.FormatUint(p.Checkpoint.Position, 10),
	}
}
