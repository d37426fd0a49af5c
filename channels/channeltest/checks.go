package channeltest

// checks returns the promises of a channel, in the order in which they are best read.
func checks() []check {
	return []check{
		{"Complete", "a channel tells everything that routes, configuration and the key table are made from", always, complete},
		{"SampleDecodes", "sample.yaml can be used as it stands, and README.md shows it", always, sampleDecodes},
		{"Answers", "no answer is one that the vendor would show to a user", always, answers},

		{"GenuineIsAccepted", "what the vendor sent is accepted", always, genuineIsAccepted},
		{"ForgedIsRefused", "what the vendor did not send is refused", hasRefused, forgedIsRefused},
		{"TamperedIsRefused", "the signature covers every byte", bodySigned, tamperedIsRefused},
		{"UnsignedIsRefused", "a request without proof is refused", always, unsignedIsRefused},
		{"EachSignedHeaderIsNeeded", "no signed header may be left out", hasSignedHeaders, eachSignedHeaderIsNeeded},
		{"HeaderVariantsAreRefused", "a signed header counts only as the vendor writes it, once", hasSignedHeaders, headerVariantsAreRefused},
		{"OldRequestIsRefused", "a captured request can't be used once it is older than the tolerance", signsTime, oldRequestIsRefused},
		{"FutureRequestIsRefused", "a request from further ahead than the tolerance is refused", signsTime, futureRequestIsRefused},
		{"WrongSecretIsRefused", "a request signed with another secret is refused", hasSecrets, wrongSecretIsRefused},
		{"EmptySecretIsRefused", "a channel can't be opened without its secrets", hasSecrets, emptySecretIsRefused},
		{"RotatedSecretIsAccepted", "each secret of a list is accepted and no other", hasSecrets, rotatedSecretIsAccepted},
		{"UnknownSettingIsRefused", "a setting that the channel does not know is an error that names it", always, unknownSettingIsRefused},
		{"NoSecretInErrors", "no error tells a secret", always, noSecretInErrors},

		{"Golden", "the fixtures give the events and the content in their golden files", always, golden},
		{"EventsAreStorable", "every event can be stored, decoded and dispatched", always, eventsAreStorable},
		{"FixturesHaveDistinctIDs", "events with other content have other ids", always, fixturesHaveDistinctIDs},
		{"ContentMakesTheID", "where the vendor gives no id, events with other content have other ids", hasByContent, contentMakesTheID},
		{"RedeliveryHasSameIDs", "the same bytes are the same event, whatever the headers say", always, redeliveryHasSameIDs},
		{"FirstOfDuplicateKeysCounts", "keys of JSON are matched in their exact case, and of two the first counts", always, firstOfDuplicateKeysCounts},
		{"UnreadableIsTold", "a delivery that can't be read, or is for nobody here, is told as such", hasUnreadable, unreadableIsTold},
		{"BrokenBodyIsUnreadable", "an authentic body of any form gives sound events or is unreadable", always, brokenBodyIsUnreadable},
		{"FuzzSeeds", "no authentic body makes the channel panic", always, fuzzSeeds},
		{"RawIsWholeJSON", "the application gets the vendor's payload whole, as JSON", always, rawIsWholeJSON},
		{"DecodeNeedsOnlyThePayload", "any instance can decode an event, at any later time", always, decodeNeedsOnlyThePayload},
		{"BodyIsNotKept", "nothing of a request is kept beyond the call", always, bodyIsNotKept},
		{"Concurrent", "an endpoint may be used by many requests at once", always, concurrent},
		{"MissingIDIsNoKey", "messages that lack their id are not taken for one another", always, missingIDIsNoKey},
		{"SimulatedRequestIsGenuine", "the simulated vendor does what the vendor does", always, simulatedRequestIsGenuine},
	}
}

func always(Spec) bool             { return true }
func bodySigned(s Spec) bool       { return s.BodySigned }
func signsTime(s Spec) bool        { return s.Tolerance > 0 }
func hasSignedHeaders(s Spec) bool { return len(s.SignedHeaders) > 0 }
func hasRefused(s Spec) bool       { return len(s.Refused) > 0 }
func hasSecrets(s Spec) bool       { return len(s.Credentials.Secrets) > 0 }
func hasByContent(s Spec) bool     { return len(s.ByContent) > 0 }
func hasUnreadable(s Spec) bool    { return len(s.Unreadable)+len(s.UnknownRecipient) > 0 }
