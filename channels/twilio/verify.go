package twilio

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// An endpoint checks requests with the secrets of one installation or app-wide section.
type endpoint struct {
	tokens []*key // HMAC-SHA1
	shared []*key // HMAC-SHA256; empty if there is no shared_key
}

const (
	signatureHeader = "X-Twilio-Signature"
	settingsHeader  = "X-Twilio-Webhooks-Signature-Settings"
	// The form of a signature's settings is told in
	// https://www.twilio.com/docs/usage/webhooks/webhook-shared-keys.
	sharedKeyAlgorithm = "HMAC_SHA256"
	bodyHashParam      = "bodySHA256"
)

func refuse(format string, a ...any) error {
	return fmt.Errorf("twilio: %w: "+format, append([]any{domain.ErrUnauthenticated}, a...)...)
}

// Verify checks the signature as https://www.twilio.com/docs/usage/security says, over the URL
// in each of the forms that Twilio is known to sign.
func (e *endpoint) Verify(r *channels.Request) error {
	signature := r.Header.Values(signatureHeader)
	if len(signature) != 1 {
		return refuse("%d headers %s, want 1", len(signature), signatureHeader)
	}
	keys, err := e.keys(r.Header)
	if err != nil {
		return err
	}
	s := newScratch()
	defer s.done()
	bound, err := s.checkBodyHash(query(r.URL), r.Body)
	if err != nil {
		return err
	}
	switch {
	case r.Method == http.MethodGet:
		// Every parameter stands in the URL, so nothing would vouch for a body.
		if len(r.Body) > 0 {
			return refuse("a GET with a body")
		}
	case isForm(r.Header):
		s.params = parse(s.params[:0], r.Body).canonical()
		s.signed = s.params.appendTo(s.signed)
	case !bound:
		// Without it the signature of the bare URL would vouch for any body.
		return refuse("neither a form nor a body that %s speaks of", bodyHashParam)
	}
	a := parseAddress(r.URL)
	for _, rest := range a.rests() {
		for _, port := range a.ports() {
			s.url = append(a.appendTo(s.url[:0], port, rest), s.signed...)
			if slices.ContainsFunc(keys, func(k *key) bool { return k.made(signature[0], s.url) }) {
				return nil
			}
		}
	}
	return refuse("no secret made the signature")
}

// keys returns the keys that may have signed. The header that tells them apart is not signed
// itself: it chooses between two full checks, and what it does not say clearly is refused.
func (e *endpoint) keys(h http.Header) ([]*key, error) {
	settings := h.Values(settingsHeader)
	if len(settings) == 0 {
		return e.tokens, nil
	}
	var algorithms []string
	for setting := range strings.SplitSeq(strings.Join(settings, ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(setting), "=")
		if name == "algorithm" {
			algorithms = append(algorithms, value)
		}
	}
	if len(algorithms) != 1 || algorithms[0] != sharedKeyAlgorithm {
		return nil, refuse("%s names no algorithm that is known", settingsHeader)
	}
	if len(e.shared) == 0 {
		return nil, refuse("signed with a shared key, and no %s is configured", sharedKey)
	}
	return e.shared, nil
}

// checkBodyHash reports whether query binds body by its hash, which the signature of the URL
// covers. It is an error if the hash is another one, or there are two.
func (s *scratch) checkBodyHash(query string, body []byte) (bound bool, err error) {
	if query == "" {
		return false, nil
	}
	s.params = parse(s.params[:0], query)
	for _, p := range s.params {
		if p.name != bodyHashParam {
			continue
		}
		if bound {
			return false, refuse("%s stands twice", bodyHashParam)
		}
		bound = true
		// Twilio writes lower case. Upper case is the same hash, and it is signed.
		want, err := hex.DecodeString(p.value)
		got := sha256.Sum256(body)
		if err != nil || subtle.ConstantTimeCompare(want, got[:]) != 1 {
			return false, refuse("%s is not that of the body", bodyHashParam)
		}
	}
	return bound, nil
}

func isForm(h http.Header) bool {
	mediaType, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), formType)
}

// query returns the query of url as received, without the question mark.
func query(url string) string {
	url, _, _ = strings.Cut(url, "#")
	_, q, _ := strings.Cut(url, "?")
	return q
}

// An address is a URL cut up as far as Twilio's forms of it differ, without user information
// and fragment, which are never signed.
type address struct {
	scheme string // with the "://"; empty if the URL has none
	host   string
	port   string // with the colon; empty if it stands for none
	rest   string // path and query as received
}

func parseAddress(url string) address {
	var a address
	at := strings.Index(url, "://")
	if at < 0 {
		a.rest = withoutFragment(url)
		return a
	}
	a.scheme, url = url[:at+3], url[at+3:]
	if at = strings.IndexAny(url, "/?#"); at < 0 {
		at = len(url)
	}
	a.host, a.rest = url[:at], withoutFragment(url[at:])
	if at = strings.LastIndexByte(a.host, '@'); at >= 0 {
		a.host = a.host[at+1:]
	}
	// A colon within brackets is part of an IPv6 address.
	if at = strings.LastIndexByte(a.host, ':'); at > strings.LastIndexByte(a.host, ']') {
		a.host, a.port = a.host[:at], a.host[at:]
	}
	return a
}

// withoutFragment cuts out a fragment. It may stand before the path, since a configured
// public URL does; what Twilio lets it say, such as "rc=2&rp=5xx", holds no slash.
func withoutFragment(rest string) string {
	before, fragment, found := strings.Cut(rest, "#")
	if !found {
		return rest
	}
	if at := strings.IndexByte(fragment, '/'); at >= 0 {
		return before + fragment[at:]
	}
	return before
}

// ports returns the forms of the port to try, the configured one first. Twilio signs a default
// port now and then, whether or not the URL has it; another port is as configured.
func (a address) ports() []string {
	var standard string
	switch {
	case strings.EqualFold(a.scheme, "https://"):
		standard = ":443"
	case strings.EqualFold(a.scheme, "http://"):
		standard = ":80"
	}
	switch {
	case standard == "":
		return []string{a.port}
	case a.port == "":
		return []string{"", standard}
	case a.port == standard:
		return []string{standard, ""}
	}
	return []string{a.port}
}

// rests returns the forms of path and query to try, the one received first. Twilio signs an
// apostrophe in a query as it is or escaped, whichever way it sends it.
func (a address) rests() []string {
	path, q, _ := strings.Cut(a.rest, "?")
	switch {
	case strings.Contains(q, "'"):
		return []string{a.rest, path + "?" + strings.ReplaceAll(q, "'", "%27")}
	case strings.Contains(q, "%27"):
		return []string{a.rest, path + "?" + strings.ReplaceAll(q, "%27", "'")}
	}
	return []string{a.rest}
}

func (a address) appendTo(b []byte, port, rest string) []byte {
	for _, part := range [...]string{a.scheme, a.host, port, rest} {
		b = append(b, part...)
	}
	return b
}
