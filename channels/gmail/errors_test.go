package gmail_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/gmail"
	"github.com/admitone/admitone/channels/gmail/gmailfake"
	"github.com/admitone/admitone/domain"
)

// The same status stands for quota and for permission.
func TestRefusalsAreToldApart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		failure gmailfake.Failure
		busy    time.Duration // least wait; 0 if it is not busy
		is      error
	}{
		"too many":            {gmailfake.Failure{Status: 429, Reason: "rateLimitExceeded"}, 10 * time.Second, nil},
		"too many, says when": {gmailfake.Failure{Status: 429, Reason: "rateLimitExceeded", RetryAfter: "90"}, 90 * time.Second, nil},
		"too many, says when in words": {gmailfake.Failure{
			Status: 429, Reason: "rateLimitExceeded",
			Message: "User-rate limit exceeded.  Retry after " + time.Now().Add(10*time.Minute).UTC().Format("2006-01-02T15:04:05.000Z"),
		}, 9 * time.Minute, nil},
		"quota of the user":    {gmailfake.Failure{Status: 403, Reason: "userRateLimitExceeded"}, 10 * time.Second, nil},
		"quota of the project": {gmailfake.Failure{Status: 403, Reason: "rateLimitExceeded"}, 10 * time.Second, nil},
		"quota of the day":     {gmailfake.Failure{Status: 403, Reason: "dailyLimitExceeded"}, time.Hour, nil},
		"asks for years":       {gmailfake.Failure{Status: 429, Reason: "rateLimitExceeded", RetryAfter: "99999999"}, 6 * time.Hour, nil},
		"policy":               {gmailfake.Failure{Status: 403, Reason: "domainPolicy"}, 0, channels.ErrRevoked},
		"permission":           {gmailfake.Failure{Status: 403, Reason: "insufficientPermissions"}, 0, channels.ErrRevoked},
		"token":                {gmailfake.Failure{Status: 401, Reason: "authError"}, 0, channels.ErrRevoked},
		"server":               {gmailfake.Failure{Status: 500, Reason: "backendError"}, 0, domain.ErrUnavailable},
		"server, says when":    {gmailfake.Failure{Status: 503, Reason: "backendError", RetryAfter: "30"}, 30 * time.Second, nil},
		"something else":       {gmailfake.Failure{Status: 400, Reason: "badRequest"}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := opened(t)
			d.put("1")
			d.failOn("history", "", tt.failure, -1)
			_, err := d.round()
			if err == nil {
				t.Fatal("a round = nil; want an error")
			}
			busy, ok := errors.AsType[*channels.BusyError](err)
			if ok != (tt.busy > 0) || ok && (busy.After < tt.busy || busy.After > tt.busy+time.Minute) {
				t.Errorf("a round = %v, busy %+v; want busy for %s", err, busy, tt.busy)
			}
			if tt.is != nil && !errors.Is(err, tt.is) || errors.Is(err, channels.ErrRevoked) && !errors.Is(tt.is, channels.ErrRevoked) {
				t.Errorf("a round = %v; want %v", err, tt.is)
			}
			d.box.Fail(nil)
			d.mustRound()
			d.wants("1")
		})
	}
}

func TestQuotaInTheMidstEndsTheRoundAndKeepsWhatCame(t *testing.T) {
	t.Parallel()
	d := opened(t)
	ids := d.put("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18")
	d.failOn("messages/", ids[3], gmailfake.Failure{Status: 403, Reason: "userRateLimitExceeded"}, -1)
	_, err := d.round()
	if _, ok := errors.AsType[*channels.BusyError](err); !ok {
		t.Fatalf("a round = %v; want busy", err)
	}
	if n := d.box.Calls("get"); n != 16 {
		t.Errorf("%d messages were fetched; want the round to end with those under way", n)
	}
	d.box.Fail(nil)
	d.mustRound()
	d.fetchedOnce()
	if len(d.admitted) != len(ids) {
		t.Errorf("%d mails are admitted; want %d", len(d.admitted), len(ids))
	}
}

func TestRevokedGrantIsTold(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.box.Revoke(true)
	tokens, calls := d.box.Calls("token"), d.box.Calls("history")
	_, err := d.round()
	if !errors.Is(err, channels.ErrRevoked) || !strings.Contains(err.Error(), "invalid_grant") {
		t.Errorf("a round with a revoked grant = %v; want %v with the reason", err, channels.ErrRevoked)
	}
	if n, m := d.box.Calls("token")-tokens, d.box.Calls("history")-calls; n != 1 || m != 1 {
		t.Errorf("a revoked grant was tried %d times, with %d calls; want once each", n, m)
	}
	d.box.Revoke(false)
	d.put("1")
	d.mustRound()
	d.wants("1")
}

func TestTokenIsKeptAndReplacedWhenItEnds(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.rounds(30 * time.Minute)
	if n := d.box.Calls("token"); n != 1 {
		t.Errorf("%d tokens for half an hour; want 1", n)
	}
	d.box.ExpireTokens()
	d.put("1")
	d.mustRound()
	d.wants("1")
	if n := d.box.Calls("token"); n != 2 {
		t.Errorf("%d tokens after the first was refused; want 2", n)
	}
}

func TestCancelEndsARound(t *testing.T) {
	t.Parallel()
	d := opened(t)
	d.put("1")
	d.failOn("history", "", gmailfake.Failure{Hang: true}, -1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := d.poll.Round(ctx, channels.Round{Now: d.time(), Checkpoint: d.saved})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second {
		t.Errorf("after %s a cancelled round = %v; want %v at once", time.Since(began), err, context.DeadlineExceeded)
	}
}

func TestServiceAccountActsForTheMailbox(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	box := gmailfake.New()
	s := httptest.NewServer(box)
	defer s.Close()
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "poller@project.example", "private_key_id": "k1", "token_uri": s.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := credentials(s.URL, nil)
	c.Secrets["credentials"] = []string{string(text)}
	poll, err := gmail.New().OpenPoll(c)
	if err != nil {
		t.Fatalf("OpenPoll: %v", err)
	}
	saved := false
	_, err = poll.Round(t.Context(), channels.Round{
		Now: time.Now(), Save: func(context.Context, domain.Checkpoint) error { saved = true; return nil },
	})
	if err != nil || !saved {
		t.Errorf("a round = %v, saved %t; want nil, true", err, saved)
	}
}

// While credentials are changed either of a list may be the one that works.
func TestAnyOfSeveralCredentialsIsAccepted(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	c := credentials(d.url, nil)
	old := strings.Replace(c.Secrets["credentials"][0], gmailfake.RefreshToken, "a-grant-that-was-revoked", 1)
	c.Secrets["credentials"] = []string{old, c.Secrets["credentials"][0]}
	var err error
	if d.poll, err = gmail.New().OpenPoll(c); err != nil {
		t.Fatalf("OpenPoll: %v", err)
	}
	d.mustRound()
}

func TestUnfitCredentialsAndSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil func(*channels.Credentials)
		want  string
	}{
		"none":    {func(c *channels.Credentials) { c.Secrets = nil }, "credentials: missing"},
		"no JSON": {func(c *channels.Credentials) { c.Secrets["credentials"] = []string{"hush-hush"} }, "not the JSON"},
		"no type": {func(c *channels.Credentials) { c.Secrets["credentials"] = []string{`{"refresh_token":"hush-hush"}`} }, "type"},
		"token sent in clear": {func(c *channels.Credentials) {
			c.Secrets["credentials"] = []string{`{"type":"authorized_user","client_id":"x","refresh_token":"hush-hush","token_uri":"http://example.com/"}`}
		}, "token_uri"},
		"endpoint in clear":    {func(c *channels.Credentials) { c.Settings["endpoint"] = "http://gmail.example.com" }, "endpoint"},
		"endpoint that is not": {func(c *channels.Credentials) { c.Settings["endpoint"] = "gmail" }, "endpoint"},
		"polls like mad":       {func(c *channels.Credentials) { c.Settings["poll_interval"] = "1ms" }, "poll_interval"},
		"account is no mail":   {func(c *channels.Credentials) { c.Account = "desk" }, "account"},
		"unknown setting":      {func(c *channels.Credentials) { c.Settings["label"] = "INBOX" }, "label"},
	} {
		c := credentials("http://127.0.0.1:1", nil)
		tt.spoil(&c)
		_, err := gmail.New().OpenPoll(c)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hush-hush") {
			t.Errorf("%s: OpenPoll = %v; want an error about %s without the secret", name, err, tt.want)
		}
	}
}
