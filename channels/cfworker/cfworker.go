// Package cfworker is the channel of relayed mail: a Cloudflare Email Worker, or whoever else
// receives mail, posts each mail as it came.
//
// A request is the raw mail as message/rfc822, signed by the rules of Standard Webhooks
// (https://www.standardwebhooks.com). These sign the id, the time and the body of a request,
// but no other header, and a mail does not tell for which mailbox it came. So the id is a
// hash of envelope and mail: who changes the envelope changes the id, and so the signature.
//
// What makes two mails one is decided by package email, for every channel of mail.
package cfworker

import (
	"net/http"
	"time"

	"github.com/admitone/admitone/channels"
)

const signingKey = "signing_key"

// maxBody leaves room above the 25 MiB that Cloudflare accepts at most
// (https://developers.cloudflare.com/email-routing/limits/).
const maxBody = 26 << 20

// New returns the channel of relayed mail.
func New() channels.Channel {
	return channels.Channel{
		Name:     "cfworker",
		Platform: "email",
		Proof:    headerSignature,
		Secrets:  []channels.Secret{{Name: signingKey}},
		Settings: []string{"addresses"},
		MaxBody:  maxBody,
		Vendor: channels.Vendor{
			EventID:    "m:Message-ID",
			Scope:      "mailbox",
			Fallback:   "f:fingerprint of (From, Date, Subject, body); of mail without Date, @ and the hour of its arrival too",
			MessageKey: "message:event id",
			Unnumbered: "none",

			// A sender's server waits 10 min for the end of the mail to be acknowledged
			// (RFC 5321 4.5.3.2.6); a sender by Standard Webhooks for 15 to 30 s.
			Deadline: 15 * time.Second,
			// RFC 5321 4.5.4.1: at least 4 to 5 days, at least 30 min between attempts, two
			// within the first hour and then one every two or three hours.
			RetryWindow: 5 * 24 * time.Hour,
			ComesAgain:  true,
			Busy:        http.StatusTooManyRequests, // the Worker throws, as on 503; other relays by Standard Webhooks slow down
			Retries:     []time.Duration{30 * time.Minute, 30 * time.Minute, 2 * time.Hour, 3 * time.Hour},
			Behaviour:   "the Worker throws on anything but 2xx, an unknown recipient (404) and an oversize (413), which is a temporary failure to the sender's mail server; that tries again for 4 to 5 days",
			Source:      "https://www.rfc-editor.org/rfc/rfc5321#section-4.5.4.1",
		},
		Open:     open,
		Decode:   decode,
		Simulate: simulate,
		Example: channels.Credentials{
			Account:  "desk@example.com",
			Secrets:  map[string][]string{signingKey: {"whsec_ZGVtby1jZndvcmtlci1zaWduaW5nLWtleS1vZi1ub2JvZHkh"}}, // "demo-cfworker-signing-key-of-nobody!"
			Settings: channels.Settings{"addresses": []any{"desk@example.com"}},
		},
	}
}
