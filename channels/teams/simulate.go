package teams

import (
	"bytes"
	"crypto/rsa"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// simulatorJWK is the key of a connector that does not exist. It guards nothing: only a server
// whose openid_metadata is that of the example believes it.
//
//go:embed simulator.jwk.json
var simulatorJWK []byte

const (
	simulatorIssuer  = "https://api.botframework.com"
	simulatorService = "https://smba.trafficmanager.example/simulated/"
	// simulatedTime is when every simulated message was written. A repeat is the same message
	// again, so nothing in it may follow the clock.
	simulatedTime = "2026-09-21T14:13:20.000Z"
	// simulatedMillisecond begins the ids of simulated messages, which are milliseconds.
	simulatedMillisecond = 1_790_000_000_000
)

var simulatorKey = sync.OnceValues(func() (jwkset.JWK, error) {
	var k jwkset.JWKMarshal
	if err := json.Unmarshal(simulatorJWK, &k); err != nil {
		return jwkset.JWK{}, fmt.Errorf("the simulator's key: %w", err)
	}
	return jwkset.NewJWKFromMarshal(k, jwkset.JWKMarshalOptions{Private: true}, jwkset.JWKValidateOptions{})
})

// simulate returns a message of s.From to the bot, signed by the simulator's own key, since
// nobody but Microsoft has Microsoft's. The number of the event is that of the message, so
// both of s make the id.
func simulate(c channels.Credentials, s channels.Simulation) (*http.Request, error) {
	var own settings
	if err := c.Settings.Decode(&own); err != nil {
		return nil, err
	}
	tenant, from := s.Account, s.From
	if tenant == "" {
		tenant = c.Account
	}
	if from == "" {
		from = "simulated"
	}
	type object map[string]any
	sum := domain.DigestOf("teams", s.EventID, s.Message)
	body, err := json.Marshal(object{
		"type": "message", "id": strconv.FormatUint(simulatedMillisecond+binary.BigEndian.Uint64(sum[:8])>>12, 10),
		"timestamp": simulatedTime, "channelId": teamsChannel, "serviceUrl": simulatorService,
		"from":         object{"id": "29:" + from, "name": from},
		"recipient":    object{"id": "28:" + own.AppID, "name": "Simulated bot"},
		"conversation": object{"conversationType": "personal", "tenantId": tenant, "id": "a:" + from},
		"text":         s.Text, "textFormat": "plain",
		"channelData": object{"tenant": object{"id": tenant}},
	})
	if err != nil {
		return nil, fmt.Errorf("activity: %w", err)
	}
	token, err := simulateToken(own.AppID, s.Now)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequest(http.MethodPost, s.URL, bytes.NewReader(body)) //nolint:noctx // the caller sends it
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("User-Agent", "Microsoft-SkypeBotApi (Microsoft-BotFramework/3.0)")
	r.Header.Set("Authorization", "Bearer "+token)
	return r, nil
}

// A signed token is used again for a while, as Microsoft's senders do: each has an hour.
type signed struct {
	token string
	at    time.Time
}

const usedAgain = 30 * time.Minute

var tokens sync.Map // the last signed, by app id

func simulateToken(appID string, now time.Time) (string, error) {
	if last, ok := tokens.Load(appID); ok {
		if last, ok := last.(signed); ok && !now.Before(last.at) && now.Before(last.at.Add(usedAgain)) {
			return last.token, nil
		}
	}
	jwk, err := simulatorKey()
	if err != nil {
		return "", err
	}
	private, ok := jwk.Key().(*rsa.PrivateKey)
	if !ok {
		return "", errors.New("the simulator's key: not a private key of RSA")
	}
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iss": simulatorIssuer,
		"aud": appID, // a string, as Microsoft writes it: the verifier of its SDK refuses a list of one
		"nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"serviceurl": simulatorService,
	})
	t.Header["kid"] = jwk.Marshal().KID
	token, err := t.SignedString(private)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	tokens.Store(appID, signed{token, now})
	return token, nil
}
