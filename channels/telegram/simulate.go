package telegram

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/admitone/admitone/channels"
)

// simulate returns a private message to the bot. Telegram does not tell whether a request is
// a retry, and repeats it byte for byte: so the date is the same for an hour.
func simulate(c channels.Credentials, s channels.Simulation) (*http.Request, error) {
	if len(c.Secrets[secretName]) == 0 {
		return nil, errors.New("secret_token: missing")
	}
	type person struct {
		ID        json.Number `json:"id"`
		IsBot     bool        `json:"is_bot"`
		FirstName string      `json:"first_name"`
	}
	type chat struct {
		ID        json.Number `json:"id"`
		FirstName string      `json:"first_name"`
		Type      string      `json:"type"`
	}
	from := number(s.From)
	message, err := json.Marshal(struct {
		MessageID json.Number `json:"message_id"`
		From      person      `json:"from"`
		Chat      chat        `json:"chat"`
		Date      int64       `json:"date"`
		Text      string      `json:"text"`
	}{
		MessageID: number(s.Message),
		From:      person{ID: from, FirstName: s.From},
		Chat:      chat{ID: from, FirstName: s.From, Type: "private"},
		Date:      s.Now.Truncate(time.Hour).Unix(),
		Text:      s.Text,
	})
	if err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	// The line end stands where the Bot API server writes it.
	body := fmt.Appendf(nil, "{\"update_id\":%s,\n\"message\":%s}", number(s.EventID), message)
	r, err := http.NewRequest(http.MethodPost, s.URL, bytes.NewReader(body)) //nolint:noctx // the caller sends it
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(secretHeader, c.Secrets[secretName][0])
	return r, nil
}

// number returns s if it can be an id of Telegram, and otherwise the number that stands for
// s, far above the ids that people type.
func number(s string) json.Number {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n > 0 && strconv.FormatInt(n, 10) == s {
		return json.Number(s)
	}
	const typed, exact = 1 << 40, 1 << 52 // Telegram's ids have at most 52 bits
	sum := sha256.Sum256([]byte(s))
	n := typed + binary.BigEndian.Uint64(sum[:8])%(exact-typed)
	return json.Number(strconv.FormatUint(n, 10))
}
