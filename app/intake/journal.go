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

// Of the journal, how often it is drained and how much at a time.
const (
	drainEvery   = 500 * time.Millisecond
	drainLimit   = 256
	drainTimeout = 10 * time.Second
)

// journals reports whether events of a go to the journal while the durable store is out of
// reach: because the policy says so, or because the vendor would not come again.
func (e *Engine) journals(a *admission) bool {
	if e.Journal == nil {
		return false
	}
	return a.installation.Policy.Journals(e.channels[a.installation.Channel].Vendor.ComesAgain)
}

// journalDirectly reports whether a is journalled without asking the durable store first: it
// did not answer of late, and each event would wait for it in vain.
func (e *Engine) journalDirectly(a *admission) bool {
	return e.storeDown.Load() && e.journals(a)
}

// append journals events, gives them their verdict, and frees their places in the queue: they
// come back through an ordinary claim.
func (e *Engine) append(ctx context.Context, channel string, of []*admission, receipts []domain.Receipt) {
	if len(receipts) == 0 {
		return
	}
	err := e.Journal.Append(ctx, receipts)
	for i, a := range of {
		e.queue.forget(receipts[i].ID)
		if err != nil {
			e.refuse(a)
			continue
		}
		a.verdict = domain.Admitted
		e.giveBack(a)
	}
	if err == nil {
		return
	}
	why := "journal"
	if errors.Is(err, ports.ErrFull) {
		why = "journal_full"
	}
	e.Metrics.Refusals.WithLabelValues(channel, why).Add(float64(len(of)))
	e.Logger.Error("events could not be journalled while the durable store is out of reach", "channel", channel,
		"events", len(of), "error", err)
}

// drainJournal claims what the journal holds, in order, when the durable store is back.
func (e *Engine) drainJournal(ctx context.Context) {
	for !e.draining.Load() {
		if e.Journal.Len() == 0 && !e.storeDown.Load() {
			return
		}
		probe, cancel := context.WithTimeout(ctx, time.Second)
		err := e.DurableStore.Ready(probe)
		cancel()
		if err != nil {
			return
		}
		e.storeDown.Store(false)
		more, err := e.drainSome(ctx)
		if err != nil && ctx.Err() == nil {
			e.Logger.Warn("the journal could not be drained yet", "entries", e.Journal.Len(), "error", err)
		}
		if err != nil || !more {
			return
		}
	}
}

// drainSome claims the oldest entries and removes those whose claim is concluded. It reports
// whether there may be more that can be drained now.
func (e *Engine) drainSome(ctx context.Context) (more bool, err error) {
	places := e.queue.reserve("", drainLimit)
	if places == 0 {
		return false, nil
	}
	used := 0
	defer func() { e.queue.release("", places-used) }()
	entries, err := e.Journal.Oldest(ctx, places)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	entries, of, failed := e.installationsOf(ctx, entries)
	if len(entries) == 0 {
		return false, failed
	}
	receipts := make([]domain.Receipt, len(entries))
	for i, entry := range entries {
		receipts[i] = entry.Receipt
		receipts[i].Holder = e.holder
		if receipts[i].State == domain.Claimed {
			e.queue.know(receipts[i].ID)
		}
	}
	claim, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	var done, back []ports.JournalEntry
	for i, c := range e.DurableStore.Claim(claim, receipts) {
		r, c := e.tellApart(claim, receipts[i], e.policyOf(of[i]), c)
		switch {
		case c.Won && c.Receipt.State == domain.Claimed && c.Receipt.Holder == e.holder:
			e.queue.found(r.Key.Tenant)
			e.queue.push(&item{receipt: c.Receipt, installation: of[i], numbered: true})
			used++
			done = append(done, entries[i])
			continue
		case c.Err == nil && !c.Won:
			e.counts.add(c.Receipt.Key.Tenant, c.Receipt.Key.Digest(), r.VendorAttempt)
			done = append(done, entries[i])
		case c.Err == nil: // parked, or taken up by another meanwhile
			done = append(done, entries[i])
		case errors.Is(c.Err, domain.ErrUnavailable), errors.Is(c.Err, domain.ErrUnknown):
			err = c.Err
		default:
			// it must not hold up what comes behind it, and must not be lost
			e.Logger.Error("an event of the journal can't be claimed; it stays there", "receipt", r.ID, "tenant", r.Key.Tenant,
				"platform", r.Key.Platform, "error", c.Err)
			back = append(back, entries[i])
		}
		e.queue.forget(r.ID)
	}
	if len(back) > 0 {
		again := make([]domain.Receipt, len(back))
		for i, b := range back {
			again[i] = b.Receipt
		}
		if appendErr := e.Journal.Append(ctx, again); appendErr == nil {
			done = append(done, back...)
		}
	}
	return err == nil && failed == nil && len(back) == 0, errors.Join(err, failed, e.Journal.Remove(ctx, done))
}

// installationsOf returns the entries whose installation can be looked up, with that of each, and
// why others can't. These stay where they are and hold up no other.
func (e *Engine) installationsOf(ctx context.Context, entries []ports.JournalEntry) (known []ports.JournalEntry, of []*Installation, err error) {
	failed := map[string]error{} // by installation
	for _, entry := range entries {
		id := entry.Receipt.Installation
		if failed[id] != nil {
			continue
		}
		in, err := e.installationOf(ctx, entry.Receipt)
		if err != nil {
			failed[id] = err
			continue
		}
		known, of = append(known, entry), append(of, in)
	}
	return known, of, errors.Join(slices.Collect(maps.Values(failed))...)
}

// tellApart claims r under an id of its own if the claim c was lost to another event of the
// same key and the policy admits that, and returns the receipt and the claim that count.
func (e *Engine) tellApart(ctx context.Context, r domain.Receipt, policy domain.ClaimPolicy, c ports.Claim) (domain.Receipt, ports.Claim) {
	for tries := 0; c.Err == nil && !c.Won && e.conflicts(r, policy, c, tries); tries++ {
		apart := domain.Apart(event(r))
		r.Key.EventID, r.MessageKey = apart.ID, apart.MessageKey
		c = e.DurableStore.Claim(ctx, []domain.Receipt{r})[0]
	}
	return r, c
}
