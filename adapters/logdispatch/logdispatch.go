// Package logdispatch hands events to nobody: it writes a line to the log for each. It is
// what a server without an application does, so that a newcomer sees that events come in.
package logdispatch

import (
	"context"
	"log/slog"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A Dispatcher logs events. Safe for concurrent use.
type Dispatcher struct{ log *slog.Logger }

var _ ports.Dispatcher = (*Dispatcher)(nil)

// New returns a dispatcher that writes to log.
func New(log *slog.Logger) *Dispatcher { return &Dispatcher{log: log} }

// Dispatch implements ports.Dispatcher. It writes one line at level info, with names and
// numbers and nothing that a person wrote, and always returns taken.
func (d *Dispatcher) Dispatch(ctx context.Context, event ports.Dispatch) domain.Result {
	d.log.LogAttrs(ctx, slog.LevelInfo, "event",
		slog.String("id", event.ID),
		slog.String("kind", string(event.Kind)),
		slog.String("tenant", event.Key.Tenant),
		slog.String("platform", event.Key.Platform),
		slog.String("channel", event.Channel),
		slog.String("account", event.Key.Account),
		slog.String("event_id", event.Key.EventID),
		slog.String("message_key", event.MessageKey),
		slog.String("conversation", event.ConversationID),
		slog.Int("attempt", event.Attempt),
	)
	return domain.Result{Outcome: domain.Taken}
}

// Close implements ports.Dispatcher. It has nothing to give up.
func (d *Dispatcher) Close() error { return nil }
