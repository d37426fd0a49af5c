package channeltest_test

import (
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/admitone/admitone/channels/channeltest"
)

// mutants are the toy channels that break one promise each, and the check that must tell.
// A bug that the kit has missed is added here first.
var mutants = map[string]string{
	"named otherwise than its folder":              "Complete",
	"vendor not told":                              "Complete",
	"secret not listed":                            "Complete",
	"example not told":                             "Complete",
	"example that does not open":                   "Complete",
	"plain text as the answer":                     "Answers",
	"answer without content type":                  "Answers",
	"method of the vendor not used":                "GenuineIsAccepted",
	"all refused":                                  "GenuineIsAccepted",
	"all accepted":                                 "ForgedIsRefused",
	"body not signed":                              "TamperedIsRefused",
	"signature optional":                           "UnsignedIsRefused",
	"panics without a signature":                   "UnsignedIsRefused",
	"time not needed":                              "EachSignedHeaderIsNeeded",
	"empty signature accepted":                     "HeaderVariantsAreRefused",
	"first of two headers counts":                  "HeaderVariantsAreRefused",
	"half a signature is enough":                   "HeaderVariantsAreRefused",
	"refusal is an error of its own":               "TamperedIsRefused",
	"stale accepted":                               "OldRequestIsRefused",
	"tolerance too long":                           "OldRequestIsRefused",
	"tolerance too short":                          "OldRequestIsRefused",
	"future accepted":                              "FutureRequestIsRefused",
	"secret of the fixtures built in":              "WrongSecretIsRefused",
	"first secret alone":                           "RotatedSecretIsAccepted",
	"last secret alone":                            "RotatedSecretIsAccepted",
	"empty secret accepted":                        "EmptySecretIsRefused",
	"opened without a secret":                      "EmptySecretIsRefused",
	"unknown setting accepted":                     "UnknownSettingIsRefused",
	"public_url not allowed":                       "UnknownSettingIsRefused",
	"secret in the error of Verify":                "NoSecretInErrors",
	"signature in the error of Verify":             "NoSecretInErrors",
	"secret in the error of Open":                  "NoSecretInErrors",
	"secret in the error of Decode":                "NoSecretInErrors",
	"id from the retry header":                     "RedeliveryHasSameIDs",
	"id from the time of signing":                  "RedeliveryHasSameIDs",
	"id from an unsigned header":                   "RedeliveryHasSameIDs",
	"id random":                                    "RedeliveryHasSameIDs",
	"digest from the headers":                      "RedeliveryHasSameIDs",
	"account from a header":                        "RedeliveryHasSameIDs",
	"id from the text":                             "FixturesHaveDistinctIDs",
	"id from the second":                           "FixturesHaveDistinctIDs",
	"missing id shared by all":                     "FixturesHaveDistinctIDs",
	"message key of nothing":                       "MissingIDIsNoKey",
	"id of nothing":                                "MissingIDIsNoKey",
	"id of content from the text alone":            "ContentMakesTheID",
	"id of content the same for all":               "ContentMakesTheID",
	"last of two keys counts where there is no id": "FirstOfDuplicateKeysCounts",
	"id that can't be stored":                      "BrokenBodyIsUnreadable",
	"conversation that can't be stored":            "BrokenBodyIsUnreadable",
	"digest missing":                               "EventsAreStorable",
	"kind unknown":                                 "EventsAreStorable",
	"edit with the key of its message":             "EventsAreStorable",
	"payload dropped":                              "EventsAreStorable",
	"message key through a float":                  "Golden",
	"message key from the event":                   "Golden",
	"message key the same for all":                 "SimulatedRequestIsGenuine",
	"last of two keys counts":                      "FirstOfDuplicateKeysCounts",
	"case of keys ignored":                         "FirstOfDuplicateKeysCounts",
	"unreadable is an error of its own":            "BrokenBodyIsUnreadable",
	"unreadable ignored":                           "UnreadableIsTold",
	"broken JSON read":                             "BrokenBodyIsUnreadable",
	"panics on a broken body":                      "BrokenBodyIsUnreadable",
	"panics on a control character":                "FuzzSeeds",
	"sample with a secret that there is not":       "SampleDecodes",
	"text not UTF-8":                               "BrokenBodyIsUnreadable",
	"time that JSON can't hold":                    "BrokenBodyIsUnreadable",
	"raw with bytes that are not UTF-8":            "BrokenBodyIsUnreadable",
	"raw not JSON":                                 "EventsAreStorable",
	"raw through floats":                           "RawIsWholeJSON",
	"raw not whole":                                "RawIsWholeJSON",
	"text remembered by id":                        "DecodeNeedsOnlyThePayload",
	"body kept":                                    "BodyIsNotKept",
	"other body read than verified, under load":    "Concurrent",
	"simulator does not sign":                      "SimulatedRequestIsGenuine",
	"simulator signs with the built-in secret":     "RotatedSecretIsAccepted",
	"simulated retry is another event":             "SimulatedRequestIsGenuine",
	"simulated events share an id":                 "SimulatedRequestIsGenuine",
	"simulated events share an id unless numbers":  "SimulatedRequestIsGenuine",
	"simulated messages share a key":               "SimulatedRequestIsGenuine",
	"simulated text is another":                    "SimulatedRequestIsGenuine",
	"simulated senders share a conversation":       "SimulatedRequestIsGenuine",
	"simulated nobody writes":                      "SimulatedRequestIsGenuine",
}

// wanted is the share of the mutants that the kit has to catch, in percent. That each of them
// is caught is asked for beside it.
const wanted = 95

// TestKitMutationScore runs every mutant and reports the figure by which the kit is judged.
func TestKitMutationScore(t *testing.T) {
	t.Parallel()
	var caught atomic.Int32
	t.Run("mutants", func(t *testing.T) { // ends when all of them have ended
		for _, bug := range slices.Sorted(maps.Keys(mutants)) {
			t.Run(bug, func(t *testing.T) {
				t.Parallel()
				if err := channeltest.Check("testdata/toy", mutants[bug], toySpec("")); err != nil {
					t.Fatalf("%s fails without the bug: %v", mutants[bug], err)
				}
				if err := channeltest.Check("testdata/toy", mutants[bug], toySpec(bug)); err == nil {
					t.Fatalf("%s did not fail", mutants[bug])
				}
				caught.Add(1)
			})
		}
	})
	score := 100 * float64(caught.Load()) / float64(len(mutants))
	t.Logf("kit mutation score: %d of %d mutants caught (%.1f %%)", caught.Load(), len(mutants), score)
	if score < wanted {
		t.Errorf("the kit catches %.1f %% of the mutants; want %d %% or more", score, wanted)
	}
}

func TestEveryCheckCatchesAMutant(t *testing.T) {
	t.Parallel()
	catching := slices.Collect(maps.Values(mutants))
	for _, name := range channeltest.Names() {
		if !slices.Contains(catching, name) {
			t.Errorf("no mutant shows that %s can fail", name)
		}
	}
}
