package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// readyTimeout bounds each question of a readiness probe, which come every few seconds.
const readyTimeout = time.Second

// readiness tells whether the instance can admit: it does not drain, and the durable store is in
// reach or there is a journal to take what would be lost. The fast store does not count:
// without it everything is slower and nothing is lost.
func readiness(e *intake.Engine, durable ports.DurableStore, fast ports.FastStore, journal ports.Journal,
) func(context.Context) web.Readiness {
	return func(ctx context.Context) web.Readiness {
		store := depends(ctx, "durable store", journal == nil, durable.Ready)
		admission := web.Dependency{Name: "admission", Ready: !e.Draining(), Needed: true}
		if e.Draining() {
			admission.Detail = "draining"
		}
		r := web.Readiness{Dependencies: []web.Dependency{store, admission}}
		if journal != nil {
			r.Dependencies = append(r.Dependencies, web.Dependency{
				Name: "journal", Ready: true, Needed: !store.Ready, Detail: fmt.Sprintf("%d events", journal.Len()),
			})
		}
		if fast != nil {
			r.Dependencies = append(r.Dependencies, depends(ctx, "fast store", false, fast.Ready))
		}
		r.Ready = true
		for _, d := range r.Dependencies {
			r.Ready = r.Ready && (d.Ready || !d.Needed)
		}
		return r
	}
}

func depends(ctx context.Context, name string, needed bool, ask func(context.Context) error) web.Dependency {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := ask(ctx); err != nil {
		return web.Dependency{Name: name, Needed: needed, Detail: "out of reach"}
	}
	return web.Dependency{Name: name, Needed: needed, Ready: true}
}

// counters reads what this process has counted from its own metrics.
func counters(g prometheus.Gatherer, log *slog.Logger) web.Counters {
	c := web.Counters{Verdicts: map[domain.Verdict]int64{}}
	families, err := g.Gather()
	if err != nil {
		log.Warn("some metrics could not be read", "error", err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n := int64(m.GetCounter().GetValue())
			switch f.GetName() {
			case "admitone_deliveries_total":
				for _, l := range m.GetLabel() {
					if l.GetName() == "verdict" {
						c.Verdicts[domain.Verdict(l.GetValue())] += n
					}
				}
			case "admitone_vendor_retries_total":
				c.VendorRetries += n
			case "admitone_duplicates_of_unhandled_total":
				c.DuplicatesOfUnhandled += n
			}
		}
	}
	return c
}

// ledgerMetrics are the gauges that the ledger answers. They are asked for at most once in
// ledgerEvery, however many scrape, and missing until they were answered: a 0 would say that all is
// well just when the store is too busy to tell.
type ledgerMetrics struct {
	ledger ports.Ledger
	log    *slog.Logger

	mu       sync.Mutex
	asked    time.Time
	receipts map[domain.State]int64
	oldest   time.Time
}

const ledgerEvery = 5 * time.Second

var (
	receiptsDesc = prometheus.NewDesc("admitone_receipts", "Receipts by state.", []string{"state"}, nil)
	oldestDesc   = prometheus.NewDesc("admitone_oldest_open_seconds", "Age of the oldest open receipt; 0 if none is open.", nil, nil)
)

func newLedgerMetrics(l ports.Ledger, log *slog.Logger) *ledgerMetrics {
	return &ledgerMetrics{ledger: l, log: log}
}

// Describe implements prometheus.Collector.
func (m *ledgerMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- receiptsDesc; ch <- oldestDesc }

// Collect implements prometheus.Collector.
func (m *ledgerMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.asked) > ledgerEvery {
		m.ask()
	}
	if m.asked.IsZero() {
		return
	}
	for _, s := range domain.States {
		ch <- prometheus.MustNewConstMetric(receiptsDesc, prometheus.GaugeValue, float64(m.receipts[s]), string(s))
	}
	age := 0.0
	if !m.oldest.IsZero() {
		age = max(0, time.Since(m.oldest).Seconds())
	}
	ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, age)
}

// ask keeps the last answer while the store is out of reach: its own counters tell of that.
func (m *ledgerMetrics) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	counts, err := m.ledger.Counts(ctx)
	if err != nil {
		m.log.Debug("receipts could not be counted", "error", err)
		return
	}
	oldest, err := m.ledger.OldestOpen(ctx)
	if err != nil {
		m.log.Debug("the oldest open receipt could not be found", "error", err)
		return
	}
	m.asked, m.oldest = time.Now(), oldest
	m.receipts = map[domain.State]int64{}
	for _, c := range counts {
		m.receipts[c.State] += c.N
	}
}
