// Package slack is the channel of Slack apps: Events API, slash commands, interactivity,
// and the handshakes that Slack makes beside them.
//
// One signing secret stands for one app, and all requests of an app bear the same kind of
// signature, so one endpoint reads them all and tells them apart by their bytes alone:
// JSON begins with a brace, which no form of Slack's does. Headers other than those of the
// signature are not signed and decide nothing.
//
// The rules are Slack's own, as its documentation at docs.slack.dev states them:
// apis/events-api, authentication/verifying-requests-from-slack,
// interactivity/implementing-slash-commands and reference/events.
package slack

import (
	"time"

	"github.com/admitone/admitone/channels"
)

const signingSecret = "signing_secret"

// The media types of the two forms in which Slack sends, as Payload.MediaType has them.
const (
	mediaJSON = "application/json"
	mediaForm = "application/x-www-form-urlencoded"
)

// New returns the channel of Slack apps.
func New() channels.Channel {
	return channels.Channel{
		Name:     "slack",
		Platform: "slack",
		Proof:    headerSignature,
		Secrets:  []channels.Secret{{Name: signingSecret}},
		AppWide:  true,
		Vendor: channels.Vendor{
			EventID:    "api_app_id/event_id",
			Scope:      "app",
			Fallback:   "fallback:digest of (api_app_id, team_id, event.type, event.subtype, channel, user, item, event_ts or ts); of the body if it has no timestamp",
			MessageKey: "message:channel:ts",
			Unnumbered: "slash commands, interactivity, app_rate_limited",

			Deadline: 3 * time.Second,
			// Delayed Events: hourly for 24 h after the third retry, which comes some 6 min after the first delivery.
			RetryWindow: 24*time.Hour + 6*time.Minute,
			ComesAgain:  true,
			Retries:     []time.Duration{0, time.Minute, 5 * time.Minute},
			Behaviour:   "sends an event again at once, after 1 min and after 5 min, with Delayed Events then hourly for 24 h; never a command or an interaction",
			Source:      "https://docs.slack.dev/apis/events-api",
		},
		Open:     open,
		Decode:   decode,
		Simulate: simulate,
		Example: channels.Credentials{
			Account: "T0ACME001",
			Secrets: map[string][]string{signingSecret: {"demo-slack-signing-secret"}},
		},
	}
}
