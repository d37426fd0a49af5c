package teams

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"

	"github.com/admitone/admitone/domain"
)

const (
	// freshFor is how long the Bot Framework SDK for JavaScript keeps the keys.
	freshFor = 24 * time.Hour
	// usableFor is how long keys that can't be fetched anew are trusted: Microsoft's
	// documents have called for a refresh at least every five days.
	usableFor = 5 * 24 * time.Hour
	// fetchEvery bounds how often a token that names an unknown key, which anyone can make,
	// has the keys fetched, and how long after its publication a new key may be refused.
	fetchEvery = time.Minute
	// retryEvery is the same after a fetch that failed.
	retryEvery = 5 * time.Second
	// fetchTimeout is for each of the two documents, so that a request that has to wait for
	// both is answered well within the 15 s that Teams waits.
	fetchTimeout = 2 * time.Second
	maxDocument  = 1 << 20
)

// A keyring holds the keys that sign tokens, as its metadata document tells. It fetches them
// when they are asked for, not before, and runs nothing in between. The time is that of
// requests. Safe for concurrent use.
type keyring struct {
	metadata string
	client   *http.Client
	current  atomic.Pointer[keySet]

	mu    sync.Mutex // held while fetching
	tried time.Time
	err   error // of the last try
}

// A keySet is what one fetch brought. It is not changed after it was made.
type keySet struct {
	issuer     string
	algorithms []string // empty if the metadata does not tell
	keys       map[string]signingKey
	fetched    time.Time
}

type signingKey struct {
	public       *rsa.PublicKey
	endorsements []string // channels that it may speak for; nil means all
}

func newKeyring(metadata string) *keyring {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		// A connection that is kept has goroutines, and there is one fetch a day.
		DisableKeepAlives: true,
	}
	return &keyring{metadata: metadata, client: &http.Client{
		Transport:     t,
		Timeout:       fetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// key returns the key called id and the set it stands in. The error wraps
// domain.ErrUnavailable if Microsoft must be asked and can't be, and
// domain.ErrUnauthenticated if there is no such key.
func (k *keyring) key(id string, now time.Time) (signingKey, *keySet, error) {
	set, err := k.current.Load(), error(nil)
	if !set.has(id) || set.age(now) > freshFor {
		set, err = k.refresh(set, set.has(id) && set.age(now) <= usableFor, now)
	}
	switch {
	case set.has(id) && set.age(now) <= usableFor:
		return set.keys[id], set, nil
	case err != nil:
		return signingKey{}, nil, fmt.Errorf("the keys of %w: %w", domain.ErrUnavailable, err)
	}
	return signingKey{}, nil, fmt.Errorf("%w: signed by an unknown key", domain.ErrUnauthenticated)
}

func (s *keySet) has(id string) bool {
	if s == nil {
		return false
	}
	_, ok := s.keys[id]
	return ok
}

// age returns how far s was fetched from now. The clock may have been put back.
func (s *keySet) age(now time.Time) time.Duration { return now.Sub(s.fetched).Abs() }

// refresh returns the newest set there is after a fetch by this request or another one, unless
// one was made of late. If old will do it waits for no other request's fetch.
// The error is that of the last fetch.
func (k *keyring) refresh(old *keySet, willDo bool, now time.Time) (*keySet, error) {
	if willDo {
		if !k.mu.TryLock() {
			return old, nil
		}
	} else {
		k.mu.Lock()
	}
	defer k.mu.Unlock()
	wait := fetchEvery
	if k.err != nil {
		wait = retryEvery
	}
	if current := k.current.Load(); current != old || now.Sub(k.tried).Abs() < wait {
		return current, k.err
	}
	set, err := k.fetch(now)
	k.tried, k.err = now, err
	if err != nil {
		return old, err
	}
	k.current.Store(set)
	return set, nil
}

// fetch reads the metadata and the keys that it points to.
func (k *keyring) fetch(now time.Time) (*keySet, error) {
	var metadata struct {
		Issuer     string   `json:"issuer"`
		Keys       string   `json:"jwks_uri"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}
	if err := k.read(k.metadata, &metadata); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	if metadata.Issuer == "" {
		return nil, errors.New("metadata: issuer: missing")
	}
	if err := checkAddress(metadata.Keys); err != nil {
		return nil, fmt.Errorf("metadata: jwks_uri: %w", err)
	}
	if strings.HasPrefix(k.metadata, "https:") && !strings.HasPrefix(metadata.Keys, "https:") {
		return nil, errors.New("metadata: jwks_uri: not https, as the metadata is")
	}
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := k.read(metadata.Keys, &document); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	set := &keySet{issuer: metadata.Issuer, algorithms: metadata.Algorithms, keys: map[string]signingKey{}, fetched: now}
	for _, raw := range document.Keys {
		if id, key, ok := readKey(raw); ok && !set.has(id) {
			set.keys[id] = key
		}
	}
	if len(set.keys) == 0 {
		return nil, errors.New("keys: none that signs by RSA")
	}
	return set, nil
}

// readKey reads a JSON Web Key. It reports false for one that is not for signing by RSA: sets
// may hold keys of other kinds.
func readKey(raw []byte) (id string, key signingKey, ok bool) {
	var k struct {
		jwkset.JWKMarshal
		Endorsements []string `json:"endorsements"`
	}
	if json.Unmarshal(raw, &k) != nil || k.KID == "" || k.KTY != jwkset.KtyRSA || k.USE != "" && k.USE != jwkset.UseSig {
		return "", signingKey{}, false
	}
	// Certificates and thumbprints beside the key prove nothing that its source does not.
	bare := jwkset.JWKMarshal{KTY: k.KTY, KID: k.KID, N: k.N, E: k.E}
	parsed, err := jwkset.NewJWKFromMarshal(bare, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return "", signingKey{}, false
	}
	public, ok := parsed.Key().(*rsa.PublicKey)
	return k.KID, signingKey{public: public, endorsements: k.Endorsements}, ok
}

// read decodes the document at address into the value that into points to.
func (k *keyring) read(address string, into any) error {
	text, err := k.get(address)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("not the JSON that is expected: %w", err)
	}
	return nil
}

const dataScheme = "data:"

func (k *keyring) get(address string) ([]byte, error) {
	if data, ok := strings.CutPrefix(address, dataScheme); ok {
		_, text, ok := strings.Cut(data, ";base64,")
		if !ok {
			return nil, errors.New("a data URL that is not base64")
		}
		return base64.StdEncoding.DecodeString(text)
	}
	r, err := k.client.Get(address) //nolint:noctx // a request to be verified has no context; the client's time-out ends it
	if err != nil {
		return nil, err
	}
	defer r.Body.Close() //nolint:errcheck // it was read only
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d", address, r.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxDocument+1))
	if err == nil && len(text) > maxDocument {
		err = fmt.Errorf("%s is longer than %d bytes", address, maxDocument)
	}
	return text, err
}

// checkAddress returns an error unless what stands at address is as trustworthy as the
// address: whoever can change the document on its way can sign for Microsoft.
func checkAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return errors.New("not a URL")
	}
	switch {
	case u.Scheme == "https" && u.Hostname() != "", u.Scheme == "data":
		return nil
	case u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()):
		return nil
	}
	return errors.New("must be https://…, or http:// of this machine, or data:…;base64,…")
}
