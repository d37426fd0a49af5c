package whatsappcloud

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/admitone/admitone/channels"
)

const (
	simulatedBusiness = "204000000000001"
	simulatedNumber   = "15550100200"
	// simulatedSender writes if the simulation does not say who.
	simulatedSender = "14155550142"
	// simulatedTime is that of every simulated message: nothing in a retry follows the clock.
	simulatedTime = "1790001000"
)

type (
	simulatedDelivery struct {
		Object string           `json:"object"`
		Entry  []simulatedEntry `json:"entry"`
	}
	simulatedEntry struct {
		ID      string            `json:"id"`
		Changes []simulatedChange `json:"changes"`
	}
	simulatedChange struct {
		Value simulatedValue `json:"value"`
		Field string         `json:"field"`
	}
	simulatedValue struct {
		Product  string             `json:"messaging_product"`
		Metadata simulatedMetadata  `json:"metadata"`
		Contacts []simulatedContact `json:"contacts"`
		Messages []simulatedMessage `json:"messages"`
	}
	simulatedMetadata struct {
		Number string `json:"display_phone_number"`
		ID     string `json:"phone_number_id"`
	}
	simulatedContact struct {
		Profile struct {
			Name string `json:"name"`
		} `json:"profile"`
		ID string `json:"wa_id"`
	}
	simulatedMessage struct {
		From      string `json:"from"`
		ID        string `json:"id"`
		Timestamp string `json:"timestamp"`
		Type      string `json:"type"`
		Text      struct {
			Body string `json:"body"`
		} `json:"text"`
	}
)

// simulate returns a text message to the business phone number. Its wamid is that of both the
// event and the message. Meta does not tell whether a request is a retry.
func simulate(c channels.Credentials, s channels.Simulation) (*http.Request, error) {
	if len(c.Secrets[appSecret]) == 0 {
		return nil, errors.New(appSecret + ": missing")
	}
	account := s.Account
	if account == "" {
		account = c.Account
	}
	from := cmp.Or(s.From, simulatedSender)
	message := simulatedMessage{
		From:      from,
		ID:        "wamid." + base64.StdEncoding.EncodeToString([]byte(s.EventID+"/"+s.Message)),
		Timestamp: simulatedTime,
		Type:      "text",
	}
	message.Text.Body = s.Text
	contact := simulatedContact{ID: from}
	contact.Profile.Name = from
	body, err := json.Marshal(simulatedDelivery{
		Object: "whatsapp_business_account",
		Entry: []simulatedEntry{{ID: simulatedBusiness, Changes: []simulatedChange{{Field: "messages", Value: simulatedValue{
			Product:  "whatsapp",
			Metadata: simulatedMetadata{Number: simulatedNumber, ID: account},
			Contacts: []simulatedContact{contact},
			Messages: []simulatedMessage{message},
		}}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	body = escaped(body)
	r, err := http.NewRequest(http.MethodPost, s.URL, bytes.NewReader(body)) //nolint:noctx // the caller sends it
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	r.Header.Set("Content-Type", mediaType)
	r.Header.Set(headerSignature, string(newSigner(c.Secrets[appSecret][0]).sign(body)))
	return r, nil
}

// escaped returns JSON as Meta writes it: in ASCII, and with a backslash before each slash.
func escaped(body []byte) []byte {
	var out []byte
	for _, r := range string(body) {
		switch {
		case r == '/':
			out = append(out, '\\', '/')
		case r < utf8.RuneSelf:
			out = utf8.AppendRune(out, r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
	}
	return out
}
