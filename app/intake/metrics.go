package intake

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what the intake counts.
type Metrics struct {
	Deliveries            *prometheus.CounterVec   // by channel and verdict, one for each event
	Refusals              *prometheus.CounterVec   // by channel and reason
	VendorRetries         *prometheus.CounterVec   // by channel
	Conflicts             *prometheus.CounterVec   // by platform
	DuplicatesOfUnhandled *prometheus.CounterVec   // by platform
	AckSeconds            *prometheus.HistogramVec // by channel
	DispatchSeconds       *prometheus.HistogramVec // by target and outcome
	FastStoreErrors       prometheus.Counter
	StoreDisagreements    prometheus.Counter
	DurableStoreErrors    prometheus.Counter
	Quarantined           *prometheus.CounterVec // by channel

	registry prometheus.Registerer
}

// NewMetrics registers the intake's metrics. It panics if they are registered already, which
// is a mistake of the program's making.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "admitone_" + name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "admitone_" + name, Help: help, Buckets: buckets}, labels)
		r.MustRegister(h)
		return h
	}
	return &Metrics{
		Deliveries:    counter("deliveries_total", "Events in deliveries, by verdict.", "channel", "verdict"),
		Refusals:      counter("refusals_total", "Deliveries and events that were refused.", "channel", "reason"),
		VendorRetries: counter("vendor_retries_total", "Events that the vendor said it sends again.", "channel"),
		Conflicts:     counter("conflicts_total", "Events with the key of another and other content.", "platform"),
		DuplicatesOfUnhandled: counter("duplicates_of_unhandled_total",
			"Duplicates of events that are not handled: the strongest sign of trouble.", "platform"),
		AckSeconds: histogram("ack_seconds", "From the end of the request's body to the answer.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "channel"),
		DispatchSeconds: histogram("dispatch_seconds", "How long the application took to answer.",
			[]float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60}, "target", "outcome"),
		FastStoreErrors:    counter("fast_store_errors_total", "Calls that the fast store did not answer.").WithLabelValues(),
		StoreDisagreements: counter("store_disagreements_total", "Events that the durable store knew as handled and the fast store should have known.").WithLabelValues(),
		DurableStoreErrors: counter("durable_store_errors_total", "Calls that the durable store did not answer.").WithLabelValues(),
		Quarantined:        counter("quarantined_total", "Requests with a wrong signature that were kept to be checked again.", "channel"),
		registry:           r,
	}
}

func (m *Metrics) gauge(name, help string, value func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "admitone_" + name, Help: help},
		func() float64 { return float64(value()) }))
}
