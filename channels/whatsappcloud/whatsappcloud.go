// Package whatsappcloud is the channel of Meta's WhatsApp Cloud API. One installation is one
// business phone number; a Meta app calls one address for all the numbers of all its customers.
//
// Meta signs a request with the app's secret, so it is proved before any tenant is known. A
// request may hold up to a thousand events of several numbers, and one that comes again may
// hold other events beside those it held before: each event has a key, a digest and a payload
// of its own, and nothing is concluded from a request as a whole.
package whatsappcloud

import (
	"net/http"
	"time"

	"github.com/admitone/admitone/channels"
)

const (
	appSecret   = "app_secret"
	verifyToken = "verify_token"
)

// New returns the channel.
func New() channels.Channel {
	return channels.Channel{
		Name:     "whatsappcloud",
		Platform: "whatsappcloud",
		Proof:    headerSignature,
		Secrets:  []channels.Secret{{Name: appSecret}, {Name: verifyToken}},
		AppWide:  true,
		Methods:  []string{http.MethodPost, http.MethodGet},
		MaxBody:  4 << 20, // Meta sends up to 3 MB
		Vendor: channels.Vendor{
			EventID:    "message:wamid of messages[].id; status:wamid:status:recipient, in a group with :participant",
			Scope:      "business phone number (metadata.phone_number_id)",
			Fallback:   "fallback: and a digest of (entry.id, field, entry.time, value) where Meta gives no id: errors, payment statuses, every field but messages",
			MessageKey: "message:wamid",
			Unnumbered: "none",
			// Meta tells no deadline, only that an answer should take well below a second. Where
			// this is longer than its patience, the event comes again and is a duplicate.
			Deadline:    10 * time.Second,
			RetryWindow: 7 * 24 * time.Hour,
			ComesAgain:  true,
			Retries:     []time.Duration{0},
			Behaviour:   "Whatever is not answered with exactly 200 comes again at once, then ever more rarely for 7 days, and to every app that is subscribed to the account.",
			Source:      "https://developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/create-webhook-endpoint",
		},
		Open:     open,
		Decode:   decode,
		Simulate: simulate,
		Example: channels.Credentials{
			Account: "106000000000001",
			Secrets: map[string][]string{
				appSecret:   {"demo-whatsapp-app-secret"},
				verifyToken: {"demo-whatsapp-verify-token"},
			},
		},
	}
}
