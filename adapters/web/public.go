package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/admitone/admitone/ports"
)

// HeaderVerdict bears the verdict of every answer to an authentic delivery.
const HeaderVerdict = "Admitone-Verdict"

// A PublicConfig is what the public listener is made of.
type PublicConfig struct {
	Inbound ports.Inbound
	Log     *slog.Logger
	// Refused, if set, is told of each delivery that was turned away before the core saw its
	// body: reason is "too_large" or "broken_body". The channel is a known one.
	Refused func(channel, reason string)
}

// Public returns the handler that vendors reach: /in/{channel}, /in/{channel}/{installation}
// and whatever lies below. It never redirects, and every answer but the channel's own has
// an empty body, since vendors send, show or execute what they are told. Safe for
// concurrent use.
func Public(cfg PublicConfig) http.Handler {
	p := &public{PublicConfig: cfg}
	e := newEcho(cfg.Log, func(c echo.Context, status int, _ string) error {
		return c.NoContent(status)
	})
	receive := recovered(p.receive)
	for _, path := range []string{
		"/in/:channel",
		"/in/:channel/",
		"/in/:channel/:installation",
		"/in/:channel/:installation/*",
	} {
		// The one registration of echo that takes every method: which of them a channel
		// uses is the core's to say.
		e.RouteNotFound(path, receive)
	}
	return e
}

type public struct {
	PublicConfig
	buffers sync.Pool // of *[]byte, none larger than maxPooled
}

func (p *public) receive(c echo.Context) error {
	received := time.Now()
	r := c.Request()
	channel, installation := c.Param("channel"), c.Param("installation")
	route, err := p.Inbound.Route(r.Context(), channel, installation, r.Method)
	if err != nil {
		if errors.Is(err, ports.ErrMethod) {
			c.Response().Header().Set(echo.HeaderAllow, p.allowed(r.Context(), channel, installation))
		}
		retryAfter(c.Response().Header(), route.RetryAfter)
		return err
	}

	buffer := p.buffer()
	*buffer, err = readBody(*buffer, r.Body, r.ContentLength, route.MaxBody)
	if err != nil {
		p.recycle(buffer)
		if p.Refused != nil {
			p.Refused(channel, reason(err))
		}
		return err
	}
	answer := p.Inbound.Deliver(r.Context(), ports.Delivery{
		Channel:      channel,
		Installation: installation,
		Method:       r.Method,
		Target:       target(r),
		Header:       r.Header,
		Body:         *buffer,
		ReceivedAt:   received,
	})
	err = write(c.Response(), answer)
	// After the answer, whose body may be a part of the delivery's. A panic passes this by:
	// then nobody knows who still holds the buffer.
	if !answer.KeepBody {
		p.recycle(buffer)
	}
	return err
}

func write(w *echo.Response, a ports.Answer) error {
	h := w.Header()
	if a.Verdict != "" {
		h.Set(HeaderVerdict, a.Verdict)
	}
	retryAfter(h, a.RetryAfter)
	// A body without a type would be given one by guessing.
	if a.ContentType == "" || len(a.Body) == 0 {
		w.WriteHeader(a.Status)
		return nil
	}
	h.Set(echo.HeaderContentType, a.ContentType)
	w.WriteHeader(a.Status)
	_, err := w.Write(a.Body)
	return err
}

// retryAfter tells when to come again, if d says.
func retryAfter(h http.Header, d time.Duration) {
	if d > 0 {
		seconds := (d + time.Second - 1) / time.Second
		h.Set(echo.HeaderRetryAfter, strconv.FormatInt(int64(seconds), 10))
	}
}

// target returns path and query as they stand in the request line, since signatures cover
// them. A proxy's absolute form is the exception: there they follow the host.
func target(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// allowed lists the methods that the path takes, for the Allow header that a 405 must bear.
func (p *public) allowed(ctx context.Context, channel, installation string) string {
	var methods []string
	for _, m := range []string{
		http.MethodGet, http.MethodHead, http.MethodPost,
		http.MethodPut, http.MethodPatch, http.MethodDelete,
	} {
		if _, err := p.Inbound.Route(ctx, channel, installation, m); err == nil {
			methods = append(methods, m)
		}
	}
	return strings.Join(methods, ", ")
}

func reason(err error) string {
	if errors.Is(err, errTooLarge) {
		return "too_large"
	}
	return "broken_body"
}
