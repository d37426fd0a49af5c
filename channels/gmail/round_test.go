package gmail_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/gmail/gmailfake"
	"github.com/admitone/admitone/domain"
)

// BR-92: what is in the mailbox already is old, and the profile's historyId is where to begin.
func TestFirstRoundTakesTheMailboxAsItIs(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	for i := range 50 {
		d.put(fmt.Sprint("old-", i))
	}
	d.failOn("profile", "", gmailfake.Failure{Status: 503, Reason: "backendError"}, 1)
	if _, err := d.round(); !errors.Is(err, domain.ErrUnavailable) || d.saved != (domain.Checkpoint{}) {
		t.Errorf("a first round without a profile = %v, saved %+v; want %v, nothing", err, d.saved, domain.ErrUnavailable)
	}
	d.mustRound()
	if d.saved.Position != d.box.HistoryID() || d.saved.Position < 1<<63 || d.saved.Generation != 1 {
		t.Errorf("the first checkpoint is %d; want the mailbox's historyId %d", d.saved.Position, d.box.HistoryID())
	}
	d.put("new")
	d.rounds(10 * time.Minute)
	d.wants("new")
	if n := d.box.Calls("get"); n != 1 {
		t.Errorf("%d messages were fetched; want 1", n)
	}
}

func TestProfileThatMayNotBeReadIsDoneWithout(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.put("old")
	d.failOn("profile", "", gmailfake.Failure{Status: 403, Reason: "insufficientPermissions"}, -1)
	d.mustRound()
	d.put("new")
	d.mustRound()
	d.wants("new")
}

func TestEachMailIsFetchedAndOfferedOnce(t *testing.T) {
	t.Parallel()
	d := opened(t)
	var names []string
	for i := range 20 {
		name := fmt.Sprint("mail-", i)
		names = append(names, name)
		d.put(name)
		d.rounds(time.Minute)
	}
	d.rounds(5 * time.Minute)
	d.wants(names...)
	d.fetchedOnce()
	for i, id := range d.order {
		if id != idOf(names[i]) {
			t.Errorf("number %d is %s; want the order of arrival", i, id)
		}
	}
}

// A change that shows late has a lower number than what was told before.
func TestLateMailIsNotPassedOver(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.box.PutLate(mail("late"), time.Minute)
	d.put("prompt")
	d.rounds(30 * time.Second)
	d.wants("prompt")
	d.put("next")
	d.rounds(5 * time.Minute)
	d.wants("prompt", "late", "next")
	d.fetchedOnce()
}

// BR-90: all pages are read, of one start; a page token that has expired and a death after the
// first page lose and repeat nothing.
func TestBacklogIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.box.PageSize(100)
	var names []string
	for i := range 250 {
		names = append(names, fmt.Sprint("mail-", i))
	}
	d.put(names...)
	d.wait(time.Hour)
	n := 0
	d.refuse = func(channels.Item) error {
		if n++; n == 120 {
			return errStoreDown
		}
		return nil
	}
	if caughtUp, err := d.round(); !errors.Is(err, errStoreDown) || caughtUp {
		t.Fatalf("a round whose store is away = %t, %v; want false, %v", caughtUp, err, errStoreDown)
	}
	pages := 0
	d.box.Fail(func(r *http.Request) *gmailfake.Failure {
		if r.URL.Query().Get("pageToken") != "" {
			if pages++; pages == 1 {
				return &gmailfake.Failure{Status: 400, Reason: "invalidArgument", Message: "Invalid pageToken"}
			}
		}
		return nil
	})
	if _, err := d.round(); err == nil {
		t.Fatal("a round with an expired page token = nil; want an error")
	}
	d.mustRound()
	d.wants(names...)
	if n := d.box.Calls("get"); n > 250+16 {
		t.Errorf("%d messages were fetched for 250; want none twice but those under way at the death", n)
	}
}

func TestTenThousandAreReadInPieces(t *testing.T) {
	t.Parallel()
	const all = 10_000
	d := opened(t)
	for i := range all {
		d.box.Put(mail(fmt.Sprint("mail-", i)))
	}
	d.wait(10 * time.Minute)
	dies := 0
	for {
		left := 3000 // until the process dies
		d.refuse = func(channels.Item) error {
			if left--; left < 0 {
				return errStoreDown
			}
			return nil
		}
		_, err := d.round()
		if err == nil {
			break
		}
		if dies++; dies > 10 {
			t.Fatalf("after %d deaths there is no end: %v", dies, err)
		}
		if len(d.saved.State) > 300_000 {
			t.Errorf("the checkpoint has %d bytes; want it bounded", len(d.saved.State))
		}
	}
	if len(d.admitted) != all || d.box.Calls("get") > all+16*(dies+1) {
		t.Errorf("%d of %d are admitted after %d fetches; want each once", len(d.admitted), all, d.box.Calls("get"))
	}
}

// BR-86, BR-87: what came in the part that Google has forgotten, and what comes while the
// mailbox is listed, is found; what was handled before is not fetched for long.
func TestForgottenCheckpointLeavesNoGap(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.put("old-1", "old-2", "old-3")
	d.rounds(time.Hour)
	d.put("gap-1", "gap-2", "gap-3", "gap-4", "gap-5")
	d.wait(10 * 24 * time.Hour)
	d.box.Forget()
	generation := d.saved.Generation
	arrived := false
	d.box.Fail(func(r *http.Request) *gmailfake.Failure {
		if strings.HasSuffix(r.URL.Path, "/messages") && !arrived {
			arrived = true
			go d.put("during") // the hook must not use the mailbox
		}
		return nil
	})
	d.mustRound()
	for d.box.Calls("list") > 0 && len(d.admitted) < 9 && d.time().Before(begun.Add(11*24*time.Hour)) {
		d.wait(30 * time.Second)
		d.mustRound()
	}
	d.wants("old-1", "old-2", "old-3", "gap-1", "gap-2", "gap-3", "gap-4", "gap-5", "during")
	d.rounds(10 * time.Minute)
	lists := d.box.Calls("list")
	d.rounds(time.Hour)
	if n := d.box.Calls("list"); n != lists || d.saved.Generation != generation+1 {
		t.Errorf("an hour later the mailbox is still listed (%d, then %d times; generation %d)", lists, n, d.saved.Generation)
	}
	for id, n := range d.admitted {
		if n > 1 {
			t.Errorf("%s was offered %d times; want once", id, n)
		}
	}
}

func TestListingThatWasCutOffGoesOn(t *testing.T) {
	t.Parallel()
	d := opened(t)
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("gap-", i))
	}
	d.put(names...)
	d.wait(10 * 24 * time.Hour)
	d.box.Forget()
	n := 0
	d.refuse = func(channels.Item) error {
		if n++; n%40 == 0 {
			return errStoreDown
		}
		return nil
	}
	for range 2 {
		if _, err := d.round(); !errors.Is(err, errStoreDown) {
			t.Fatalf("a round = %v; want %v", err, errStoreDown)
		}
		d.wait(time.Minute)
	}
	generation := d.saved.Generation
	d.put("later")
	d.refuse = nil
	d.mustRound()
	d.wants(append(names, "later")...)
	if d.saved.Generation != generation {
		t.Error("a listing that was cut off was begun anew; want it to go on")
	}
	if calls := d.box.Calls("get"); calls > 101+3*16 {
		t.Errorf("%d messages were fetched for 101; want none twice but those under way", calls)
	}
}

// The history is forgotten once more before the listing has come to its end.
func TestForgottenAgainWhileListing(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.put("first-gap")
	d.wait(10 * 24 * time.Hour)
	d.box.Forget()
	d.refuse = func(channels.Item) error { return errStoreDown }
	if _, err := d.round(); err == nil {
		t.Fatal("a round whose store is away = nil; want an error")
	}
	d.put("second-gap")
	d.wait(10 * 24 * time.Hour)
	d.box.Forget()
	d.refuse = nil
	d.mustRound()
	d.wants("first-gap", "second-gap")
}

// A mailbox that was deleted and made again has lower numbers.
func TestMailboxMadeAgainIsReadOn(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.box.Touch(1)
	d.put("before")
	d.rounds(5 * time.Minute)
	d.saved.Position = 1<<64 - 5 // of the mailbox that was
	d.put("after")
	d.mustRound()
	d.rounds(5 * time.Minute)
	d.wants("before", "after")
}

// BR-88: the checkpoint does not pass what could not be fetched or stored; the rest is taken in.
func TestFailedFetchHoldsTheCheckpoint(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]gmailfake.Failure{
		"500":             {Status: 500, Reason: "backendError"},
		"429":             {Status: 429, Reason: "rateLimitExceeded", RetryAfter: "20"},
		"403 of quota":    {Status: 403, Reason: "userRateLimitExceeded"},
		"503":             {Status: 503, Reason: "backendError"},
		"400":             {Status: 400, Reason: "failedPrecondition"},
		"403 of one mail": {Status: 403, Reason: "forbidden"},
		"401 once":        {Status: 401, Reason: "authError"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := opened(t)
			ids := d.put("1", "2", "3", "4", "5")
			d.wait(time.Hour)
			start := d.saved.Position
			d.failOn("messages/", ids[2], f, 1)
			_, err := d.round()
			if f.Status == 401 {
				if err != nil {
					t.Errorf("a round whose token is refused once = %v; want nil", err)
				}
				d.wants("1", "2", "3", "4", "5")
				return
			}
			if err == nil {
				t.Error("a round that could not fetch a message = nil; want an error")
			}
			d.wants("1", "2", "4", "5")
			if errors.Is(err, channels.ErrRevoked) {
				t.Errorf("one message's trouble is told as the mailbox's: %v", err)
			}
			if d.saved.Position != start {
				t.Errorf("the checkpoint moved from %d to %d, over a message that is missing", start, d.saved.Position)
			}
			d.wait(time.Minute)
			d.mustRound()
			d.wants("1", "2", "3", "4", "5")
			d.fetchedOnce()
		})
	}
}

func TestStoreThatIsAwayHoldsTheCheckpoint(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.put("1", "2", "3")
	d.refuse = func(i channels.Item) error {
		if i.Event.ID == idOf("3") {
			return errStoreDown
		}
		return nil
	}
	if _, err := d.round(); !errors.Is(err, errStoreDown) {
		t.Errorf("a round = %v; want %v", err, errStoreDown)
	}
	d.refuse = nil
	d.mustRound()
	d.wants("1", "2", "3")
}

// BR-89: a message that is gone is passed; one that is not there yet is asked for again.
func TestVanishedMessageIsPassed(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"not found": 404, "gone": 410} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := opened(t)
			ids := d.put("1", "2", "3")
			d.failOn("messages/", ids[1], gmailfake.Failure{Status: status, Reason: "notFound"}, -1)
			d.rounds(10 * time.Minute)
			d.wants("1", "3")
			if n := d.box.Calls("get"); n > 5 {
				t.Errorf("%d fetches of 3 messages; want a vanished one asked for few times", n)
			}
			if d.saved.Position != d.box.HistoryID() {
				t.Errorf("the checkpoint is held at %d by a message that is gone; want %d", d.saved.Position, d.box.HistoryID())
			}
		})
	}
	t.Run("not there yet", func(t *testing.T) {
		t.Parallel()
		d := opened(t)
		ids := d.put("1", "2", "3")
		d.failOn("messages/", ids[1], gmailfake.Failure{Status: 404, Reason: "notFound"}, 1)
		d.rounds(time.Minute)
		d.wants("1", "2", "3")
	})
	t.Run("deleted", func(t *testing.T) {
		t.Parallel()
		d := opened(t)
		ids := d.put("1", "2", "3")
		d.box.Delete(ids[1])
		d.rounds(10 * time.Minute)
		d.wants("1", "3")
	})
}

// A message at which Gmail fails for a day holds up no other, and is parked then.
func TestMessageThatCanNeverBeFetchedIsParked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		failure gmailfake.Failure
		after   time.Duration
	}{
		"refused":      {gmailfake.Failure{Status: 400, Reason: "invalidArgument"}, 10 * time.Minute},
		"server error": {gmailfake.Failure{Status: 500, Reason: "backendError"}, 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := opened(t)
			ids := d.put("1", "poison")
			d.failOn("messages/", ids[1], tt.failure, -1)
			want := []string{"1"}
			for i := 0; d.time().Before(begun.Add(tt.after)); i++ {
				if caughtUp, err := d.round(); err == nil || caughtUp {
					t.Fatalf("after %s a round = %t, %v; want an error that tells of the message", d.time().Sub(begun), caughtUp, err)
				}
				d.wait(tt.after / 10)
				name := fmt.Sprint("later-", i)
				d.put(name)
				want = append(want, name)
			}
			d.mustRound()
			parked := d.items[len(d.items)-2:]
			if parked[0].Fault == nil {
				parked = parked[1:]
			}
			if !errors.Is(parked[0].Fault, domain.ErrUnreadable) || parked[0].Event.ID != "unfetched:"+ids[1] || !strings.Contains(string(parked[0].Event.Payload.Body), ids[1]) {
				t.Errorf("parked is %+v; want the message with its Gmail id", parked[0])
			}
			delete(d.admitted, parked[0].Event.ID)
			d.wants(want...)
			d.rounds(10 * time.Minute)
			if d.saved.Position != d.box.HistoryID() {
				t.Error("the checkpoint is still held by a message that was given up")
			}
		})
	}
}

func TestPoisonMailIsParkedWithItsBytesAndPassed(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.put("1")
	poison := []byte("{\"not\": \"a mail\"}\r\n\xff\x00")
	d.box.Put(poison)
	d.put("2")
	d.rounds(5 * time.Minute)
	if n := d.admitted[domain.UnreadableID(poison)]; n != 1 {
		t.Errorf("the poison was parked %d times; want once", n)
	}
	for _, i := range d.items {
		if i.Fault != nil && (string(i.Event.Payload.Body) != string(poison) || !errors.Is(i.Fault, domain.ErrUnreadable)) {
			t.Errorf("parked is %q for %v; want the raw bytes", i.Event.Payload.Body, i.Fault)
		}
	}
	delete(d.admitted, domain.UnreadableID(poison))
	d.wants("1", "2")
}

// BR-91: the clock of senders and of Gmail's seconds decides nothing.
func TestDatesDecideNothing(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.put("same-1", "same-2")
	d.mustRound()
	d.put("same-3")
	d.box.Import(mail("of-the-past"), begun.Add(-300*24*time.Hour))
	d.box.Import(mail("of-the-future"), begun.Add(300*24*time.Hour))
	d.rounds(5 * time.Minute)
	d.wants("same-1", "same-2", "same-3", "of-the-past", "of-the-future")
}

// BR-94: what is not inbound takes no key; what is, is taken whatever labels it has.
func TestDraftsAndSentMailAreNotTaken(t *testing.T) {
	t.Parallel()
	d := opened(t)
	draft := d.box.Draft(mail("draft"), "")
	d.mustRound()
	draft = d.box.Draft(mail("draft"), draft)
	draft = d.box.Draft(mail("draft"), draft)
	d.box.Delete(draft)
	d.box.Put(mail("sent-away"), "SENT")
	d.box.Put(mail("to-myself"), "SENT")
	d.box.Put(mail("to-myself"), "INBOX", "UNREAD")
	d.box.Put(mail("to-myself-at-once"), "SENT", "INBOX")
	d.box.Put(mail("archived-by-a-filter"), "UNREAD")
	d.box.Put(mail("category"), "INBOX", "CATEGORY_PROMOTIONS")
	d.rounds(5 * time.Minute)
	d.wants("to-myself", "to-myself-at-once", "archived-by-a-filter", "category")
}

func TestRescuedSpamIsTaken(t *testing.T) {
	t.Parallel()
	d := opened(t)
	spam := d.box.Put(mail("spam"), "SPAM")
	soon := d.box.Put(mail("rescued-soon"), "SPAM")
	d.mustRound()
	d.box.Label(soon, []string{"INBOX"}, []string{"SPAM"})
	d.rounds(5 * time.Minute)
	d.wants("rescued-soon")
	late := d.box.Put(mail("rescued-late"), "SPAM")
	ancient := d.box.Put(mail("moved-about"), "TRASH")
	d.rounds(5 * time.Minute)
	d.wait(20 * 24 * time.Hour)
	d.mustRound()
	d.box.Label(late, nil, []string{"SPAM"})
	d.rounds(5 * time.Minute)
	d.wait(20 * 24 * time.Hour)
	d.mustRound()
	d.box.Label(ancient, []string{"INBOX"}, []string{"TRASH"})
	d.box.Label(spam, []string{"STARRED"}, nil)
	d.rounds(5 * time.Minute)
	d.wants("rescued-soon", "rescued-late")
}

// BR-103: messages come in several changes, with numbers below the checkpoint's, and changes
// come that bring nothing.
func TestHistoryRepeatsItself(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.box.PageSize(3)
	ids := d.put("1", "2")
	d.box.Touch(200)
	d.box.Repeat(ids[0])
	d.box.Repeat(ids[1])
	d.put("3")
	d.box.Repeat(ids[0])
	d.rounds(5 * time.Minute)
	d.wants("1", "2", "3")
	d.fetchedOnce()
}

func TestIdleMailboxCostsOneCall(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.put("1")
	d.rounds(5 * time.Minute)
	before := d.box.Calls("history")
	gets := d.box.Calls("get") + d.box.Calls("list")
	d.rounds(10 * time.Minute)
	if n := d.box.Calls("history") - before; n != 20 || d.box.Calls("get")+d.box.Calls("list") != gets {
		t.Errorf("20 rounds of an idle mailbox cost %d calls of the history and others; want 20 and none", n)
	}
}

func TestQuerySelects(t *testing.T) {
	t.Parallel()
	d := newDesk(t, channels.Settings{"query": "invoice -newsletter"})
	d.mustRound()
	d.put("invoice-1", "other", "newsletter-invoice", "invoice-2")
	d.rounds(5 * time.Minute)
	d.wants("invoice-1", "invoice-2")
	d.put("invoice-3", "more")
	d.wait(10 * 24 * time.Hour)
	d.box.Forget()
	d.mustRound()
	d.rounds(5 * time.Minute)
	d.wants("invoice-1", "invoice-2", "invoice-3")
}
