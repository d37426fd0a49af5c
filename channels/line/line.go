// Package line is the channel of LINE Official Accounts, which the LINE Platform calls by the
// webhook of the Messaging API. One installation is one account's bot.
//
// A request may hold several events. One that is sent again differs in deliveryContext, and so
// in its bytes and signature, and may come in other company than before: each event has a key,
// a digest and a payload of its own. isRedelivery says that LINE got no answer and not that
// the event was taken in, so it decides nothing.
package line

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"strings"
	"sync"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

const (
	channelSecret = "channel_secret"
	// As http.Header spells it.
	headerSignature = "X-Line-Signature"
)

// signatureLen is the length of the Base64 of a SHA-256.
const signatureLen = (sha256.Size + 2) / 3 * 4

// New returns the channel.
func New() channels.Channel {
	return channels.Channel{
		Name:     "line",
		Platform: "line",
		Proof:    headerSignature,
		Secrets:  []channels.Secret{{Name: channelSecret}},
		AppWide:  true,
		Vendor: channels.Vendor{
			EventID:    "webhookEventId",
			Scope:      "bot (destination)",
			Fallback:   "fallback: and a digest of the event without deliveryContext",
			MessageKey: "message:message.id",
			Unnumbered: "none",
			Deadline:   2 * time.Second,
			// LINE keeps to itself how long it tries; a day is a guess on the safe side.
			RetryWindow: 24 * time.Hour,
			// A refusal loses the event unless redelivery is switched on, which a channel can't see.
			ComesAgain: false,
			Behaviour:  "Nothing comes again unless webhook redelivery is switched on for the channel; then whatever is not answered 20x does, for a time and at intervals that LINE does not tell. A server that fails for long is called no more.",
			Source:     "https://developers.line.biz/en/docs/messaging-api/receiving-messages/",
		},
		Open:     open,
		Decode:   decode,
		Simulate: simulate,
		Example: channels.Credentials{
			Account: "U0000000000000000000000000000demo",
			Secrets: map[string][]string{channelSecret: {"demo-line-channel-secret"}},
		},
	}
}

type endpoint struct {
	secrets []*sync.Pool // of *signer, one pool per channel secret
}

var _ channels.Endpoint = endpoint{}

func open(c channels.Credentials) (channels.Endpoint, error) {
	if err := c.Settings.Decode(&struct{}{}); err != nil {
		return nil, err
	}
	if len(c.Secrets[channelSecret]) == 0 {
		return nil, fmt.Errorf("%s: missing", channelSecret)
	}
	var e endpoint
	for i, secret := range c.Secrets[channelSecret] {
		if strings.TrimSpace(secret) == "" {
			return nil, fmt.Errorf("%s: number %d is empty", channelSecret, i+1)
		}
		e.secrets = append(e.secrets, &sync.Pool{New: func() any { return newSigner(secret) }})
	}
	return e, nil
}

// A signer makes signatures with one channel secret. Not safe for concurrent use.
type signer struct {
	mac  hash.Hash
	sum  [sha256.Size]byte // reused between requests, as is text
	text [signatureLen]byte
}

func newSigner(secret string) *signer {
	// The secret looks like hex, but LINE uses its text as the key.
	return &signer{mac: hmac.New(sha256.New, []byte(secret))}
}

// sign returns the signature of body. It is valid until the next call.
func (s *signer) sign(body []byte) []byte {
	s.mac.Reset()
	s.mac.Write(body)
	base64.StdEncoding.Encode(s.text[:], s.mac.Sum(s.sum[:0]))
	return s.text[:]
}

func (e endpoint) Verify(r *channels.Request) error {
	signatures := r.Header[headerSignature]
	if len(signatures) != 1 {
		return fmt.Errorf("%w: %s stands there %d times, not once", domain.ErrUnauthenticated, headerSignature, len(signatures))
	}
	if len(signatures[0]) != signatureLen {
		return fmt.Errorf("%w: %s has %d characters, not %d", domain.ErrUnauthenticated, headerSignature, len(signatures[0]), signatureLen)
	}
	// The text is compared and not what it decodes to: one signature has one text.
	var got [signatureLen]byte
	copy(got[:], signatures[0])
	for _, pool := range e.secrets {
		s := pool.Get().(*signer)
		same := hmac.Equal(s.sign(r.Body), got[:])
		pool.Put(s)
		if same {
			return nil
		}
	}
	return fmt.Errorf("%w: the signature is of no channel secret here", domain.ErrUnauthenticated)
}
