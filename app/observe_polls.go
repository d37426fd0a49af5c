package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/ports"
)

// pollMetrics tell how far behind the polling of each installation is. The store is asked at
// most once in ledgerEvery, however many scrape.
type pollMetrics struct {
	polls     ports.PollStore
	directory *intake.Directory
	log       *slog.Logger

	mu    sync.Mutex
	asked time.Time
	since map[string]ports.PollStatus // by installation
}

var lagDesc = prometheus.NewDesc("admitone_poll_lag_seconds",
	"How long ago everything in a polled account was known to be seen.", []string{"installation"}, nil)

func newPollMetrics(polls ports.PollStore, directory *intake.Directory, log *slog.Logger) *pollMetrics {
	return &pollMetrics{polls: polls, directory: directory, log: log}
}

// Describe implements prometheus.Collector.
func (m *pollMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- lagDesc }

// Collect implements prometheus.Collector.
func (m *pollMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.asked) > ledgerEvery {
		m.ask()
	}
	for id, s := range m.since {
		ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, s.Lag(time.Now()).Seconds(), id)
	}
}

// ask keeps the last answer while the store is out of reach: then the lag grows, as it is.
func (m *pollMetrics) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	all, err := m.polls.Polls(ctx)
	if err != nil {
		m.log.Debug("polls could not be read", "error", err)
		return
	}
	m.asked, m.since = time.Now(), map[string]ports.PollStatus{}
	for _, s := range all {
		in, err := m.directory.ByAccount(ctx, s.Channel, s.Account)
		if err == nil && in.Tenant == s.Tenant && !in.Paused {
			m.since[in.ID] = s
		}
	}
}
