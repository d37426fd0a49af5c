package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// settledPerPrune is how many events are settled on this instance before it prunes ahead of time.
const settledPerPrune = 5000

// work begins, dispatches and settles events until the queue is closed.
func (e *Engine) work() {
	for it := e.queue.pop(); it != nil; it = e.queue.pop() {
		if it.numbered {
			e.workOn(it)
		} else {
			e.workOnce(it)
		}
	}
}

// workOn takes an item with a receipt through one attempt.
func (e *Engine) workOn(it *item) {
	policy := e.policyOf(it.installation)
	number, start, err := e.begin(it, policy.Lease)
	switch {
	case err == nil:
	case errors.Is(err, ports.ErrWaits):
		if errors.Is(err, domain.ErrUnknown) && it.doubt.IsZero() {
			it.doubt = start
		}
		it.waits++
		e.queue.freed(it)
		if e.queue.handBack(it) {
			return
		}
		e.queue.postpone(e.life, it, min(time.Duration(it.waits)*10*time.Millisecond, 200*time.Millisecond))
		return
	case errors.Is(err, domain.ErrFenced):
		e.Logger.Debug("an event was taken up by another instance", "receipt", it.receipt.ID)
		e.queue.begun(it)
		e.queue.freed(it)
		e.queue.ended(it)
		return
	default:
		return // it stays claimed, and is handed back
	}
	e.queue.begun(it)
	// The store began to count the lease between start and now. A dispatch ends with the first, so that
	// none outlasts the lease; a settle is tried until the last, since the store fences what is late.
	ctx, cancel := context.WithTimeout(e.life, policy.Lease)
	result := domain.Result{Outcome: domain.NotReceived, Reason: "the answer to its begin came too late to dispatch it"}
	if time.Since(start) < policy.Lease/2 {
		dispatch, end := context.WithDeadline(ctx, start.Add(policy.Lease))
		result = e.dispatch(dispatch, it, number)
		end()
	}
	e.queue.freed(it)
	e.settles <- attempt{ctx: ctx, cancel: cancel, item: it, policy: policy, number: number, result: result}
}

// An attempt is one that has ended and is yet to be recorded. Its context is over with its lease.
type attempt struct {
	ctx    context.Context //nolint:containedctx // it is handed on with the attempt
	cancel context.CancelFunc
	item   *item
	policy domain.ClaimPolicy
	number int
	result domain.Result
}

// settleAll records how attempts ended until no worker is left.
func (e *Engine) settleAll() {
	for a := range e.settles {
		e.settle(a)
		a.cancel()
		e.queue.ended(a.item)
	}
}

// begin commits that the next attempt of it has begun, at start or later. While the store is out
// of reach it tries again, unless the instance is to end.
func (e *Engine) begin(it *item, lease time.Duration) (number int, start time.Time, err error) {
	ref := ports.Ref{
		Tenant: it.receipt.Key.Tenant, ID: it.receipt.ID, Holder: e.holder, Attempt: it.receipt.Attempt, Doubt: !it.doubt.IsZero(),
	}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if start = time.Now(); ref.Doubt {
			start = it.doubt
		}
		number, err = e.DurableStore.Begin(e.life, ref, lease)
		if err == nil || errors.Is(err, ports.ErrWaits) || errors.Is(err, domain.ErrFenced) {
			return number, start, err
		}
		e.Metrics.DurableStoreErrors.Inc()
		if !e.pause(pause, e.queue.end) {
			return 0, start, err
		}
	}
}

// pause waits for d and reports whether the wait was whole.
func (e *Engine) pause(d time.Duration, end <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-end:
	case <-e.life.Done():
	}
	return false
}

// dispatch hands an event over once. What its channel can't read any more, or what makes code
// panic, the application does not get: that is told, and ends nothing but this event.
func (e *Engine) dispatch(ctx context.Context, it *item, attempt int) (result domain.Result) {
	start := time.Now()
	defer func() {
		e.Metrics.DispatchSeconds.WithLabelValues(e.Config.Target, string(result.Outcome)).Observe(time.Since(start).Seconds())
	}()
	var err error
	func() {
		defer recovered(&err, domain.ErrUnreadable)
		result, err = e.handOver(ctx, it, attempt)
	}()
	if err != nil {
		return domain.Result{Outcome: domain.Rejected, Reason: reason(err)}
	}
	result.Reason = storable(result.Reason)
	return result
}

func (e *Engine) handOver(ctx context.Context, it *item, attempt int) (domain.Result, error) {
	r := it.receipt
	content, err := e.Content(r)
	if err != nil {
		return domain.Result{}, err
	}
	d := ports.Dispatch{
		ID: r.ID, Key: r.Key, Channel: r.Channel, Kind: r.Kind, MessageKey: r.MessageKey, Attempt: attempt,
		ConversationID: r.ConversationID, ReceivedAt: r.ClaimedAt, Content: content,
	}
	if it.installation != nil {
		d.URL = it.installation.DispatchURL
	}
	return e.Dispatcher.Dispatch(ctx, d), nil
}

// Content returns what the event of r, which holds its payload, tells the application. Its error
// wraps domain.ErrUnreadable.
func (e *Engine) Content(r domain.Receipt) (content domain.Content, err error) {
	defer recovered(&err, domain.ErrUnreadable)
	c, ok := e.channels[r.Channel]
	if !ok {
		return domain.Content{}, fmt.Errorf("the channel is not offered here: %w", domain.ErrUnreadable)
	}
	return c.Decode(event(r))
}

// event returns the event of r as its channel extracted it.
func event(r domain.Receipt) domain.Event {
	return domain.Event{
		ID: r.Key.EventID, Account: r.Key.Account, MessageKey: r.MessageKey, Kind: r.Kind, Conversation: r.Conversation,
		Digest: r.Digest, VendorAttempt: r.VendorAttempt, Payload: r.Payload,
	}
}

// settle records how an attempt ended. A store that is out of reach is tried until the lease
// is over: so the outcome is kept, and never settled late.
func (e *Engine) settle(a attempt) {
	r, result := &a.item.receipt, a.result
	step := a.policy.After(result.Outcome, r.Guarantee, a.number, time.Now())
	s := ports.Settlement{
		Ref:    ports.Ref{Tenant: r.Key.Tenant, ID: r.ID, Holder: e.holder, Attempt: a.number},
		Step:   step,
		Reason: result.Reason,
	}
	var err error
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err = e.DurableStore.Settle(a.ctx, s)
		if err == nil || errors.Is(err, domain.ErrFenced) {
			break
		}
		e.Metrics.DurableStoreErrors.Inc()
		if a.ctx.Err() != nil || !e.pause(pause, a.ctx.Done()) {
			break
		}
	}
	if err != nil {
		e.Logger.Error("the outcome of a dispatch could not be recorded within its lease",
			"receipt", r.ID, "tenant", r.Key.Tenant, "outcome", result.Outcome, "error", err)
		return
	}
	if n := e.settled.Add(1); n%settledPerPrune == 0 {
		select {
		case e.pruneDue <- struct{}{}:
		default:
		}
	}
	switch step.State {
	case domain.Handled:
		e.remember(r.Key.Digest(), r.Digest, a.policy.FastTTL)
	case domain.Retrying:
		time.AfterFunc(time.Until(step.DueAt), e.Nudge)
	case domain.Failed:
		e.Logger.Warn("an event was given up", "receipt", r.ID, "tenant", r.Key.Tenant, "platform", r.Key.Platform,
			"outcome", result.Outcome, "reason", result.Reason, "attempt", a.number)
	case domain.Claimed, domain.Dispatching, domain.Lost, domain.Discarded:
	}
}

// remember tells the fast store that an event is handled. That it can't is no harm.
func (e *Engine) remember(key, content domain.Digest, ttl time.Duration) {
	if e.FastStore == nil {
		return
	}
	if err := e.FastStore.Remember(e.life, key, ports.MarkOf(content), ttl); err != nil {
		e.Metrics.FastStoreErrors.Inc()
	}
}

// workOnce takes an item without a receipt through its only attempt.
func (e *Engine) workOnce(it *item) {
	e.queue.begun(it)
	ctx, cancel := context.WithTimeout(e.life, e.policyOf(it.installation).Lease)
	defer cancel()
	result := e.dispatch(ctx, it, 1)
	e.queue.freed(it)
	r := it.receipt
	if result.Outcome == domain.Taken {
		e.Logger.Debug("an unnumbered event was handled", "id", r.ID, "tenant", r.Key.Tenant, "platform", r.Key.Platform)
		return
	}
	e.Logger.Warn("an unnumbered event was not handled; it leaves no receipt", "id", r.ID, "tenant", r.Key.Tenant,
		"platform", r.Key.Platform, "kind", r.Kind, "outcome", result.Outcome, "reason", result.Reason)
}
