package cfworker

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/email"
)

// simulate returns what the Worker posts for a mail. A mail has no number beside its
// Message-ID, which is made of EventID and Message; a retry is the same mail with one more
// trace field, as a sender's server makes it.
func simulate(c channels.Credentials, s channels.Simulation) (*http.Request, error) {
	keys, err := decodeKeys(c.Secrets[signingKey])
	if err != nil {
		return nil, fmt.Errorf("simulate relayed mail: %w", err)
	}
	to := s.Account
	if !strings.Contains(to, "@") {
		r, err := newRecipients(c)
		if err != nil {
			return nil, fmt.Errorf("simulate relayed mail: %w", err)
		}
		to = r.first
	}
	from := email.SimulatedSender(s.From)
	body := email.Retried(s.Mail, s.Retry, s.Now)
	if s.Mail == nil {
		body = email.Simulated(from, to, s.EventID, s.Message, s.Text, s.Retry, s.Now)
	}

	r, err := http.NewRequest(http.MethodPost, s.URL, bytes.NewReader(body)) //nolint:noctx // the sender knows the context
	if err != nil {
		return nil, fmt.Errorf("simulate relayed mail: %w", err)
	}
	signer := newSigner(keys)
	id := string(signer.id(envelope{from: from, to: to}, body))
	timestamp := strconv.FormatInt(s.Now.Unix(), 10)
	r.Header.Set("Content-Type", mediaType)
	r.Header.Set(headerFrom, url.PathEscape(from))
	r.Header.Set(headerTo, url.PathEscape(to))
	r.Header.Set(headerID, id)
	r.Header.Set(headerTimestamp, timestamp)
	r.Header.Set(headerSignature, string(signer.sign(0, id, timestamp, body)))
	return r, nil
}
