package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/domain"
)

// A proof is something that the demo has proven, or not.
type proof struct {
	claim string
	wrong []string // what speaks against it
}

func (c *proof) fails(format string, a ...any) { c.wrong = append(c.wrong, fmt.Sprintf(format, a...)) }

// report compares what the vendors sent, the application counted and the ledger says. It
// returns errTold unless each event was handled exactly once.
func (d *demo) report(ctx context.Context, took time.Duration) error {
	ledger, err := d.ledger(ctx)
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	table, lost := d.table()
	d.screen.say("\n%s", table)

	proofs := []proof{d.balanced(), d.handledOnce(), d.agrees(ledger)}
	good := true
	for _, c := range proofs {
		d.screen.say("  %s %s", d.screen.mark(len(c.wrong) == 0), c.claim)
		for i, w := range c.wrong {
			if i == 5 {
				d.screen.say("      and %d more", len(c.wrong)-i)
				break
			}
			d.screen.say("      %s", w)
		}
		good = good && len(c.wrong) == 0
	}
	events := len(d.events())
	if !good {
		d.screen.say("\n%s: not every event was handled exactly once; %d of %d lost.", d.screen.red("FAILED"), lost, events)
		return errTold
	}
	d.screen.say("\n%s: %d deliveries of %d events, each handled exactly once, none lost. %.1f s",
		d.screen.green("PASSED"), d.deliveries(), events, took.Seconds())
	return nil
}

// ledger returns every receipt that the server has.
func (d *demo) ledger(ctx context.Context) ([]web.Receipt, error) {
	raw, _, err := d.admin.list(ctx, receiptsPath, "receipts", url.Values{}, math.MaxInt)
	if err != nil {
		return nil, err
	}
	receipts := make([]web.Receipt, len(raw))
	for i := range raw {
		if err := json.Unmarshal(raw[i], &receipts[i]); err != nil {
			return nil, err
		}
	}
	return receipts, nil
}

// table returns what became of each vendor's events, and how many the application never handled.
func (d *demo) table() (text string, lost int) {
	var b strings.Builder
	line := func(cells ...any) {
		text := fmt.Sprintf("  %-14s %6v %6v %9v %11v %11v %8v %5v %15v %13v", cells...)
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	line("channel", "events", "sent", "admitted", "suppressed", "unanswered", "handled", "lost", "slowest answer", "vendor waits")
	var sum balance
	var events, handled int
	var slowest time.Duration
	for _, s := range d.fleet.senders {
		all, h, l := s.all(), 0, 0
		for _, e := range all {
			n := d.application.of(e.text).handled
			h += n
			if n == 0 {
				l++
			}
		}
		line(s.channel.Name, len(all), s.sent, s.admitted, s.suppressed, s.unanswered, h, l, milliseconds(s.slowest), span(s.channel.Vendor.Deadline))
		sum, slowest = sum.plus(s.balance), max(slowest, s.slowest)
		events, handled, lost = events+len(all), handled+h, lost+l
	}
	for _, p := range d.polled {
		h, l := 0, 0
		for _, e := range p.events {
			n := d.application.of(e.text).handled
			h += n
			if n == 0 {
				l++
			}
		}
		b := p.balance()
		line(p.channel.Name, len(p.events), b.sent, b.admitted, b.suppressed, b.unanswered, h, l, "", "is polled")
		sum = sum.plus(b)
		events, handled, lost = events+len(p.events), handled+h, lost+l
	}
	line("all", events, sum.sent, sum.admitted, sum.suppressed, sum.unanswered, handled, lost, milliseconds(slowest), "")
	return b.String(), lost
}

// balanced checks that one delivery of each event was admitted and all others were suppressed.
func (d *demo) balanced() proof {
	b := d.fleet.balance()
	events := d.fleet.all()
	c := proof{claim: fmt.Sprintf("vendors      of %d answered deliveries one of each event was admitted, %d were suppressed", b.sent-b.unanswered, b.suppressed)}
	for _, e := range events {
		if e.admitted != 1 {
			c.fails("%q was admitted %d times", e.text, e.admitted)
		}
	}
	if b.admitted != len(events) || b.admitted+b.suppressed+b.unanswered != b.sent {
		c.fails("%d sent, %d admitted, %d suppressed, %d unanswered", b.sent, b.admitted, b.suppressed, b.unanswered)
	}
	return c
}

// handledOnce checks the application's own count.
func (d *demo) handledOnce() proof {
	events := d.events()
	c := proof{claim: fmt.Sprintf("application  handled each of %d events exactly once, under one id each, all correctly signed", len(events))}
	for _, e := range events {
		if a := d.application.of(e.text); a.handled != 1 || len(a.ids) != 1 {
			c.fails("%q was handled %d times, under %d ids", e.text, a.handled, len(a.ids))
		}
	}
	if seen, badly := d.application.count(); seen != len(events) || badly > 0 {
		c.fails("it got %d different events and %d requests that it could not believe", seen, badly)
	}
	return c
}

// agrees checks that the ledger has one handled receipt for each event, of the id under which
// the application handled it.
func (d *demo) agrees(ledger []web.Receipt) proof {
	events := d.events()
	c := proof{claim: fmt.Sprintf("ledger       has a receipt for each of these %d events and no others; all handled, none failed, lost or open", len(events))}
	receipts := map[string]bool{}
	for _, r := range ledger {
		receipts[r.ID] = true
		if r.State != string(domain.Handled) {
			c.fails("receipt %s of %s is %s: %s", r.ID, r.Channel, r.State, r.LastError)
		}
	}
	for _, e := range events {
		for id := range d.application.of(e.text).ids {
			if !receipts[id] {
				c.fails("%q was dispatched as %s, which has no receipt", e.text, id)
			}
		}
	}
	if len(ledger) != len(events) {
		c.fails("it has %d receipts", len(ledger))
	}
	return c
}
