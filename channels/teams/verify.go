package teams

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

// tolerance is by how much Microsoft's clock and ours may differ, by Microsoft's rule.
const tolerance = 5 * time.Minute

// algorithms are those that the Bot Framework SDK for JavaScript takes. Each needs a public
// key: none and HMAC must never be among them.
var algorithms = []string{"RS256", "RS384", "RS512"}

// claims are those of a token of the connector. Its service URL is told as serviceurl and as
// serviceUrl, in documents and in practice; encoding/json takes either.
type claims struct {
	jwt.RegisteredClaims
	ServiceURL string `json:"serviceurl"`
}

func refuse(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{domain.ErrUnauthenticated}, a...)...)
}

// Verify checks the token, and that body and token go together. If the keys are needed and
// can't be fetched, the error wraps domain.ErrUnavailable.
func (e *endpoint) Verify(r *channels.Request) error {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return refuse("%d headers Authorization, one is needed", len(values))
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return refuse("Authorization is not of the scheme Bearer")
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods(algorithms), jwt.WithStrictDecoding(),
		jwt.WithAudience(e.appID), jwt.WithExpirationRequired(), jwt.WithNotBeforeRequired(),
		jwt.WithLeeway(tolerance), jwt.WithTimeFunc(func() time.Time { return r.Now }),
	)
	var (
		c   claims
		key signingKey
		set *keySet
	)
	_, err := parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		id, _ := t.Header["kid"].(string)
		if id == "" {
			return nil, errors.New("the token names no key")
		}
		var err error
		if key, set, err = e.keys.key(id, r.Now); err != nil {
			return nil, err
		}
		if len(set.algorithms) > 0 && !slices.Contains(set.algorithms, t.Method.Alg()) {
			return nil, errors.New("signed by an algorithm that the metadata does not list")
		}
		return key.public, nil
	})
	switch {
	case errors.Is(err, domain.ErrUnavailable), errors.Is(err, domain.ErrUnauthenticated):
		return err
	case err != nil:
		return refuse("%w", err)
	case c.Issuer != set.issuer:
		return refuse("the token is of another issuer")
	}
	a, err := read(r.Body)
	switch {
	case err != nil:
		return refuse("the service URL can't be compared: %w", err)
	case key.endorsements != nil && !slices.Contains(key.endorsements, payload.Text(a.channelID)):
		return refuse("the key does not speak for the channel")
	case c.ServiceURL == "" || payload.Text(a.serviceURL) != c.ServiceURL:
		// Else the body could choose where the bot sends its own token.
		return refuse("the service URL is not that of the token")
	}
	return nil
}
