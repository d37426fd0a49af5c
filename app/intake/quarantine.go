package intake

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// Bounds of the quarantine: anybody can send to it who knows an installation's address.
const (
	maxConfined     = 1000     // requests of one installation
	maxConfinedBody = 64 << 10 // bytes; larger than nearly all events of chat platforms
	confining       = 2        // at a time; others are let go
	confineTimeout  = 2 * time.Second
	recheckPage     = 20
)

// confine keeps a request to an installation whose signature is wrong, if its policy says so and
// it looks like the vendor's. It is refused all the same: nothing of it is used unless a person
// has it checked again.
func (e *Engine) confine(ctx context.Context, d door, in ports.Delivery) {
	if e.Quarantine == nil || d.installation == nil || d.installation.Policy.Quarantine <= 0 || e.draining.Load() ||
		d.channel.Proof == "" || in.Header.Get(d.channel.Proof) == "" || len(in.Body) > maxConfinedBody {
		return
	}
	select {
	case e.confined <- struct{}{}:
		defer func() { <-e.confined }()
	default:
		return
	}
	id, err := uuid.NewV7()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confineTimeout)
	defer cancel()
	kept, err := e.Quarantine.Confine(ctx, ports.Confined{
		ID: id.String(), Tenant: d.installation.Tenant, Until: time.Now().Add(d.installation.Policy.Quarantine), Delivery: in,
	}, maxConfined)
	switch {
	case err != nil:
		e.Logger.Warn("a request with a wrong signature could not be quarantined", "installation", in.Installation, "error", err)
	case kept:
		e.Metrics.Quarantined.WithLabelValues(in.Channel).Inc()
	}
}

// Recheck checks the quarantined requests of an installation again, by its present secrets. What
// is authentic by them goes through an ordinary claim and leaves the quarantine when each of its
// events has its verdict. Signed times are compared with when the request was received. It
// returns domain.ErrNotInstalled, and domain.ErrState if nothing can be admitted now: the
// installation is paused, or the instance drains.
func (e *Engine) Recheck(ctx context.Context, installation string) (ports.Recheck, error) {
	var r ports.Recheck
	in, err := e.Installations.ByID(ctx, installation)
	if err != nil {
		return r, err
	}
	d, err := e.door(ctx, in.Channel, installation)
	switch {
	case err != nil || e.Quarantine == nil:
		return r, fmt.Errorf("installation %s: %w", installation, domain.ErrNotInstalled)
	case in.Paused || e.draining.Load():
		return r, fmt.Errorf("installation %s: %w", installation, domain.ErrState)
	}
	for after := ""; ; {
		page, err := e.Quarantine.Confined(ctx, in.Tenant, installation, after, recheckPage)
		if err != nil || len(page) == 0 {
			return r, err
		}
		for _, c := range page {
			after = c.ID
			r.Requests++
			if !e.recheck(ctx, d, c.Delivery) {
				r.Refused++
				continue
			}
			r.Accepted++
			if err := e.Quarantine.Release(ctx, c.Tenant, c.ID); err != nil {
				return r, err // checked once more it is a duplicate
			}
		}
	}
}

// recheck reports whether in is authentic and each of its events has its verdict.
func (e *Engine) recheck(ctx context.Context, d door, in ports.Delivery) bool {
	req := &channels.Request{
		Method: in.Method, URL: d.publicURL + in.Target, Header: in.Header, Body: in.Body, Now: in.ReceivedAt,
	}
	if verify(d.endpoint, req) != nil {
		return false
	}
	in.ReceivedAt = time.Now() // it is claimed now; retention counts from here
	batch, err := extract(d.endpoint, req)
	if errors.Is(err, domain.ErrUnknownRecipient) {
		return false
	}
	if err != nil {
		batch = unreadable(d, in)
	}
	return e.admit(ctx, d, in, batch, reason(err)).Status == http.StatusOK
}

// tidy deletes what was quarantined long enough, and encrypts anew what an older key encrypts.
func (e *Engine) tidy(ctx context.Context) {
	if e.Quarantine != nil {
		_, err := e.Quarantine.PruneConfined(ctx)
		e.tell(ctx, "old quarantined requests could not be deleted", err)
	}
	n, err := e.Installations.reseal(ctx)
	if n > 0 {
		e.Logger.Info("installations were encrypted with the new key", "installations", n)
	}
	e.tell(ctx, "installations could not be encrypted anew", err)
}
