// Package telegram is the channel of Telegram bots, which Telegram's Bot API server calls by
// webhook. One installation is one bot.
//
// Telegram signs nothing: what proves it is a token of the operator's choice that comes with
// every request. Whoever holds it can send anything, so each bot has its own.
package telegram

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

const (
	secretName   = "secret_token"
	secretHeader = "X-Telegram-Bot-Api-Secret-Token"
	maxSecret    = 256
)

// secretForm is what setWebhook accepts, https://core.telegram.org/bots/api#setwebhook.
var secretForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

// New returns the channel.
func New() channels.Channel {
	return channels.Channel{
		Name:     "telegram",
		Platform: "telegram",
		Proof:    secretHeader,
		Secrets:  []channels.Secret{{Name: secretName}},
		MaxBody:  1 << 20, // Telegram keeps no update beyond 512 KiB in its queue
		Vendor: channels.Vendor{
			EventID:    "update_id",
			Scope:      "bot: two bots can bear the same number at the same time",
			Fallback:   "none: what has no update_id is not an Update, and is parked as unreadable",
			MessageKey: "business_connection_id where there is one, chat.id and message_id",
			Unnumbered: "none",
			Deadline:   time.Minute,
			// 24 h after the date of the message; clicks and queries are dropped earlier.
			RetryWindow: 24 * time.Hour,
			ComesAgain:  true,
			Retries: []time.Duration{
				0, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute,
			},
			Behaviour: "Repeats an update until it is answered 2xx or expires, and holds back the rest of its chat meanwhile; clicks expire after 150 s, inline queries after 30 s.",
			Source:    "https://core.telegram.org/bots/api#setwebhook; github.com/tdlib/telegram-bot-api, WebhookActor.cpp and Client.cpp",
		},
		Open:     open,
		Decode:   decode,
		Simulate: simulate,
		Example: channels.Credentials{
			Account: "7000000001",
			Secrets: map[string][]string{secretName: {"demo-telegram-secret-token"}},
		},
	}
}

// An endpoint holds the SHA-256 of each token: values of one length compare in constant time.
type endpoint struct {
	tokens [][sha256.Size]byte
}

func open(c channels.Credentials) (channels.Endpoint, error) {
	if err := c.Settings.Decode(&struct{}{}); err != nil {
		return nil, err
	}
	if len(c.Secrets[secretName]) == 0 {
		return nil, errors.New("secret_token: missing: anybody could send in Telegram's name")
	}
	var e endpoint
	for i, token := range c.Secrets[secretName] {
		if !secretForm.MatchString(token) {
			return nil, fmt.Errorf("secret_token: number %d is not 1 to %d characters of A-Z a-z 0-9 _ -", i+1, maxSecret)
		}
		e.tokens = append(e.tokens, sha256.Sum256([]byte(token)))
	}
	return e, nil
}

func (e endpoint) Verify(r *channels.Request) error {
	values := r.Header[secretHeader]
	if len(values) != 1 {
		return fmt.Errorf("%w: %s stands there %d times, not once", domain.ErrUnauthenticated, secretHeader, len(values))
	}
	var token [maxSecret]byte
	if len(values[0]) > len(token) {
		return fmt.Errorf("%w: %s is longer than a token can be", domain.ErrUnauthenticated, secretHeader)
	}
	got := sha256.Sum256(token[:copy(token[:], values[0])])
	equal := 0
	for i := range e.tokens {
		equal |= subtle.ConstantTimeCompare(got[:], e.tokens[i][:])
	}
	if equal == 0 {
		return fmt.Errorf("%w: %s is wrong", domain.ErrUnauthenticated, secretHeader)
	}
	return nil
}

func (endpoint) Extract(r *channels.Request) (channels.Batch, error) {
	u, err := read(r.Body)
	if err != nil {
		return channels.Batch{}, err
	}
	return channels.Batch{Events: []domain.Event{{
		ID:           domain.StorableID(u.id),
		MessageKey:   u.messageKey(),
		Kind:         u.kind(),
		Conversation: u.conversation(),
		Digest:       u.digest(),
		Payload:      domain.Payload{MediaType: "application/json", Body: r.Body},
	}}}, nil
}
