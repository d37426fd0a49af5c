package slack_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/channeltest"
	"github.com/admitone/admitone/channels/slack"
)

func TestChannelKeepsItsPromises(t *testing.T) {
	channeltest.Run(t, channeltest.Spec{
		Channel:     slack.New(),
		Credentials: credentials(secret),
		Now:         signedAt,
		Tolerance:   5 * time.Minute,
		// Of the checks of a certificate some come unsigned.
		Handshakes:    []string{"lifecycle_ssl_check_signed", "lifecycle_ssl_check_unsigned"},
		SignedHeaders: []string{"X-Slack-Request-Timestamp", "X-Slack-Signature"},
		BodySigned:    true,
		RetryHeaders:  http.Header{"X-Slack-Retry-Num": {"1"}, "X-Slack-Retry-Reason": {"http_timeout"}},
		Sign:          func(r *channels.Request) { sign(r, secret) },
	})
}
