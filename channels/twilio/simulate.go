package twilio

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

var sidForm = regexp.MustCompile(`^(SM|MM)[0-9a-fA-F]{32}$`)

// The ends of a simulated conversation, of a range that is kept for fiction.
const (
	simulatedTo   = "+14155550101"
	simulatedFrom = "+14155550142"
)

// simulate returns the form POST of an inbound message. At Twilio the number of the event is
// that of the message, so both of s make the MessageSid, but for an s.EventID that is one
// itself. A retry is the same request again.
func simulate(c channels.Credentials, s channels.Simulation) (*http.Request, error) {
	tokens := c.Secrets[authToken]
	if len(tokens) == 0 || tokens[0] == "" {
		return nil, errors.New("twilio: " + authToken + " is missing")
	}
	target, err := url.Parse(s.URL)
	if err != nil {
		return nil, fmt.Errorf("twilio: URL to send to: %w", err)
	}
	signed := s.URL
	if s.PublicURL != "" {
		signed = strings.TrimSuffix(s.PublicURL, "/") + target.RequestURI()
	}
	number := domain.DigestOf("twilio", s.EventID, s.Message).String()
	sid := s.EventID
	if !sidForm.MatchString(sid) || s.Message != "" && s.Message != sid {
		sid = "SM" + number
	}
	account, from, to := s.Account, s.From, simulatedTo
	if account == "" {
		account = c.Account
	}
	if from == "" {
		from = simulatedFrom
	}
	if service, _, found := strings.Cut(from, ":"); found {
		to = service + ":" + to // such as whatsapp:+14155550101
	}
	body := url.Values{
		"AccountSid":    {account},
		"ApiVersion":    {"2010-04-01"},
		"Body":          {s.Text},
		"From":          {from},
		"MessageSid":    {sid},
		"NumMedia":      {"0"},
		"NumSegments":   {"1"},
		"SmsMessageSid": {sid},
		"SmsSid":        {sid},
		"SmsStatus":     {"received"},
		"To":            {to},
	}.Encode()
	r, err := http.NewRequest(http.MethodPost, s.URL, strings.NewReader(body)) //nolint:noctx // the caller sends it under a context of its own
	if err != nil {
		return nil, fmt.Errorf("twilio: request: %w", err)
	}
	a := parseAddress(signed)
	text := a.appendTo(nil, a.port, a.rest)
	text = parse(nil, body).canonical().appendTo(text)
	r.Header.Set("Content-Type", formType+"; charset=utf-8")
	r.Header.Set("User-Agent", "TwilioProxy/1.1")
	r.Header.Set("I-Twilio-Idempotency-Token", number[:8]+"-"+number[8:12]+"-"+number[12:16]+"-"+number[16:20]+"-"+number[20:])
	r.Header.Set(signatureHeader, newAuthTokenKey(tokens[0]).sign(text))
	return r, nil
}
