package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

var conversationPromises = []promise[*trial]{
	{"MessageOpensOrJoinsItsConversation", "a message that is claimed stands in the pending conversation, which the first one opens", messageOpensOrJoins},
	{"OnlyNewMessagesAreRecorded", "an event of another kind leaves neither message nor conversation", onlyMessages},
	{"ConversationIsOpenedOnceAmongMany", "of all first messages of a conversation, in any number of instances, one opens it and all stand in it", openedOnce},
	{"ConversationsApart", "conversations of another tenant, platform, account or name are others", conversationsApart},
	{"MailHasAConversationForEachThread", "one who writes several mails has as many conversations as threads", mailThreads},
	{"LostClaimRecordsNothing", "a claim that is lost leaves neither message nor conversation", lostRecordsNothing},
	{"MessageWithoutConversationIsInNone", "a message for which the vendor names no conversation stands in none", messageInNone},
	{"MessageKeepsItsConversation", "who takes a message up, or claims it again, learns the conversation that it was recorded in", messageKeepsConversation},
	{"ClosedConversationIsFollowedByAnother", "a closed conversation takes no message, and the next one opens another", closedIsFollowed},
	{"ClosingLeavesNoMessageOut", "messages that come while their conversation is closed stand in one all the same", closingLeavesNoneOut},
	{"ConversationGoesWithItsLastMessage", "a conversation lives as long as the receipt of one of its messages", conversationPruned},
	{"PruningLeavesNoMessageOut", "messages that come while their conversation is pruned stand in one all the same", pruningLeavesNoneOut},
	{"PayloadIsReadUntilItIsPruned", "what a message said can be read as long as its payload is kept", payloadIsRead},
	{"ConversationsAreListed", "a list holds the conversations that the filter selects, in pages, those opened last first", conversationsListed},
	{"MessagesAreListed", "a conversation's messages are listed in pages, newest first, and no others", messagesListed},
}

// conversations returns all conversations that f selects, as the other instance sees them.
func (k *trial) conversations(f ports.ConversationFilter) []ports.Conversation {
	k.Helper()
	page, err := k.other.Conversations(k.ctx, f)
	if err != nil {
		k.Fatalf("Conversations(%+v) = %v; want nil", f, err)
	}
	return page.Conversations
}

// wantConversations checks how many conversations there are.
func (k *trial) wantConversations(want int) {
	k.Helper()
	if got := k.conversations(ports.ConversationFilter{}); len(got) != want {
		k.Errorf("there are the conversations %+v; want %d", got, want)
	}
}

// wantMessages checks of which events the messages of a conversation are, newest first.
func (k *trial) wantMessages(conversation string, want ...string) {
	k.Helper()
	page, err := k.other.Messages(k.ctx, conversation, 0, "")
	if err != nil {
		k.Errorf("Messages(%s) = %v; want nil", conversation, err)
		return
	}
	k.wantEvents("Messages", page.Receipts, want...)
	for _, r := range page.Receipts {
		if r.ConversationID != conversation || len(r.Payload.Body) > 0 {
			k.Errorf("message of %q in conversation %s, with %d bytes; want %s, none", r.Key.EventID, r.ConversationID, len(r.Payload.Body), conversation)
		}
	}
}

// closeConversation closes one, which must be allowed.
func (k *trial) closeConversation(id string) {
	k.Helper()
	if err := k.other.CloseConversation(k.ctx, id, "ann"); err != nil {
		k.Fatalf("CloseConversation(%s) = %v; want nil", id, err)
	}
}

func messageOpensOrJoins(k *trial) {
	first := k.claim(k.store, eventIn("C1", "Ev1"))
	if first.ConversationID == "" {
		k.Fatal("a message is in no conversation")
	}
	want := ports.Conversation{
		ID: first.ConversationID, Tenant: "acme", Platform: "slack", Account: "T1", ExternalID: "C1",
		Status: domain.ConversationPending, OpenedAt: first.ClaimedAt.UTC(),
	}
	if got := k.conversations(ports.ConversationFilter{}); len(got) != 1 || got[0] != want {
		k.Errorf("after the first message the conversations are %+v; want %+v", got, want)
	}
	batch := []domain.Receipt{eventIn("C1", "Ev2"), eventIn("C2", "Ev3"), eventIn("C1", "Ev4"), eventIn("C2", "Ev5")}
	in := map[string]string{"C1": first.ConversationID}
	for i, c := range k.other.Claim(k.ctx, batch) {
		if c.Err != nil || !c.Won {
			k.Fatalf("Claim = won %t, %v; want won", c.Won, c.Err)
		}
		if in[batch[i].Conversation] == "" {
			in[batch[i].Conversation] = c.Receipt.ConversationID
		}
		if got := c.Receipt.ConversationID; got == "" || got != in[batch[i].Conversation] {
			k.Errorf("message of %q is in %q; want %q", c.Receipt.Key.EventID, got, in[batch[i].Conversation])
		}
	}
	k.wantConversations(2)
	k.wantMessages(in["C1"], "Ev4", "Ev2", "Ev1")
	k.wantMessages(in["C2"], "Ev5", "Ev3")
}

func onlyMessages(k *trial) {
	for _, kind := range []domain.Kind{
		domain.MessageEdited, domain.MessageDeleted, domain.MessageStatus, domain.Mention, domain.Reaction,
		domain.Command, domain.Interaction, domain.Membership, domain.Other,
	} {
		r := eventIn("C1", string(kind))
		r.Kind, r.MessageKey = kind, ""
		if got := k.claim(k.store, r).ConversationID; got != "" {
			k.Errorf("%s is in conversation %s; want none", kind, got)
		}
	}
	k.wantConversations(0)
	message := k.claim(k.store, eventIn("C1", "Ev1"))
	k.wantMessages(message.ConversationID, "Ev1")
}

func openedOnce(k *trial) {
	const claimers, rounds = 16, 8
	for round := range rounds {
		var wg sync.WaitGroup
		start := make(chan struct{})
		answers := make([]ports.Claim, claimers)
		for i := range claimers {
			r := eventIn(fmt.Sprint("C", round), fmt.Sprintf("Ev%d-%d", round, i))
			wg.Go(func() {
				<-start
				answers[i] = k.handles()[i%2].Claim(k.ctx, []domain.Receipt{r})[0]
			})
		}
		close(start)
		wg.Wait()
		for _, c := range answers {
			if c.Err != nil || !c.Won {
				k.Fatalf("Claim = won %t, %v; want won", c.Won, c.Err)
			}
			if got := c.Receipt.ConversationID; got == "" || got != answers[0].Receipt.ConversationID {
				k.Fatalf("messages of one conversation that came at once are in %q and %q", answers[0].Receipt.ConversationID, got)
			}
		}
		k.wantConversations(round + 1)
		if page, err := k.other.Messages(k.ctx, answers[0].Receipt.ConversationID, 0, ""); err != nil || len(page.Receipts) != claimers {
			k.Errorf("the conversation has %d messages, %v; want %d", len(page.Receipts), err, claimers)
		}
	}
}

func conversationsApart(k *trial) {
	seen := map[string]string{}
	for name, change := range map[string]func(*domain.Receipt){
		"as it is": func(*domain.Receipt) {},
		"tenant":   func(r *domain.Receipt) { r.Key.Tenant = "umbrella" },
		"platform": func(r *domain.Receipt) { r.Key.Platform = "teams" },
		"account":  func(r *domain.Receipt) { r.Key.Account = "T2" },
		"name":     func(r *domain.Receipt) { r.Conversation = "C2" },
		"case":     func(r *domain.Receipt) { r.Conversation = "c1" },
		"space":    func(r *domain.Receipt) { r.Conversation = "C1 " },
		"parts":    func(r *domain.Receipt) { r.Key.Account, r.Conversation = "T1C", "1" },
	} {
		r := eventIn("C1", name)
		change(&r)
		id := k.claim(k.store, r).ConversationID
		if other, taken := seen[id]; taken {
			k.Errorf("two messages are in one conversation: %s, %s", name, other)
		}
		seen[id] = name
		k.wantMessages(id, name)
	}
	k.wantConversations(len(seen))
	theirs := k.conversations(ports.ConversationFilter{Tenant: "umbrella"})
	if len(theirs) != 1 || theirs[0].Tenant != "umbrella" || seen[theirs[0].ID] != "tenant" {
		k.Errorf("the conversations of a tenant are %+v; want its own", theirs)
	}
}

func mailThreads(k *trial) {
	mail := func(root, id string) string {
		r := eventIn(root, "m:"+id)
		r.Key.Platform, r.Key.Account, r.Channel = "email", "desk@example.com", "gmail"
		return k.claim(k.store, r).ConversationID
	}
	toner, invoice := mail("toner@example.org", "toner@example.org"), mail("invoice@example.org", "invoice@example.org")
	if toner == invoice {
		k.Error("two threads are one conversation")
	}
	if got := mail("toner@example.org", "answer@example.org"); got != toner {
		k.Errorf("an answer is in %s; want that of its thread, %s", got, toner)
	}
	k.wantConversations(2)
	k.closeConversation(toner)
	if got := mail("toner@example.org", "again@example.org"); got == toner || got == invoice {
		k.Errorf("an answer in a closed thread is in %s; want another", got)
	}
	k.wantMessages(invoice, "m:invoice@example.org")
}

func lostRecordsNothing(k *trial) {
	winner := k.claim(k.store, eventIn("C1", "Ev1"))
	for name, change := range map[string]func(*domain.Receipt){
		"same event":              func(*domain.Receipt) {},
		"same event elsewhere":    func(r *domain.Receipt) { r.Conversation = "C2" },
		"same message elsewhere":  func(r *domain.Receipt) { r.Key.EventID, r.Conversation = "Ev2", "C3" },
		"another message of that": func(r *domain.Receipt) { r.MessageKey, r.Conversation = "other", "C4" },
	} {
		r := eventIn("C1", "Ev1")
		change(&r)
		if c := k.tryClaim(k.other, r); c.Err != nil || c.Won {
			k.Fatalf("%s: Claim = won %t, %v; want lost", name, c.Won, c.Err)
		}
	}
	r, twice := eventIn("C5", "Ev3"), eventIn("C6", "Ev3")
	if c := k.other.Claim(k.ctx, []domain.Receipt{r, twice}); !c[0].Won || c[1].Won {
		k.Fatalf("of two claims of one event in a batch: won %t, %t; want the first", c[0].Won, c[1].Won)
	}
	k.wantConversations(2)
	k.wantMessages(winner.ConversationID, "Ev1")
}

func messageInNone(k *trial) {
	for i := range 2 {
		r := k.claim(k.store, eventIn("", fmt.Sprint("Ev", i)))
		if r.ConversationID != "" {
			k.Errorf("a message without a conversation is in %s", r.ConversationID)
		}
	}
	k.wantConversations(0)
	for _, r := range k.takeUp(k.other, another, 10) {
		if r.ConversationID != "" {
			k.Errorf("a message without a conversation is taken up in %s", r.ConversationID)
		}
	}
}

func messageKeepsConversation(k *trial) {
	opens, joins := eventIn("C1", "Ev1"), eventIn("C1", "Ev2")
	first := k.claim(k.store, opens).ConversationID
	k.claim(k.store, joins)
	k.closeConversation(first)
	for _, s := range k.handles() {
		for _, r := range []domain.Receipt{opens, joins} {
			if again := k.claim(s, r).ConversationID; again != first {
				k.Errorf("claimed again under its own id %q is in %q; want %q as before", r.Key.EventID, again, first)
			}
		}
		for i, c := range s.Claim(k.ctx, []domain.Receipt{opens, joins}) {
			if c.Err != nil || c.Receipt.ConversationID != first {
				k.Errorf("claimed again in a batch, message %d is in %q, %v; want %q as before", i, c.Receipt.ConversationID, c.Err, first)
			}
		}
	}
	k.wantConversations(1) // nobody has opened one in vain
	second := k.claim(k.store, eventIn("C1", "Ev3")).ConversationID
	k.wantConversations(2)
	taken := k.takeUp(k.other, another, 10)
	k.wantEvents("TakeUp", taken, "Ev1", "Ev2", "Ev3")
	for i, want := range []string{first, first, second} {
		if i < len(taken) && taken[i].ConversationID != want {
			k.Errorf("%q is taken up in %q; want %q", taken[i].Key.EventID, taken[i].ConversationID, want)
		}
	}
}

func closedIsFollowed(k *trial) {
	first := k.claim(k.store, eventIn("C1", "Ev1")).ConversationID
	k.closeConversation(first)
	k.wantErr("CloseConversation again", k.store.CloseConversation(k.ctx, first, "bob"), domain.ErrState)
	for _, id := range []string{event("").ID, "", "C1"} {
		k.wantErr("CloseConversation of none", k.store.CloseConversation(k.ctx, id, "ann"), domain.ErrNoConversation)
	}
	second := k.claim(k.store, eventIn("C1", "Ev2")).ConversationID
	if second == first || second == "" {
		k.Fatalf("after closing %s the next message is in %q; want another", first, second)
	}
	k.claim(k.other, eventIn("C1", "Ev3"))
	k.wantMessages(first, "Ev1")
	k.wantMessages(second, "Ev3", "Ev2")
	for _, c := range k.conversations(ports.ConversationFilter{}) {
		status, by := domain.ConversationPending, ""
		if c.ID == first {
			status, by = domain.ConversationClosed, "ann"
		}
		if c.Status != status || c.ClosedBy != by || c.ClosedAt.IsZero() == (c.ID == first) {
			k.Errorf("conversation %s is %s, by %q at %s; want %s, %q", c.ID, c.Status, c.ClosedBy, c.ClosedAt, status, by)
		}
	}
}

func closingLeavesNoneOut(k *trial) {
	k.whileMessagesCome(func(id string) {
		if err := k.other.CloseConversation(k.ctx, id, "ann"); err != nil {
			k.Errorf("CloseConversation = %v; want nil", err)
		}
	}, func(string) {})
}

func pruningLeavesNoneOut(k *trial) {
	k.whileMessagesCome(func(string) {
		if _, err := k.other.Prune(k.ctx, scopeOf("acme", 30*day, 30*day), 100); err != nil {
			k.Errorf("Prune = %v; want nil", err)
		}
	}, func(first string) {
		k.settle(k.begin(k.receipt(first), long), domain.Step{State: domain.Handled}, "")
	})
}

// whileMessagesCome lets several messages come into a conversation of one that is old, and do
// something to it at the same moment. prepare is called with the id of the old one's receipt.
func (k *trial) whileMessagesCome(do, prepare func(id string)) {
	k.Helper()
	const rounds, each = 10, 6
	for round := range rounds {
		old := ago(40*day, fmt.Sprint("old ", round))
		old.Conversation = fmt.Sprint("C", round)
		old = k.claim(k.store, old)
		prepare(old.ID)
		var wg sync.WaitGroup
		start := make(chan struct{})
		answers := make([]ports.Claim, each)
		for i := range answers {
			r := eventIn(old.Conversation, fmt.Sprintf("Ev%d-%d", round, i))
			wg.Go(func() {
				<-start
				answers[i] = k.store.Claim(k.ctx, []domain.Receipt{r})[0]
			})
		}
		wg.Go(func() {
			<-start
			do(old.ConversationID)
		})
		close(start)
		wg.Wait()
		listed := 0
		found := map[string]bool{}
		for _, c := range answers {
			id := c.Receipt.ConversationID
			if c.Err != nil || id == "" {
				k.Fatalf("a message came to be in %q, %v; want a conversation", id, c.Err)
			}
			if found[id] {
				continue
			}
			found[id] = true
			page, err := k.other.Messages(k.ctx, id, 0, "")
			if err != nil {
				k.Fatalf("Messages of the conversation that a message is in = %v; want nil", err)
			}
			for _, r := range page.Receipts {
				if r.ID != old.ID {
					listed++
				}
			}
		}
		if listed != each {
			k.Errorf("%d of %d messages are listed", listed, each)
		}
	}
}

func conversationPruned(k *trial) {
	add := func(conversation, id string, age time.Duration, state domain.State) domain.Receipt {
		r := ago(age, id)
		r.Conversation = conversation
		return k.in(state, r)
	}
	gone := add("gone", "Ev1", 40*day, domain.Handled)
	add("gone", "Ev2", 35*day, domain.Failed)
	alive := add("alive", "Ev3", 40*day, domain.Handled)
	add("alive", "Ev4", 2*day, domain.Handled)
	open := add("open", "Ev5", 40*day, domain.Retrying)
	add("open", "Ev6", 40*day, domain.Handled)
	closed := add("closed", "Ev7", 40*day, domain.Handled)
	k.closeConversation(closed.ConversationID)
	k.prune(scopeOf("acme", 30*day, 30*day), 1, 2) // and the payload of the next
	k.wantConversations(4)
	k.prune(scopeOf("acme", 30*day, 30*day), 100, 4)
	k.wantConversations(2)
	k.wantMessages(alive.ConversationID, "Ev4")
	k.wantMessages(open.ConversationID, "Ev5")
	_, err := k.other.Messages(k.ctx, gone.ConversationID, 0, "")
	k.wantErr("Messages of a conversation that was pruned", err, domain.ErrNoConversation)
	if next := k.claim(k.store, eventIn("gone", "Ev8")); next.ConversationID == gone.ConversationID || next.ConversationID == "" {
		k.Errorf("the next message is in %q; want another than the one that was pruned", next.ConversationID)
	}
	if next := k.claim(k.store, eventIn("alive", "Ev9")); next.ConversationID != alive.ConversationID {
		k.Errorf("the next message is in %q; want %q, which is alive", next.ConversationID, alive.ConversationID)
	}
}

func payloadIsRead(k *trial) {
	r := k.in(domain.Handled, ago(10*day, "Ev1"))
	if p, err := k.other.Payload(k.ctx, "acme", r.ID); err != nil || string(p.Body) != `{"event":"Ev1"}` || p.MediaType != "application/json" {
		k.Errorf("Payload = %q of %q, %v; want it as it came", p.Body, p.MediaType, err)
	}
	for _, c := range [][2]string{{"umbrella", r.ID}, {"acme", event("").ID}, {"acme", "no id"}} {
		_, err := k.other.Payload(k.ctx, c[0], c[1])
		k.wantErr(fmt.Sprintf("Payload(%q)", c), err, domain.ErrNotFound)
	}
	k.prune(scopeOf("acme", 30*day, 7*day), 100, 1)
	_, err := k.other.Payload(k.ctx, "acme", r.ID)
	k.wantErr("Payload after it was pruned", err, domain.ErrNotFound)
	k.wantConversations(1)
}

func conversationsListed(k *trial) {
	const n = 12
	var all []string
	for i := range n {
		r := ago(time.Duration(n-i)*time.Minute, fmt.Sprint("Ev", i))
		r.Key.Tenant = []string{"acme", "umbrella", "wayne"}[i%3]
		if i%4 == 1 {
			r.Key.Platform = "teams"
		}
		r = k.claim(k.store, r)
		if i%2 == 1 {
			k.closeConversation(r.ConversationID)
		}
		all = append(all, r.ConversationID)
	}
	pick := func(want func(i int) bool) (ids []string) {
		for i, id := range slices.Backward(all) {
			if want(i) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	for name, c := range map[string]struct {
		filter ports.ConversationFilter
		want   []string
	}{
		"all":         {ports.ConversationFilter{}, pick(func(int) bool { return true })},
		"a tenant's":  {ports.ConversationFilter{Tenant: "umbrella"}, pick(func(i int) bool { return i%3 == 1 })},
		"a platform":  {ports.ConversationFilter{Platform: "teams"}, pick(func(i int) bool { return i%4 == 1 })},
		"pending":     {ports.ConversationFilter{Status: domain.ConversationPending}, pick(func(i int) bool { return i%2 == 0 })},
		"closed here": {ports.ConversationFilter{Tenant: "acme", Status: domain.ConversationClosed}, pick(func(i int) bool { return i%6 == 3 })},
		"nobody's":    {ports.ConversationFilter{Tenant: "nobody"}, nil},
	} {
		for _, limit := range []int{1, 5, 1000} {
			c.filter.Limit, c.filter.Cursor = limit, ""
			var got []string
			for range n + 1 {
				page, err := k.other.Conversations(k.ctx, c.filter)
				if err != nil || len(page.Conversations) > limit {
					k.Fatalf("Conversations(%s) gave %d, %v", name, len(page.Conversations), err)
				}
				for _, found := range page.Conversations {
					got = append(got, found.ID)
				}
				if c.filter.Cursor = page.Next; c.filter.Cursor == "" {
					break
				}
			}
			if !slices.Equal(got, c.want) {
				k.Errorf("%s in pages of %d: %q; want %q", name, limit, got, c.want)
			}
		}
	}
}

func messagesListed(k *trial) {
	const n = 7
	var want []string
	conversation := ""
	for i := range n {
		r := ago(time.Duration(n-i)*time.Minute, fmt.Sprint("Ev", i))
		r.Conversation = "C1"
		conversation = k.claim(k.store, r).ConversationID
		k.claim(k.store, eventIn("C2", fmt.Sprint("other ", i)))
		want = append([]string{r.Key.EventID}, want...)
	}
	for _, limit := range []int{1, 3, 7, 1000} {
		var got []string
		cursor := ""
		for range n + 1 {
			page, err := k.other.Messages(k.ctx, conversation, limit, cursor)
			if err != nil || len(page.Receipts) > limit {
				k.Fatalf("Messages(limit %d) gave %d, %v", limit, len(page.Receipts), err)
			}
			got = append(got, eventIDs(page.Receipts)...)
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			k.Errorf("pages of %d gave %q; want %q", limit, got, want)
		}
	}
	for _, id := range []string{event("").ID, "", "C1"} {
		_, err := k.other.Messages(k.ctx, id, 0, "")
		k.wantErr("Messages of none", err, domain.ErrNoConversation)
	}
}
