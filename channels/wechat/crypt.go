package wechat

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
)

// An encrypted message is 16 random bytes, the length of the message in 4 bytes, the message,
// the AppID, and padding to a multiple of 32 bytes, each of whose bytes tells its length.
const (
	randomLen = 16
	headLen   = randomLen + 4
	padBlock  = 32
)

var errUndecryptable = errors.New("no key decrypts it to a message for the app_id")

// decrypt returns the message in encrypted, by the first key that gives one for the app.
func (e *endpoint) decrypt(encrypted string) ([]byte, error) {
	text, err := base64.StdEncoding.DecodeString(encrypted)
	if err != nil || len(text) == 0 || len(text)%aes.BlockSize != 0 {
		return nil, errUndecryptable
	}
	plain := make([]byte, len(text))
	for _, k := range e.keys {
		cipher.NewCBCDecrypter(k.block, k.iv).CryptBlocks(plain, text)
		if message, ok := unwrap(plain, e.appID); ok {
			return message, nil
		}
	}
	return nil, errUndecryptable
}

// unwrap returns the message in plain if plain is well-formed and names appID.
func unwrap(plain []byte, appID string) ([]byte, bool) {
	pad := int(plain[len(plain)-1])
	if pad == 0 || pad > padBlock || pad > len(plain) {
		return nil, false
	}
	plain, padding := plain[:len(plain)-pad], plain[len(plain)-pad:]
	if bytes.Count(padding, padding[:1]) != pad || len(plain) < headLen {
		return nil, false
	}
	length, rest := binary.BigEndian.Uint32(plain[randomLen:headLen]), plain[headLen:]
	if uint64(length) > uint64(len(rest)) || string(rest[length:]) != appID {
		return nil, false
	}
	return rest[:length:length], true
}

// encrypt returns message as WeChat would encrypt it, with random in front.
func (e *endpoint) encrypt(random [randomLen]byte, message []byte) string {
	plain := binary.BigEndian.AppendUint32(random[:], uint32(len(message))) //nolint:gosec // a simulated message is short
	plain = slices.Concat(plain, message, []byte(e.appID))
	pad := padBlock - len(plain)%padBlock
	plain = append(plain, bytes.Repeat([]byte{byte(pad)}, pad)...)
	cipher.NewCBCEncrypter(e.keys[0].block, e.keys[0].iv).CryptBlocks(plain, plain)
	return base64.StdEncoding.EncodeToString(plain)
}
