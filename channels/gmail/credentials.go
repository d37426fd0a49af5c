package gmail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// scope lets read everything that a round asks for, and change nothing. Google calls it
// restricted (https://developers.google.com/workspace/gmail/api/auth/scopes).
const scope = "https://www.googleapis.com/auth/gmail.readonly"

const defaultTokenURL = "https://oauth2.googleapis.com/token"

// A tokenSource asks for a new token.
type tokenSource func(ctx context.Context) (*oauth2.Token, error)

// readCredentials returns how tokens for the mailbox are got by the first of the secrets that
// a rotation may leave: the JSON of a service account to which the domain's authority is
// delegated, or that of an authorised user.
func readCredentials(hc *http.Client, mailbox string, secrets []string) (tokenSource, error) {
	if len(secrets) == 0 {
		return nil, errors.New("missing")
	}
	sources := make([]tokenSource, len(secrets))
	for i, text := range secrets {
		var err error
		if sources[i], err = readCredential(hc, mailbox, text); err != nil {
			return nil, err
		}
	}
	// Any of a list is accepted: while credentials are changed, the others may work already.
	return func(ctx context.Context) (*oauth2.Token, error) {
		var refused error
		for _, source := range sources {
			t, err := source(ctx)
			if err == nil || !errors.Is(err, channels.ErrRevoked) {
				return t, err
			}
			refused = err
		}
		return nil, refused
	}, nil
}

func readCredential(hc *http.Client, mailbox, text string) (tokenSource, error) {
	var c struct {
		Type         string `json:"type"`
		ClientEmail  string `json:"client_email"`
		PrivateKey   string `json:"private_key"`
		PrivateKeyID string `json:"private_key_id"`
		ClientID     string `json:"client_id"`
		ClientSecret string `json:"client_secret"`
		RefreshToken string `json:"refresh_token"`
		TokenURI     string `json:"token_uri"`
	}
	if json.Unmarshal([]byte(text), &c) != nil { // the error would show part of it
		return nil, errors.New("not the JSON of a service account or an authorised user")
	}
	if c.TokenURI == "" {
		c.TokenURI = defaultTokenURL
	}
	if err := checkAddress(c.TokenURI); err != nil {
		return nil, fmt.Errorf("token_uri: %w", err)
	}
	var source func(ctx context.Context) oauth2.TokenSource
	switch {
	case c.Type == "service_account" && c.ClientEmail != "" && c.PrivateKey != "":
		conf := &jwt.Config{
			Email: c.ClientEmail, PrivateKey: []byte(c.PrivateKey), PrivateKeyID: c.PrivateKeyID,
			Subject: mailbox, Scopes: []string{scope}, TokenURL: c.TokenURI,
		}
		source = conf.TokenSource
	case c.Type == "authorized_user" && c.ClientID != "" && c.RefreshToken != "":
		conf := &oauth2.Config{
			ClientID: c.ClientID, ClientSecret: c.ClientSecret,
			Endpoint: oauth2.Endpoint{TokenURL: c.TokenURI, AuthStyle: oauth2.AuthStyleInParams},
		}
		source = func(ctx context.Context) oauth2.TokenSource {
			return conf.TokenSource(ctx, &oauth2.Token{RefreshToken: c.RefreshToken})
		}
	default:
		return nil, fmt.Errorf("type %.20q without what it needs; service_account needs client_email and private_key, authorized_user client_id and refresh_token", c.Type)
	}
	return func(ctx context.Context) (*oauth2.Token, error) {
		t, err := source(context.WithValue(ctx, oauth2.HTTPClient, hc)).Token()
		return t, tokenError(err)
	}, nil
}

// tokenError tells what a failed request for a token means. The library's own text would show
// the answer's body.
func tokenError(err error) error {
	if err == nil {
		return nil
	}
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || refused.Response == nil {
		if isNetwork(err) {
			return fmt.Errorf("ask for a token: %w: %w", domain.ErrUnavailable, withoutURL(err))
		}
		return fmt.Errorf("ask for a token: %w: the key can't be used", channels.ErrRevoked)
	}
	status := refused.Response.StatusCode
	switch {
	case status == http.StatusTooManyRequests:
		return &channels.BusyError{After: retryAfter(refused.Response.Header), Err: errors.New("ask for a token: status 429")}
	case status >= 400 && status < 500:
		why := word(refused.ErrorCode)
		if why == "" {
			var body struct {
				Error string `json:"error"`
			}
			_ = json.Unmarshal(refused.Body, &body) // without it the status must do
			why = word(body.Error)
		}
		return fmt.Errorf("ask for a token: %w: status %d %s", channels.ErrRevoked, status, why)
	}
	return fmt.Errorf("ask for a token: %w: status %d", domain.ErrUnavailable, status)
}

// tokens keeps the token at hand until shortly before it ends. Safe for concurrent use.
type tokens struct {
	fetch tokenSource

	mu   sync.Mutex
	held *oauth2.Token
}

// get returns a token that is not stale, which was refused; nil if none was.
func (t *tokens) get(ctx context.Context, stale *oauth2.Token) (*oauth2.Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held.Valid() && (stale == nil || t.held.AccessToken != stale.AccessToken) {
		return t.held, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	fresh, err := t.fetch(ctx)
	if err != nil {
		return nil, err
	}
	t.held = fresh
	return fresh, nil
}

// callTimeout bounds one call, of which the largest brings a mail of 50 MB.
const callTimeout = 60 * time.Second
