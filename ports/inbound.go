package ports

import (
	"context"
	"net/http"
	"time"
)

// An Inbound answers deliveries. The core implements it, the web adapter drives it.
type Inbound interface {
	// Route returns what must be known of a path before the body is read. It returns
	// domain.ErrNotFound, ErrMethod, or domain.ErrUnavailable if it can't be told whether there
	// is such an installation.
	Route(ctx context.Context, channel, installation, method string) (Route, error)
	// Deliver takes one delivery in and answers when each of its events has its verdict,
	// whatever ctx says of the client. It never waits for the application.
	Deliver(ctx context.Context, d Delivery) Answer
}

// A Route is what must be known of a delivery before its body is read.
type Route struct {
	MaxBody    int64         // bytes
	RetryAfter time.Duration // with domain.ErrUnavailable; 0: not told
}

// A Delivery is one HTTP request of a vendor.
type Delivery struct {
	Channel      string // path segment after /in
	Installation string // the next one; empty on the app-wide path
	Method       string
	Target       string // path and query as the vendor sent them
	Header       http.Header
	Body         []byte
	ReceivedAt   time.Time
}

// An Answer is what the vendor is told.
type Answer struct {
	Status      int
	ContentType string // empty: no body
	Body        []byte
	RetryAfter  time.Duration // 0: not told
	Verdict     string        // of an authentic delivery; empty otherwise
	// KeepBody says that the delivery's body is still in use after the answer.
	KeepBody bool
}

// ErrMethod is returned for an HTTP method that a channel does not use.
var ErrMethod error = methodError{}

type methodError struct{}

func (methodError) Error() string { return "method not used by the channel" }
