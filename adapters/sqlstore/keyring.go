package sqlstore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// keyBytes is the length of a key: AES-256.
const keyBytes = 32

var (
	errKey      = fmt.Errorf("store.durable.secret_key: must be %d bytes in Base64, such as openssl rand -base64 %d prints", keyBytes, keyBytes)
	errOtherKey = errors.New("sqlstore: sealed with a key that store.durable.secret_key does not hold")
)

// A keyring seals with the first of its keys and opens with each. Without keys it seals nothing.
type keyring struct {
	first string // id of the key that seals
	aeads map[string]cipher.AEAD
}

func newKeyring(keys []string) (*keyring, error) {
	k := &keyring{aeads: make(map[string]cipher.AEAD, len(keys))}
	for _, text := range keys {
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil || len(key) != keyBytes {
			return nil, errKey // the library's error would show a part of it
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, errKey
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("sqlstore: %w", err)
		}
		sum := sha256.Sum256(append([]byte("admitone key id\x00"), key...))
		id := hex.EncodeToString(sum[:6])
		k.aeads[id] = aead
		if k.first == "" {
			k.first = id
		}
	}
	return k, nil
}

// seal encrypts plain for the place that where names. What is sealed opens in no other place.
func (k *keyring) seal(plain []byte, where ...string) (keyID string, sealed []byte, err error) {
	if k.first == "" {
		return "", nil, ports.ErrNoKey
	}
	place := domain.DigestOf(where...)
	return k.first, k.aeads[k.first].Seal(nil, nil, plain, place[:]), nil //nolint:gosec // it draws its nonce itself
}

func (k *keyring) open(keyID string, sealed []byte, where ...string) ([]byte, error) {
	aead, ok := k.aeads[keyID]
	if !ok {
		return nil, errOtherKey
	}
	place := domain.DigestOf(where...)
	plain, err := aead.Open(nil, nil, sealed, place[:])
	if err != nil {
		return nil, errors.New("sqlstore: what was sealed has been changed or moved")
	}
	return plain, nil
}
