// Package twilio receives what Twilio sends about SMS, MMS and WhatsApp messages: inbound
// messages and status callbacks as forms, and Event Streams as CloudEvents in JSON.
//
// Twilio signs the URL that it calls and the form's parameters, but no time and no number
// used once: a captured request stays authentic for ever, so the ledger is the only guard
// against its replay. A 5xx is final unless the URL says otherwise, so events must be taken
// at the first attempt. Whatever text an inbound message is answered with goes to the person
// who wrote it, so the answer is an empty TwiML document.
package twilio

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/admitone/admitone/channels"
)

const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"
)

// New returns the channel.
func New() channels.Channel {
	return channels.Channel{
		Name:     "twilio",
		Platform: "twilio",
		Proof:    signatureHeader,
		Secrets: []channels.Secret{
			{Name: authToken},
			{Name: sharedKey, Optional: true},
		},
		AppWide:  true,
		Methods:  []string{http.MethodPost, http.MethodGet},
		Vendor:   vendor(),
		Open:     open,
		Decode:   decode,
		Simulate: simulate,
		Example: channels.Credentials{
			Account: "AC0000000000000000000000000000a001",
			Secrets: map[string][]string{authToken: {"demo-twilio-auth-token"}},
		},
	}
}

func vendor() channels.Vendor {
	return channels.Vendor{
		EventID: "inbound in:MessageSid; status st:MessageSid:MessageStatus, with :ErrorCode if there is one; " +
			"Event Streams es:id (MessageSid may stand in SmsMessageSid or SmsSid, MessageStatus in SmsStatus)",
		Scope:      "account",
		Fallback:   "fallback: and a digest of the sorted parameters or of the CloudEvent",
		MessageKey: "message:MessageSid",
		Unnumbered: "none",
		// A webhook is given up 15 s after it began, connection and retries included; Event
		// Streams waits 5 s for its sink.
		Deadline: 15 * time.Second,
		// That of Event Streams. The retries of a webhook end within its 15 s.
		RetryWindow: 4 * time.Hour,
		ComesAgain:  false,
		Behaviour: "a webhook is tried once more only if no connection came about, then the fallback URL is called at once for " +
			"an inbound message; a 5xx is final unless the URL ends in #rp=5xx. Event Streams comes again for up to 4 hours",
		Source: "https://www.twilio.com/docs/usage/webhooks/webhooks-connection-overrides, " +
			"https://www.twilio.com/docs/events/event-delivery-and-duplication",
	}
}

// open prepares the keys of one installation, or of the app-wide section.
func open(c channels.Credentials) (channels.Endpoint, error) {
	if err := c.Settings.Decode(&struct{}{}); err != nil {
		return nil, fmt.Errorf("twilio: %w", err)
	}
	tokens, keys := c.Secrets[authToken], c.Secrets[sharedKey]
	if len(tokens) == 0 {
		return nil, errors.New("twilio: " + authToken + " is missing")
	}
	e := new(endpoint)
	for _, s := range tokens {
		if s == "" {
			return nil, errors.New("twilio: " + authToken + " is empty")
		}
		e.tokens = append(e.tokens, newAuthTokenKey(s))
	}
	for _, s := range keys {
		if s == "" {
			return nil, errors.New("twilio: " + sharedKey + " is empty")
		}
		e.shared = append(e.shared, newSharedKey(s))
	}
	return e, nil
}
