package intake

import (
	"sync"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// maxTries is how often a count is written that finds no receipt, or one that is just being
// changed: the receipt may have been pruned.
const maxTries = 5

// maxCounts bounds how many events' suppressed duplicates are kept until they are written.
const maxCounts = 100_000

// deliveryCounts gathers suppressed duplicates, so that one costs no write of its own. What
// was not written when the process dies is not counted.
type deliveryCounts struct {
	mu    sync.Mutex
	m     map[countKey]countValue
	tries map[countKey]int // writes that left a count out
}

type countKey struct {
	tenant string
	event  domain.Digest
}

type countValue struct {
	n, attempt int
}

func newDeliveryCounts() *deliveryCounts { return &deliveryCounts{m: map[countKey]countValue{}} }

func (d *deliveryCounts) add(tenant string, event domain.Digest, attempt int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := countKey{tenant, event}
	v, ok := d.m[k]
	if !ok && len(d.m) >= maxCounts {
		return
	}
	v.n++
	v.attempt = max(v.attempt, min(attempt, 1<<20))
	d.m[k] = v
}

func (d *deliveryCounts) take() []ports.DeliveryCount {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.m) == 0 {
		return nil
	}
	counts := make([]ports.DeliveryCount, 0, len(d.m))
	for k, v := range d.m {
		counts = append(counts, ports.DeliveryCount{Tenant: k.tenant, Event: k.event, N: v.n, VendorAttempt: v.attempt})
	}
	clear(d.m)
	return counts
}

// putBack keeps what was not written for the next time. What was is done with.
func (d *deliveryCounts) putBack(left []ports.DeliveryCount) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tries := make(map[countKey]int, len(left))
	for _, c := range left {
		k := countKey{c.Tenant, c.Event}
		if tries[k] = d.tries[k] + 1; tries[k] >= maxTries {
			delete(tries, k)
			continue
		}
		v := d.m[k]
		v.n += c.N
		v.attempt = max(v.attempt, c.VendorAttempt)
		d.m[k] = v
	}
	d.tries = tries
}
