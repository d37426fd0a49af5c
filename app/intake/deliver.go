package intake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// maxPatience is how long a claim is waited for at most, however patient the vendor is.
const maxPatience = 10 * time.Second

// maxApart bounds how many ids an event is tried under whose own is taken by other contents:
// who knows the event can take those by which it would be told apart.
const maxApart = 4

// maxReason bounds what is kept of an error, in bytes.
const maxReason = 500

// A door is where a delivery came in.
type door struct {
	channel      channels.Channel
	installation *Installation // nil on the app-wide path
	endpoint     channels.Endpoint
	publicURL    string
}

func (e *Engine) door(ctx context.Context, channel, installation string) (door, error) {
	c, ok := e.channels[channel]
	if !ok {
		return door{}, domain.ErrNotFound
	}
	if installation == "" {
		w, ok := e.Installations.appWide[channel]
		if !ok {
			return door{}, domain.ErrNotFound
		}
		return door{channel: c, endpoint: w.Endpoint, publicURL: w.PublicURL}, nil
	}
	in, err := e.Installations.ByID(ctx, installation)
	switch {
	case errors.Is(err, domain.ErrUnavailable):
		e.Metrics.Refusals.WithLabelValues(channel, "look_up").Inc()
		return door{channel: c}, err
	case err != nil || in.Channel != channel || in.Endpoint == nil:
		return door{}, domain.ErrNotFound
	}
	return door{channel: c, installation: in, endpoint: in.Endpoint, publicURL: in.PublicURL}, nil
}

// Route implements ports.Inbound.
func (e *Engine) Route(ctx context.Context, channel, installation, method string) (ports.Route, error) {
	d, err := e.door(ctx, channel, installation)
	if err != nil {
		return ports.Route{RetryAfter: d.channel.Vendor.RetryAfter}, err
	}
	if !d.channel.Uses(method) {
		return ports.Route{}, ports.ErrMethod
	}
	r := ports.Route{MaxBody: d.channel.MaxBody}
	if r.MaxBody == 0 {
		r.MaxBody = e.Config.MaxBody
	}
	return r, nil
}

// Deliver implements ports.Inbound.
func (e *Engine) Deliver(ctx context.Context, in ports.Delivery) ports.Answer {
	d, err := e.door(ctx, in.Channel, in.Installation)
	if errors.Is(err, domain.ErrUnavailable) {
		return ports.Answer{Status: http.StatusServiceUnavailable, RetryAfter: d.channel.Vendor.RetryAfter}
	}
	if err != nil {
		return ports.Answer{Status: http.StatusNotFound}
	}
	req := &channels.Request{
		Method: in.Method, URL: d.publicURL + in.Target, Header: in.Header, Body: in.Body, Now: in.ReceivedAt,
	}
	err = verify(d.endpoint, req)
	if errors.Is(err, domain.ErrUnavailable) {
		e.Metrics.Refusals.WithLabelValues(in.Channel, "unverifiable").Inc()
		e.Logger.Warn("a request can't be verified for now", "channel", in.Channel, "installation", in.Installation, "reason", err)
		return ports.Answer{Status: http.StatusServiceUnavailable, RetryAfter: d.channel.Vendor.RetryAfter}
	}
	if err != nil {
		e.Metrics.Refusals.WithLabelValues(in.Channel, "unauthenticated").Inc()
		e.Logger.Debug("a request was not authentic", "channel", in.Channel, "installation", in.Installation, "reason", err)
		e.confine(ctx, d, in)
		return ports.Answer{Status: http.StatusUnauthorized}
	}
	if why := e.shut(d.installation); why != "" {
		e.Metrics.Refusals.WithLabelValues(in.Channel, why).Inc()
		return turnedAway(d, why)
	}
	batch, err := extract(d.endpoint, req)
	if errors.Is(err, domain.ErrUnknownRecipient) {
		e.Metrics.Refusals.WithLabelValues(in.Channel, "unknown_recipient").Inc()
		return ports.Answer{Status: http.StatusNotFound, Verdict: string(domain.Refused)}
	}
	if err != nil {
		e.Logger.Warn("an authentic request could not be understood", "channel", in.Channel, "installation", in.Installation, "error", err)
		batch = unreadable(d, in)
	}
	a := e.admit(ctx, d, in, batch, reason(err))
	e.Metrics.AckSeconds.WithLabelValues(in.Channel).Observe(time.Since(in.ReceivedAt).Seconds())
	return a
}

// verify and extract run code that vendors' bytes drive; what panics there is a request that
// can't be proved or understood, and must not end the process.
func verify(ep channels.Endpoint, r *channels.Request) (err error) {
	defer recovered(&err, domain.ErrUnauthenticated)
	return ep.Verify(r)
}

func extract(ep channels.Endpoint, r *channels.Request) (b channels.Batch, err error) {
	defer recovered(&err, domain.ErrUnreadable)
	return ep.Extract(r)
}

func recovered(err *error, as error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: panic: %v: %s", as, p, debug.Stack())
	}
}

// unreadable makes one event of a delivery that no retry can mend, so that a person can look
// at it. Where no tenant can be told there is nowhere to keep it.
func unreadable(d door, in ports.Delivery) channels.Batch {
	if d.installation == nil {
		return channels.Batch{}
	}
	return channels.Batch{Events: []domain.Event{{
		ID:      domain.UnreadableID(in.Body),
		Kind:    domain.Other,
		Digest:  domain.DigestOf(string(in.Body)),
		Payload: domain.Payload{MediaType: in.Header.Get("Content-Type"), Body: in.Body},
	}}}
}

// An admission is one event on its way to its verdict.
type admission struct {
	event        domain.Event
	installation *Installation
	key          domain.Key
	digest       domain.Digest // of key
	verdict      domain.Verdict
	reserved     bool   // holds a place in the queue
	shut         string // why its installation turns the delivery away
	unseen       bool   // the fast store said that it does not know the event
	apart        int    // conflicts that it was admitted apart from
}

// admit gives each event of a batch its verdict and makes the answer. fault tells why the batch
// is one unreadable event; such a one is parked.
func (e *Engine) admit(ctx context.Context, d door, in ports.Delivery, batch channels.Batch, fault string) ports.Answer {
	var one [1]admission
	all := one[:0]
	for _, ev := range batch.Events {
		all = append(all, e.resolve(ctx, d, ev, all))
	}
	keep := false
	if e.draining.Load() {
		for i := range all {
			if all[i].verdict == "" {
				all[i].verdict = domain.Refused
				e.Metrics.Refusals.WithLabelValues(in.Channel, "draining").Inc()
			}
		}
	} else {
		e.recall(ctx, all)
		if slices.ContainsFunc(all, func(a admission) bool { return a.verdict == "" }) {
			patience := min(d.channel.Vendor.Deadline*4/5, maxPatience)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			keep = e.claim(ctx, in, all, fault)
			cancel()
		}
	}
	return e.answer(d, in.Channel, batch, all, keep)
}

// resolve finds whose event ev is, of a delivery in which before stood before it. What is nobody's
// here is ignored.
func (e *Engine) resolve(ctx context.Context, d door, ev domain.Event, before []admission) admission {
	a := admission{event: ev, installation: d.installation}
	if d.installation == nil {
		in, err := e.Installations.ByAccount(ctx, d.channel.Name, ev.Account)
		a.installation = in
		switch i := slices.IndexFunc(before, func(b admission) bool { return b.installation == in }); {
		case errors.Is(err, domain.ErrUnavailable):
			a.shut = "look_up"
		case in == nil:
		case i >= 0: // a rate limit is of deliveries: else one with more events would never be let in whole
			a.shut = before[i].shut
		default:
			a.shut = e.shut(in)
		}
		if a.shut != "" {
			e.Metrics.Refusals.WithLabelValues(d.channel.Name, a.shut).Inc()
			a.verdict = domain.Refused
			return a
		}
	} else if ev.Account != "" && ev.Account != d.installation.Account {
		a.installation = nil
	}
	if a.installation == nil {
		e.Logger.Info("an event for an account that is not installed here was ignored",
			"channel", d.channel.Name, "account", domain.StorableID(ev.Account), "event_id", domain.StorableID(ev.ID))
		a.verdict = domain.Ignored
		return a
	}
	a.identify(d.channel.Platform)
	return a
}

// identify sets the key by which the event is known.
func (a *admission) identify(platform string) {
	if a.event.ID == "" {
		return
	}
	a.event.ID = domain.StorableID(a.event.ID)
	a.event.Conversation = domain.StorableID(a.event.Conversation)
	if a.event.MessageKey != "" {
		a.event.MessageKey = domain.StorableID(a.event.MessageKey)
	}
	a.key = domain.Key{Tenant: a.installation.Tenant, Platform: platform, Account: a.installation.Account, EventID: a.event.ID}
	a.digest = a.key.Digest()
}

// recall asks the fast store for events that are known to be handled. What it does not know,
// and all it knows while it is out of reach, is left to the durable store.
func (e *Engine) recall(ctx context.Context, all []admission) {
	if e.FastStore == nil {
		return
	}
	if len(all) == 1 {
		e.recallOne(ctx, &all[0])
		return
	}
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { e.recallOne(ctx, &all[i]) })
	}
	wg.Wait()
}

func (e *Engine) recallOne(ctx context.Context, a *admission) {
	if a.verdict != "" || a.event.ID == "" {
		return
	}
	content, handled, err := e.FastStore.Seen(ctx, a.digest)
	switch {
	case err != nil:
		e.Metrics.FastStoreErrors.Inc()
	case !handled:
		a.unseen = true
	case content == ports.MarkOf(a.event.Digest):
		a.verdict = domain.Duplicate
		e.counts.add(a.key.Tenant, a.digest, a.event.VendorAttempt)
	}
}

// claim writes receipts for what has no verdict yet. It reports whether the body of the
// delivery may still be in use: a claim that was given up may be on its way.
func (e *Engine) claim(ctx context.Context, in ports.Delivery, all []admission, fault string) (inUse bool) {
	var receipts, unclaimed []domain.Receipt
	var of, adrift []*admission // unclaimed are those of adrift, which the durable store did not take
	for i := range all {
		a := &all[i]
		if a.verdict != "" {
			continue
		}
		if fault == "" {
			if e.queue.reserve(a.installation.Tenant, 1) == 0 {
				a.verdict = domain.Refused
				e.Metrics.Refusals.WithLabelValues(in.Channel, "queue_full").Inc()
				continue
			}
			a.reserved = true
		}
		r, err := e.receipt(in, a, fault)
		if err != nil {
			e.Logger.Error("an event could not be claimed", "channel", in.Channel, "error", err)
			e.refuse(a)
			continue
		}
		switch {
		case a.event.ID == "":
			a.verdict = domain.Unnumbered
			if !e.enqueue(a, r) {
				e.refuse(a)
			}
		case e.journalDirectly(a):
			adrift, unclaimed = append(adrift, a), append(unclaimed, r)
		default:
			receipts, of = append(receipts, r), append(of, a)
		}
	}
	if len(receipts) > 0 {
		for i, c := range e.DurableStore.Claim(ctx, receipts) {
			r := receipts[i]
			again, ok := e.conclude(in, of[i], r, c)
			for ok { // the key is taken by another content
				r, c = again, e.DurableStore.Claim(ctx, []domain.Receipt{again})[0]
				again, ok = e.conclude(in, of[i], r, c)
			}
			inUse = inUse || errors.Is(c.Err, domain.ErrUnknown)
			if of[i].verdict == "" {
				adrift, unclaimed = append(adrift, of[i]), append(unclaimed, r)
			}
		}
	}
	// the vendor's patience may be used up by the claim; the journal is on this machine
	e.append(context.WithoutCancel(ctx), in.Channel, adrift, unclaimed)
	return inUse
}

// receipt draws the receipt that a claim of a's event would leave.
func (e *Engine) receipt(in ports.Delivery, a *admission, fault string) (domain.Receipt, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return domain.Receipt{}, fmt.Errorf("draw a receipt id: %w", err)
	}
	r := domain.Receipt{
		ID: id.String(), Key: a.key, Channel: in.Channel, Installation: a.installation.ID, MessageKey: a.event.MessageKey,
		Kind: a.event.Kind, Conversation: a.event.Conversation, Digest: a.event.Digest,
		Guarantee: a.installation.Policy.Guarantee, State: domain.Claimed, Deliveries: 1, VendorAttempt: min(a.event.VendorAttempt, 1<<20),
		ClaimedAt: in.ReceivedAt, Holder: e.holder, Payload: a.event.Payload,
	}
	r.Payload.MediaType = domain.StorableID(r.Payload.MediaType)
	if fault != "" {
		r.State, r.LastError = domain.Failed, fault
	}
	if a.event.ID == "" {
		r.Key = domain.Key{Tenant: a.installation.Tenant, Platform: e.channels[in.Channel].Platform, Account: a.installation.Account}
	} else if r.State == domain.Claimed {
		e.queue.know(r.ID)
	}
	return r, nil
}

// conclude gives an event the verdict that follows from its claim. If its key is taken by
// another content and the policy admits that, it returns the receipt to claim instead.
func (e *Engine) conclude(in ports.Delivery, a *admission, r domain.Receipt, c ports.Claim) (again domain.Receipt, ok bool) {
	switch {
	case c.Err != nil && e.unreachable(c.Err) && e.journals(a):
		e.Metrics.DurableStoreErrors.Inc() // and no verdict: it goes to the journal
	case c.Err != nil:
		e.Metrics.DurableStoreErrors.Inc()
		e.Metrics.Refusals.WithLabelValues(in.Channel, "durable_store").Inc()
		e.Logger.Error("an event could not be claimed", "channel", in.Channel, "tenant", a.key.Tenant, "event_id", a.key.EventID, "error", c.Err)
		e.queue.forget(r.ID)
		e.refuse(a)
		if errors.Is(c.Err, domain.ErrUnknown) {
			e.Nudge() // it may stand: then the sweep finds that nobody knows of it
		}
	case c.Won && (c.Receipt.State != domain.Claimed || c.Receipt.Holder != e.holder):
		// parked, or taken up by another while the answer to the claim was found out
		a.verdict = domain.Admitted
		e.queue.forget(r.ID)
		e.giveBack(a)
	case c.Won:
		a.verdict = domain.Admitted
		e.enqueue(a, c.Receipt)
	default:
		e.queue.forget(r.ID)
		if !e.conflicts(r, a.installation.Policy, c, a.apart) {
			e.duplicate(a, c)
			break
		}
		a.separate()
		apart, err := e.receipt(in, a, "")
		if err == nil {
			return apart, true
		}
		e.Logger.Error("an event could not be claimed", "channel", in.Channel, "error", err)
		e.refuse(a)
	}
	return domain.Receipt{}, false
}

// unreachable reports whether err says that the durable store did not answer, and notes it.
func (e *Engine) unreachable(err error) bool {
	down := errors.Is(err, domain.ErrUnavailable) || errors.Is(err, domain.ErrUnknown)
	if down && e.Journal != nil {
		e.storeDown.Store(true)
	}
	return down
}

func (e *Engine) refuse(a *admission) {
	a.verdict = domain.Refused
	e.giveBack(a)
}

func (e *Engine) giveBack(a *admission) {
	if a.reserved {
		a.reserved = false
		e.queue.release(a.installation.Tenant, 1)
	}
}

// duplicate concludes a claim that another holds.
func (e *Engine) duplicate(a *admission, c ports.Claim) {
	a.verdict = domain.Duplicate
	e.giveBack(a)
	w := c.Receipt
	e.counts.add(w.Key.Tenant, w.Key.Digest(), a.event.VendorAttempt)
	if w.State == domain.Handled {
		e.rememberLate(a, w)
		return
	}
	e.Metrics.DuplicatesOfUnhandled.WithLabelValues(w.Key.Platform).Inc()
	e.Logger.Debug("a copy came of an event that is not handled yet", "tenant", w.Key.Tenant, "platform", w.Key.Platform,
		"receipt", w.ID, "state", w.State, "event_id", w.Key.EventID)
	if w.State.Open() && !e.queue.knows(w.ID) {
		e.Nudge() // if its holder is gone it is taken up now
	}
}

// rememberLate tells the fast store of an event that it should have known, for as long as it
// would still remember it.
func (e *Engine) rememberLate(a *admission, w domain.Receipt) {
	left := a.installation.Policy.FastTTL - time.Since(w.HandledAt)
	if e.FastStore == nil || left <= 0 {
		return
	}
	if a.unseen {
		e.Metrics.StoreDisagreements.Inc()
	}
	select {
	case e.late <- struct{}{}:
		e.settling.Go(func() {
			defer func() { <-e.late }()
			e.remember(w.Key.Digest(), w.Digest, left)
		})
	default: // busy with what matters more
	}
}

// conflicts reports whether the event of r, whose key another has, is to be admitted apart from
// it: it has other content, the policy admits that, and it was not told apart too often.
func (e *Engine) conflicts(r domain.Receipt, policy domain.ClaimPolicy, c ports.Claim, tries int) bool {
	if c.SameMessage || c.Receipt.Digest == r.Digest {
		return false
	}
	e.Metrics.Conflicts.WithLabelValues(r.Key.Platform).Inc()
	admits := policy.Admits(r.Key.Platform) && tries < maxApart
	e.Logger.Warn("an event has the key of another and other content", "tenant", r.Key.Tenant, "platform", r.Key.Platform,
		"event_id", r.Key.EventID, "receipt", c.Receipt.ID, "admitted", admits)
	return admits
}

// separate makes a the event that its conflict is admitted as.
func (a *admission) separate() {
	a.apart++
	a.event = domain.Apart(a.event)
	a.identify(a.key.Platform)
}

// enqueue hands an admitted event to the workers, with a copy of its payload: the body of
// the delivery is used again. It reports false for an event without a receipt that came too late.
func (e *Engine) enqueue(a *admission, r domain.Receipt) bool {
	r.Payload.Body = bytes.Clone(r.Payload.Body)
	if !e.queue.push(&item{receipt: r, installation: a.installation, numbered: a.event.ID != ""}) {
		return false
	}
	a.reserved = false // the place is the item's now
	return true
}

// answer tells the vendor what became of its delivery.
func (e *Engine) answer(d door, channel string, batch channels.Batch, all []admission, inUse bool) ports.Answer {
	verdicts := e.Metrics.Deliveries
	for i := range all {
		verdicts.WithLabelValues(channel, string(all[i].verdict)).Inc()
		if all[i].event.VendorAttempt > 0 {
			e.Metrics.VendorRetries.WithLabelValues(channel).Inc()
		}
	}
	if len(all) == 0 {
		verdicts.WithLabelValues(channel, string(domain.Ignored)).Inc()
	}
	verdict, refused := tell(all)
	if refused {
		return ports.Answer{
			Status: http.StatusServiceUnavailable, RetryAfter: d.channel.Vendor.RetryAfter, Verdict: verdict, KeepBody: inUse,
		}
	}
	reply := d.channel.Acknowledge
	if batch.Reply != nil {
		reply = *batch.Reply
	}
	return ports.Answer{Status: http.StatusOK, ContentType: reply.ContentType, Body: reply.Body, Verdict: verdict, KeepBody: inUse}
}

// tell writes verdicts as the answer's header says them: one as it is, several as counts.
func tell(all []admission) (verdict string, refused bool) {
	if len(all) == 0 {
		return string(domain.Ignored), false
	}
	if len(all) == 1 {
		return string(all[0].verdict), all[0].verdict == domain.Refused
	}
	var b strings.Builder
	for _, v := range domain.Verdicts {
		n := 0
		for i := range all {
			if all[i].verdict == v {
				n++
			}
		}
		if n == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s=%d", v, n)
		refused = refused || v == domain.Refused
	}
	return b.String(), refused
}

// reason is what is kept of err: bounded, and text that any store takes.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return storable(err.Error())
}

func storable(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
	if len(s) <= maxReason {
		return s
	}
	n := maxReason
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Refused counts a delivery that was turned away before its body was read.
func (e *Engine) Refused(channel, reason string) {
	e.Metrics.Refusals.WithLabelValues(channel, reason).Inc()
}
