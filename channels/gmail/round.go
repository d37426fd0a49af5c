package gmail

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/email"
	"github.com/admitone/admitone/domain"
)

const (
	// chunk is how many mails are at hand at a time, and after how many the checkpoint is saved.
	chunk = 16
	// together is how many are fetched at the same moment. Gmail refuses many concurrent
	// requests for one user.
	together = 4
	// maxFailures is how many messages Gmail may fail at in one round before it is left alone:
	// fewer are these messages' own trouble, which must not hold up the others.
	maxFailures = 3
)

// A mailbox is polled with one set of credentials.
type mailbox struct {
	client *client
	query  string // of Gmail's search; empty: all mail
}

// A candidate is a message in which something new may have come.
type candidate struct {
	id         string
	record     historyID // of the last change that tells of it; 0 in a listing
	relabelled historyID // of the last that took it out of Spam or Trash, or into the inbox
	rescue     bool      // it is told of because of that only
}

// A run is one round on its way.
type run struct {
	*mailbox
	*progress
	round    channels.Round
	failures int  // messages that Gmail failed at
	held     bool // a message is left to a later round: the checkpoint may not pass it
	trouble  error
}

// round implements channels.Poll.
func (m *mailbox) round(ctx context.Context, r channels.Round) (caughtUp bool, err error) {
	p, err := readProgress(r.Checkpoint)
	if err != nil {
		return false, err
	}
	x := &run{mailbox: m, progress: p, round: r}
	if p.start == 0 {
		return x.first(ctx)
	}
	at, err := x.readHistory(ctx)
	if errors.Is(err, errForgotten) {
		// where to go on from is asked before what is there, so that nothing falls in between
		if at, err = m.client.current(ctx); err != nil {
			return false, err
		}
		p.beginAnew(r.Now, at)
		if err := p.save(ctx, r); err != nil {
			return false, err
		}
		at, err = x.readHistory(ctx)
	}
	if err != nil {
		return false, err
	}
	if !x.held {
		p.complete(r.Now, at)
	}
	if err := x.list(ctx); err != nil {
		return false, err
	}
	if err := p.save(ctx, r); err != nil {
		return false, err
	}
	return !x.held, x.trouble
}

// first takes the mailbox as it is for its beginning: mail that is there already is old.
func (x *run) first(ctx context.Context) (bool, error) {
	at, err := x.client.current(ctx)
	if err != nil {
		return false, err
	}
	x.generation, x.start = x.generation+1, at
	x.complete(x.round.Now, at)
	return true, x.save(ctx, x.round)
}

// readHistory takes in what has happened since the checkpoint. It returns the historyId of the
// mailbox when it began to read: what has happened since is in a later history for certain.
func (x *run) readHistory(ctx context.Context) (at historyID, err error) {
	start := x.start // the same for every page
	for token, first := "", true; first || token != ""; first = false {
		page, err := x.client.history(ctx, start, token)
		if err != nil {
			return 0, err
		}
		if first {
			at = page.HistoryID
		}
		if err := x.takeIn(ctx, page.candidates(), x.passHistory); err != nil {
			return 0, err
		}
		token = page.NextPageToken
	}
	return at, nil
}

// candidates returns the messages in which something new may have come, in the order of the
// first change that tells of each. Drafts are not fetched at all: each save makes a new one.
func (h historyPage) candidates() []candidate {
	var all []candidate
	at := map[string]int{}
	add := func(m message, record historyID, rescue bool) {
		if slices.Contains(m.LabelIDs, "DRAFT") {
			return
		}
		i, ok := at[m.ID]
		if !ok {
			i = len(all)
			at[m.ID] = i
			all = append(all, candidate{id: m.ID, rescue: true})
		}
		all[i].record = record
		all[i].rescue = all[i].rescue && rescue
		if rescue {
			all[i].relabelled = record
		}
	}
	for _, r := range h.History {
		for _, c := range r.MessagesAdded {
			add(c.Message, r.ID, false)
		}
		for _, c := range r.LabelsAdded {
			if slices.Contains(c.LabelIDs, "INBOX") {
				add(c.Message, r.ID, true)
			}
		}
		for _, c := range r.LabelsRemoved {
			if slices.Contains(c.LabelIDs, "SPAM") || slices.Contains(c.LabelIDs, "TRASH") {
				add(c.Message, r.ID, true)
			}
		}
	}
	return all
}

// passHistory lets the checkpoint pass changes that the first n of all end, which are done with,
// as far as mails received some time ago reach: nothing shows late before these.
func (x *run) passHistory(all []candidate, n int, newest time.Time) {
	if newest.IsZero() || x.round.Now.Sub(newest) < overlap {
		return
	}
	records := func(of []candidate) []historyID {
		out := make([]historyID, len(of))
		for i, c := range of {
			out[i] = c.record
		}
		return out
	}
	// the last change of a page may go on in the next
	bound := slices.Max(records(all))
	if n < len(all) {
		bound = slices.Min(records(all[n:]))
	}
	passed := slices.DeleteFunc(records(all[:n]), func(r historyID) bool { return r >= bound })
	if len(passed) > 0 {
		x.advance(slices.Max(passed))
	}
}

// list takes in what the mailbox holds, if its history was begun anew: the oldest first, as
// the history would have told it.
func (x *run) list(ctx context.Context) error {
	l := x.Listing
	if l == nil || x.round.Now.Unix() < l.NotBefore {
		return nil
	}
	ids, err := x.client.listAll(ctx, strings.TrimSpace(x.query+" after:"+strconv.FormatInt(l.After, 10)))
	if err != nil {
		return err
	}
	slices.Reverse(ids)
	var all []candidate
	for _, id := range ids[behind(ids, l.Done):] {
		all = append(all, candidate{id: id})
	}
	held := x.held
	x.held = false
	err = x.takeIn(ctx, all, x.passListing)
	if err == nil && !x.held {
		x.Listing = nil
		if !l.Again {
			x.Listing = &listing{
				After: l.Begun - int64(overlap/time.Second), NotBefore: l.Begun + int64(overlap/time.Second), Begun: l.Begun, Again: true,
			}
		}
	}
	x.held = x.held || held
	return err
}

// behind returns the place in ids behind the last of done that is among them; 0 if none is.
func behind(ids, done []string) int {
	for _, id := range slices.Backward(done) {
		if i := slices.Index(ids, id); i >= 0 {
			return i + 1
		}
	}
	return 0
}

func (x *run) passListing(all []candidate, n int, _ time.Time) {
	for _, c := range all[:n] {
		x.Listing.Done = append(x.Listing.Done, c.id)
	}
	x.Listing.Done = x.Listing.Done[max(0, len(x.Listing.Done)-maxDone):]
}

// takeIn fetches candidates and takes in what is new, some at a time. pass is told after each
// time how many of the rest are done with, and when the newest of these was received; not after
// one was left to a later round.
func (x *run) takeIn(ctx context.Context, all []candidate, pass func(all []candidate, n int, newest time.Time)) error {
	all = slices.DeleteFunc(all, x.knows)
	for len(all) > 0 {
		n := min(chunk, len(all))
		newest, err := x.takeSome(ctx, all[:n])
		if err != nil {
			return err
		}
		if !x.held {
			pass(all, n, newest)
		}
		all = all[n:]
		if err := x.save(ctx, x.round); err != nil {
			return err
		}
	}
	return nil
}

// A fetched message is one candidate's.
type fetched struct {
	candidate
	message
	err error
}

// takeSome takes in at most chunk candidates. It returns when the newest of them was received;
// zero if one of them does not tell.
func (x *run) takeSome(ctx context.Context, some []candidate) (newest time.Time, err error) {
	got := x.fetch(ctx, some)
	if err := ctx.Err(); err != nil {
		return newest, err
	}
	unsought, err := x.unsought(ctx, got)
	if err != nil {
		return newest, err
	}
	var items []channels.Item
	var done []fetched
	var failed error
	dated := true
	for _, f := range got {
		item, final, err := x.judge(f, unsought)
		if err != nil && failed == nil {
			failed = err
		}
		if item != nil {
			items = append(items, *item)
		}
		if final {
			done = append(done, f)
		}
		if received := f.received(); received.After(newest) {
			newest = received
		} else if received.IsZero() {
			dated = false
		}
	}
	if len(items) > 0 {
		if err := x.round.Accept(ctx, items); err != nil {
			return newest, err
		}
	}
	for _, f := range done {
		x.done(f.id, max(f.record, f.HistoryID))
	}
	if failed != nil { // what came is durable, and need not be fetched again
		return newest, errors.Join(failed, x.save(ctx, x.round))
	}
	if !dated {
		newest = time.Time{}
	}
	return newest, nil
}

func (x *run) fetch(ctx context.Context, some []candidate) []fetched {
	got := make([]fetched, len(some))
	var g errgroup.Group
	g.SetLimit(together)
	for i, c := range some {
		g.Go(func() error {
			m, err := x.client.get(ctx, c.id, "raw")
			got[i] = fetched{candidate: c, message: m, err: err}
			return nil
		})
	}
	_ = g.Wait() // each has its own error
	return got
}

// judge returns the item that a fetched message makes, if it makes one, and whether the
// message is done with then. An error ends the round.
func (x *run) judge(f fetched, unsought map[string]bool) (item *channels.Item, final bool, err error) {
	if f.err != nil {
		return x.judgeFailure(f)
	}
	labelled := func(label string) bool { return slices.Contains(f.LabelIDs, label) }
	switch {
	case labelled("DRAFT"), labelled("SPAM"), labelled("TRASH"), labelled("CHAT"):
		return nil, true, nil
	case labelled("SENT") && !labelled("INBOX"):
		return nil, true, nil // mail to oneself has both
	case f.rescue && x.round.Now.Sub(f.received()) > rescueWindow:
		return nil, true, nil // moved about long afterwards
	case unsought[f.id]:
		// the search may not know a mail yet that has just come
		return nil, x.round.Now.Sub(f.received()) > overlap, nil
	}
	raw, err := decodeRaw(f.Raw)
	if err != nil || len(raw) == 0 {
		return x.giveUp(f, refusedToGiveUp, fmt.Errorf("%w: the mail is not in base64", domain.ErrUnreadable))
	}
	return newItem(f.message, raw), true, nil
}

// judgeFailure is judge for a message that could not be fetched.
func (x *run) judgeFailure(f fetched) (item *channels.Item, final bool, err error) {
	a, answered := errors.AsType[*answerError](f.err)
	busy, isBusy := errors.AsType[*channels.BusyError](f.err)
	switch {
	case isBusy:
		x.held = true
		return nil, false, busy
	case answered && (a.status == http.StatusNotFound || a.status == http.StatusGone):
		return nil, x.misses(f.id, x.round.Now), nil
	case answered && a.status == http.StatusUnauthorized, !answered && errors.Is(f.err, channels.ErrRevoked):
		x.held = true
		return nil, false, f.err
	case answered && a.status < 500 && a.status != http.StatusForbidden, errors.Is(f.err, domain.ErrUnreadable):
		return x.giveUp(f, refusedToGiveUp, f.err)
	}
	if x.failures++; x.failures >= maxFailures {
		x.held = true
		return nil, false, f.err
	}
	return x.giveUp(f, failedToGiveUp, f.err)
}

// giveUp makes an item of a message that could not be fetched for long, so that a person sees
// it and the others are not held up for ever. Before that it is left to a later round.
func (x *run) giveUp(f fetched, after time.Duration, why error) (*channels.Item, bool, error) {
	if !x.fails(f.id, x.round.Now, after) {
		x.held = true
		x.trouble = errors.New("a message could not be fetched: " + why.Error()) // its trouble is not the mailbox's
		return nil, false, nil
	}
	body, err := json.Marshal(map[string]string{"id": f.id})
	if err != nil {
		return nil, false, err
	}
	return &channels.Item{
		Event: domain.Event{
			ID: domain.StorableID("unfetched:" + f.id), Kind: domain.Other, Digest: domain.DigestOf("unfetched", f.id),
			Payload: domain.Payload{MediaType: "application/json", Body: body},
		},
		Fault: fmt.Errorf("%w: the message %s could not be fetched: %w", domain.ErrUnreadable, domain.StorableID(f.id), why),
	}, true, nil
}

// unsought returns which of got the configured search does not select. Messages have no such
// property, so Gmail is asked for those that it selects in their time.
func (x *run) unsought(ctx context.Context, got []fetched) (map[string]bool, error) {
	if x.query == "" {
		return nil, nil //nolint:nilnil // nothing is
	}
	var from, to time.Time
	ids := map[string]bool{}
	for _, f := range got {
		if at := f.received(); f.err == nil && !at.IsZero() {
			ids[f.id] = true
			if from.IsZero() || at.Before(from) {
				from = at
			}
			if at.After(to) {
				to = at
			}
		}
	}
	if len(ids) == 0 {
		return nil, nil //nolint:nilnil // nothing is
	}
	selected, err := x.client.listAll(ctx, fmt.Sprintf("%s after:%d before:%d", x.query, from.Unix()-1, to.Unix()+2))
	if err != nil {
		return nil, err
	}
	for _, id := range selected {
		delete(ids, id)
	}
	return ids, nil
}

// decodeRaw decodes base64 as Gmail writes it, with or without padding.
func decodeRaw(s string) ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
}

// newItem makes the item of a mail.
func newItem(m message, raw []byte) *channels.Item {
	payload := domain.Payload{
		MediaType: mime.FormatMediaType("message/rfc822", map[string]string{"gmail-id": m.ID}), Body: raw,
	}
	ev, err := email.Event(payload, email.Source{Gmail: true, Received: m.received()})
	if err != nil {
		ev = domain.Event{ID: domain.UnreadableID(raw), Kind: domain.Other, Digest: domain.DigestOf(string(raw)), Payload: payload}
	}
	return &channels.Item{Event: ev, Fault: err}
}
