package teams_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

const body = `{"type":"message","id":"1","channelId":"msteams","serviceUrl":"` + service + `","conversation":{"id":"a:1"},"text":"x"}`

// request returns one at a time, with a token of the key called kid.
func request(kid string, at time.Time) *channels.Request {
	return &channels.Request{
		Method: http.MethodPost, URL: "/in/teams", Body: []byte(body), Now: at,
		Header: http.Header{"Authorization": {"Bearer " + token(kid, at, nil)}},
	}
}

func verify(t *testing.T, e channels.Endpoint, r *channels.Request, want error, when string) {
	t.Helper()
	if err := e.Verify(r); !errors.Is(err, want) || want == nil && err != nil {
		t.Errorf("Verify %s = %v; want %v", when, err, want)
	}
}

func TestServerOpensWhileMicrosoftIsOutOfReach(t *testing.T) {
	t.Parallel()
	m := newMicrosoft(t, keySet(jwk("own", "")))
	m.set(func(m *microsoft) { m.down = true })
	e := open(t, m.credentials())
	verify(t, e, request("own", now), domain.ErrUnavailable, "without keys")
	m.set(func(m *microsoft) { m.down = false })
	verify(t, e, request("own", now.Add(time.Second)), domain.ErrUnavailable, "a second after a fetch that failed")
	if n := m.timesAsked(); n != 0 {
		t.Errorf("asked %d times within a second of a failure; want to wait", n)
	}
	verify(t, e, request("own", now.Add(5*time.Second)), nil, "once Microsoft is back")
}

func TestNothingListensIsOutOfReach(t *testing.T) {
	t.Parallel()
	m := newMicrosoft(t, keySet(jwk("own", "")))
	m.Close()
	verify(t, open(t, m.credentials()), request("own", now), domain.ErrUnavailable, "without a server")
}

func TestKeysAreFetchedOnceADay(t *testing.T) {
	t.Parallel()
	m := newMicrosoft(t, keySet(jwk("own", "")))
	e := open(t, m.credentials())
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() { verify(t, e, request("own", now), nil, "at once with others") })
	}
	all.Wait()
	verify(t, e, request("own", now.Add(24*time.Hour)), nil, "after a day")
	if n := m.timesAsked(); n != 1 {
		t.Errorf("asked %d times within a day; want 1", n)
	}
	verify(t, e, request("own", now.Add(24*time.Hour+time.Second)), nil, "after more than a day")
	if n := m.timesAsked(); n != 2 {
		t.Errorf("asked %d times after a day; want 2", n)
	}
}

func TestNewKeyIsFetchedWhenItSigns(t *testing.T) {
	t.Parallel()
	m := newMicrosoft(t, keySet(jwk("old", "")))
	e := open(t, m.credentials())
	verify(t, e, request("old", now), nil, "by the old key")
	m.set(func(m *microsoft) { m.keys = keySet(jwk("new", "")) })
	verify(t, e, request("new", now.Add(time.Hour)), nil, "by the new key")
	verify(t, e, request("old", now.Add(time.Hour)), domain.ErrUnauthenticated, "by a key that was withdrawn")
}

func TestForgedKeysDoNotHammerMicrosoft(t *testing.T) {
	t.Parallel()
	m := newMicrosoft(t, keySet(jwk("own", "")))
	e := open(t, m.credentials())
	for i := range 60 {
		verify(t, e, request("forged", now.Add(time.Duration(i)*time.Second)), domain.ErrUnauthenticated, "by a forged key")
	}
	if n := m.timesAsked(); n != 1 {
		t.Errorf("asked %d times in a minute; want 1", n)
	}
	verify(t, e, request("own", now.Add(59*time.Second)), nil, "by the true key meanwhile")
	verify(t, e, request("forged", now.Add(time.Minute)), domain.ErrUnauthenticated, "by a forged key a minute later")
	if n := m.timesAsked(); n != 2 {
		t.Errorf("asked %d times after a minute; want 2", n)
	}
}

func TestOldKeysServeWhileMicrosoftIsOutOfReach(t *testing.T) {
	t.Parallel()
	m := newMicrosoft(t, keySet(jwk("own", "")))
	e := open(t, m.credentials())
	verify(t, e, request("own", now), nil, "at first")
	m.set(func(m *microsoft) { m.down = true })
	const day = 24 * time.Hour
	verify(t, e, request("own", now.Add(5*day)), nil, "after five days")
	verify(t, e, request("new", now.Add(5*day)), domain.ErrUnavailable, "by a key that may be new")
	verify(t, e, request("own", now.Add(5*day+time.Minute)), domain.ErrUnavailable, "after more than five days")
	m.set(func(m *microsoft) { m.down = false })
	verify(t, e, request("own", now.Add(6*day)), nil, "once Microsoft is back")
}

func TestUnfitDocumentsAreNoKeys(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*microsoft){
		"no JSON":              func(m *microsoft) { m.metadata = "<html>" },
		"no issuer":            func(m *microsoft) { m.metadata = strings.Replace(m.metadata, "issuer", "isuer", 1) },
		"keys not trustworthy": func(m *microsoft) { m.metadata = strings.Replace(m.metadata, m.URL, "http://keys.example", 1) },
		"metadata too long":    func(m *microsoft) { m.metadata += strings.Repeat(" ", 1<<20) },
		"no keys":              func(m *microsoft) { m.keys = keySet() },
		"keys of other kinds": func(m *microsoft) {
			m.keys = keySet(`{"kty":"EC","kid":"own"}`, `"x"`, `{"kty":"oct","kid":"own","k":"AAAA"}`)
		},
		"a key for encryption":  func(m *microsoft) { m.keys = keySet(jwk("own", `,"use":"enc"`)) },
		"a key without modulus": func(m *microsoft) { m.keys = keySet(`{"kty":"RSA","kid":"own","e":"AQAB"}`) },
	} {
		m := newMicrosoft(t, keySet(jwk("own", "")))
		m.set(spoil)
		verify(t, open(t, m.credentials()), request("own", now), domain.ErrUnavailable, "with "+name)
	}
}

func TestEndorsementsLimitAKey(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]error{
		"":                                      nil,
		`,"endorsements":["msteams","webchat"]`: nil,
		`,"endorsements":["webchat"]`:           domain.ErrUnauthenticated,
		`,"endorsements":[]`:                    domain.ErrUnauthenticated,
	} {
		m := newMicrosoft(t, keySet(jwk("own", more)))
		verify(t, open(t, m.credentials()), request("own", now), want, "with "+more)
	}
}

func TestMetadataLimitsTheAlgorithms(t *testing.T) {
	t.Parallel()
	m := newMicrosoft(t, keySet(jwk("own", "")))
	m.set(func(m *microsoft) { m.metadata = strings.Replace(m.metadata, `"RS256",`, "", 1) })
	verify(t, open(t, m.credentials()), request("own", now), domain.ErrUnauthenticated, "by RS256, which is not listed")
}

// The clouds of governments have issuers of their own, which their metadata tells.
func TestIssuerIsThatOfTheMetadata(t *testing.T) {
	t.Parallel()
	m := newMicrosoft(t, keySet(jwk("own", "")))
	m.set(func(m *microsoft) {
		m.metadata = strings.Replace(m.metadata, "https://api.botframework.com", "https://api.botframework.us", 1)
	})
	e, r := open(t, m.credentials()), request("own", now)
	verify(t, e, r, domain.ErrUnauthenticated, "by the public cloud's issuer")
	r.Header.Set("Authorization", "Bearer "+token("own", now, map[string]any{"iss": "https://api.botframework.us"}))
	verify(t, e, r, nil, "by the metadata's issuer")
}

func TestMalformedTokenIsRefused(t *testing.T) {
	t.Parallel()
	m := newMicrosoft(t, keySet(jwk("own", "")))
	e := open(t, m.credentials())
	good := token("own", now, nil)
	for _, value := range []string{
		"", "Bearer", "Bearer ", good, "bearer" + good, "Bearer  " + good, "Bearer " + good + " ", "Bearer " + good + ".x",
		"Bearer a.b.c", "Bearer ..", "Bearer " + strings.Replace(good, ".", "=.", 1), "Bearer e30.e30.", "Bearer " + strings.Repeat("a.", 1000),
	} {
		r := request("own", now)
		r.Header.Set("Authorization", value)
		verify(t, e, r, domain.ErrUnauthenticated, "with the header "+value)
	}
	r := request("own", now)
	r.Header.Set("Authorization", "bearer "+good)
	verify(t, e, r, nil, "with the scheme in lower case")
}
