package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/admitone/admitone/domain"
)

// How much each vendor does.
const (
	retryEvents  = 20
	slowEvents   = 3
	raceEvents   = 5
	raceCopies   = 20
	forgeries    = 5
	crashEvents  = 10
	outageEvents = 3
)

// retries: each event comes once and then as often as its vendor repeats it.
func (d *demo) retries(ctx context.Context) (string, error) {
	before := d.fleet.balance()
	err := d.fleet.each(ctx, func(ctx context.Context, s *sender) error {
		events := s.make(retryEvents)
		for retry := range s.repeats() + 1 {
			if err := s.deliverAll(ctx, events, retry); err != nil {
				return err
			}
		}
		return nil
	})
	b := d.fleet.balance().minus(before)
	return fmt.Sprintf("%d events, each sent again and again: %d admitted, %d suppressed",
		retryEvents*len(d.fleet.senders), b.admitted, b.suppressed), err
}

// slow: vendors lose patience and repeat events while the application is still at work on them.
func (d *demo) slow(ctx context.Context) (string, error) {
	before := d.fleet.balance()
	free := make(chan struct{})
	err := d.fleet.each(ctx, func(ctx context.Context, s *sender) error {
		g, ctx := errgroup.WithContext(ctx)
		for _, e := range s.make(slowEvents) {
			d.application.hold(e.text, free)
			g.Go(func() error {
				if err := s.deliver(ctx, e, 0); err != nil {
					return err
				}
				if err := poll(ctx, func() (bool, error) { return d.application.of(e.text).began > 0, nil }); err != nil {
					return err
				}
				for retry := range s.repeats() {
					if err := s.deliver(ctx, e, retry+1); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	})
	close(free)
	b := d.fleet.balance().minus(before)
	return fmt.Sprintf("%d events sent again while the application was at work on them: %d suppressed", b.admitted, b.suppressed), err
}

// races: many copies of one event come at the same moment.
func (d *demo) races(ctx context.Context) (string, error) {
	before := d.fleet.balance()
	err := d.fleet.each(ctx, func(ctx context.Context, s *sender) error {
		for _, e := range s.make(raceEvents) {
			if err := s.copies(ctx, e, raceCopies); err != nil {
				return err
			}
		}
		return nil
	})
	b := d.fleet.balance().minus(before)
	return fmt.Sprintf("%d events, %d copies of each at the same moment: %d admitted, %d suppressed",
		raceEvents*len(d.fleet.senders), raceCopies, b.admitted, b.suppressed), err
}

// forgeries: somebody sends who does not know the vendors' secrets.
func (d *demo) forgeries(ctx context.Context) (string, error) {
	var sent, refused atomic.Int64
	err := d.fleet.each(ctx, func(ctx context.Context, s *sender) error {
		if len(s.cred.Secrets) == 0 {
			return nil
		}
		n, err := s.forge(ctx, forgeries)
		sent.Add(forgeries)
		refused.Add(int64(n))
		return err
	})
	if err == nil && refused.Load() != sent.Load() {
		err = fmt.Errorf("only %d of %d were refused", refused.Load(), sent.Load())
	}
	return fmt.Sprintf("%d requests signed with other secrets: all refused", sent.Load()), err
}

// crash: the application declines, so that events wait; the server is killed and restarted;
// the vendors, who can't know, come again.
func (d *demo) crash(ctx context.Context) (string, error) {
	// What came before is to be handled first, or it would be declined too.
	if err := poll(ctx, func() (bool, error) { return d.allClosed(ctx) }); err != nil {
		return "", fmt.Errorf("wait until what came before is handled: %w", err)
	}
	d.application.decline(true)
	waiting := map[*sender][]*event{}
	for _, s := range d.fleet.senders {
		waiting[s] = s.make(crashEvents)
	}
	err := d.fleet.each(ctx, func(ctx context.Context, s *sender) error {
		return errors.Join(s.deliverAll(ctx, waiting[s], 0), s.deliverAll(ctx, waiting[s], 1))
	})
	if err != nil {
		return "", err
	}
	if err := poll(ctx, func() (bool, error) { return d.allWait(ctx, waiting) }); err != nil {
		return "", fmt.Errorf("wait until no dispatch runs: %w", err)
	}
	if err := d.server.Kill(); err != nil {
		return "", err
	}

	missed := map[*sender][]*event{}
	for _, s := range d.fleet.senders {
		if s.channel.Vendor.ComesAgain {
			missed[s] = s.make(outageEvents)
		}
	}
	for s, events := range missed {
		for _, e := range events {
			if err := s.deliver(ctx, e, 0); !errors.Is(err, errUnanswered) {
				return "", errors.Join(errors.New("the server was killed and still answered"), err)
			}
		}
	}
	if err := d.outage(); err != nil {
		return "", err
	}
	d.application.decline(false)
	if d.server, err = startServer(ctx, d.dir, d.config, d.admin); err != nil {
		return "", fmt.Errorf("restart: %w", err)
	}
	err = d.fleet.each(ctx, func(ctx context.Context, s *sender) error {
		return errors.Join(s.deliverAll(ctx, waiting[s], 2), s.deliverAll(ctx, missed[s], 1))
	})
	if err != nil {
		return "", err
	}
	if err := poll(ctx, func() (bool, error) { return d.allClosed(ctx) }); err != nil {
		return "", fmt.Errorf("wait until every event is handled: %w", err)
	}
	if err := d.fetched(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("server killed while %d events waited for the application, then restarted: it took them up,\n%22sand %d more that vendors had sent in vain meanwhile",
		crashEvents*len(waiting), "", outageEvents*(len(missed)+len(d.polled))), nil
}

// allWait reports whether all those events wait for another attempt, and go on waiting for
// long enough that a kill now can't hit one.
func (d *demo) allWait(ctx context.Context, events map[*sender][]*event) (bool, error) {
	counts, err := d.counts(ctx)
	if err != nil {
		return false, err
	}
	n := 0
	next := time.Now().Add(demoBackoff)
	for _, list := range events {
		for _, e := range list {
			n++
			if due := d.application.of(e.text).declined.Add(demoBackoff); due.Before(next) {
				next = due
			}
		}
	}
	return counts[domain.Retrying] == n && counts[domain.Dispatching] == 0 && counts[domain.Claimed] == 0 &&
		time.Until(next) > demoMargin, nil
}

// allClosed reports whether no receipt is open.
func (d *demo) allClosed(ctx context.Context) (bool, error) {
	counts, err := d.counts(ctx)
	return counts[domain.Claimed]+counts[domain.Dispatching]+counts[domain.Retrying] == 0, err
}

// counts returns how many receipts are in each state.
func (d *demo) counts(ctx context.Context) (map[domain.State]int, error) {
	var s ledgerStats
	if err := d.admin.do(ctx, http.MethodGet, "/api/v1/stats", nil, nil, &s); err != nil {
		return nil, err
	}
	counts := map[domain.State]int{}
	for _, c := range s.Counts {
		counts[c.State] += int(c.Receipts)
	}
	return counts, nil
}

// late: long afterwards every vendor sends each of its events once more. The server has been
// restarted since, and remembers nothing but its receipts.
func (d *demo) late(ctx context.Context) (string, error) {
	before := d.fleet.balance()
	err := d.fleet.each(ctx, func(ctx context.Context, s *sender) error {
		return s.deliverAll(ctx, s.all(), s.repeats()+1)
	})
	b := d.fleet.balance().minus(before)
	return fmt.Sprintf("all %d events once more, to the server that was restarted: %d suppressed", b.sent, b.suppressed), err
}
