package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// answers tells how each error is answered, on both listeners. The first that matches counts.
var answers = []struct {
	err    error
	status int
}{
	{domain.ErrUnauthenticated, http.StatusUnauthorized},
	{domain.ErrNotFound, http.StatusNotFound},
	{domain.ErrNotInstalled, http.StatusNotFound},
	{domain.ErrNoConversation, http.StatusNotFound},
	{domain.ErrUnknownRecipient, http.StatusNotFound},
	{ports.ErrMethod, http.StatusMethodNotAllowed},
	{errTooLarge, http.StatusRequestEntityTooLarge},
	{errBrokenBody, http.StatusBadRequest},
	{domain.ErrUnreadable, http.StatusBadRequest},
	{domain.ErrState, http.StatusConflict},
	{domain.ErrTaken, http.StatusConflict},
	{ports.ErrNoKey, http.StatusConflict},
	{domain.ErrFenced, http.StatusConflict},
	{domain.ErrUnavailable, http.StatusServiceUnavailable},
	{domain.ErrUnknown, http.StatusServiceUnavailable},
	{context.DeadlineExceeded, http.StatusServiceUnavailable},
	{context.Canceled, http.StatusServiceUnavailable},
}

// answerTo returns the status for err and a sentence that may be shown to anybody: never
// err's own text, which may hold what a driver or a vendor said.
func answerTo(err error) (status int, detail string) {
	for _, a := range answers {
		if errors.Is(err, a.err) {
			return a.status, a.err.Error()
		}
	}
	status = http.StatusInternalServerError
	if he, ok := errors.AsType[*echo.HTTPError](err); ok {
		status = he.Code
	} else if se, ok := errors.AsType[huma.StatusError](err); ok {
		status = se.GetStatus()
	}
	return status, http.StatusText(status)
}

// newEcho returns an echo that answers errors by answerTo and write, logs what is the
// server's own fault, and prints nothing by itself.
func newEcho(l *slog.Logger, write func(c echo.Context, status int, detail string) error) *echo.Echo {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		committed := c.Response().Committed
		_, panicked := errors.AsType[*panicError](err)
		if committed && !panicked {
			// The status is out; what can fail after it is the client's connection.
			l.DebugContext(c.Request().Context(), "answer not delivered", "error", err)
			return
		}
		status, detail := answerTo(err)
		logFault(c.Request().Context(), l, status, err, "method", c.Request().Method, "path", c.Request().URL.Path)
		if committed {
			// Half an answer must not look like a whole one: this cuts the connection.
			panic(http.ErrAbortHandler)
		}
		if err := write(c, status, detail); err != nil {
			l.DebugContext(c.Request().Context(), "answer not delivered", "error", err)
		}
	}
	return e
}

// logFault logs err if the answer with that status says that the server is at fault.
func logFault(ctx context.Context, l *slog.Logger, status int, err error, attrs ...any) {
	if status < http.StatusInternalServerError {
		return
	}
	if p, ok := errors.AsType[*panicError](err); ok {
		attrs = append(attrs, "stack", string(p.stack))
	}
	level := slog.LevelError
	if status == http.StatusServiceUnavailable {
		level = slog.LevelWarn
	}
	l.Log(ctx, level, "request failed", append(attrs, "status", status, "error", err)...)
}

// A panicError is a panic of a handler, with where it came from.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// recovered returns next with its panics turned into errors, so that one request can't end
// the process and is answered by the one error map.
func recovered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = &panicError{value: v, stack: debug.Stack()}
			}
		}()
		return next(c)
	}
}
