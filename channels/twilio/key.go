package twilio

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // what Twilio signs with an auth token; HMAC does not need collision resistance
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"hash"
	"sync"
)

// The names of the secrets in the configuration.
const (
	authToken = "auth_token"
	sharedKey = "shared_key"
)

// A key makes and checks signatures with one secret. Safe for concurrent use.
type key struct{ states sync.Pool }

// A state is a keyed hash with room for its results.
type state struct {
	mac  hash.Hash
	sum  [sha256.Size]byte
	text [44]byte // base64 of the longest sum
}

func newAuthTokenKey(secret string) *key { return newKey(sha1.New, secret) }

func newSharedKey(secret string) *key { return newKey(sha256.New, secret) }

func newKey(h func() hash.Hash, secret string) *key {
	k := new(key)
	k.states.New = func() any { return &state{mac: hmac.New(h, []byte(secret))} }
	return k
}

// made reports, in constant time, whether signature is that of text.
func (k *key) made(signature string, text []byte) bool {
	s := k.states.Get().(*state)
	defer k.states.Put(s)
	return subtle.ConstantTimeCompare([]byte(signature), s.sign(text)) == 1
}

// sign returns the signature of text.
func (k *key) sign(text []byte) string {
	s := k.states.Get().(*state)
	defer k.states.Put(s)
	return string(s.sign(text))
}

func (s *state) sign(text []byte) []byte {
	s.mac.Reset()
	s.mac.Write(text)
	sum := s.mac.Sum(s.sum[:0])
	return base64.StdEncoding.AppendEncode(s.text[:0], sum)
}
