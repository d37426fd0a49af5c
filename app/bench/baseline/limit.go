// Package baseline has the two servers that Admitone is measured against: one that does less
// than it must and one that does it in the ordinary way. Each answers the same requests.
package baseline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/slack"
	"github.com/admitone/admitone/ports"
)

// Limit returns Admitone's own handler over nothing: it verifies and reads each request and
// answers 200 without asking any store. No server with stores can be faster.
func Limit(secret, account string) (http.Handler, error) {
	c := slack.New()
	ep, err := c.Open(channels.Credentials{Account: account, Secrets: map[string][]string{"signing_secret": {secret}}})
	if err != nil {
		return nil, fmt.Errorf("open slack: %w", err)
	}
	return web.Public(web.PublicConfig{Inbound: limit{ep, c.Acknowledge}, Log: slog.New(slog.DiscardHandler)}), nil
}

type limit struct {
	endpoint channels.Endpoint
	ack      channels.Reply
}

func (limit) Route(context.Context, string, string, string) (ports.Route, error) {
	return ports.Route{MaxBody: 1 << 20}, nil
}

func (l limit) Deliver(_ context.Context, d ports.Delivery) ports.Answer {
	r := &channels.Request{Method: d.Method, URL: d.Target, Header: d.Header, Body: d.Body, Now: d.ReceivedAt}
	if l.endpoint.Verify(r) != nil {
		return ports.Answer{Status: http.StatusUnauthorized}
	}
	if _, err := l.endpoint.Extract(r); err != nil {
		return ports.Answer{Status: http.StatusBadRequest}
	}
	return ports.Answer{Status: http.StatusOK, ContentType: l.ack.ContentType, Body: l.ack.Body}
}

// Serve serves h at addr until ctx ends.
func Serve(ctx context.Context, addr string, h http.Handler) error {
	s := &http.Server{Addr: addr, Handler: h} //nolint:gosec // the benchmark's own requests are never slow
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
