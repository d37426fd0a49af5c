package web

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/admitone/admitone/domain"
)

type receiptCount struct {
	Tenant   string `json:"tenant"`
	Platform string `json:"platform"`
	State    string `json:"state"`
	Receipts int64  `json:"receipts"`
}

type statsOutput struct {
	Body struct {
		Counts                []receiptCount   `json:"counts" nullable:"false" doc:"Receipts in the ledger."`
		OldestOpen            *time.Time       `json:"oldest_open" doc:"When the oldest open receipt was claimed; null if none is open."`
		Verdicts              map[string]int64 `json:"verdicts" doc:"Verdicts that this process has given since it began."`
		VendorRetries         int64            `json:"vendor_retries" doc:"Deliveries to this process that the vendor marked as repeated."`
		DuplicatesOfUnhandled int64            `json:"duplicates_of_unhandled" doc:"Duplicates to this process that met a receipt which was not handled."`
	}
}

func (a *admin) registerStats() {
	register(a, huma.Operation{
		OperationID: "stats", Method: http.MethodGet, Path: "/api/v1/stats", Tags: []string{"stats"},
		Summary: "Receipts by tenant, platform and state, and what this process has counted",
	}, a.stats)
}

func (a *admin) stats(ctx context.Context, _ *struct{}) (*statsOutput, error) {
	counts, err := a.Ledger.Counts(ctx)
	if err != nil {
		return nil, fmt.Errorf("count receipts: %w", err)
	}
	oldest, err := a.Ledger.OldestOpen(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the oldest open receipt: %w", err)
	}
	counted := a.Stats(ctx)
	out := new(statsOutput)
	out.Body.Counts = make([]receiptCount, len(counts))
	for i, c := range counts {
		out.Body.Counts[i] = receiptCount{Tenant: c.Tenant, Platform: c.Platform, State: string(c.State), Receipts: c.N}
	}
	out.Body.OldestOpen = instant(oldest)
	out.Body.Verdicts = make(map[string]int64, len(domain.Verdicts))
	for _, v := range domain.Verdicts {
		out.Body.Verdicts[string(v)] = counted.Verdicts[v]
	}
	out.Body.VendorRetries = counted.VendorRetries
	out.Body.DuplicatesOfUnhandled = counted.DuplicatesOfUnhandled
	return out, nil
}
