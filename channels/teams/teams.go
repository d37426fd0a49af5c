// Package teams is the channel of Microsoft Teams bots, which the Bot Framework's connector
// calls with activities. An app-wide address serves every Microsoft tenant that a bot is
// installed in; an installation may also have a bot, and so an address, of its own.
//
// What proves the sender is a JSON Web Token signed by a key that Microsoft publishes. It
// tells for which bot an activity is and where answers go, and nothing else of it: it is good
// for about an hour, for any body with that service URL. So a captured request stays authentic
// that long, and the ledger is the guard against its replay. What stands in the body, the
// tenant too, is believed because Microsoft's connector wrote it; and it is believed of Teams
// alone, since the clients of other channels of a bot, such as Direct Line, write the
// channelData with the tenant in it themselves. Activities of other channels are ignored.
//
// Tokens are read by github.com/golang-jwt/jwt/v5, the most used library for them, which
// checks them at the time of the request. Keys are read by github.com/MicahParks/jwkset. The
// keys' endorsements, which are Microsoft's own, are known to neither, nor to the libraries
// that join the two: those keep keys up to date in a goroutine of their own, which an
// endpoint must not start. So keys are fetched here, when a request needs them.
//
// The rules are Microsoft's, of learn.microsoft.com, "Authentication with the Bot Connector
// API", and of the activity schema in github.com/microsoft/botframework-sdk,
// specs/botframework-activity, but where a comment names another source.
package teams

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/admitone/admitone/channels"
)

// publicMetadata is where Microsoft tells of the public cloud. Those of governments have others.
const publicMetadata = "https://login.botframework.com/v1/.well-known/openidconfiguration"

// exampleMetadata is what a bot would trust that only simulated requests are for: the public
// part of the simulator's key, as data, so that nothing needs to be fetched.
//
//go:embed simulator.metadata.txt
var exampleMetadata string

// New returns the channel of Microsoft Teams bots.
func New() channels.Channel {
	return channels.Channel{
		Name:     "teams",
		Platform: "teams",
		AppWide:  true,
		Settings: []string{"app_id", "openid_metadata"},
		Vendor: channels.Vendor{
			EventID:    "type:id and a digest of (app_id, conversation.id, type, id), with timestamp for messageUpdate, messageDelete and messageReaction, which share the id of their message",
			Scope:      "bot and conversation",
			Fallback:   "fallback: and a digest of (app_id, conversation.id, type, timestamp, from.id, text, value), for types that bear an id",
			MessageKey: "message:id and a digest of (app_id, conversation.id, id)",
			Unnumbered: "activities without id of other types, such as typing",

			Deadline: 15 * time.Second,
			// Two requests, and after some 30 s two more: github.com/microsoft/botbuilder-dotnet/issues/5005.
			RetryWindow: time.Minute,
			// It does once more, and soon: an outage that lasts longer loses the activity.
			ComesAgain: false,
			Retries:    []time.Duration{0},
			Behaviour:  "sends an activity once more after an error; after no answer in 15 s too, and 30 s later two times under a new timestamp and, of invokes and card actions, a new id",
			Source:     "https://learn.microsoft.com/microsoftteams/platform/bots/bot-basics, github.com/MicrosoftDocs/msteams-docs/issues/1571, github.com/microsoft/botbuilder-dotnet/issues/5005",
		},
		Open:     open,
		Decode:   decode,
		Simulate: simulate,
		Example: channels.Credentials{
			Account:  "00000000-0000-4000-8000-00000000de30",
			Settings: channels.Settings{"app_id": "00000000-0000-4000-8000-0000000000b0", "openid_metadata": exampleMetadata},
		},
	}
}

// An endpoint reads the requests for one bot.
type endpoint struct {
	appID string
	keys  *keyring
}

var _ channels.Endpoint = (*endpoint)(nil)

// An unserved endpoint is that of an installation which has no bot of its own: it is reached
// by the app-wide address, and believes nobody who calls its own.
type unserved struct{}

func (unserved) Verify(*channels.Request) error {
	return refuse("the installation has no app_id; the app-wide address serves it")
}

func (unserved) Extract(*channels.Request) (channels.Batch, error) {
	return channels.Batch{}, nil
}

// settings are those of an installation, or of the app-wide section.
type settings struct {
	AppID    string `yaml:"app_id"`
	Metadata string `yaml:"openid_metadata"`
}

// open fetches nothing: a server must start while Microsoft is out of reach.
func open(c channels.Credentials) (channels.Endpoint, error) {
	var s settings
	if err := c.Settings.Decode(&s); err != nil {
		return nil, err
	}
	if c.Account != "" && s == (settings{}) {
		return unserved{}, nil
	}
	if strings.TrimSpace(s.AppID) == "" {
		return nil, errors.New("settings: app_id: missing: any bot's token would do")
	}
	if s.Metadata == "" {
		s.Metadata = publicMetadata
	}
	if err := checkAddress(s.Metadata); err != nil {
		return nil, fmt.Errorf("settings: openid_metadata: %w", err)
	}
	return &endpoint{appID: s.AppID, keys: newKeyring(s.Metadata)}, nil
}
