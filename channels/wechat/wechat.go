// Package wechat is the channel of WeChat Official Accounts, which WeChat calls with the
// messages and events of their followers. One installation is one account.
//
// WeChat signs what it sends in one of two ways. In plain mode the signature covers a token, a
// time and a number, but not the body: whoever has seen one request can send any body for as
// long as that time counts as now. In safe mode the body is encrypted and the signature covers
// it. So an installation says which of the two it expects, safe mode unless told otherwise,
// and one that expects safe mode takes nothing else: the parameter that tells the modes apart
// is not signed.
//
// The rules are WeChat's, as developers.weixin.qq.com states them under
// doc/subscription/guide/dev/push, but where a comment names another source.
package wechat

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/admitone/admitone/channels"
)

// The names of the secrets, and the modes, in the configuration.
const (
	tokenName = "token"
	keyName   = "encoding_aes_key"
	modePlain = "plain"
	modeAES   = "aes"
)

// New returns the channel of WeChat Official Accounts.
func New() channels.Channel {
	return channels.Channel{
		Name:     "wechat",
		Platform: "wechat",
		Secrets:  []channels.Secret{{Name: tokenName}, {Name: keyName, Optional: true}},
		Settings: []string{"app_id", "mode"},
		Methods:  []string{http.MethodPost, http.MethodGet},
		// A text has at most 2 KiB. An encrypted body must be parsed to be verified, so a
		// stranger's is kept small.
		MaxBody: 256 << 10,
		Vendor: channels.Vendor{
			EventID:    "msg:FromUserName:MsgId; of an event event:FromUserName:CreateTime:Event, with a digest of EventKey, MsgID, MenuId, CardId, UserCardCode and Ticket if it has any",
			Scope:      "account (gh_…)",
			Fallback:   "fallback: and a digest of the message, decrypted",
			MessageKey: "message:FromUserName:MsgId",
			Unnumbered: "none; the check of the address and CheckContainerPath are answered and not dispatched",

			Deadline: 5 * time.Second,
			// Up to four requests, each given up after 5 s.
			RetryWindow: 20 * time.Second,
			// It does, but for some seconds only: an outage that lasts longer loses the
			// message, and the person who wrote it is told of a fault.
			ComesAgain: false,
			Retries:    []time.Duration{0, 0, 0},
			Behaviour:  "sends a message again at once, up to three times and unchanged, then tells its writer that the account is out of service",
			Source:     "https://developers.weixin.qq.com/doc/subscription/guide/dev/push/encryption.html, github.com/chanxuehong/wechat/issues/98",
		},
		Open:     open,
		Decode:   decode,
		Simulate: simulate,
		Example: channels.Credentials{
			Account: "gh_demo00000001",
			Secrets: map[string][]string{
				tokenName: {"demoWechatToken"},
				keyName:   {"ZGVtb1dlY2hhdEVuY29kaW5nQUVTS2V5T2ZOb2JvZHk"},
			},
			Settings: channels.Settings{"app_id": "wx00demo00demo0001", "mode": modeAES},
		},
	}
}

// An endpoint reads the requests for one account.
type endpoint struct {
	tokens []string
	keys   []key
	appID  string
	plain  bool // bodies may be plain
}

var _ channels.Endpoint = (*endpoint)(nil)

// A key decrypts bodies. Safe for concurrent use.
type key struct {
	block cipher.Block
	iv    []byte
}

func open(c channels.Credentials) (channels.Endpoint, error) {
	e, err := openEndpoint(c)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func openEndpoint(c channels.Credentials) (*endpoint, error) {
	var s struct {
		AppID string `yaml:"app_id"`
		Mode  string `yaml:"mode"`
	}
	if err := c.Settings.Decode(&s); err != nil {
		return nil, err
	}
	e := &endpoint{tokens: c.Secrets[tokenName], appID: s.AppID, plain: s.Mode == modePlain}
	if s.Mode != "" && s.Mode != modeAES && s.Mode != modePlain {
		return nil, fmt.Errorf("settings: mode: %q is neither %s nor %s", s.Mode, modePlain, modeAES)
	}
	if len(e.tokens) == 0 {
		return nil, errors.New(tokenName + ": missing")
	}
	for _, t := range e.tokens {
		if strings.TrimSpace(t) == "" {
			return nil, errors.New(tokenName + ": empty")
		}
	}
	for i, text := range c.Secrets[keyName] {
		k, err := newKey(text)
		if err != nil {
			return nil, fmt.Errorf("%s: number %d: %w", keyName, i+1, err)
		}
		e.keys = append(e.keys, k)
	}
	switch {
	case len(e.keys) == 0 && !e.plain:
		return nil, fmt.Errorf("%s: missing: needed unless the setting mode is %s", keyName, modePlain)
	case len(e.keys) > 0 && e.appID == "":
		return nil, errors.New("settings: app_id: missing: an encrypted message names it")
	}
	return e, nil
}

// newKey reads a key as WeChat's console shows it: base64 of 32 bytes without its padding. Of
// the last character's bits some mean nothing, and WeChat's own sample has them set.
func newKey(text string) (key, error) {
	const length = 43
	raw, err := base64.StdEncoding.DecodeString(text + "=")
	if err != nil || len(text) != length {
		return key{}, fmt.Errorf("not %d characters of base64", length)
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return key{}, fmt.Errorf("not a key of AES-256: %w", err)
	}
	return key{block: block, iv: raw[:aes.BlockSize]}, nil
}
