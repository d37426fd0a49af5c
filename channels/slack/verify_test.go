package slack_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/slack"
	"github.com/admitone/admitone/domain"
)

func TestPublishedSignaturesAreAccepted(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		secret, timestamp, signature, body string
		at                                 int64
	}{
		"Slack's documentation": {
			secret: "8f742231b10e8888abcd99yyyzzz85a5", timestamp: "1531420618", at: 1531420618,
			signature: "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
			body:      "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
		},
		"escapes as received": {
			secret: secret, timestamp: "1790000000", at: 1790000000,
			signature: "v0=ed58c4c330a19d2baf5dd111238e4a83e044df9697dbde081324d1253dfb91d6",
			body:      `{"type":"event_callback","event_id":"Ev0KNOWN1","text":"na\u00efve \/ bytes"}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &channels.Request{Header: http.Header{}, Body: []byte(tt.body), Now: time.Unix(tt.at, 0)}
			r.Header.Set("X-Slack-Request-Timestamp", tt.timestamp)
			r.Header.Set("X-Slack-Signature", tt.signature)
			e := open(t, tt.secret)
			if err := e.Verify(r); err != nil {
				t.Errorf("Verify = %v; want nil", err)
			}
			r.Body[len(r.Body)-3] ^= 1
			if err := e.Verify(r); !errors.Is(err, domain.ErrUnauthenticated) {
				t.Errorf("Verify of a changed body = %v; want ErrUnauthenticated", err)
			}
		})
	}
}

// BR-65: the signature is over the bytes as received, whatever they are.
func TestEveryBodyIsVerifiedAsReceived(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"emoji raw":          callback("Ev1", `{"type":"message","text":"🚢","channel":"C1","ts":"1.2"}`),
		"emoji escaped":      callback("Ev1", `{"type":"message","text":"\ud83d\udea2 \/ \u003c","channel":"C1","ts":"1.2"}`),
		"unescaped less":     callback("Ev1", `{"type":"message","text":"<&>","channel":"C1","ts":"1.2"}`),
		"spaces":             "{ \"type\" : \"event_callback\" ,\t\"event_id\":\"Ev1\" }",
		"trailing line end":  callback("Ev1", `{"type":"message"}`) + "\n",
		"invalid UTF-8":      callback("Ev1", "{\"type\":\"message\",\"text\":\"caf\xe9\",\"channel\":\"C1\",\"ts\":\"1.2\"}"),
		"command":            "command=%2Fferry&text=caf%C3%A9+%2B+100%25&team_id=T1",
		"command of latin-1": "command=%2Fferry&text=caf%E9&team_id=T1",
		"interaction":        "payload=%7B%22type%22%3A%22shortcut%22%2C%22team%22%3A%7B%22id%22%3A%22T1%22%7D%7D",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			event(t, signed(body))
		})
	}
}

// BR-66: what is no signature is refused, and nothing breaks.
func TestMalformedSignatureIsRefused(t *testing.T) {
	t.Parallel()
	body := callback("Ev1", `{"type":"message","channel":"C1","ts":"1.2"}`)
	good := signature(secret, "1790000000", body)
	for name, h := range map[string]http.Header{
		"nothing":           {},
		"no signature":      {"X-Slack-Request-Timestamp": {"1790000000"}},
		"no timestamp":      {"X-Slack-Signature": {good}},
		"empty signature":   {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {""}},
		"version alone":     {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {"v0="}},
		"another version":   {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {"v1=" + good[3:]}},
		"no version":        {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {good[3:]}},
		"upper-case hex":    {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {"v0=" + strings.ToUpper(good[3:])}},
		"odd length":        {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {good[:len(good)-1]}},
		"longer":            {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {good + "0"}},
		"spaces":            {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {good + " "}},
		"1 MB":              {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {"v0=" + strings.Repeat("a", 1<<20)}},
		"not ASCII":         {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {"v0=" + strings.Repeat("é", 32)}},
		"two signatures":    {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {good, good}},
		"two timestamps":    {"X-Slack-Request-Timestamp": {"1790000000", "1790000000"}, "X-Slack-Signature": {good}},
		"joined signatures": {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {good + "," + good}},
		"other secret":      {"X-Slack-Request-Timestamp": {"1790000000"}, "X-Slack-Signature": {signature("other", "1790000000", body)}},
		"other timestamp":   {"X-Slack-Request-Timestamp": {"1790000001"}, "X-Slack-Signature": {good}},
		"padded timestamp":  {"X-Slack-Request-Timestamp": {"01790000000"}, "X-Slack-Signature": {good}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := signed(body)
			r.Header = h
			err := open(t, secret).Verify(r)
			if !errors.Is(err, domain.ErrUnauthenticated) {
				t.Fatalf("Verify = %v; want ErrUnauthenticated", err)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), good[3:]) {
				t.Errorf("the error tells a secret or a signature: %.200v", err)
			}
		})
	}
}

// BR-67: the window has two sides, and ends after exactly 300 s.
func TestOnlyFreshTimestampsAreAccepted(t *testing.T) {
	t.Parallel()
	body := callback("Ev1", `{"type":"message","channel":"C1","ts":"1.2"}`)
	for timestamp, accepted := range map[string]bool{
		"1790000000": true, "1789999701": true, "1789999700": true, "1790000299": true, "1790000300": true,
		"1789999699": false, "1790000301": false, "2105360000": false, "1790000000000": false, "-1790000000": false, "0": false,
		"1e9": false, "1790000000.5": false, "": false, " 1790000000": false, "0x6ab13b80": false, "1_790_000_000": false,
		"9223372036854775807": false, "-9223372036854775808": false, "99999999999999999999": false,
	} {
		t.Run(timestamp, func(t *testing.T) {
			t.Parallel()
			r := signed(body)
			r.Header.Set("X-Slack-Request-Timestamp", timestamp)
			r.Header.Set("X-Slack-Signature", signature(secret, timestamp, body))
			err := open(t, secret).Verify(r)
			if accepted && err != nil {
				t.Errorf("Verify = %v; want nil", err)
			}
			if !accepted && !errors.Is(err, domain.ErrUnauthenticated) {
				t.Errorf("Verify = %v; want ErrUnauthenticated", err)
			}
		})
	}
	t.Run("a fraction of a second over", func(t *testing.T) {
		t.Parallel()
		r := signed(body)
		r.Now = signedAt.Add(5*time.Minute + time.Millisecond)
		if err := open(t, secret).Verify(r); !errors.Is(err, domain.ErrUnauthenticated) {
			t.Errorf("Verify = %v; want ErrUnauthenticated", err)
		}
	})
}

// BR-67: a retry of an old event is signed anew, so its age is no matter.
func TestFreshlySignedRetryOfAnOldEventIsTheSameEvent(t *testing.T) {
	t.Parallel()
	first := load(t, "events_message_channel")
	retry := load(t, "events_message_channel")
	retry.Now = signedAt.Add(24*time.Hour + 6*time.Minute)
	sign(retry, secret)
	retry.Header.Set("X-Slack-Retry-Num", "27")
	a, b := event(t, first), event(t, retry)
	if a.ID != b.ID || a.Digest != b.Digest || a.MessageKey != b.MessageKey {
		t.Errorf("first %s %s, retry %s %s; want the same", a.ID, a.Digest, b.ID, b.Digest)
	}
	if b.VendorAttempt != 27 {
		t.Errorf("VendorAttempt = %d; want 27", b.VendorAttempt)
	}
}

// BR-64: during a change of secret both are accepted.
func TestEachListedSecretIsAccepted(t *testing.T) {
	t.Parallel()
	body := callback("Ev1", `{"type":"message","channel":"C1","ts":"1.2"}`)
	rotating, rotated := open(t, "new", "old"), open(t, "new")
	for _, s := range []string{"new", "old"} {
		r := signed(body)
		sign(r, s)
		if err := rotating.Verify(r); err != nil {
			t.Errorf("Verify with the %s secret = %v; want nil", s, err)
		}
		if err := rotated.Verify(r); (err == nil) != (s == "new") {
			t.Errorf("Verify with the %s secret after the change = %v", s, err)
		}
	}
}

// BR-66: an empty secret would be one that everybody knows.
func TestEmptySecretIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]channels.Credentials{
		"none":            {},
		"no element":      credentials(),
		"empty":           credentials(""),
		"blank":           credentials(" \n"),
		"empty in a list": credentials(secret, ""),
	} {
		if _, err := slack.New().Open(c); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("Open with %s = %v; want an error without the secret", name, err)
		}
	}
}

func TestUnsignedSSLCheckIsAcceptedAlone(t *testing.T) {
	t.Parallel()
	for body, accepted := range map[string]bool{
		"token=x&ssl_check=1":                    true,
		"ssl_check=1&token=x":                    true,
		"token=x&ssl_check=0":                    false,
		"token=x":                                false,
		"":                                       false,
		"ssl_check=1&command=%2Fferry":           false,
		"ssl_check=1&command=":                   false,
		"ssl_check=1&payload=%7B%7D":             false,
		"command=%2Fferry&text=x&ssl_check=1":    false,
		"command=%2Fferry&text=%26ssl_check%3D1": false,
		"text=ssl_check%3D1":                     false,
		"ssl_check=0&ssl_check=1":                false,
		"ssl_check=1&%zz":                        false,
		"ssl_check=1&token=" + strings.Repeat("x", 5000): false,
		`{"ssl_check":"1"}`:                             false,
		`{"type":"event_callback","x":"&ssl_check=1&"}`: false,
		"[&ssl_check=1":                                 false,
	} {
		r := signed(body)
		r.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
		e := open(t, secret)
		err := e.Verify(r)
		if !accepted {
			if !errors.Is(err, domain.ErrUnauthenticated) {
				t.Errorf("Verify(%.60q) = %v; want ErrUnauthenticated", body, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("Verify(%q) = %v; want nil", body, err)
		}
		if b, err := e.Extract(r); err != nil || len(b.Events) != 0 || b.Reply != nil {
			t.Errorf("Extract(%q) = %+v, %v; want nothing", body, b, err)
		}
	}
}

func TestWronglySignedSSLCheckIsRefused(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"X-Slack-Signature", "X-Slack-Request-Timestamp", ""} {
		r := load(t, "lifecycle_ssl_check_signed")
		if missing == "" {
			r.Body = []byte("token=another&ssl_check=1")
		}
		r.Header.Del(missing)
		if err := open(t, secret).Verify(r); !errors.Is(err, domain.ErrUnauthenticated) {
			t.Errorf("Verify without %q = %v; want ErrUnauthenticated", missing, err)
		}
	}
}

// BR-71: Slack compresses nothing, and nothing is unpacked here.
func TestCompressedBodyIsUnreadable(t *testing.T) {
	t.Parallel()
	plain := callback("Ev1", `{"type":"message","channel":"C1","ts":"1.2"}`)
	packed := signed("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xab\x56\x2a\xa9")
	packed.Header.Set("Content-Encoding", "gzip")
	e := open(t, secret)
	if err := e.Verify(packed); err != nil {
		t.Fatalf("Verify over the packed bytes = %v; want nil", err)
	}
	if _, err := e.Extract(packed); !errors.Is(err, domain.ErrUnreadable) {
		t.Errorf("Extract = %v; want ErrUnreadable", err)
	}
	packed.Header.Set("X-Slack-Signature", signature(secret, "1790000000", plain))
	if err := e.Verify(packed); !errors.Is(err, domain.ErrUnauthenticated) {
		t.Errorf("Verify over the plain bytes = %v; want ErrUnauthenticated", err)
	}
	identity := signed(plain)
	identity.Header.Set("Content-Encoding", "identity")
	if got := event(t, identity).ID; got != app+"/Ev1" {
		t.Errorf("ID = %q", got)
	}
}
