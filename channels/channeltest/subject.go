package channeltest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// A subject is the channel under test, with its fixtures sorted by what must become of them.
// Its methods turn panics into errors and remember every error of the channel.
type subject struct {
	Spec
	dir              string
	genuine          []fixture // bear the vendor's signature: events, unreadable and unknownRecipient
	events           []fixture
	refused          []fixture
	unreadable       []fixture
	unknownRecipient []fixture
	handshakes       []fixture

	mu   sync.Mutex
	errs []error
}

func newSubject(dir string, s Spec) (*subject, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("folder: %w", err)
	}
	k := &subject{Spec: s, dir: dir}
	all, err := readFixtures(dir)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool, len(all))
	for _, f := range all {
		seen[f.name] = true
		switch {
		case slices.Contains(s.Refused, f.name):
			k.refused = append(k.refused, f)
			continue
		case slices.Contains(s.Handshakes, f.name):
			k.handshakes = append(k.handshakes, f)
			continue
		case slices.Contains(s.Unreadable, f.name):
			k.unreadable = append(k.unreadable, f)
		case slices.Contains(s.UnknownRecipient, f.name):
			k.unknownRecipient = append(k.unknownRecipient, f)
		default:
			k.events = append(k.events, f)
		}
		k.genuine = append(k.genuine, f)
	}
	for _, name := range slices.Concat(s.Refused, s.Unreadable, s.UnknownRecipient, s.Handshakes, s.Conflicts, s.ByContent) {
		if !seen[name] {
			return nil, fmt.Errorf("spec: there is no fixture %s", name)
		}
	}
	if len(k.events) < 2 {
		return nil, errors.New("spec: at least two genuine fixtures are needed")
	}
	if s.Sign == nil || s.Now.IsZero() || s.Channel.Open == nil || s.Channel.Decode == nil || s.Channel.Simulate == nil {
		return nil, errors.New("spec: Sign, Now, Channel.Open, Channel.Decode and Channel.Simulate are needed")
	}
	return k, nil
}

func (k *subject) remember(err error) error {
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.errs = append(k.errs, err)
	}
	return err
}

// request returns f as received at Now.
func (k *subject) request(f fixture) *channels.Request { return f.request(k.PublicURL, k.Now) }

// changed returns f with what change does to it, made genuine again.
func (k *subject) changed(f fixture, change func(*channels.Request)) *channels.Request {
	r := k.request(f)
	change(r)
	k.Sign(r)
	return r
}

// withBody returns f with body in place of its own, made genuine again.
func (k *subject) withBody(f fixture, body []byte) *channels.Request {
	return k.changed(f, func(r *channels.Request) {
		r.Body = body
		r.Header.Del("Content-Length")
	})
}

func (k *subject) open(c channels.Credentials) (e channels.Endpoint, err error) {
	err = k.remember(guard(func() (err error) {
		e, err = k.Channel.Open(c)
		return err
	}))
	return e, err
}

// endpoint opens the channel with the credentials of the fixtures.
func (k *subject) endpoint() (channels.Endpoint, error) {
	e, err := k.open(k.Credentials)
	if err != nil {
		return nil, fmt.Errorf("open with good credentials: %w", err)
	}
	return e, nil
}

func (k *subject) verify(e channels.Endpoint, r *channels.Request) error {
	return k.remember(guard(func() error { return e.Verify(r) }))
}

func (k *subject) extract(e channels.Endpoint, r *channels.Request) (b channels.Batch, err error) {
	err = k.remember(guard(func() (err error) {
		b, err = e.Extract(r)
		return err
	}))
	return b, err
}

func (k *subject) decode(ev domain.Event) (c domain.Content, err error) {
	err = k.remember(guard(func() (err error) {
		c, err = k.Channel.Decode(ev)
		return err
	}))
	return c, err
}

// receive verifies and extracts r and returns its events, none of which refer to r.
func (k *subject) receive(e channels.Endpoint, r *channels.Request) ([]domain.Event, error) {
	if err := k.verify(e, r); err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	b, err := k.extract(e, r)
	if err != nil {
		return nil, fmt.Errorf("extract: %w", err)
	}
	events := slices.Clone(b.Events)
	for i := range events {
		events[i].Payload.Body = bytes.Clone(events[i].Payload.Body)
	}
	return events, nil
}

// mustRefuse returns an error unless Verify refuses r as it should.
func (k *subject) mustRefuse(e channels.Endpoint, r *channels.Request, what string) error {
	switch err := k.verify(e, r); {
	case err == nil:
		return fmt.Errorf("%s: accepted", what)
	case !errors.Is(err, domain.ErrUnauthenticated):
		return fmt.Errorf("%s: the error does not wrap domain.ErrUnauthenticated: %w", what, err)
	}
	return nil
}

// mustAccept returns an error if Verify refuses r.
func (k *subject) mustAccept(e channels.Endpoint, r *channels.Request, what string) error {
	if err := k.verify(e, r); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// withSecrets returns the credentials of the fixtures with each list of secrets replaced.
func (k *subject) withSecrets(replace func([]string) []string) channels.Credentials {
	c := k.Credentials
	c.Secrets = maps.Clone(c.Secrets)
	for name, list := range c.Secrets {
		c.Secrets[name] = replace(slices.Clone(list))
	}
	return c
}

// another returns a secret of the form of secret that is not secret: the letter or digit in
// its middle is replaced by one of the same class, so that hex stays hex and Base64 Base64.
func another(secret string) string {
	b := []byte(secret)
	for i := len(b) / 2; i < len(b); i++ {
		for _, class := range []string{"0123456789", "abcdef", "ghijklmnopqrstuvwxyz", "ABCDEF", "GHIJKLMNOPQRSTUVWXYZ"} {
			if at := bytes.IndexByte([]byte(class), b[i]); at >= 0 {
				b[i] = class[(at+1)%len(class)]
				return string(b)
			}
		}
	}
	return secret + "0"
}
