package intake

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// Bounds of one look round.
const (
	sweepLimit = 100
	// takeUpLimit is larger: to find the oldest of what others left costs as much for one as for all.
	takeUpLimit = 1000
	pruneLimit  = 1000
	pruneLease  = 2 * pruneEvery
	// stuckFor is how long a claimed receipt is left alone whose installation could not be looked up.
	stuckFor = 15 * time.Second
)

// sweep takes up what nobody is at work on: it closes dispatches whose lease ran out, and
// begins what is claimed by an instance that is gone or due to be tried again.
func (e *Engine) sweep(ctx context.Context) {
	if e.draining.Load() {
		return
	}
	if err := errors.Join(e.expire(ctx), e.takeUp(ctx)); err != nil && ctx.Err() == nil {
		e.Metrics.DurableStoreErrors.Inc()
		e.Logger.Warn("what others left could not be taken up yet", "error", err)
	}
}

// expire decides on receipts whose holder let the lease run out. One whose installation can't be
// looked up holds up no other.
func (e *Engine) expire(ctx context.Context) error {
	var failed error
	for {
		expired, err := e.DurableStore.Expired(ctx, sweepLimit)
		if err != nil {
			return err
		}
		for _, r := range expired {
			in, err := e.installationOf(ctx, r)
			if err != nil {
				failed = err
				continue
			}
			step := e.policyOf(in).AfterExpiry(r.Guarantee, r.Attempt, time.Now())
			err = e.DurableStore.Expire(ctx, r, step, "the lease ran out while it was being dispatched")
			switch {
			case errors.Is(err, domain.ErrFenced): // another instance, or its holder, was first
			case err != nil:
				return err
			default:
				e.Logger.Warn("a dispatch was cut short: its holder is gone", "receipt", r.ID, "tenant", r.Key.Tenant,
					"platform", r.Key.Platform, "attempt", r.Attempt, "holder", r.Holder, "state", step.State)
			}
		}
		if failed != nil || len(expired) < sweepLimit {
			return failed
		}
	}
}

// takeUp fills the queue with what waits for somebody. What can't be told where it goes is left
// alone for a while, so that it holds up no other: a retrying receipt by its reservation, a claimed
// one because this instance, which holds it now, says that it knows it.
func (e *Engine) takeUp(ctx context.Context) error {
	maps.DeleteFunc(e.stuck, func(_ string, until time.Time) bool { return !time.Now().Before(until) })
	mine := func(id string) bool { return e.queue.knows(id) || !e.stuck[id].IsZero() }
	failed := map[string]error{} // by installation
	for {
		places := e.queue.reserveLeft(takeUpLimit)
		if places == 0 {
			return errors.Join(slices.Collect(maps.Values(failed))...)
		}
		receipts, err := e.DurableStore.TakeUp(ctx, e.holder, mine, places, e.Installations.Default.Lease)
		if err != nil {
			e.queue.release("", places)
			return err
		}
		for _, r := range receipts {
			var in *Installation
			err := failed[r.Installation]
			if err == nil {
				in, err = e.installationOf(ctx, r)
			}
			if err != nil {
				failed[r.Installation] = err
				e.stuck[r.ID] = time.Now().Add(stuckFor)
				e.queue.release("", 1)
				continue
			}
			e.queue.found(r.Key.Tenant)
			e.queue.push(&item{receipt: r, installation: in, numbered: true})
		}
		e.queue.release("", places-len(receipts))
		if len(receipts) < places {
			e.queue.pay()
			return errors.Join(slices.Collect(maps.Values(failed))...)
		}
	}
}

// prune deletes what is older than the policies say, of every tenant, and tidies, if no other
// instance is at it.
func (e *Engine) prune(ctx context.Context) {
	const receipts = "old receipts could not be pruned"
	mine, err := e.DurableStore.AcquireLease(ctx, "prune", e.holder, pruneLease)
	if err != nil || !mine {
		e.tell(ctx, receipts, err)
		return
	}
	e.tell(ctx, receipts, e.pruneReceipts(ctx))
	e.tidy(ctx)
}

// tell counts and logs that what had to be done failed, if it did and not just because ctx ended.
func (e *Engine) tell(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		e.Metrics.DurableStoreErrors.Inc()
		e.Logger.Warn(what, "error", err) //nolint:sloglint // its callers say it as literals
	}
}

func (e *Engine) pruneReceipts(ctx context.Context) error {
	tenants, err := e.DurableStore.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		scopes, err := e.Installations.pruneScopes(ctx, tenant, time.Now())
		if err != nil {
			return err
		}
		for _, scope := range scopes {
			if err := e.pruneScope(ctx, scope); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) pruneScope(ctx context.Context, scope ports.PruneScope) error {
	for {
		n, err := e.DurableStore.Prune(ctx, scope, pruneLimit)
		if err != nil || n < pruneLimit {
			return err
		}
		if !e.pause(breath, ctx.Done()) { // claims go first
			return ctx.Err()
		}
	}
}

// pruneScopes says what is old of a tenant at now: the installations that have the default's
// retention together, each other one by itself. Of one whose retention can't be told here, as its
// key is missing, nothing is old: it may be to keep longer than the default.
func (d *Directory) pruneScopes(ctx context.Context, tenant string, now time.Time) ([]ports.PruneScope, error) {
	scope := func(p domain.ClaimPolicy) ports.PruneScope {
		return ports.PruneScope{Tenant: tenant, Receipts: now.Add(-p.Retention), Payloads: now.Add(-p.PayloadRetention)}
	}
	rest := scope(d.Default)
	var scopes []ports.PruneScope
	err := d.each(ctx, tenant, func(id string, p *domain.ClaimPolicy) {
		if p != nil && p.Retention == d.Default.Retention && p.PayloadRetention == d.Default.PayloadRetention {
			return
		}
		rest.Except = append(rest.Except, id)
		if p != nil {
			own := scope(*p)
			own.Only = []string{id}
			scopes = append(scopes, own)
		}
	})
	return append(scopes, rest), err
}
