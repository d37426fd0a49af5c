package line

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/admitone/admitone/channels"
)

// simulatedTime is that of every simulated event, in milliseconds: LINE changes nothing in an
// event that it sends again but deliveryContext.
const simulatedTime = 1_790_001_000_000

// simulatedUser writes if the simulation does not say who, without the U that begins an id.
const simulatedUser = "0000000000000000000000000000feed"

type (
	simulatedDelivery struct {
		Destination string           `json:"destination"`
		Events      []simulatedEvent `json:"events"`
	}
	simulatedEvent struct {
		Type            string           `json:"type"`
		Message         simulatedMessage `json:"message"`
		ReplyToken      string           `json:"replyToken"`
		WebhookEventID  string           `json:"webhookEventId"`
		DeliveryContext struct {
			IsRedelivery bool `json:"isRedelivery"`
		} `json:"deliveryContext"`
		Timestamp int64           `json:"timestamp"`
		Source    simulatedSource `json:"source"`
		Mode      string          `json:"mode"`
	}
	simulatedMessage struct {
		Type string `json:"type"`
		ID   string `json:"id"`
		Text string `json:"text"`
	}
	simulatedSource struct {
		Type   string `json:"type"`
		UserID string `json:"userId"`
	}
)

// simulate returns a text message to the bot.
func simulate(c channels.Credentials, s channels.Simulation) (*http.Request, error) {
	if len(c.Secrets[channelSecret]) == 0 {
		return nil, errors.New(channelSecret + ": missing")
	}
	account := s.Account
	if account == "" {
		account = c.Account
	}
	event := simulatedEvent{
		Type:           "message",
		Message:        simulatedMessage{Type: "text", ID: s.Message, Text: s.Text},
		ReplyToken:     "reply-" + s.EventID,
		WebhookEventID: s.EventID,
		Timestamp:      simulatedTime,
		Source:         simulatedSource{Type: "user", UserID: "U" + cmp.Or(s.From, simulatedUser)},
		Mode:           "active",
	}
	event.DeliveryContext.IsRedelivery = s.Retry > 0
	body, err := json.Marshal(simulatedDelivery{Destination: account, Events: []simulatedEvent{event}})
	if err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	r, err := http.NewRequest(http.MethodPost, s.URL, bytes.NewReader(body)) //nolint:noctx // the caller sends it
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set(headerSignature, string(newSigner(c.Secrets[channelSecret][0]).sign(body)))
	return r, nil
}
