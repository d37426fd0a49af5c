package cfworker

import (
	"bytes"
	"fmt"
	"net/http"
	"net/mail"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/admitone/admitone/channels"
)

// simulatedDate is that of every simulated mail: it stands in the mail, so a retry has the
// same one whatever the clock says.
const simulatedDate = "Tue, 03 Feb 2026 09:15:00 +0100"

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
	from := s.From
	if from == "" {
		from = "sender"
	}
	if !strings.Contains(from, "@") {
		from += "@example.org"
	}
	body := simulatedMail(s, from, to)

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

func simulatedMail(s channels.Simulation, from, to string) []byte {
	var b bytes.Buffer
	line := func(name, value string) {
		fmt.Fprintf(&b, "%s: %s\r\n", name, strings.NewReplacer("\r", " ", "\n", " ").Replace(value))
	}
	if s.Retry > 0 {
		line("Received", "from mx.example.org by relay.example id "+strconv.Itoa(s.Retry)+"; "+s.Now.UTC().Format(time.RFC1123Z))
	}
	line("From", (&mail.Address{Address: from}).String())
	line("To", (&mail.Address{Address: to}).String())
	line("Subject", "Simulated mail")
	line("Date", simulatedDate)
	line("Message-ID", "<"+url.QueryEscape(s.EventID)+"."+url.QueryEscape(s.Message)+"@example.org>")
	line("References", "<"+url.QueryEscape(from)+".conversation@example.org>")
	line("MIME-Version", "1.0")
	line("Content-Type", "text/plain; charset=utf-8")
	line("Content-Transfer-Encoding", "8bit")
	b.WriteString("\r\n" + s.Text + "\r\n")
	return b.Bytes()
}
