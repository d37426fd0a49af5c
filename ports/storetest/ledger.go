package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

var ledgerPromises = []promise[*trial]{
	{"ReplayDispatchesAgain", "a replayed receipt keeps its id and is due at once, whatever it was closed as", replayAgain},
	{"ReplayOnce", "of two who replay at once, one does", replayOnce},
	{"ReplayOfOpenIsRefused", "an open receipt is not replayed, nor one that is not there", replayOpen},
	{"ReplayAllReplaysWhatIsSelected", "at most limit of the selected receipts are replayed, and their number told", replayAll},
	{"DiscardCloses", "a failed, lost or retrying receipt is closed by hand, once, and is not dispatched", discard},
	{"DiscardOfOthersIsRefused", "what is claimed, dispatching, handled or discarded is not discarded", discardOthers},
	{"ListFilters", "a list holds what the filter selects, newest first, without payload", listFilters},
	{"ListPages", "pages follow each other without gap or repeat, newest first", listPages},
	{"Balance", "each receipt is counted once, under its tenant, platform and state", balance},
	{"OldestOpenIsTold", "the oldest open receipt is known by its claim, and zero means none", oldestOpen},
	{"HistoryTells", "whatever happened to a receipt beyond the ordinary is told, with the attempt, the reason and by whom", historyTells},
	{"UnknownReceiptIsNotFound", "a receipt that is not there is not found, whatever its id looks like", unknownReceipt},
}

func replayAgain(k *trial) {
	for _, state := range []domain.State{domain.Handled, domain.Failed, domain.Lost, domain.Discarded} {
		r := k.in(state, event("Ev "+string(state)))
		if err := k.other.Replay(k.ctx, r.ID, "ann"); err != nil {
			k.Fatalf("Replay of a %s receipt = %v; want nil", state, err)
		}
		got := k.receipt(r.ID)
		if got.State != domain.Retrying || got.Attempt != r.Attempt || got.DueAt.After(time.Now().Add(time.Minute)) || !got.HandledAt.IsZero() {
			k.Errorf("replayed %s receipt is %s, attempt %d, due %s, handled at %s; want retrying, %d, now, never",
				state, got.State, got.Attempt, got.DueAt, got.HandledAt, r.Attempt)
		}
		taken := k.takeUp(k.store, another, 10)
		if len(taken) != 1 || taken[0].ID != r.ID || len(taken[0].Payload.Body) == 0 {
			k.Fatalf("TakeUp after the replay of a %s receipt gave %q; want it, with payload", state, eventIDs(taken))
		}
		k.settle(k.begin(taken[0], long), domain.Step{State: domain.Failed}, "rejected again")
		if got := k.receipt(r.ID); got.State != domain.Failed || !got.HandledAt.IsZero() {
			k.Errorf("after a replay that failed: %s, handled at %s; want failed, never", got.State, got.HandledAt)
		}
		if c := k.tryClaim(k.other, event("Ev "+string(state))); c.Err != nil || c.Won || c.Receipt.ID != r.ID {
			k.Errorf("Claim after a replay = won %t, %v; want lost to the same receipt", c.Won, c.Err)
		}
	}
}

func replayOnce(k *trial) {
	for round := range 8 {
		r := k.in(domain.Failed, event(fmt.Sprintf("Ev%d", round)))
		var wg sync.WaitGroup
		start := make(chan struct{})
		errs := make([]error, 6)
		for i := range errs {
			wg.Go(func() {
				<-start
				errs[i] = k.handles()[i%2].Replay(k.ctx, r.ID, "ann")
			})
		}
		close(start)
		wg.Wait()
		done := 0
		for _, err := range errs {
			if err == nil {
				done++
			} else {
				k.wantErr("Replay by the second", err, domain.ErrState)
			}
		}
		if done != 1 {
			k.Fatalf("%d of %d replays at once were carried out; want 1", done, len(errs))
		}
		if _, noted, err := k.other.Receipt(k.ctx, r.ID); err != nil || len(noted) != 2 {
			k.Errorf("the history has %d entries, %v; want the failed attempt and one replay", len(noted), err)
		}
		if got := k.takeUp(k.store, another, 10); len(got) != 1 {
			k.Fatalf("TakeUp gave %d; want the replayed one", len(got))
		} else {
			k.settle(k.begin(got[0], long), domain.Step{State: domain.Handled}, "")
		}
	}
}

func replayOpen(k *trial) {
	for _, state := range domain.States {
		if !state.Open() {
			continue
		}
		r := k.in(state, event("Ev "+string(state)))
		before := k.receipt(r.ID)
		k.wantErr(fmt.Sprintf("Replay of a %s receipt", state), k.other.Replay(k.ctx, r.ID, "ann"), domain.ErrState)
		if got := k.receipt(r.ID); seenOf(got) != seenOf(before) {
			k.Errorf("a refused replay changed a %s receipt from\n%+v to\n%+v", state, before, got)
		}
	}
	k.wantErr("Replay of no receipt", k.store.Replay(k.ctx, event("").ID, "ann"), domain.ErrNotFound)
	k.wantErr("Replay of no id", k.store.Replay(k.ctx, "no id", "ann"), domain.ErrNotFound)
}

func replayAll(k *trial) {
	for i := range 4 {
		k.in(domain.Failed, event(fmt.Sprint("failed ", i)))
		k.in(domain.Handled, event(fmt.Sprint("handled ", i)))
	}
	lost := event("elsewhere")
	lost.Key.Tenant = "umbrella"
	k.in(domain.Failed, lost)
	all := func(f ports.Filter, want int) {
		k.Helper()
		if n, err := k.other.ReplayAll(k.ctx, f, "ann"); err != nil || n != want {
			k.Errorf("ReplayAll(%+v) = %d, %v; want %d", f, n, err, want)
		}
	}
	failed := ports.Filter{Tenant: "acme", State: domain.Failed}
	failed.Limit = 3
	all(failed, 3)
	failed.Limit = 0
	all(failed, 1)
	all(failed, 0)
	all(ports.Filter{State: domain.Claimed}, 0)
	all(ports.Filter{State: domain.Retrying}, 0)
	if got := k.takeUp(k.store, another, 10); len(got) != 4 {
		k.Errorf("TakeUp gave %q; want the four that had failed", eventIDs(got))
	}
}

func discard(k *trial) {
	for _, state := range []domain.State{domain.Failed, domain.Lost, domain.Retrying} {
		r := k.in(state, event("Ev "+string(state)))
		if err := k.other.Discard(k.ctx, r.ID, "ann"); err != nil {
			k.Errorf("Discard of a %s receipt = %v; want nil", state, err)
		}
		k.wantState(r.ID, domain.Discarded, 1)
		k.wantErr("Discard again", k.store.Discard(k.ctx, r.ID, "ann"), domain.ErrState)
		_, err := k.store.Begin(k.ctx, refOf(r), long)
		k.wantErr("Begin of what was discarded", err, domain.ErrFenced)
	}
	if got := k.takeUp(k.store, another, 10); len(got) > 0 {
		k.Errorf("TakeUp gave %q, which were discarded; want nothing", eventIDs(got))
	}
}

func discardOthers(k *trial) {
	for _, state := range []domain.State{domain.Claimed, domain.Dispatching, domain.Handled, domain.Discarded} {
		r := k.in(state, event("Ev "+string(state)))
		k.wantErr(fmt.Sprintf("Discard of a %s receipt", state), k.other.Discard(k.ctx, r.ID, "ann"), domain.ErrState)
		k.wantState(r.ID, state, r.Attempt)
	}
	k.wantErr("Discard of no receipt", k.store.Discard(k.ctx, event("").ID, "ann"), domain.ErrNotFound)
}

func listFilters(k *trial) {
	var all []domain.Receipt
	at := time.Now().Add(-time.Hour)
	add := func(state domain.State, change func(*domain.Receipt)) {
		i := len(all)
		r := ago(time.Hour-time.Duration(i)*time.Minute, fmt.Sprintf("Ev%02d", i))
		change(&r)
		all = append(all, k.in(state, r))
	}
	for _, state := range domain.States {
		add(state, func(*domain.Receipt) {})
		add(state, func(r *domain.Receipt) { r.Key.Tenant = "umbrella" })
		add(state, func(r *domain.Receipt) { r.Key.Platform = "teams" })
	}
	urn := "urn:uuid:" + event("").ID // as in a Message-ID
	named, like := all[4], ago(time.Minute, urn)
	all = append(all, k.claim(k.store, like))
	for _, c := range []struct {
		name   string
		filter ports.Filter
		want   func(domain.Receipt) bool
	}{
		{"all", ports.Filter{}, func(domain.Receipt) bool { return true }},
		{"a tenant", ports.Filter{Tenant: "umbrella"}, func(r domain.Receipt) bool { return r.Key.Tenant == "umbrella" }},
		{"no tenant's", ports.Filter{Tenant: "nobody"}, func(domain.Receipt) bool { return false }},
		{"a platform", ports.Filter{Platform: "teams"}, func(r domain.Receipt) bool { return r.Key.Platform == "teams" }},
		{"platform and tenant", ports.Filter{Tenant: "acme", Platform: "teams"}, func(r domain.Receipt) bool { return r.Key.Platform == "teams" }},
		{"an unknown state", ports.Filter{State: "no such state"}, func(domain.Receipt) bool { return false }},
		{"since", ports.Filter{Since: at.Add(10*time.Minute - time.Second)}, func(r domain.Receipt) bool { return r.Key.EventID >= "Ev10" }},
		{"receipt id", ports.Filter{Query: named.ID}, func(r domain.Receipt) bool { return r.ID == named.ID }},
		{"receipt id in capitals", ports.Filter{Query: strings.ToUpper(named.ID)}, func(r domain.Receipt) bool { return r.ID == named.ID }},
		{"event id", ports.Filter{Query: "Ev04"}, func(r domain.Receipt) bool { return r.ID == named.ID }},
		{"event id in other case", ports.Filter{Query: "eV04"}, func(domain.Receipt) bool { return false }},
		{"part of an event id", ports.Filter{Query: "Ev0"}, func(domain.Receipt) bool { return false }},
		{"a pattern", ports.Filter{Query: "Ev%"}, func(domain.Receipt) bool { return false }},
		{"message key", ports.Filter{Query: named.MessageKey}, func(r domain.Receipt) bool { return r.ID == named.ID }},
		{"text that begins like an id", ports.Filter{Query: "urn:uuid:" + named.ID[1:]}, func(domain.Receipt) bool { return false }},
		{"event id that looks like an id", ports.Filter{Query: urn}, func(r domain.Receipt) bool { return r.Key.EventID == urn }},
		{"event of another tenant", ports.Filter{Tenant: "acme", Query: "Ev04"}, func(domain.Receipt) bool { return false }},
		{"state of another tenant", ports.Filter{Tenant: "nobody", State: domain.Failed}, func(domain.Receipt) bool { return false }},
	} {
		k.wantList(c.name, c.filter, all, c.want)
	}
	for _, state := range domain.States {
		k.wantList(string(state), ports.Filter{State: state}, all, func(r domain.Receipt) bool { return r.State == state })
		k.wantList(string(state)+" of a tenant", ports.Filter{Tenant: "umbrella", State: state}, all,
			func(r domain.Receipt) bool { return r.State == state && r.Key.Tenant == "umbrella" })
	}
}

// wantList checks that f selects, of all in the order of their age, those that want names.
func (k *trial) wantList(name string, f ports.Filter, all []domain.Receipt, want func(domain.Receipt) bool) {
	k.Helper()
	page, err := k.other.Receipts(k.ctx, f)
	if err != nil {
		k.Errorf("Receipts(%s) = %v; want nil", name, err)
		return
	}
	var events []string
	for _, r := range slices.Backward(all) {
		if want(r) {
			events = append(events, r.Key.EventID)
		}
	}
	if !slices.Equal(eventIDs(page.Receipts), events) || page.Next != "" {
		k.Errorf("Receipts(%s) = %q, next %q; want %q and no more", name, eventIDs(page.Receipts), page.Next, events)
	}
	for _, r := range page.Receipts {
		if len(r.Payload.Body) > 0 {
			k.Errorf("Receipts(%s) tells a payload", name)
		}
	}
}

func listPages(k *trial) {
	const n = 23
	var want []string
	for i := range n {
		r := ago(time.Duration(n-i)*time.Minute, fmt.Sprintf("Ev%02d", i))
		r.Key.Tenant = []string{"acme", "umbrella", "wayne"}[i*i%3]
		if i == 7 {
			r.State = domain.Failed
		}
		want = append(want, k.claim(k.store, r).Key.EventID)
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 5, 22, 23, 24, 1000, 2000} {
		var got []string
		f := ports.Filter{Limit: limit}
		for pages := 0; pages <= n; pages++ {
			page, err := k.other.Receipts(k.ctx, f)
			if err != nil || len(page.Receipts) > limit {
				k.Fatalf("Receipts(limit %d) gave %d, %v", limit, len(page.Receipts), err)
			}
			got = append(got, eventIDs(page.Receipts)...)
			if f.Cursor = page.Next; f.Cursor == "" {
				break
			}
			if pages == 1 { // what comes meanwhile is newer and disturbs nothing
				k.claim(k.store, event(fmt.Sprintf("meanwhile %d", limit)))
			}
		}
		got = slices.DeleteFunc(got, func(id string) bool { return strings.HasPrefix(id, "meanwhile") })
		if !slices.Equal(got, want) {
			k.Errorf("pages of %d gave %q; want %q", limit, got, want)
		}
	}
	page, err := k.other.Receipts(k.ctx, ports.Filter{State: domain.Failed, Limit: 1})
	k.wantEvents("Receipts of the one failed", page.Receipts, "Ev07")
	if err != nil || page.Next != "" {
		k.Errorf("Receipts of the one failed: next %q, %v; want none", page.Next, err)
	}
	batch := make([]domain.Receipt, 120)
	for i := range batch {
		batch[i] = event(fmt.Sprintf("many %d", i))
	}
	k.store.Claim(k.ctx, batch)
	if page, err = k.other.Receipts(k.ctx, ports.Filter{}); err != nil || len(page.Receipts) != 100 || page.Next == "" {
		k.Errorf("Receipts without limit gave %d, next %q, %v; want 100 and more", len(page.Receipts), page.Next, err)
	}
}

// counts returns the counts of receipts by tenant, platform and state.
func (k *trial) counts() map[ports.Count]int64 {
	k.Helper()
	all, err := k.other.Counts(k.ctx)
	if err != nil {
		k.Fatalf("Counts = %v; want nil", err)
	}
	got := map[ports.Count]int64{}
	for _, c := range all {
		n := c.N
		c.N = 0
		if _, ok := got[c]; ok || n <= 0 {
			k.Errorf("Counts tells %d of %s/%s %s, twice or of nothing", n, c.Tenant, c.Platform, c.State)
		}
		got[c] = n
	}
	return got
}

func balance(k *trial) {
	if got := k.counts(); len(got) > 0 {
		k.Errorf("Counts of an empty store = %v; want none", got)
	}
	want := map[ports.Count]int64{}
	for i, state := range domain.States {
		for j := range i + 1 {
			r := event(fmt.Sprintf("%s %d", state, j))
			r.Key.Tenant, r.Key.Platform = []string{"acme", "umbrella"}[j%2], []string{"slack", "email"}[i%2]
			k.in(state, r)
			want[ports.Count{Tenant: r.Key.Tenant, Platform: r.Key.Platform, State: state}]++
			k.tryClaim(k.other, r) // a duplicate is not counted
		}
	}
	if got := k.counts(); !maps.Equal(got, want) {
		k.Errorf("Counts = %v; want %v", got, want)
	}
}

func oldestOpen(k *trial) {
	oldest := func(want time.Time) {
		k.Helper()
		if got, err := k.other.OldestOpen(k.ctx); err != nil || !got.Equal(want) {
			k.Errorf("OldestOpen = %s, %v; want %s", got, err, want)
		}
	}
	oldest(time.Time{})
	k.in(domain.Handled, ago(9*day, "handled"))
	k.in(domain.Failed, ago(8*day, "failed"))
	oldest(time.Time{})
	retrying := k.in(domain.Retrying, ago(5*day, "retrying"))
	dispatching := k.in(domain.Dispatching, ago(4*day, "dispatching"))
	claimed := k.in(domain.Claimed, ago(3*day, "claimed"))
	oldest(retrying.ClaimedAt)
	retrying = k.begin(retrying, long)
	oldest(retrying.ClaimedAt)
	k.settle(retrying, domain.Step{State: domain.Handled}, "")
	oldest(dispatching.ClaimedAt)
	k.settle(dispatching, domain.Step{State: domain.Failed}, "")
	oldest(claimed.ClaimedAt)
	k.settle(k.begin(claimed, long), domain.Step{State: domain.Handled}, "")
	oldest(time.Time{})
}

func historyTells(k *trial) {
	before := time.Now().Add(-time.Minute)
	r := k.in(domain.Retrying, event("Ev1"))
	r = k.over(r)
	if err := k.store.Expire(k.ctx, r, domain.Step{State: domain.Lost}, "lease ran out"); err != nil {
		k.Fatalf("Expire = %v; want nil", err)
	}
	if err := k.other.Replay(k.ctx, r.ID, "ann"); err != nil {
		k.Fatalf("Replay = %v; want nil", err)
	}
	r = k.takeUp(k.store, another, 1)[0]
	r = k.settle(k.begin(r, long), domain.Step{State: domain.Failed}, "HTTP 422")
	if err := k.other.Discard(k.ctx, r.ID, "bob"); err != nil {
		k.Fatalf("Discard = %v; want nil", err)
	}
	_, got, err := k.other.Receipt(k.ctx, r.ID)
	if err != nil {
		k.Fatalf("Receipt = %v; want nil", err)
	}
	last := before
	for i, e := range got {
		if e.At.Before(last) || e.At.Location() != time.UTC {
			k.Errorf("entry %d is of %s after one of %s; want the order of time, in UTC", i, e.At, last)
		}
		last = e.At
		got[i].At = time.Time{}
	}
	want := []ports.Entry{
		{What: "attempt", Attempt: 1, State: domain.Retrying, Reason: "not yet"},
		{What: "lost", Attempt: 2, State: domain.Lost, Reason: "lease ran out"},
		{What: "replay", Attempt: 2, State: domain.Retrying, By: "ann"},
		{What: "attempt", Attempt: 3, State: domain.Failed, Reason: "HTTP 422"},
		{What: "discard", Attempt: 3, State: domain.Discarded, By: "bob"},
	}
	if !slices.Equal(got, want) {
		k.Errorf("history =\n%+v; want\n%+v", got, want)
	}
	k.in(domain.Handled, event("Ev2"))
	smooth := k.in(domain.Handled, event("Ev3"))
	if _, got, err = k.other.Receipt(k.ctx, smooth.ID); err != nil || len(got) > 0 {
		k.Errorf("history of what went well = %+v, %v; want none", got, err)
	}
}

func unknownReceipt(k *trial) {
	k.claim(k.store, event("Ev1"))
	for _, id := range []string{event("").ID, "", "Ev1", "1", "' OR 1=1 --", strings.Repeat("f", 36)} {
		if _, _, err := k.other.Receipt(k.ctx, id); !errors.Is(err, domain.ErrNotFound) {
			k.Errorf("Receipt(%q) = %v; want ErrNotFound", id, err)
		}
	}
}
