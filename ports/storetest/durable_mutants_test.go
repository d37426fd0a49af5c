package storetest_test

import (
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/admitone/admitone/ports/storetest"
)

// durableMutants are the bugs that the model can have, and the promise whose check must tell. A
// bug that the kit has missed is added here first.
var durableMutants = map[string]string{
	"tells losers that they won":                          "FirstClaimWins",
	"looks, then inserts":                                 "OneWinnerAmongMany",
	"loses to itself":                                     "ClaimOfOwnIDIsWon",
	"forgets the winner's lease":                          "LosersLearnTheWinner",
	"folds case":                                          "KeysAreExact",
	"joins the parts of keys":                             "KeysAreExact",
	"is blind to tenants":                                 "TenantsApart",
	"is blind to accounts":                                "AccountsApart",
	"is blind to platforms":                               "PlatformsApart",
	"ignores message keys":                                "SameMessageUnderAnotherEventIDIsOne",
	"forgets why a claim was lost":                        "SameMessageUnderAnotherEventIDIsOne",
	"lets one bad row take the batch":                     "BatchGivesEachItsOwnAnswer",
	"calls every refusal a duplicate":                     "TakenReceiptIDIsRefused",
	"dispatches what was parked":                          "ParkedClaimIsFailed",
	"keeps claims to itself":                              "ClaimIsCommittedWhenItReturns",
	"trims texts":                                         "ReceiptUnchanged",
	"keeps whole seconds":                                 "TimesSurvive",
	"keeps payloads as text":                              "PayloadUnchanged",
	"counts leases from the claim":                        "BeginIsCommittedWhenItReturns",
	"counts leases from the first begin":                  "BeginIsCommittedWhenItReturns",
	"begins for anyone":                                   "BeginIsFenced",
	"begins any attempt":                                  "BeginIsFenced",
	"begins what is begun":                                "BeginIsFenced",
	"takes its own begin for another's":                   "BeginInDoubtIsFoundOut",
	"takes another's begin for its own":                   "BeginInDoubtIsFoundOut",
	"looks, then begins":                                  "BeginOnceAmongMany",
	"looks, then settles":                                 "SettleOnceAmongMany",
	"begins without looking at the conversation":          "BeginsOfOneConversationOneAtATime",
	"waits for retries":                                   "WaitingEndsWithTheFirstAttempt",
	"holds conversations up until handled":                "WaitingEndsWithTheFirstAttempt",
	"orders conversations by the claimers' clocks":        "ConversationOrderIsClaimOrder",
	"settles for anyone":                                  "SettleIsFenced",
	"settles any attempt":                                 "SettleIsFenced",
	"settles what is settled":                             "SettleIsFenced",
	"settles after the lease":                             "SettleIsFenced",
	"forgets the reason":                                  "SettleStates",
	"calls the living expired":                            "ExpiredSeesOnlyWhatIsOver",
	"expires what was settled late":                       "ExpireIsFenced",
	"expires a later attempt":                             "ExpireIsFenced",
	"does not note who leaves":                            "TakeUpOfGoneHolder",
	"takes up from the living":                            "TakeUpLeavesLivingHoldersAlone",
	"lets nobody renew its time":                          "TakeUpLeavesRenewedHoldersAlone",
	"passes over nothing of its own":                      "TakeUpOwnUnknown",
	"takes retries up early":                              "TakeUpDueRetrying",
	"reserves nothing":                                    "TakeUpDueRetrying",
	"leaves the holder as it was":                         "TakeUpHandsOver",
	"takes up without payload":                            "TakeUpBringsPayloadInClaimOrder",
	"takes up in any order":                               "TakeUpBringsPayloadInClaimOrder",
	"takes up what is dispatching":                        "TakeUpTakesNothingElse",
	"lists, then takes up":                                "TwoTakersShareNothing",
	"counts an event once in a list":                      "DeliveriesAreCounted",
	"sets counts":                                         "DeliveriesAreCounted",
	"keeps the last vendor attempt":                       "DeliveriesAreCounted",
	"gives leases to all":                                 "LeaseHasOneHolder",
	"keeps leases for ever":                               "LeaseHasOneHolder",
	"forgets quiet tenants":                               "TenantsAreListed",
	"prunes what is open":                                 "PruneDeletesWhatIsOldAndClosed",
	"keeps the keys of what was pruned":                   "PrunedKeyIsNewAgain",
	"prunes payloads of what is open":                     "PrunePayloadsEarlier",
	"prunes without limit":                                "PruneObeysLimit",
	"prunes the youngest first":                           "PruneObeysLimit",
	"prunes all tenants":                                  "PruneOnlyInScope",
	"prunes all installations":                            "PruneOnlyInScope",
	"counts attempts anew after a replay":                 "ReplayDispatchesAgain",
	"looks, then replays":                                 "ReplayOnce",
	"replays what is open":                                "ReplayOfOpenIsRefused",
	"replays without payload":                             "PrunePayloadsEarlier",
	"replays all states":                                  "ReplayAllReplaysWhatIsSelected",
	"discards nothing":                                    "DiscardCloses",
	"discards anything":                                   "DiscardOfOthersIsRefused",
	"finds parts":                                         "ListFilters",
	"filters no states":                                   "ListFilters",
	"lists payloads":                                      "ListFilters",
	"lists the oldest first":                              "ListPages",
	"leaves out what begins a page":                       "ListPages",
	"leaves what is lost out of the balance":              "Balance",
	"forgets retries when asked for the oldest":           "OldestOpenIsTold",
	"forgets who asked":                                   "HistoryTells",
	"opens a conversation for each message":               "MessageOpensOrJoinsItsConversation",
	"records every kind":                                  "OnlyNewMessagesAreRecorded",
	"looks, then opens":                                   "ConversationIsOpenedOnceAmongMany",
	"joins other tenants' conversations":                  "ConversationsApart",
	"keeps a mailbox in one conversation":                 "MailHasAConversationForEachThread",
	"records messages of lost claims":                     "LostClaimRecordsNothing",
	"makes a conversation of none":                        "MessageWithoutConversationIsInNone",
	"takes up without conversation":                       "MessageKeepsItsConversation",
	"forgets the conversation of what was claimed before": "MessageKeepsItsConversation",
	"opens a conversation for what was claimed before":    "MessageKeepsItsConversation",
	"joins what is closed":                                "ClosedConversationIsFollowedByAnother",
	"closes again":                                        "ClosedConversationIsFollowedByAnother",
	"keeps conversations for ever":                        "ConversationGoesWithItsLastMessage",
	"buries conversations with their first message":       "ConversationGoesWithItsLastMessage",
	"shows other tenants' payloads":                       "PayloadIsReadUntilItIsPruned",
	"filters no statuses":                                 "ConversationsAreListed",
	"lists all messages everywhere":                       "MessagesAreListed",
	"claims under another id when cancelled":              "CanceledClaimTellsTheTruthLater",
	"calls a cancelled change refused":                    "CanceledChangeIsNotARefusal",
	"gives a replayed one its place again":                "AnySequence",
	"is never ready":                                      "ReadyWhenUp",
}

func TestModelKeepsThePromises(t *testing.T) {
	t.Parallel()
	storetest.Durable(t, openModel(""))
}

func openModel(bug string) func(*testing.T) storetest.Subject {
	return func(*testing.T) storetest.Subject {
		one, two := newModel(bug)
		return storetest.Subject{Store: one, Other: two}
	}
}

// The test runs itself once for each mutant, in a process that must fail by the named promise.
func TestDurableKitCatches(t *testing.T) {
	const variable = "ADMITONE_DURABLE_MUTANT"
	if bug := os.Getenv(variable); bug != "" {
		storetest.Durable(t, openModel(bug))
		return
	}
	t.Parallel()
	var caught atomic.Int32
	t.Cleanup(func() { t.Logf("mutation score: %d of %d", caught.Load(), len(durableMutants)) })
	for bug, promise := range durableMutants {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestDurableKitCatches$/^"+promise+"$",
				"-rapid.nofailfile", "-rapid.shrinktime=1s", "-rapid.checks=2000") // so many that no bug is missed by chance
			cmd.Env = append(os.Environ(), variable+"="+bug, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestDurableKitCatches/"+promise+" ") {
				t.Fatalf("the kit passes a store that %s: %s did not fail (%v)\n%s", bug, promise, err, out)
			}
			caught.Add(1)
		})
	}
}
