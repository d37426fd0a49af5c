// Package gmail is the channel of mail in Gmail and Google Workspace mailboxes, which are
// polled by the Gmail API (https://developers.google.com/workspace/gmail/api/reference/rest).
//
// A round reads what happened in the mailbox since the last one (users.history.list) and
// fetches each new mail whole (users.messages.get, format raw): only the raw bytes give a
// mail the identity that it has on other paths. What makes two mails one is decided by
// package email, for every channel of mail.
//
// The history is kept by Google for a limited time. Where it has forgotten the checkpoint,
// the mailbox is listed as far back as the last round that had seen everything.
//
// The client is net/http with golang.org/x/oauth2, for four calls of a stable API. Google's
// own, google.golang.org/api, brings 70 modules and some 400 MB of sources for them, does not
// repeat what failed either, and can't read what it is answered beyond its own types.
package gmail

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/email"
	"github.com/admitone/admitone/channels/gmail/gmailfake"
	"github.com/admitone/admitone/domain"
)

const credentialsName = "credentials"

const (
	defaultEndpoint = "https://gmail.googleapis.com"
	// defaultEvery costs a mailbox in which nothing happens 4 of its 6,000 quota units a minute.
	defaultEvery = 30 * time.Second
	leastEvery   = 100 * time.Millisecond
)

// rescueWindow is how old a mail may be that comes out of Spam or Trash and is still taken for
// new. Gmail empties both after 30 days (https://support.google.com/mail/answer/7401).
const rescueWindow = 30 * 24 * time.Hour

// New returns the channel of mail in Gmail mailboxes.
func New() channels.Channel {
	transport := newTransport()
	return channels.Channel{
		Name:     "gmail",
		Platform: "email",
		Secrets:  []channels.Secret{{Name: credentialsName}},
		Settings: []string{"endpoint", "poll_interval", "query"},
		Vendor: channels.Vendor{
			EventID:    "m:Message-ID; where Google replaced a broken one, that of X-Google-Original-Message-ID",
			Scope:      "mailbox",
			Fallback:   "f:fingerprint of (From, Date, Subject, body), where Google made up the id too; of mail without Date, @ and the hour of its arrival as well",
			MessageKey: "message:event id",
			Unnumbered: "none",

			RetryWindow: rescueWindow,
			ComesAgain:  true,
			Behaviour:   "is polled: what could not be stored is fetched again in the next round, and the mailbox is listed anew when Google has forgotten the checkpoint",
			Source:      "https://developers.google.com/workspace/gmail/api/guides/sync",
		},
		OpenPoll: func(c channels.Credentials) (channels.Poll, error) { return open(transport, c) },
		Decode:   decode,
		SimulateVendor: func(address string) (channels.Simulator, channels.Credentials, error) {
			return simulated(address)
		},
		Example: exampleAt("http://127.0.0.1:8090"),
	}
}

func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	t.MaxIdleConnsPerHost = 32                           // one host for all mailboxes
	return t
}

// settings are those of an installation.
type settings struct {
	Endpoint     string        `yaml:"endpoint"`
	PollInterval time.Duration `yaml:"poll_interval"`
	Query        string        `yaml:"query"`
}

func open(transport http.RoundTripper, c channels.Credentials) (channels.Poll, error) {
	s := settings{Endpoint: defaultEndpoint, PollInterval: defaultEvery}
	if err := c.Settings.Decode(&s); err != nil {
		return channels.Poll{}, err
	}
	if err := checkAddress(s.Endpoint); err != nil {
		return channels.Poll{}, fmt.Errorf("settings: endpoint: %w", err)
	}
	if s.PollInterval < leastEvery {
		return channels.Poll{}, fmt.Errorf("settings: poll_interval: must be at least %s", leastEvery)
	}
	if !strings.Contains(c.Account, "@") {
		return channels.Poll{}, errors.New("account: must be the address of the mailbox")
	}
	hc := &http.Client{
		Transport: transport, Timeout: callTimeout,
		// the token is for the endpoint alone
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	fetch, err := readCredentials(hc, c.Account, c.Secrets[credentialsName])
	if err != nil {
		return channels.Poll{}, fmt.Errorf("%s: %w", credentialsName, err)
	}
	m := &mailbox{
		client: &client{http: hc, base: strings.TrimRight(s.Endpoint, "/") + "/gmail/v1/users/me", tokens: &tokens{fetch: fetch}},
		query:  strings.TrimSpace(s.Query),
	}
	return channels.Poll{Every: s.PollInterval, Round: m.round}, nil
}

// checkAddress demands encryption beyond this machine: a token opens the whole mailbox.
func checkAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("must be an https:// URL of a host")
	}
	switch host := u.Hostname(); {
	case u.Scheme == "https":
	case u.Scheme == "http" && (host == "localhost" || host == "127.0.0.1" || host == "::1"):
	default:
		return errors.New("must be https:// beyond this machine")
	}
	return nil
}

func decode(e domain.Event) (domain.Content, error) {
	if len(e.Payload.Body) == 0 {
		return domain.Content{}, fmt.Errorf("mail: empty payload: %w", domain.ErrUnreadable)
	}
	return email.Content(e.Conversation, e.Payload.Body), nil
}

// exampleAt returns invented credentials for a simulated Gmail at address.
func exampleAt(address string) channels.Credentials {
	return channels.Credentials{
		Account: "desk@example.com",
		Secrets: map[string][]string{credentialsName: {
			`{"type":"authorized_user","client_id":"demo","client_secret":"demo-client-secret","refresh_token":"` +
				gmailfake.RefreshToken + `","token_uri":"` + address + `/token"}`,
		}},
		Settings: channels.Settings{"endpoint": address, "poll_interval": "1s"},
	}
}
