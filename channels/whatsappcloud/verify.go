package whatsappcloud

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

const (
	headerSignature = "X-Hub-Signature-256"
	scheme          = "sha256="
	signatureLen    = len(scheme) + 2*sha256.Size
)

type endpoint struct {
	appWide bool
	apps    []*sync.Pool        // of *signer, one pool per app secret
	tokens  [][sha256.Size]byte // digests of the verify tokens: values of one length compare in constant time
}

var _ channels.Endpoint = endpoint{}

func open(c channels.Credentials) (channels.Endpoint, error) {
	if err := c.Settings.Decode(&struct{}{}); err != nil {
		return nil, err
	}
	for _, name := range []string{appSecret, verifyToken} {
		if len(c.Secrets[name]) == 0 {
			return nil, fmt.Errorf("%s: missing", name)
		}
		for i, secret := range c.Secrets[name] {
			if strings.TrimSpace(secret) == "" {
				return nil, fmt.Errorf("%s: number %d is empty", name, i+1)
			}
		}
	}
	e := endpoint{appWide: c.Account == ""}
	for _, secret := range c.Secrets[appSecret] {
		e.apps = append(e.apps, &sync.Pool{New: func() any { return newSigner(secret) }})
	}
	for _, token := range c.Secrets[verifyToken] {
		e.tokens = append(e.tokens, sha256.Sum256([]byte(token)))
	}
	return e, nil
}

// A signer makes signatures with one app secret. Not safe for concurrent use.
type signer struct {
	mac  hash.Hash
	sum  [sha256.Size]byte // reused between requests, as is text
	text [signatureLen]byte
}

func newSigner(secret string) *signer {
	// The secret looks like hex, but Meta uses its text as the key.
	return &signer{mac: hmac.New(sha256.New, []byte(secret))}
}

// sign returns the signature of body. It is valid until the next call.
func (s *signer) sign(body []byte) []byte {
	s.mac.Reset()
	s.mac.Write(body)
	hex.Encode(s.text[copy(s.text[:], scheme):], s.mac.Sum(s.sum[:0]))
	return s.text[:]
}

// Verify looks at the bytes as received: Meta signs the escaped form that it sends, which no
// encoder brings back once it has been decoded.
func (e endpoint) Verify(r *channels.Request) error {
	if r.Method == http.MethodGet {
		return e.verifyHandshake(r.URL)
	}
	signatures := r.Header[headerSignature]
	if len(signatures) != 1 {
		return fmt.Errorf("%w: %s stands there %d times, not once", domain.ErrUnauthenticated, headerSignature, len(signatures))
	}
	if len(signatures[0]) != signatureLen {
		return fmt.Errorf("%w: %s is no %s and 64 hex digits", domain.ErrUnauthenticated, headerSignature, scheme)
	}
	var got [signatureLen]byte
	copy(got[:], signatures[0])
	for _, pool := range e.apps {
		s := pool.Get().(*signer)
		same := hmac.Equal(s.sign(r.Body), got[:])
		pool.Put(s)
		if same {
			return nil
		}
	}
	return fmt.Errorf("%w: the signature is of no app secret here", domain.ErrUnauthenticated)
}

// verifyHandshake proves the request that Meta makes when an address is entered, and whenever
// its settings change: it bears no signature, but the token that was entered with the address.
func (e endpoint) verifyHandshake(address string) error {
	query, err := parseQuery(address)
	if err != nil {
		return fmt.Errorf("%w: the query can't be read", domain.ErrUnauthenticated)
	}
	modes, tokens := query["hub.mode"], query["hub.verify_token"]
	if len(modes) != 1 || modes[0] != "subscribe" || len(tokens) != 1 {
		return fmt.Errorf("%w: a GET is the subscription's handshake, with one token, or nothing", domain.ErrUnauthenticated)
	}
	got := sha256.Sum256([]byte(tokens[0]))
	equal := 0
	for i := range e.tokens {
		equal |= subtle.ConstantTimeCompare(got[:], e.tokens[i][:])
	}
	if equal == 0 {
		return fmt.Errorf("%w: hub.verify_token is wrong", domain.ErrUnauthenticated)
	}
	return nil
}

// handshake returns the answer that Meta waits for.
func handshake(address string) (channels.Batch, error) {
	query, err := parseQuery(address)
	if err != nil || query.Get("hub.challenge") == "" {
		return channels.Batch{}, fmt.Errorf("%w: a handshake without hub.challenge", domain.ErrUnreadable)
	}
	return channels.Batch{Reply: &channels.Reply{ContentType: "text/plain", Body: []byte(query.Get("hub.challenge"))}}, nil
}

func parseQuery(address string) (url.Values, error) {
	_, query, _ := strings.Cut(address, "?")
	// The error would quote the query, and with it the token: no caller passes it on.
	return url.ParseQuery(query)
}
