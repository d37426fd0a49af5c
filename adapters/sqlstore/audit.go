package sqlstore

import (
	"context"
	"time"

	"gorm.io/gorm"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

var _ ports.Auditor = (*Store)(nil)

// An audited is something that must not be.
type audited struct {
	why  string
	cond string
	args []any
}

// Audit implements ports.Auditor.
func (s *Store) Audit(ctx context.Context, grace time.Duration, limit int) (ports.Audit, error) {
	sums, err := s.sums(ctx)
	if err != nil {
		return ports.Audit{}, err
	}
	a := ports.Audit{Sums: sums}
	past := s.in(-grace)
	for _, q := range []audited{
		{"open, and nothing says when it is taken up", `r.state = 'claimed' AND r.lane IS NULL
			OR r.state = 'retrying' AND r.due_at IS NULL OR r.state = 'dispatching' AND r.lease_until IS NULL`, nil},
		{"claimed by an instance that is gone, and not taken up", `r.lane IS NOT NULL AND r.state = 'claimed'
			AND r.holder NOT IN (SELECT i.id FROM instances i WHERE i.alive_until > ?) AND r.claimed_at < ?`, []any{past, past}},
		{
			"its lease ran out, and nobody decided on it",
			`(r.lane IS NOT NULL OR r.due_at IS NOT NULL) AND r.state = 'dispatching' AND r.lease_until < ?`,
			[]any{past},
		},
		{"its retry is overdue", `r.due_at IS NOT NULL AND r.state = 'retrying' AND r.due_at < ?`, []any{past}},
		{"closed, and still waiting for somebody", `(r.lane IS NOT NULL OR r.due_at IS NOT NULL)
			AND r.state NOT IN ('claimed', 'dispatching', 'retrying')`, nil},
		{"handled, and not said when", `r.state = 'handled' AND r.handled_at IS NULL`, nil},
		{
			"given up, and not to be found as such",
			`r.state IN ('failed', 'lost', 'discarded') AND r.parked IS NOT TRUE`, nil,
		},
		{"begun, and no attempt counted", `r.state IN ('dispatching', 'handled', 'lost') AND r.attempt = 0`, nil},
		{"open, and what it carried is gone", `(r.lane IS NOT NULL OR r.due_at IS NOT NULL) AND NOT EXISTS (
			SELECT 1 FROM payloads p WHERE p.tenant = r.tenant AND p.receipt_id = r.id)`, nil},
	} {
		var rows []receiptRow
		err := s.reads(ctx, everyone, func(tx *gorm.DB) error {
			return tx.Raw(`SELECT `+receiptColumns+` FROM receipts r WHERE (`+q.cond+`) LIMIT ?`, append(q.args, limit)...).Scan(&rows).Error
		})
		if err != nil {
			return ports.Audit{}, classify(err)
		}
		for _, r := range receipts(rows) {
			a.Findings = append(a.Findings, ports.Finding{Receipt: r, Why: q.why})
		}
	}
	var rows []receiptRow
	err = s.reads(ctx, everyone, func(tx *gorm.DB) error {
		// what is neither handled nor discarded is open or parked, and found by one of these
		return tx.Raw(`SELECT `+receiptColumns+` FROM receipts r
			WHERE (r.parked OR r.lane IS NOT NULL OR r.due_at IS NOT NULL) AND `+repeated+` ORDER BY r.id DESC LIMIT ?`, limit).Scan(&rows).Error
	})
	if err != nil {
		return ports.Audit{}, classify(err)
	}
	a.Repeated = receipts(rows)
	return a, nil
}

// repeated selects receipts that the vendor has sent again and that are not handled.
const repeated = `r.state NOT IN ('handled', 'discarded') AND r.deliveries > 1`

// sums counts all receipts and those of each state by themselves, at one moment.
func (s *Store) sums(ctx context.Context) ([]ports.Sum, error) {
	var rows []struct {
		Tenant, Platform, State string
		N, Repeated             int64
	}
	// one statement sees one moment; the grand total of a pair is the row without a state
	err := s.reads(ctx, everyone, func(tx *gorm.DB) error {
		return tx.Raw(`
			SELECT tenant, platform, '' AS state, count(*) AS n, count(*) FILTER (WHERE ` + repeated + `) AS repeated
			FROM receipts r GROUP BY tenant, platform
			UNION ALL
			SELECT tenant, platform, state, count(*), 0 FROM receipts GROUP BY tenant, platform, state
			ORDER BY 1, 2, 3`).Scan(&rows).Error
	})
	if err != nil {
		return nil, classify(err)
	}
	var sums []ports.Sum
	for _, r := range rows {
		if r.State == "" {
			sums = append(sums, ports.Sum{
				Tenant: r.Tenant, Platform: r.Platform, Admitted: r.N, States: map[domain.State]int64{}, Repeated: r.Repeated,
			})
			continue
		}
		sums[len(sums)-1].States[domain.State(r.State)] = r.N
	}
	return sums, nil
}
