package sqlstore_test

import (
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// The balance counts apart what the vendor has sent again and what is not handled; it names those
// receipts, and those that nobody takes up.
func TestAuditTellsRepeatedAndStuckReceipts(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]func(*testing.T) sqlstore.Config{"sqlite": liteConfig, "postgres": pgConfig} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, config(t))
			ends := map[string]domain.State{"handled": domain.Handled, "failed": domain.Failed, "closed by hand": domain.Failed}
			ids := map[string]string{}
			var counts []ports.DeliveryCount
			for _, event := range []string{"handled", "failed", "closed by hand", "open", "once"} {
				r := receipt(event)
				r.ClaimedAt = time.Now().Add(-time.Hour)
				if c := claim(t.Context(), s, r); !c.Won {
					t.Fatalf("Claim(%s) = %+v", event, c)
				}
				ids[event] = r.ID
				if end, ok := ends[event]; ok {
					n, err := s.Begin(t.Context(), refOf(r), time.Minute)
					if err != nil {
						t.Fatalf("Begin(%s): %v", event, err)
					}
					r.Attempt = n
					if err := s.Settle(t.Context(), ports.Settlement{Ref: refOf(r), Step: domain.Step{State: end}, Reason: "rejected"}); err != nil {
						t.Fatalf("Settle(%s): %v", event, err)
					}
				}
				if event != "once" {
					counts = append(counts, ports.DeliveryCount{Tenant: r.Key.Tenant, Event: r.Key.Digest(), N: 2})
				}
			}
			if left, err := s.CountDeliveries(t.Context(), counts); err != nil || len(left) > 0 {
				t.Fatalf("CountDeliveries left %v, %v", left, err)
			}
			if err := s.Discard(t.Context(), ids["closed by hand"], "somebody"); err != nil {
				t.Fatalf("Discard: %v", err)
			}
			a, err := s.Audit(t.Context(), time.Minute, 10)
			if err != nil || len(a.Sums) != 1 || !a.Sums[0].Balanced() || a.Sums[0].Admitted != 5 || a.Sums[0].Repeated != 2 {
				t.Errorf("Audit = %+v, %v; want one sum of 5 receipts, 2 of them repeated", a.Sums, err)
			}
			if len(a.Repeated) != 2 || a.Repeated[0].ID != ids["open"] || a.Repeated[1].ID != ids["failed"] || a.Repeated[0].Deliveries != 3 {
				t.Errorf("repeated receipts %+v; want the open one and the failed one, delivered 3 times", a.Repeated)
			}
			var stuck []string
			for _, f := range a.Findings {
				stuck = append(stuck, f.Receipt.Key.EventID)
			}
			if len(stuck) != 2 {
				t.Errorf("findings of %v; want those of the two that nobody took up", stuck)
			}
		})
	}
}
