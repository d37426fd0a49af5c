package intake

import (
	"context"
	"errors"
	"fmt"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A pollList is what there is to poll, and as of when.
type pollList struct {
	of      map[ports.PollAccount]*Installation
	changes uint64 // of the directory, when the list was begun
	whole   bool   // it could be read to its end
}

func pollAccount(in *Installation) ports.PollAccount {
	return ports.PollAccount{Tenant: in.Tenant, Channel: in.Channel, Account: in.Account}
}

// polled returns the installations that are to be polled, those of the database among them. It
// asks the database only after a change; before is what it returned last.
func (d *Directory) polled(ctx context.Context, polledChannels []string, before pollList) (pollList, error) {
	d.mu.Lock()
	changes := d.changes
	d.mu.Unlock()
	if before.whole && before.changes == changes {
		return before, nil
	}
	list := pollList{of: map[ports.PollAccount]*Installation{}, changes: changes}
	add := func(in *Installation) {
		if in.Poll.Round != nil && !in.Paused {
			list.of[pollAccount(in)] = in
		}
	}
	for _, in := range d.byID {
		add(in)
	}
	if d.kept != nil {
		for _, channel := range polledChannels {
			if err := d.eachKept(ctx, channel, add); err != nil {
				return list, err
			}
		}
	}
	list.whole = true
	return list, nil
}

// eachKept calls do with each installation of a channel that the database has. One that can't
// be opened is passed over: a look-up tells why in the log. One whose look-up failed for another
// reason is opened as it was listed: the list is not read again before something changes.
func (d *Directory) eachKept(ctx context.Context, channel string, do func(*Installation)) error {
	for f := (ports.InstallationFilter{Channel: channel, Limit: 1000}); ; {
		page, err := d.kept.Installations(ctx, f)
		if err != nil {
			return fmt.Errorf("list installations to poll: %w", err)
		}
		for _, row := range page.Installations {
			switch in, err := d.ByID(ctx, row.ID); {
			case err == nil:
				do(in)
			case errors.Is(err, domain.ErrNotInstalled) || row.Unreadable:
			case ctx.Err() != nil:
				return err
			default:
				if in, err := d.open(row); err == nil {
					do(&in)
				}
			}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return nil
		}
	}
}
