package storetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// JournalBound is the bound, in bytes, of the journals that the kit of journals opens.
const JournalBound = 1 << 20

// Journal checks each promise of ports.Journal. open returns the journal in the folder dir, which
// may be empty, with JournalBound as its bound; it is called again for the same folder after
// Close, and while it is open, which must be an error. The kit closes what it opens.
//
// It is to be called by a test itself: one promise is tried with further processes of the test
// binary, which run that test and are killed. An entry must be in the files of dir once its
// Append has returned.
func Journal(t *testing.T, open func(t *testing.T, dir string) (ports.Journal, error)) {
	t.Helper()
	for _, promise := range []struct {
		name  string
		check func(t *testing.T, b journalBench)
	}{
		{"AppendIsThereAfterReopen", journalAppendIsThereAfterReopen},
		{"OrderKept", journalOrderKept},
		{"LimitIsObeyed", journalLimitIsObeyed},
		{"RemoveForgets", journalRemoveForgets},
		{"BoundRefuses", journalBoundRefuses},
		{"BoundFrees", journalBoundFrees},
		{"ConcurrentAppends", journalConcurrentAppends},
		{"PayloadUnchanged", journalPayloadUnchanged},
		{"EndedContextKeepsNothing", journalEndedContextKeepsNothing},
		{"SecondOpenerRefused", journalSecondOpenerRefused},
		{"EmptyIsCheap", journalEmptyIsCheap},
		{"TornTailIsDropped", journalTornTailIsDropped},
		{"KilledProcessLosesNothing", journalKilledProcessLosesNothing},
	} {
		t.Run(promise.name, func(t *testing.T) {
			promise.check(t, journalBench{dir: t.TempDir(), opener: open})
		})
	}
}

// A journalBench opens the journal of one check.
type journalBench struct {
	dir    string
	opener func(t *testing.T, dir string) (ports.Journal, error)
}

func (b journalBench) open(t *testing.T) ports.Journal {
	t.Helper()
	j, err := b.opener(t, b.dir)
	if err != nil {
		t.Fatalf("open a journal = %v; want nil", err)
	}
	return j
}

func (b journalBench) reopen(t *testing.T, j ports.Journal) ports.Journal {
	t.Helper()
	closeJournal(t, j)
	return b.open(t)
}

func closeJournal(t *testing.T, j ports.Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Errorf("Close() = %v; want nil", err)
	}
}

// journalReceipt is one as the intake claims it.
func journalReceipt(id string) domain.Receipt {
	return domain.Receipt{
		ID:           id,
		Key:          domain.Key{Tenant: "acme", Platform: "twilio", Account: "AC1", EventID: "SM" + id},
		Channel:      "twilio",
		Installation: "main",
		Kind:         domain.MessageCreated,
		Digest:       domain.DigestOf(id),
		Guarantee:    domain.AtMostOnce,
		State:        domain.Claimed,
		Deliveries:   1,
		ClaimedAt:    time.Date(2026, 7, 1, 12, 0, 0, 123456789, time.UTC),
		Holder:       "instance",
		Payload:      domain.Payload{MediaType: "application/x-www-form-urlencoded", Body: []byte("Body=" + id)},
	}
}

func journalReceipts(ids ...string) []domain.Receipt {
	receipts := make([]domain.Receipt, len(ids))
	for i, id := range ids {
		receipts[i] = journalReceipt(id)
	}
	return receipts
}

// journalIDs returns the ids from 0 to n-1.
func journalIDs(n int) []string {
	var ids []string
	for i := range n {
		ids = append(ids, strconv.Itoa(i))
	}
	return ids
}

func appendJournal(t *testing.T, j ports.Journal, ids ...string) {
	t.Helper()
	if err := j.Append(t.Context(), journalReceipts(ids...)); err != nil {
		t.Fatalf("Append(%v) = %v; want nil", ids, err)
	}
}

func oldestOf(t *testing.T, j ports.Journal, limit int) []ports.JournalEntry {
	t.Helper()
	entries, err := j.Oldest(t.Context(), limit)
	if err != nil {
		t.Fatalf("Oldest(%d) = %v; want nil", limit, err)
	}
	return entries
}

func removeFrom(t *testing.T, j ports.Journal, entries ...ports.JournalEntry) {
	t.Helper()
	if err := j.Remove(t.Context(), entries); err != nil {
		t.Fatalf("Remove of %d entries = %v; want nil", len(entries), err)
	}
}

func idsOf(entries []ports.JournalEntry) []string {
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.Receipt.ID
	}
	return ids
}

// wantJournal compares all of a journal, and looks at its places.
func wantJournal(t *testing.T, j ports.Journal, want ...string) {
	t.Helper()
	entries := oldestOf(t, j, len(want)+10)
	if got := idsOf(entries); !slices.Equal(got, want) {
		t.Fatalf("the journal holds %v; want %v", got, want)
	}
	if got := j.Len(); got != len(want) {
		t.Errorf("Len() = %d with %d entries", got, len(want))
	}
	wantPlacesUp(t, entries)
}

func wantPlacesUp(t *testing.T, entries []ports.JournalEntry) {
	t.Helper()
	for i := 1; i < len(entries); i++ {
		if entries[i].Seq <= entries[i-1].Seq {
			t.Errorf("entry %d has place %d, the one before has %d; want them to go up", i, entries[i].Seq, entries[i-1].Seq)
		}
	}
}

func journalAppendIsThereAfterReopen(t *testing.T, b journalBench) {
	t.Helper()
	j := b.open(t)
	appendJournal(t, j, "a")
	wantJournal(t, j, "a")
	for range 3 {
		j = b.reopen(t, j)
		wantJournal(t, j, "a")
	}
	appendJournal(t, j, "b", "c")
	wantJournal(t, j, "a", "b", "c")
	j = b.reopen(t, j)
	defer closeJournal(t, j)
	wantJournal(t, j, "a", "b", "c")
}

func journalOrderKept(t *testing.T, b journalBench) {
	t.Helper()
	j := b.open(t)
	var want []string
	for round := range 6 {
		// Neither ids nor the times of claims go up: the order is that of the calls.
		for _, name := range []string{"z", "a", "m"} {
			first, second := fmt.Sprintf("%s%d", name, round), fmt.Sprintf("%s%d'", name, round)
			receipts := journalReceipts(second, first)
			receipts[0].ClaimedAt = receipts[0].ClaimedAt.Add(-time.Duration(len(want)) * time.Hour)
			if err := j.Append(t.Context(), receipts); err != nil {
				t.Fatalf("Append = %v; want nil", err)
			}
			want = append(want, second, first)
		}
		wantJournal(t, j, want...)
		j = b.reopen(t, j)
		wantJournal(t, j, want...)
		removeFrom(t, j, oldestOf(t, j, 2)...)
		want = want[2:]
	}
	wantJournal(t, j, want...)
	closeJournal(t, j)
}

func journalLimitIsObeyed(t *testing.T, b journalBench) {
	t.Helper()
	j := b.open(t)
	defer closeJournal(t, j)
	appendJournal(t, j, journalIDs(5)...)
	for limit, want := range map[int][]string{0: nil, 1: {"0"}, 4: journalIDs(4), 5: journalIDs(5), 6: journalIDs(5)} {
		if got := idsOf(oldestOf(t, j, limit)); !slices.Equal(got, want) {
			t.Errorf("Oldest(%d) of five entries = %v; want %v", limit, got, want)
		}
	}
}

func journalRemoveForgets(t *testing.T, b journalBench) {
	t.Helper()
	j := b.open(t)
	appendJournal(t, j, journalIDs(6)...)
	all := oldestOf(t, j, 6)
	removeFrom(t, j)
	removeFrom(t, j, all[1], all[4])
	wantJournal(t, j, "0", "2", "3", "5")
	removeFrom(t, j, all[4], all[0]) // what is gone already is no error
	wantJournal(t, j, "2", "3", "5")
	j = b.reopen(t, j)
	wantJournal(t, j, "2", "3", "5")
	appendJournal(t, j, "6")
	removeFrom(t, j, oldestOf(t, j, 3)...)
	wantJournal(t, j, "6")
	j = b.reopen(t, j)
	wantJournal(t, j, "6")
	removeFrom(t, j, oldestOf(t, j, 1)...)
	wantJournal(t, j)
	// An entry keeps its place to itself: a later one is not removed in its stead.
	appendJournal(t, j, "7")
	removeFrom(t, j, all...)
	wantJournal(t, j, "7")
	j = b.reopen(t, j)
	defer closeJournal(t, j)
	wantJournal(t, j, "7")
}

func journalConcurrentAppends(t *testing.T, b journalBench) {
	t.Helper()
	const callers, each = 64, 10
	j := b.open(t)
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for caller := range callers {
		wg.Go(func() {
			<-begin
			for i := range each {
				if err := j.Append(t.Context(), journalReceipts(fmt.Sprintf("%d-%d", caller, i), fmt.Sprintf("%d-%d'", caller, i))); err != nil {
					t.Errorf("Append = %v; want nil", err)
				}
			}
		})
	}
	close(begin)
	wg.Wait()
	check := func() {
		t.Helper()
		entries := oldestOf(t, j, 3*callers*each)
		wantPlacesUp(t, entries)
		ids := idsOf(entries)
		if len(ids) != 2*callers*each || j.Len() != len(ids) {
			t.Errorf("the journal holds %d entries, Len() = %d; want %d", len(ids), j.Len(), 2*callers*each)
		}
		for caller := range callers {
			var want []string
			for i := range each {
				want = append(want, fmt.Sprintf("%d-%d", caller, i), fmt.Sprintf("%d-%d'", caller, i))
			}
			wantInOrder(t, ids, want)
		}
	}
	check()
	j = b.reopen(t, j)
	defer closeJournal(t, j)
	check()
}

// wantInOrder checks that each of want is among ids once, and that they are in order.
func wantInOrder(t *testing.T, ids, want []string) {
	t.Helper()
	at := make(map[string]int, len(ids))
	for i, id := range ids {
		if _, twice := at[id]; twice {
			t.Errorf("%s is in the journal twice", id)
		}
		at[id] = i
	}
	last := -1
	for _, id := range want {
		i, ok := at[id]
		if !ok {
			t.Errorf("%s was kept by Append and is not in the journal", id)
			continue
		}
		if i < last {
			t.Errorf("%s comes before what its caller appended before", id)
		}
		last = i
	}
}

func journalPayloadUnchanged(t *testing.T, b journalBench) {
	t.Helper()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	receipts := journalReceipts("every byte", "zeros", "empty", "large", "text", "parked", "bare")
	receipts[0].Payload.Body = every
	receipts[1].Payload.Body = make([]byte, 5000)
	receipts[2].Payload.Body = nil
	receipts[3].Payload.Body = bytes.Repeat(every, 2000)
	receipts[4].Payload = domain.Payload{MediaType: "text/plain; charset=\"iso-8859-1\"", Body: []byte("\r\n caf\xe9 \u0000\u2028{\"a\":1}\n\n")}
	receipts[4].Key.EventID, receipts[4].Conversation = "e\u0301\t 'x' \"y\" \\ \n", "日本語"
	receipts[5].State, receipts[5].LastError, receipts[5].VendorAttempt = domain.Failed, "unreadable: \"x\"\n", 3
	receipts[6] = domain.Receipt{ID: "bare"}
	j := b.open(t)
	if err := j.Append(t.Context(), receipts); err != nil {
		t.Fatalf("Append = %v; want nil", err)
	}
	check := func() {
		t.Helper()
		for i, e := range oldestOf(t, j, len(receipts)) {
			got, want := e.Receipt, receipts[i]
			if got.Payload.MediaType != want.Payload.MediaType || !bytes.Equal(got.Payload.Body, want.Payload.Body) {
				t.Errorf("the payload of %q came back changed", want.ID)
			}
			if !got.ClaimedAt.Equal(want.ClaimedAt) {
				t.Errorf("%q was claimed at %s; want %s", want.ID, got.ClaimedAt, want.ClaimedAt)
			}
			got.ClaimedAt, got.Payload, want.Payload = want.ClaimedAt, domain.Payload{}, domain.Payload{}
			if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
				t.Errorf("a receipt came back as\n%#v; want\n%#v", got, want)
			}
		}
	}
	check()
	j = b.reopen(t, j)
	defer closeJournal(t, j)
	wantJournal(t, j, "every byte", "zeros", "empty", "large", "text", "parked", "bare")
	check()
}

func journalEndedContextKeepsNothing(t *testing.T, b journalBench) {
	t.Helper()
	j := b.open(t)
	appendJournal(t, j, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Append(ctx, journalReceipts("b")); err == nil {
		t.Error("Append with an ended context = nil; want an error")
	}
	wantJournal(t, j, "a")
	j = b.reopen(t, j)
	defer closeJournal(t, j)
	wantJournal(t, j, "a")
}

func journalSecondOpenerRefused(t *testing.T, b journalBench) {
	t.Helper()
	j := b.open(t)
	appendJournal(t, j, "a")
	if second, err := b.opener(t, b.dir); err == nil {
		closeJournal(t, second)
		closeJournal(t, j)
		t.Fatal("a journal that is open was opened once more; want an error")
	}
	appendJournal(t, j, "b")
	wantJournal(t, j, "a", "b")
	closeJournal(t, j)
	j = b.open(t)
	defer closeJournal(t, j)
	wantJournal(t, j, "a", "b")
}
