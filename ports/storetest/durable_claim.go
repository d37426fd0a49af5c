package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

var claimPromises = []promise[*trial]{
	{"FirstClaimWins", "the first claim of an event is won, every later one is lost to it", firstClaimWins},
	{"OneWinnerAmongMany", "of all claims of one key, in any number of instances, exactly one is won", oneWinnerAmongMany},
	{"ClaimOfOwnIDIsWon", "the receipt's id is the claim token: who claims with it again learns that the claim was won", claimOfOwnIDIsWon},
	{"LosersLearnTheWinner", "a lost claim brings the winner's receipt as it stands, without payload", losersLearnTheWinner},
	{"KeysAreExact", "event ids that differ in any byte are different events", keysAreExact},
	{"TenantsApart", "the same ids of two tenants are two events", apart(func(r *domain.Receipt) { r.Key.Tenant = "umbrella" })},
	{"AccountsApart", "the same ids in two accounts are two events", apart(func(r *domain.Receipt) { r.Key.Account = "T2" })},
	{"PlatformsApart", "the same ids on two platforms are two events", apart(func(r *domain.Receipt) { r.Key.Platform = "teams" })},
	{"SameMessageUnderAnotherEventIDIsOne", "a message that comes under two event ids is one event", sameMessage},
	{"BatchGivesEachItsOwnAnswer", "each receipt of a batch has an answer of its own, and one that can't be stored does not take the rest with it", batchAnswers},
	{"LargeBatchIsAnsweredWhole", "the answer belongs to the receipt of the same index, however many there are", largeBatch},
	{"TakenReceiptIDIsRefused", "a receipt that can't be stored for another reason than its keys is an error, not a duplicate", takenID},
	{"ParkedClaimIsFailed", "what is parked takes its key and is dispatched only if somebody asks for it", parked},
	{"ClaimIsCommittedWhenItReturns", "another instance sees a claim as soon as it is answered", claimIsCommitted},
	{"ReceiptUnchanged", "what is told of an event is stored as it came", receiptUnchanged},
	{"TimesSurvive", "times keep their microseconds and are told in UTC", timesSurvive},
	{"PayloadUnchanged", "a payload comes back byte for byte", payloadUnchanged},
}

func firstClaimWins(k *trial) {
	first := event("Ev1")
	won := k.claim(k.store, first)
	if won.Seq <= 0 || won.State != domain.Claimed || won.Attempt != 0 {
		k.Errorf("Claim won = seq %d, %s, %d attempts; want a positive seq, claimed, 0", won.Seq, won.State, won.Attempt)
	}
	for i := range 3 {
		c := k.tryClaim(k.handles()[i%2], event("Ev1"))
		if c.Err != nil || c.Won || c.SameMessage || c.Receipt.ID != first.ID {
			k.Errorf("Claim of a taken key = won %t, same message %t, receipt %s, %v; want lost to %s by its event key",
				c.Won, c.SameMessage, c.Receipt.ID, c.Err, first.ID)
		}
	}
	if later := k.claim(k.other, event("Ev2")); later.Seq <= won.Seq {
		k.Errorf("seq %d of the later claim after %d; want a greater one", later.Seq, won.Seq)
	}
}

func oneWinnerAmongMany(k *trial) {
	const claimers, rounds = 32, 8
	for round := range rounds {
		var wg sync.WaitGroup
		start := make(chan struct{})
		answers := make([]ports.Claim, claimers)
		for i := range claimers {
			r := event(fmt.Sprintf("Ev%d", round))
			wg.Go(func() {
				<-start
				answers[i] = k.handles()[i%2].Claim(k.ctx, []domain.Receipt{r})[0]
			})
		}
		close(start)
		wg.Wait()
		var winners, lostTo []string
		for _, c := range answers {
			switch {
			case c.Err != nil:
				k.Errorf("Claim = %v; want won or lost", c.Err)
			case c.Won:
				winners = append(winners, c.Receipt.ID)
			default:
				lostTo = append(lostTo, c.Receipt.ID)
			}
		}
		slices.Sort(lostTo)
		if lostTo = slices.Compact(lostTo); len(winners) != 1 || !slices.Equal(lostTo, winners) {
			k.Fatalf("%d claims of one key at once: won by %q, lost to %q; want one winner to whom all others lose", claimers, winners, lostTo)
		}
		if r := k.receipt(winners[0]); r.Key.EventID != fmt.Sprintf("Ev%d", round) {
			k.Errorf("the winner's receipt is of event %q; want Ev%d", r.Key.EventID, round)
		}
	}
}

func claimOfOwnIDIsWon(k *trial) {
	r := event("Ev1")
	first := k.claim(k.store, r)
	if again := k.claim(k.other, r); again.Seq != first.Seq {
		k.Errorf("seq %d when claimed again under its own id; want %d as before", again.Seq, first.Seq)
	}
	k.wantState(r.ID, domain.Claimed, 0)
}

// seen is as much of a winner as a loser decides by.
type seen struct {
	ID                                      string
	Key                                     domain.Key
	Seq                                     int64
	State                                   domain.State
	Attempt                                 int
	Digest                                  domain.Digest
	Kind                                    domain.Kind
	Holder                                  string
	ClaimedAt, LeaseUntil, DueAt, HandledAt time.Time
	payload                                 int
}

func seenOf(r domain.Receipt) seen {
	return seen{r.ID, r.Key, r.Seq, r.State, r.Attempt, r.Digest, r.Kind, r.Holder, r.ClaimedAt, r.LeaseUntil, r.DueAt, r.HandledAt, len(r.Payload.Body)}
}

func losersLearnTheWinner(k *trial) {
	for _, state := range domain.States {
		winner := k.in(state, event("Ev "+string(state)))
		loser := event(winner.Key.EventID)
		loser.Holder, loser.Digest, loser.Kind = another, domain.DigestOf("other content"), domain.Mention
		c := k.tryClaim(k.other, loser)
		if c.Err != nil || c.Won {
			k.Fatalf("Claim of a taken key = won %t, %v; want lost", c.Won, c.Err)
		}
		got, want := seenOf(c.Receipt), seenOf(k.receipt(winner.ID))
		if got != want {
			k.Errorf("the loser to a %s receipt learns\n%+v; want\n%+v", state, got, want)
		}
		if got.State != state || got.Digest != winner.Digest || got.Attempt != winner.Attempt {
			k.Errorf("the loser learns %s, %d attempts, digest %s; want %s, %d, %s", got.State, got.Attempt, got.Digest, state, winner.Attempt, winner.Digest)
		}
		if (state == domain.Dispatching) == got.LeaseUntil.IsZero() || (state == domain.Handled) == got.HandledAt.IsZero() {
			k.Errorf("the loser to a %s receipt learns lease %s, handled at %s", state, got.LeaseUntil, got.HandledAt)
		}
	}
}

func keysAreExact(k *trial) {
	all := []string{
		"Ev1", "ev1", "EV1", " Ev1", "Ev1 ", "Ev 1", "Ev1\t", "Ev1\n", "%", "_", "Ev_", "Ev%", `Ev\1`, "Ev'1", `Ev"1`, "Ev--1",
		"caf\u00e9", "cafe\u0301", "stra\u00dfe", "strasse", "\u0130", "i", "I", "\u0131", "a:b", "a/b", "a|b", "a,b", "a\x1fb", "0", "00", "0.0", "1e1", "10",
		"null", "\ufeffEv1", "Ev\u200b1", "\U0001f600", strings.Repeat("x", domain.MaxID), strings.Repeat("x", domain.MaxID-1),
		strings.Repeat("x", domain.MaxID-1) + "y",
	}
	won := map[string]string{}
	for _, id := range all {
		r := event(id)
		c := k.tryClaim(k.store, r)
		if c.Err != nil || !c.Won {
			k.Errorf("Claim(%q) = won %t, lost to %q, %v; want won", id, c.Won, c.Receipt.Key.EventID, c.Err)
			continue
		}
		won[id] = r.ID
	}
	for id, receipt := range won {
		if c := k.tryClaim(k.other, event(id)); c.Err != nil || c.Won || c.Receipt.ID != receipt {
			k.Errorf("second Claim(%q) = won %t, receipt of %q, %v; want lost to its own first", id, c.Won, c.Receipt.Key.EventID, c.Err)
		}
	}
	// parts of a key must not run into each other, whatever delimits them
	for i, parts := range [][2]string{{"T1", "a:b"}, {"T1:a", "b"}, {"T1\x00a", "b"}, {"T1|a", "b"}, {"", "T1a:b"}} {
		r := event(parts[1])
		r.Key.Account, r.Key.Tenant = strings.ReplaceAll(parts[0], "\x00", "/"), "delimiters"
		if c := k.tryClaim(k.store, r); c.Err != nil || !c.Won {
			k.Errorf("Claim of account %q, event %q (%d) = won %t, %v; want won", parts[0], parts[1], i, c.Won, c.Err)
		}
	}
}

func apart(change func(*domain.Receipt)) func(*trial) {
	return func(k *trial) {
		one, two := event("Ev1"), event("Ev1")
		change(&two)
		k.claim(k.store, one)
		k.claim(k.other, two)
		for _, r := range []domain.Receipt{one, two} {
			again := r
			again.ID = event("").ID
			if c := k.tryClaim(k.store, again); c.Err != nil || c.Won || c.Receipt.ID != r.ID || c.Receipt.Key != r.Key {
				k.Errorf("second Claim of %v = won %t, receipt of %v, %v; want lost to its own first", r.Key, c.Won, c.Receipt.Key, c.Err)
			}
		}
		// the same conversation of two tenants, platforms or accounts is two conversations
		k.begin(one, long)
		k.begin(two, long)
		if got := k.receipt(two.ID); got.Key != two.Key {
			k.Errorf("Receipt = %v; want %v", got.Key, two.Key)
		}
	}
}

func sameMessage(k *trial) {
	first := event("Ev1")
	first.MessageKey = "C1/1700000000.000100"
	k.claim(k.store, first)
	other := event("Ev2")
	other.MessageKey = first.MessageKey
	if c := k.tryClaim(k.other, other); c.Err != nil || c.Won || !c.SameMessage || c.Receipt.ID != first.ID || c.Receipt.Key.EventID != "Ev1" {
		k.Errorf("Claim of a taken message key = won %t, same message %t, receipt of %q, %v; want lost to Ev1 by its message",
			c.Won, c.SameMessage, c.Receipt.Key.EventID, c.Err)
	}
	again := event("Ev1")
	again.MessageKey = first.MessageKey
	if c := k.tryClaim(k.other, again); c.Err != nil || c.Won || c.SameMessage {
		k.Errorf("Claim of both keys taken = won %t, same message %t, %v; want lost by its event key", c.Won, c.SameMessage, c.Err)
	}
	// what lost has taken nothing
	other.ID, other.MessageKey = event("").ID, "C1/1700000000.000200"
	k.claim(k.store, other)
	// each key is taken by another receipt: that of the event counts
	both := event("Ev2")
	both.MessageKey = first.MessageKey
	if c := k.tryClaim(k.other, both); c.Err != nil || c.Won || c.SameMessage || c.Receipt.ID != other.ID {
		k.Errorf("Claim whose keys are taken by two receipts = won %t, same message %t, receipt of %q, %v; want lost to Ev2 by its event key",
			c.Won, c.SameMessage, c.Receipt.Key.EventID, c.Err)
	}
	for _, id := range []string{"Ev3", "Ev4"} {
		none := event(id)
		none.MessageKey = ""
		k.claim(k.store, none) // no message is not the same message
	}
	elsewhere := event("Ev5")
	elsewhere.Key.Account, elsewhere.MessageKey = "T2", first.MessageKey
	k.claim(k.store, elsewhere)
}

func batchAnswers(k *trial) {
	taken := k.claim(k.store, event("taken"))
	unstorable := event("unstorable")
	unstorable.State = "no such state"
	nul := event("nul")
	nul.Conversation = "a\x00b"
	batch := []domain.Receipt{event("Ev1"), event("taken"), unstorable, event("twice"), event("twice"), nul, event("Ev2")}
	answers := k.store.Claim(k.ctx, batch)
	if len(answers) != len(batch) {
		k.Fatalf("Claim of %d receipts gave %d answers", len(batch), len(answers))
	}
	for _, i := range []int{0, 6} {
		if c := answers[i]; c.Err != nil || !c.Won || c.Receipt.ID != batch[i].ID {
			k.Errorf("answer to %q = won %t, receipt of %q, %v; want won", batch[i].Key.EventID, c.Won, c.Receipt.Key.EventID, c.Err)
		}
	}
	if c := answers[1]; c.Err != nil || c.Won || c.Receipt.ID != taken.ID {
		k.Errorf("answer to a taken key = won %t, receipt of %q, %v; want lost", c.Won, c.Receipt.Key.EventID, c.Err)
	}
	if c := answers[2]; c.Err == nil {
		k.Errorf("answer to a receipt in no known state = won %t, nil; want an error", c.Won)
	}
	if a, b := answers[3], answers[4]; a.Err != nil || b.Err != nil || a.Won == b.Won || a.Receipt.ID != b.Receipt.ID {
		k.Errorf("answers to one key twice in a batch = won %t (%v) and %t (%v); want one winner whom the other learns", a.Won, a.Err, b.Won, b.Err)
	}
	// not every database can hold a NUL in a text; what it says must be true
	if c := answers[5]; c.Err == nil {
		if got := k.receipt(nul.ID); !c.Won || got.Conversation != nul.Conversation {
			k.Errorf("answer to a conversation %q = won %t, stored as %q", nul.Conversation, c.Won, got.Conversation)
		}
	}
	if c := k.tryClaim(k.other, event("unstorable")); c.Err != nil || !c.Won {
		k.Errorf("Claim of a key that could not be stored before = won %t, %v; want won", c.Won, c.Err)
	}
	if answers := k.store.Claim(k.ctx, nil); len(answers) != 0 {
		k.Errorf("Claim of nothing gave %d answers", len(answers))
	}
}

func largeBatch(k *trial) {
	const n = 700
	batch := make([]domain.Receipt, n)
	for i := range batch {
		batch[i] = event(fmt.Sprintf("Ev%03d", i/2*2)) // each key twice
	}
	won := 0
	for i, c := range k.store.Claim(k.ctx, batch) {
		if c.Err != nil || c.Receipt.Key.EventID != batch[i].Key.EventID || c.Won && c.Receipt.ID != batch[i].ID {
			k.Fatalf("answer %d is of %q, won %t, %v; want of %q", i, c.Receipt.Key.EventID, c.Won, c.Err, batch[i].Key.EventID)
		}
		if c.Won {
			won++
		}
	}
	if won != n/2 {
		k.Errorf("%d of %d claims won; want %d", won, n, n/2)
	}
}

func takenID(k *trial) {
	first := k.claim(k.store, event("Ev1"))
	other := event("Ev2")
	other.ID = first.ID
	ctx, cancel := context.WithTimeout(k.ctx, patience)
	defer cancel()
	answers := k.store.Claim(ctx, []domain.Receipt{other, event("Ev3"), event("Ev1")})
	if ctx.Err() != nil {
		k.Errorf("Claim of a taken receipt id was not answered; want an error at once")
	}
	if c := answers[0]; c.Err == nil {
		k.Errorf("Claim of another event under a taken receipt id = won %t, nil; want an error", c.Won)
	}
	if c := answers[1]; c.Err != nil || !c.Won {
		k.Errorf("the claim beside it = won %t, %v; want won", c.Won, c.Err)
	}
	if c := answers[2]; c.Err != nil || c.Won || c.Receipt.ID != first.ID {
		k.Errorf("the duplicate beside it = won %t, %v; want lost", c.Won, c.Err)
	}
	other.ID = event("").ID
	k.claim(k.store, other) // under an id of its own it is a new event
}

func parked(k *trial) {
	r := eventIn("C1", "unreadable:1")
	r.State, r.LastError, r.Kind = domain.Failed, "not readable", domain.Other
	r = k.claim(k.store, r)
	if got := k.receipt(r.ID); got.State != domain.Failed || got.LastError != "not readable" || got.Attempt != 0 {
		k.Errorf("parked receipt is %s, %q, %d attempts; want failed, %q, 0", got.State, got.LastError, got.Attempt, "not readable")
	}
	if c := k.tryClaim(k.other, event("unreadable:1")); c.Err != nil || c.Won || c.Receipt.State != domain.Failed {
		k.Errorf("Claim of a parked key = won %t, %s, %v; want lost to a failed one", c.Won, c.Receipt.State, c.Err)
	}
	_, err := k.store.Begin(k.ctx, refOf(r), long)
	k.wantErr("Begin of a parked receipt", err, domain.ErrFenced)
	if got := k.takeUp(k.other, another, 10); len(got) > 0 {
		k.Errorf("TakeUp gave a parked receipt; want nothing")
	}
	// it holds nobody up
	k.begin(k.claim(k.store, eventIn("C1", "Ev2")), long)
	if err := k.store.Replay(k.ctx, r.ID, "ann"); err != nil {
		k.Errorf("Replay of a parked receipt = %v; want nil", err)
	}
	k.wantEvents("TakeUp after the replay", k.takeUp(k.other, another, 10, "Ev2"), "unreadable:1")
}

func claimIsCommitted(k *trial) {
	for i := range 20 {
		r := k.claim(k.handles()[i%2], event(fmt.Sprintf("Ev%d", i)))
		if _, _, err := k.handles()[(i+1)%2].Receipt(k.ctx, r.ID); err != nil {
			k.Fatalf("the other instance's Receipt after Claim = %v; want the receipt", err)
		}
	}
}

// texts that something on the way might trim, fold, escape or cut.
var texts = []string{"", " leading", "trailing ", "a\nb\tc", `'; DROP TABLE receipts; --`, "50% _x", "caf\u00e9 \u2603 \U0001f600", strings.Repeat("\u00e4", 2000)}

func receiptUnchanged(k *trial) {
	for i, text := range texts {
		r := event(fmt.Sprintf("Ev%d", i))
		if text != "" {
			r.Key.Tenant, r.Key.Platform, r.Key.Account = text, "p"+text, "a"+text
		}
		r.Channel, r.Installation, r.MessageKey, r.Kind, r.Conversation = "c"+text, "i"+text, "", domain.Kind("k"+text), "v"+text
		r.Guarantee, r.LastError, r.Holder, r.VendorAttempt = domain.AtLeastOnce, "e"+text, "h"+text, 3
		r.Payload.MediaType = "m" + text
		r.Seq = k.claim(k.store, r).Seq
		r.Deliveries, r.ClaimedAt = 1, r.ClaimedAt.UTC()
		want := fmt.Sprintf("%+v", r)
		got := k.takeUp(k.other, r.Holder, 10)
		if len(got) != 1 || fmt.Sprintf("%+v", got[0]) != want {
			k.Fatalf("TakeUp gave\n%+v; want\n%s", got, want)
		}
		r.Payload = domain.Payload{}
		if got := k.receipt(r.ID); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", r) {
			k.Errorf("Receipt =\n%+v; want\n%+v", got, r)
		}
		k.settle(k.begin(r, long), domain.Step{State: domain.Handled}, "")
	}
}

func timesSurvive(k *trial) {
	zone := time.FixedZone("east", 5*3600+1800)
	at := time.Date(2024, 2, 29, 23, 59, 59, 999_999_000, zone)
	r := event("Ev1")
	r.ID, r.ClaimedAt = idAt(at), at
	r = k.claim(k.store, r)
	dueAt := time.Date(2024, 3, 10, 2, 30, 0, 1000, zone)
	before := time.Now()
	k.settle(k.begin(r, long), domain.Step{State: domain.Retrying, DueAt: dueAt}, "later")
	got := k.receipt(r.ID)
	for what, pair := range map[string][2]time.Time{"ClaimedAt": {got.ClaimedAt, at}, "DueAt": {got.DueAt, dueAt}} {
		if !pair[0].Equal(pair[1]) || pair[0].Location() != time.UTC {
			k.Errorf("%s = %s; want %s", what, pair[0], pair[1].UTC())
		}
	}
	if d := got.BegunAt.Sub(before); d < -time.Minute || d > time.Minute || got.BegunAt.Location() != time.UTC {
		k.Errorf("BegunAt = %s; want about %s", got.BegunAt, before.UTC())
	}
	if !got.HandledAt.IsZero() || !got.LeaseUntil.IsZero() {
		k.Errorf("HandledAt = %s, LeaseUntil = %s of a retrying receipt; want zero", got.HandledAt, got.LeaseUntil)
	}
}

func payloadUnchanged(k *trial) {
	binary := make([]byte, 1<<20)
	for i := range binary {
		binary[i] = byte(i * 7 >> 3)
	}
	for i, body := range [][]byte{binary, {}, nil, {0}, []byte("{\"a\": \"\xff\xfe\\u0000\"}\r\n"), []byte("'\\x00")} {
		r := event(fmt.Sprintf("Ev%d", i))
		r.Payload = domain.Payload{MediaType: "application/x-www-form-urlencoded; charset=\"utf-8\"", Body: body}
		k.claim(k.store, r)
		got := k.takeUp(k.other, holder, 1)
		if len(got) != 1 || got[0].Payload.MediaType != r.Payload.MediaType || !slices.Equal(got[0].Payload.Body, body) {
			k.Fatalf("TakeUp gave %d receipts, without the payload of %d bytes as it came", len(got), len(body))
		}
		k.settle(k.begin(got[0], long), domain.Step{State: domain.Handled}, "")
	}
}
