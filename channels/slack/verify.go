package slack

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// As http.Header spells them.
const (
	headerTimestamp = "X-Slack-Request-Timestamp"
	headerSignature = "X-Slack-Signature"
	headerRetryNum  = "X-Slack-Retry-Num"
)

const (
	// tolerance is Slack's own: a request is genuine up to and including 5 min off, either way.
	tolerance = 5 * time.Minute
	// version begins a signature and the text that is signed.
	version = "v0"
	// maxSSLCheck bounds what is parsed for a stranger. A genuine check holds a token and a flag.
	maxSSLCheck = 4 << 10
)

const signatureLen = len(version) + len("=") + 2*sha256.Size

type endpoint struct {
	secrets []*sync.Pool // of *signer, one pool per signing secret
}

var _ channels.Endpoint = endpoint{}

func open(c channels.Credentials) (channels.Endpoint, error) {
	if err := c.Settings.Decode(&struct{}{}); err != nil {
		return nil, err
	}
	if len(c.Secrets[signingSecret]) == 0 {
		return nil, fmt.Errorf("%s: missing", signingSecret)
	}
	var e endpoint
	for _, secret := range c.Secrets[signingSecret] {
		if strings.TrimSpace(secret) == "" {
			return nil, fmt.Errorf("%s: empty", signingSecret)
		}
		e.secrets = append(e.secrets, &sync.Pool{New: func() any { return newSigner(secret) }})
	}
	return e, nil
}

// A signer makes signatures with one secret. Not safe for concurrent use.
type signer struct {
	mac  hash.Hash
	head []byte // reused between requests, as are the arrays
	sum  [sha256.Size]byte
	text [signatureLen]byte
}

func newSigner(secret string) *signer {
	// The secret looks like hex, but Slack uses its text as the key.
	return &signer{mac: hmac.New(sha256.New, []byte(secret))}
}

// sign returns the signature of body at timestamp. It is valid until the next call.
func (s *signer) sign(timestamp string, body []byte) []byte {
	s.head = append(s.head[:0], version+":"...)
	s.head = append(s.head, timestamp...)
	s.head = append(s.head, ':')
	s.mac.Reset()
	s.mac.Write(s.head)
	s.mac.Write(body)
	n := copy(s.text[:], version+"=")
	hex.Encode(s.text[n:], s.mac.Sum(s.sum[:0]))
	return s.text[:]
}

func (e endpoint) Verify(r *channels.Request) error {
	timestamps, signatures := r.Header[headerTimestamp], r.Header[headerSignature]
	if len(timestamps) == 0 && len(signatures) == 0 && isSSLCheck(r.Body) {
		return nil
	}
	if len(timestamps) != 1 || len(signatures) != 1 {
		return fmt.Errorf("%w: %d timestamps and %d signatures, one of each is needed",
			domain.ErrUnauthenticated, len(timestamps), len(signatures))
	}
	seconds, err := strconv.ParseInt(timestamps[0], 10, 64)
	if err != nil {
		return fmt.Errorf("%w: the timestamp is no number of seconds", domain.ErrUnauthenticated)
	}
	if r.Now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return fmt.Errorf("%w: signed more than %s ago or ahead", domain.ErrUnauthenticated, tolerance)
	}
	if len(signatures[0]) != signatureLen {
		return fmt.Errorf("%w: not a signature of version %s", domain.ErrUnauthenticated, version)
	}
	var got [signatureLen]byte
	copy(got[:], signatures[0])
	for _, pool := range e.secrets {
		s := pool.Get().(*signer)
		same := hmac.Equal(s.sign(timestamps[0], r.Body), got[:])
		pool.Put(s)
		if same {
			return nil
		}
	}
	return fmt.Errorf("%w: the signature is of no secret here", domain.ErrUnauthenticated)
}

// isSSLCheck reports whether body is the check of a certificate that Slack makes now and
// then. Its own libraries accept one unsigned, and nothing follows from it. A command whose
// text speaks of ssl_check is none, so the form is parsed and not searched.
func isSSLCheck(body []byte) bool {
	if len(body) > maxSSLCheck || isJSON(body) {
		return false
	}
	form, err := url.ParseQuery(string(body))
	return err == nil && sslCheck(form)
}

func sslCheck(form url.Values) bool {
	return form.Get("ssl_check") == "1" && !form.Has("command") && !form.Has("payload")
}

// isJSON tells the two forms apart. A form of Slack's begins with the name of a field.
func isJSON(body []byte) bool {
	body = bytes.TrimLeft(body, " \t\r\n")
	return len(body) > 0 && (body[0] == '{' || body[0] == '[')
}

// vendorAttempt returns the retry count that Slack tells, 0 at the first delivery.
func vendorAttempt(h http.Header) int {
	n, err := strconv.Atoi(h.Get(headerRetryNum))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
