package domain

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// MaxID is the longest id in bytes that is stored as it came; a longer one is
// replaced by its digest. 255 keeps every key far below the 2.7 kB that a btree
// entry of Postgres can hold.
const MaxID = 255

// A Key names one event. Deliveries with equal keys are the same event.
type Key struct {
	Tenant   string // customer of the deployment
	Platform string // vendor namespace of ids, such as "slack"
	Account  string // vendor's own name of the installation
	EventID  string // unique within the account and the same at every retry
}

// A Digest identifies a value by the first 16 bytes of a SHA-256. 128 bits make an
// accidental collision among 10^12 receipts less likely than 10^-14.
type Digest [16]byte

// String returns the digest in lower-case hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// IsZero reports whether d is no digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// DigestOf returns the digest of parts. Each part is preceded by its length, so that
// no two lists of parts that differ have the same input, whatever delimiters they hold.
func DigestOf(parts ...string) Digest {
	var stack [2048]byte // most events fit, so that nothing is allocated for them
	b := stack[:0]
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	sum := sha256.Sum256(b)
	return Digest(sum[:16])
}

// Digest returns the identity of the event in stores.
func (k Key) Digest() Digest { return DigestOf("event", k.Tenant, k.Platform, k.Account, k.EventID) }

// Message returns the identity in stores of the message named messageKey in the
// account of k, or the zero Digest if messageKey is empty.
func (k Key) Message(messageKey string) Digest {
	if messageKey == "" {
		return Digest{}
	}
	return DigestOf("message", k.Tenant, k.Platform, k.Account, messageKey)
}

// Conversation returns the identity in stores of the conversation called external in the account
// of k, or the zero Digest if external is empty.
func (k Key) Conversation(external string) Digest {
	if external == "" {
		return Digest{}
	}
	return DigestOf("conversation", k.Tenant, k.Platform, k.Account, external)
}

// Lane returns the number of the conversation in which the events of k stand: events of
// one lane are begun one at a time, in the order of their claims. An event without a
// conversation has a lane of its own. Lanes may collide; then events wait needlessly
// for each other, no more.
func (k Key) Lane(conversation string) int64 {
	d := k.Digest()
	if conversation != "" {
		d = DigestOf("lane", k.Tenant, k.Platform, k.Account, conversation)
	}
	return int64(binary.BigEndian.Uint64(d[:8])) //nolint:gosec // all 64 bits are wanted, the sign means nothing
}

// IsID reports whether s has the form of a tenant's or an installation's id:
// [a-z0-9][a-z0-9_-]{0,62}.
func IsID(s string) bool {
	if len(s) == 0 || len(s) > 63 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		word := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if !word && (i == 0 || c != '_' && c != '-') {
			return false
		}
	}
	return true
}

// StorableID returns id, or "sha256:<hex>" of it if it is longer than MaxID bytes, is not
// UTF-8 or holds a NUL: equal ids stay equal, and no id is one that a store refuses.
func StorableID(id string) string {
	if len(id) <= MaxID && utf8.ValidString(id) && strings.IndexByte(id, 0) < 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// UnreadableID returns the event id of an authentic delivery whose bytes cannot be understood.
func UnreadableID(body []byte) string {
	sum := sha256.Sum256(body)
	return "unreadable:" + hex.EncodeToString(sum[:])
}
