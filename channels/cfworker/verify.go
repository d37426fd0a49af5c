package cfworker

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
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
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
	headerFrom      = "Admitone-Mail-From"
	headerTo        = "Admitone-Rcpt-To"
)

const (
	// tolerance is how far the time of a request may be off, either way.
	tolerance = 5 * time.Minute
	// Standard Webhooks asks for keys of this many bytes.
	minKey, maxKey = 24, 64

	keyPrefix       = "whsec_"
	idPrefix        = "msg_"
	signaturePrefix = "v1,"
)

type endpoint struct {
	recipients recipients
	signers    *sync.Pool // of *signer
}

var _ channels.Endpoint = (*endpoint)(nil)

func open(c channels.Credentials) (channels.Endpoint, error) {
	r, err := newRecipients(c)
	if err != nil {
		return nil, err
	}
	keys, err := decodeKeys(c.Secrets[signingKey])
	if err != nil {
		return nil, err
	}
	return &endpoint{recipients: r, signers: &sync.Pool{New: func() any { return newSigner(keys) }}}, nil
}

// decodeKeys tells which of the secrets is unfit by its place in the list.
func decodeKeys(secrets []string) ([][]byte, error) {
	if len(secrets) == 0 {
		return nil, fmt.Errorf("%s: missing", signingKey)
	}
	keys := make([][]byte, 0, len(secrets))
	for i, secret := range secrets {
		encoded, ok := strings.CutPrefix(secret, keyPrefix)
		if !ok {
			return nil, fmt.Errorf("%s: number %d does not begin with %s", signingKey, i+1, keyPrefix)
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			// The library's error is dropped: it may hold a part of the key.
			return nil, fmt.Errorf("%s: number %d is not Base64 after %s", signingKey, i+1, keyPrefix)
		}
		if len(key) < minKey || len(key) > maxKey {
			return nil, fmt.Errorf("%s: number %d has %d bytes, not %d to %d", signingKey, i+1, len(key), minKey, maxKey)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Verify implements channels.Endpoint.
func (e *endpoint) Verify(r *channels.Request) error {
	if err := e.verify(r); err != nil {
		return fmt.Errorf("%w: %w", domain.ErrUnauthenticated, err)
	}
	return nil
}

func (e *endpoint) verify(r *channels.Request) error {
	id, err := single(r.Header, headerID)
	if err != nil {
		return err
	}
	timestamp, err := single(r.Header, headerTimestamp)
	if err != nil {
		return err
	}
	signature, err := single(r.Header, headerSignature)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseUint(timestamp, 10, 40)
	if err != nil {
		return fmt.Errorf("%s: no number of seconds", headerTimestamp)
	}
	if r.Now.Sub(time.Unix(int64(seconds), 0)).Abs() > tolerance {
		return fmt.Errorf("%s: more than %s off", headerTimestamp, tolerance)
	}
	env, err := readEnvelope(r.Header)
	if err != nil {
		return err
	}
	s, _ := e.signers.Get().(*signer)
	defer e.signers.Put(s)
	if !s.signed(signature, id, timestamp, r.Body) {
		return fmt.Errorf("%s: no signature in it fits", headerSignature)
	}
	if subtle.ConstantTimeCompare(s.id(env, r.Body), []byte(id)) != 1 {
		return fmt.Errorf("%s: is not that of this envelope and mail", headerID)
	}
	return nil
}

// An envelope is from whom to whom a mail was handed over, as the relay says.
type envelope struct {
	from string // empty for the null sender of bounces
	to   string
}

// readEnvelope returns the envelope in h. A null sender may arrive as no header at all,
// since proxies drop empty ones.
func readEnvelope(h http.Header) (envelope, error) {
	to, err := single(h, headerTo)
	if err != nil {
		return envelope{}, err
	}
	from := h.Get(headerFrom)
	if len(h[headerFrom]) > 1 {
		return envelope{}, fmt.Errorf("%s: stands more than once", headerFrom)
	}
	var env envelope
	if env.from, err = url.PathUnescape(from); err != nil {
		return envelope{}, fmt.Errorf("%s: not percent-encoded", headerFrom)
	}
	if env.to, err = url.PathUnescape(to); err != nil {
		return envelope{}, fmt.Errorf("%s: not percent-encoded", headerTo)
	}
	return env, nil
}

// single returns the value of a header that has to stand once.
func single(h http.Header, name string) (string, error) {
	if len(h[name]) != 1 || h[name][0] == "" {
		return "", fmt.Errorf("%s: missing, empty or doubled", name)
	}
	return h[name][0], nil
}

// A signer computes what is signed, one request at a time. A mail may have 25 MiB, so
// nothing is put together: the parts are written into the hashes.
type signer struct {
	macs   []hash.Hash // one per key
	digest hash.Hash
	text   []byte // what precedes the body
	sum    [sha256.Size]byte
	out    []byte
}

func newSigner(keys [][]byte) *signer {
	s := &signer{digest: sha256.New()}
	for _, key := range keys {
		s.macs = append(s.macs, hmac.New(sha256.New, key))
	}
	return s
}

// signed reports whether one of the signatures in list, which blanks separate, is one of the
// keys'. Standard Webhooks lists several while a sender changes its key.
func (s *signer) signed(list, id, timestamp string, body []byte) bool {
	for i := range s.macs {
		want := s.sign(i, id, timestamp, body)
		for candidate := range strings.SplitSeq(list, " ") {
			if subtle.ConstantTimeCompare([]byte(candidate), want) == 1 {
				return true
			}
		}
	}
	return false
}

// sign returns the signature with key i, which is good until the next call of s.
func (s *signer) sign(i int, id, timestamp string, body []byte) []byte {
	s.text = append(s.text[:0], id...)
	s.text = append(s.text, '.')
	s.text = append(s.text, timestamp...)
	s.text = append(s.text, '.')
	s.out = append(s.out[:0], signaturePrefix...)
	s.out = base64.StdEncoding.AppendEncode(s.out, s.hash(s.macs[i], body))
	return s.out
}

// id returns the id of a request with mail, which is good until the next call of s.
func (s *signer) id(env envelope, mail []byte) []byte {
	s.text = append(s.text[:0], env.from...)
	s.text = append(s.text, 0)
	s.text = append(s.text, env.to...)
	s.text = append(s.text, 0)
	s.out = append(s.out[:0], idPrefix...)
	s.out = hex.AppendEncode(s.out, s.hash(s.digest, mail))
	return s.out
}

func (s *signer) hash(h hash.Hash, body []byte) []byte {
	h.Reset()
	h.Write(s.text)
	h.Write(body)
	return h.Sum(s.sum[:0])
}
