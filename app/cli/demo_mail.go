package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/admitone/admitone/app/child"
	"github.com/admitone/admitone/channels"
)

// polledEvents is how many events each vendor has that is asked for them.
const polledEvents = 20

// A polled is a vendor of the demo that does not call: the server asks it. Some of its events come
// by another channel of its platform too, as mail does that is relayed besides.
type polled struct {
	*stage
	channel channels.Channel
	other   *sender // the other channel; nil if there is none
	events  []*event
	relayed int
}

// newPolled makes a vendor listen.
func newPolled(ctx context.Context, c channels.Channel, f *fleet) (*polled, error) {
	address, err := child.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	p := &polled{channel: c}
	if p.stage, err = serveVendor(ctx, c, "http://"+address); err != nil {
		return nil, err
	}
	p.channel.Example = p.cred
	for _, s := range f.senders {
		if s.channel.Platform == c.Platform && s.cred.Account == p.cred.Account {
			p.other = s
		}
	}
	return p, nil
}

// put places n new events, each of them twice.
func (p *polled) put(n int) ([]*event, error) {
	for range n {
		i := len(p.events) + 1
		e := &event{message: message{
			eventID: newEventID(), number: strconv.Itoa(i), from: strconv.Itoa(15550100 + i%conversations),
			text: fmt.Sprintf("message %d of the demo by %s", i, p.channel.Name),
		}}
		p.events = append(p.events, e)
		for retry := range 2 {
			err := p.Put(channels.Simulation{
				Account: p.cred.Account, EventID: e.eventID, Message: e.number, From: e.from, Text: e.text, Retry: retry, Now: time.Now(),
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return slices.Clone(p.events[len(p.events)-n:]), nil
}

// relay sends events by the other channel.
func (p *polled) relay(ctx context.Context, events []*event) error {
	for _, e := range events {
		a, err := p.other.vendor.deliver(ctx, e.message, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", p.other.channel.Name, err)
		}
		p.relayed++
		if a.status != 200 {
			return fmt.Errorf("%s: %q was answered %d %s", p.other.channel.Name, e.text, a.status, a.verdict)
		}
	}
	return nil
}

// balance says what became of what was handed out. That each event was admitted once is what
// the ledger proves.
func (p *polled) balance() balance {
	sent := p.Fetched() + p.relayed
	return balance{sent: sent, admitted: len(p.events), suppressed: sent - len(p.events)}
}

// events returns every event so far.
func (d *demo) events() []*event {
	all := d.fleet.all()
	for _, p := range d.polled {
		all = append(all, p.events...)
	}
	return all
}

// deliveries returns how many there were, those that the server fetched among them.
func (d *demo) deliveries() int {
	n := d.fleet.sent()
	for _, p := range d.polled {
		n += p.balance().sent
	}
	return n
}

// polling: the server asks the vendors that do not call. Each event is there twice, and half of
// them come by another path as well, before, while or after they are found.
func (d *demo) polling(ctx context.Context) (string, error) {
	copies, relayed := 0, 0
	for _, p := range d.polled {
		if p.Rounds() == 0 { // what is there at the first is not new
			if err := p.polled(ctx, startPatience); err != nil {
				return "", fmt.Errorf("%s: %w", p.channel.Name, err)
			}
		}
		events, err := p.put(polledEvents)
		if err == nil && p.other != nil {
			err = p.relay(ctx, events[:polledEvents/2])
		}
		if err == nil {
			err = d.handlesAll(ctx, events)
		}
		if err != nil {
			return "", err
		}
		copies, relayed = copies+2*len(events), relayed+p.relayed
	}
	return fmt.Sprintf("%d events in accounts that are polled, each there twice, %d of them relayed besides: each handled once",
		copies/2, relayed), nil
}

// outage places events in the accounts that are polled while no server runs.
func (d *demo) outage() error {
	for _, p := range d.polled {
		if _, err := p.put(outageEvents); err != nil {
			return err
		}
	}
	return nil
}

// fetched waits until everything in the accounts that are polled is handled.
func (d *demo) fetched(ctx context.Context) error {
	for _, p := range d.polled {
		if err := d.handlesAll(ctx, p.events); err != nil {
			return err
		}
	}
	return nil
}

// handlesAll waits until the application has handled events and everything about them is settled.
func (d *demo) handlesAll(ctx context.Context, events []*event) error {
	err := poll(ctx, func() (bool, error) {
		for _, e := range events {
			if d.application.of(e.text).handled == 0 {
				return false, nil
			}
		}
		return d.allClosed(ctx)
	})
	if err != nil {
		return errors.Join(errors.New("wait until what was polled is handled"), err)
	}
	return nil
}
