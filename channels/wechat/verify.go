package wechat

import (
	"crypto/sha1" //nolint:gosec // what WeChat signs with
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// tolerance is our choice: WeChat's documents set no limit. A repeat bears the time of the
// first request, which is at most some 20 s old then.
const tolerance = 5 * time.Minute

func refuse(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{domain.ErrUnauthenticated}, a...)...)
}

// Verify checks the signature of plain mode for the check of the address and for what may come
// plain, and for all else that of the encrypted body, and that it is encrypted for this app.
func (e *endpoint) Verify(r *channels.Request) error {
	q, err := query(r.URL)
	if err != nil {
		return refuse("the query can't be read")
	}
	name := "signature"
	if e.encrypted(r, q) {
		name = "msg_signature"
	}
	got, at, nonce := q[name], q["timestamp"], q["nonce"]
	if len(got) != 1 || len(at) != 1 || len(nonce) != 1 || nonce[0] == "" {
		return refuse("%d of %s, %d of timestamp and %d of nonce; one of each is needed", len(got), name, len(at), len(nonce))
	}
	// What is signed has no separators: with a sign or zeros in front of the time, it could be
	// split in other ways too.
	seconds, err := strconv.ParseInt(at[0], 10, 64)
	if err != nil || at[0][0] < '1' || at[0][0] > '9' {
		return refuse("timestamp is no number of seconds")
	}
	if r.Now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return refuse("signed more than %s ago or ahead", tolerance)
	}
	if !e.encrypted(r, q) {
		if r.Method == http.MethodGet && len(r.Body) > 0 {
			return refuse("a GET with a body")
		}
		return e.signed(got[0], at[0], nonce[0])
	}
	body, err := envelope(r.Body)
	if err != nil {
		return refuse("%w", err)
	}
	if err := e.signed(got[0], at[0], nonce[0], body); err != nil {
		return err
	}
	if _, err := e.decrypt(body); err != nil {
		return refuse("%w", err)
	}
	return nil
}

// encrypted reports whether the body of r counts only if it is encrypted. An account in plain
// mode that has a key is being moved to safe mode, and may send either.
func (e *endpoint) encrypted(r *channels.Request, q url.Values) bool {
	if r.Method == http.MethodGet {
		return false
	}
	return !e.plain || len(e.keys) > 0 && q.Get("encrypt_type") == "aes"
}

// signed returns nil if got is the signature of parts by any of the tokens.
func (e *endpoint) signed(got string, parts ...string) error {
	same := 0
	for _, token := range e.tokens {
		same |= subtle.ConstantTimeCompare([]byte(got), []byte(signature(append([]string{token}, parts...))))
	}
	if same == 0 {
		return refuse("the signature is of no token here")
	}
	return nil
}

// signature returns that of parts, the token among them.
func signature(parts []string) string {
	slices.Sort(parts)
	h := sha1.New() //nolint:gosec // what WeChat signs with
	for _, p := range parts {
		_, _ = io.WriteString(h, p) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}

// query returns the parameters in the URL of a request.
func query(target string) (url.Values, error) {
	_, q, _ := strings.Cut(target, "?")
	return url.ParseQuery(q)
}

// envelope returns the encrypted part of body. The plain fields beside it, which there are in
// WeChat's compatible mode, are signed by nobody.
func envelope(body []byte) (string, error) {
	doc, err := parse(body)
	if err != nil {
		return "", err
	}
	encrypted := doc.get("Encrypt")
	if encrypted == "" {
		return "", fmt.Errorf("%w: the body is not encrypted", domain.ErrUnreadable)
	}
	return encrypted, nil
}
