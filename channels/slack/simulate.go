package slack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/admitone/admitone/channels"
)

const (
	simulatedApp = "A0SIMULATED"
	// simulatedSecond begins the ts of every simulated message. A retry is byte for byte
	// what came first, so nothing in the body may follow the clock.
	simulatedSecond = 1_790_000_000
)

type simulatedEnvelope struct {
	TeamID         string                   `json:"team_id"`
	EnterpriseID   string                   `json:"enterprise_id,omitempty"`
	AppID          string                   `json:"api_app_id"`
	Event          simulatedMessage         `json:"event"`
	Type           string                   `json:"type"`
	EventID        string                   `json:"event_id"`
	EventTime      int64                    `json:"event_time"`
	Authorizations []simulatedAuthorization `json:"authorizations"`
}

type simulatedMessage struct {
	Type        string `json:"type"`
	User        string `json:"user"`
	Text        string `json:"text"`
	TS          string `json:"ts"`
	Channel     string `json:"channel"`
	EventTS     string `json:"event_ts"`
	ChannelType string `json:"channel_type"`
}

type simulatedAuthorization struct {
	EnterpriseID *string `json:"enterprise_id"`
	TeamID       *string `json:"team_id"`
	UserID       string  `json:"user_id"`
	IsBot        bool    `json:"is_bot"`
	OrgWide      bool    `json:"is_enterprise_install"`
}

// simulate returns a direct message of s.From. An account that begins with E is an
// organisation's, as ids of Slack's go.
func simulate(c channels.Credentials, s channels.Simulation) (*http.Request, error) {
	if len(c.Secrets[signingSecret]) == 0 {
		return nil, fmt.Errorf("simulate slack: %s: missing", signingSecret)
	}
	account := s.Account
	if account == "" {
		account = c.Account
	}
	from := s.From
	if from == "" {
		from = "U0SIMULATED"
	}
	eventID := s.EventID
	if !strings.HasPrefix(eventID, "Ev") {
		eventID = "Ev" + eventID
	}
	ts := fmt.Sprintf("%d.%06s", simulatedSecond, s.Message)
	envelope := simulatedEnvelope{
		TeamID: account,
		AppID:  simulatedApp,
		Event: simulatedMessage{
			Type: "message", User: from, Text: s.Text, TS: ts,
			Channel: "D" + from, EventTS: ts, ChannelType: "im",
		},
		Type:      "event_callback",
		EventID:   eventID,
		EventTime: simulatedSecond,
	}
	authorization := simulatedAuthorization{TeamID: &account, UserID: "U0SIMULATEDBOT", IsBot: true}
	if strings.HasPrefix(account, "E") {
		envelope.EnterpriseID = account
		authorization.EnterpriseID, authorization.TeamID, authorization.OrgWide = &account, nil, true
	}
	envelope.Authorizations = []simulatedAuthorization{authorization}
	body, err := json.Marshal(envelope)
	if err != nil {
		return nil, fmt.Errorf("simulate slack: %w", err)
	}
	r, err := http.NewRequest(http.MethodPost, s.URL, bytes.NewReader(body)) //nolint:noctx // the sender knows the context
	if err != nil {
		return nil, fmt.Errorf("simulate slack: %w", err)
	}
	timestamp := strconv.FormatInt(s.Now.Unix(), 10)
	r.Header.Set("Content-Type", mediaJSON)
	r.Header.Set(headerTimestamp, timestamp)
	r.Header.Set(headerSignature, string(newSigner(c.Secrets[signingSecret][0]).sign(timestamp, body)))
	if s.Retry > 0 {
		r.Header.Set(headerRetryNum, strconv.Itoa(s.Retry))
		r.Header.Set("X-Slack-Retry-Reason", "http_timeout")
	}
	return r, nil
}
