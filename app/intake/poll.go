package intake

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// Of polling: how often is looked for what is due, how long an account is held without a sign
// of life, and how long a round may take before it makes way, having saved how far it came.
const (
	pollEvery     = 250 * time.Millisecond
	pollLease     = 6 * time.Second
	pollKeepEvery = pollLease / 3
	pollRound     = 5 * time.Minute
	pollCall      = 5 * time.Second // one call of the store
)

// How long an account is left alone after a round that failed. Waits are drawn at random from
// the upper half, so that accounts which failed together don't come again together.
const (
	pollFailed  = time.Second // doubled with each failure
	pollBackoff = time.Minute
	pollRevoked = time.Hour // somebody has to do something about it
)

// maxRounds is how many rounds an instance has under way at a time, unless it is told.
const maxRounds = 16

// A poller finds out which accounts are due and polls them.
type poller struct {
	*Engine
	places chan struct{} // one for each round under way
	names  []string      // of the channels that are polled
	rounds sync.WaitGroup
	stop   context.CancelFunc
	ended  chan struct{} // closed when the loop has ended

	// of the loop alone
	list    pollList
	entered map[ports.PollAccount]*Installation // as the store knows them
}

// newPoller returns nil if there is nothing to poll with.
func newPoller(e *Engine) *poller {
	p := &poller{Engine: e, entered: map[ports.PollAccount]*Installation{}}
	for name, c := range e.channels {
		if c.Polled() {
			p.names = append(p.names, name)
		}
	}
	if e.Polls == nil || len(p.names) == 0 {
		return nil
	}
	rounds := e.Config.Rounds
	if rounds == 0 {
		rounds = maxRounds
	}
	p.places = make(chan struct{}, rounds)
	return p
}

// start polls until stop is called. It returns at once.
func (p *poller) start(life context.Context, loops *sync.WaitGroup) {
	ctx, stop := context.WithCancel(life)
	p.stop, p.ended = stop, make(chan struct{})
	loops.Go(func() {
		defer close(p.ended)
		t := time.NewTicker(pollEvery)
		defer t.Stop()
		for {
			p.look(ctx)
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

// end stops polling and waits until the rounds under way have given their accounts up.
func (p *poller) end() {
	if p != nil && p.stop != nil {
		p.stop()
		<-p.ended
		p.rounds.Wait()
	}
}

// look begins a round for each account that is due, as far as there are places.
func (p *poller) look(ctx context.Context) {
	err := func() error {
		list, err := p.Installations.polled(ctx, p.names, p.list)
		p.list = list
		if err := errors.Join(err, p.enter(ctx)); err != nil {
			return err
		}
		free := cap(p.places) - len(p.places)
		if len(p.list.of) == 0 || free == 0 {
			return nil
		}
		call, cancel := context.WithTimeout(ctx, pollCall)
		defer cancel()
		wanted := func(a ports.PollAccount) bool { return p.list.of[a] != nil }
		polls, err := p.Polls.TakePolls(call, p.holder, wanted, free, pollLease)
		if err != nil {
			return err
		}
		for _, poll := range polls {
			in := list.of[poll.PollAccount]
			p.places <- struct{}{}
			p.rounds.Go(func() {
				defer func() { <-p.places }()
				p.round(ctx, in, poll)
			})
		}
		return nil
	}()
	if err != nil && ctx.Err() == nil {
		p.Metrics.DurableStoreErrors.Inc()
		p.Logger.Warn("what is due could not be polled yet", "error", err)
	}
}

// enter makes known to the store what it does not know, or not with these credentials.
func (p *poller) enter(ctx context.Context) error {
	var accounts []ports.PollAccount
	for a, in := range p.list.of {
		if p.entered[a] != in {
			accounts = append(accounts, a)
		}
	}
	if len(accounts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pollCall)
	defer cancel()
	if err := p.Polls.EnterPolls(ctx, accounts); err != nil {
		return err
	}
	for _, a := range accounts {
		p.entered[a] = p.list.of[a]
	}
	return nil
}

// round polls one account that was taken, and gives it up.
func (p *poller) round(ctx context.Context, in *Installation, poll ports.Poll) {
	limited, cancel := context.WithTimeout(ctx, pollRound)
	defer cancel()
	held, lose := context.WithCancelCause(limited)
	defer lose(nil)
	var keeping sync.WaitGroup
	ended := make(chan struct{})
	keeping.Go(func() { p.keep(held, poll.PollLease, lose, ended) })
	caughtUp, err := p.ask(held, in, poll)
	close(ended)
	keeping.Wait()

	if errors.Is(context.Cause(held), domain.ErrFenced) {
		p.Logger.Warn("the polling of an account was taken over by another instance", "installation", in.ID)
		return
	}
	end := ports.PollEnd{CaughtUp: caughtUp && err == nil, Condition: domain.PollWorks, Wait: in.Poll.Every}
	switch {
	case ctx.Err() != nil: // this instance stops: another goes on at once
		end = ports.PollEnd{Condition: poll.Condition, Reason: "", Wait: 0}
		if poll.Condition != domain.PollWorks {
			end.Wait = pollFailed
		}
	case err == nil:
	case limited.Err() != nil: // there is more than one round can take
		end.Wait = 0
	default:
		end.Condition, end.Reason, end.Wait = p.failed(poll, err)
	}
	p.tell(in, poll, end)
	call, cancelCall := context.WithTimeout(context.WithoutCancel(ctx), pollCall)
	defer cancelCall()
	if err := p.Polls.EndPoll(call, poll.PollLease, end); err != nil {
		p.Logger.Warn("the end of a poll could not be recorded; the account is due when its lease is over",
			"installation", in.ID, "error", err)
	}
}

// keep makes the lease last until the round has ended. Once it is lost the round is over.
func (p *poller) keep(ctx context.Context, lease ports.PollLease, lose context.CancelCauseFunc, ended <-chan struct{}) {
	t := time.NewTicker(pollKeepEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
		call, cancel := context.WithTimeout(ctx, pollKeepEvery)
		err := p.Polls.KeepPoll(call, lease, pollLease)
		cancel()
		if errors.Is(err, domain.ErrFenced) {
			lose(err)
			return
		}
	}
}

// ask carries out the channel's round. What panics there ends this round alone.
func (p *poller) ask(ctx context.Context, in *Installation, poll ports.Poll) (caughtUp bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			caughtUp, err = false, fmt.Errorf("panic: %v", r)
		}
	}()
	return in.Poll.Round(ctx, channels.Round{
		Now: time.Now(), Checkpoint: poll.Checkpoint,
		Accept: func(ctx context.Context, items []channels.Item) error { return p.accept(ctx, in, items) },
		Save: func(ctx context.Context, c domain.Checkpoint) error {
			call, cancel := context.WithTimeout(ctx, pollCall)
			defer cancel()
			return p.Polls.SaveCheckpoint(call, poll.PollLease, c)
		},
	})
}

// failed says how a round ended that failed, and when the account is due again.
func (p *poller) failed(poll ports.Poll, err error) (condition domain.PollCondition, why string, wait time.Duration) {
	condition, wait = domain.PollFails, min(pollFailed<<min(poll.Failures, 20), pollBackoff)
	if errors.Is(err, channels.ErrRevoked) {
		condition, wait = domain.PollRevoked, pollRevoked
	}
	wait = wait/2 + rand.N(wait/2) //nolint:gosec // not to be secret
	if busy, ok := errors.AsType[*channels.BusyError](err); ok {
		wait = max(wait, busy.After+rand.N(busy.After/4+1)) //nolint:gosec // not to be secret
	}
	return condition, reason(err), wait
}

// tell logs what has changed: an account that goes on failing is no news.
func (p *poller) tell(in *Installation, poll ports.Poll, end ports.PollEnd) {
	switch args := []any{"installation", in.ID, "channel", in.Channel, "reason", end.Reason, "next_in", end.Wait.String()}; {
	case end.Condition == poll.Condition && poll.Failures > 0:
		p.Logger.Debug("an account still can't be polled", args...)
	case end.Condition == domain.PollFails && end.Reason != "":
		p.Logger.Warn("an account could not be polled", args...)
	case end.Condition == domain.PollRevoked && end.Reason != "":
		p.Logger.Error("an account can't be polled: its credentials are refused", args...)
	case end.Condition == domain.PollWorks && poll.Condition != domain.PollWorks:
		p.Logger.Info("an account can be polled again", "installation", in.ID, "channel", in.Channel)
	}
}

// accept claims items as the events of a webhook are claimed, but that it waits where these would
// be refused. It returns an error if ctx ends before each has its verdict.
func (p *poller) accept(ctx context.Context, in *Installation, items []channels.Item) error {
	for len(items) > 0 {
		n := 1
		if items[0].Fault == nil {
			n = slices.IndexFunc(items, func(i channels.Item) bool { return i.Fault != nil })
			if n < 0 {
				n = len(items)
			}
		}
		if err := p.claimPolled(ctx, in, items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

// claimPolled claims items that have no fault, or one that has.
func (p *poller) claimPolled(ctx context.Context, in *Installation, items []channels.Item) error {
	d := door{channel: p.channels[in.Channel], installation: in}
	all := make([]admission, len(items))
	for i, item := range items {
		if item.Event.ID == "" {
			return errors.New("a polled event has no id")
		}
		all[i] = p.resolve(ctx, d, item.Event, nil)
	}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		if err := p.room(ctx); err != nil {
			return err
		}
		p.recall(ctx, all)
		claim, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxPatience)
		p.claim(claim, ports.Delivery{Channel: in.Channel, Installation: in.ID, ReceivedAt: time.Now()}, all, reason(items[0].Fault))
		cancel()
		left := all[:0]
		for _, a := range all {
			if a.verdict == domain.Refused {
				a.verdict = ""
				left = append(left, a)
				continue
			}
			p.Metrics.Deliveries.WithLabelValues(in.Channel, string(a.verdict)).Inc()
		}
		if all = left; len(all) == 0 {
			return nil
		}
		if !p.pause(pause, ctx.Done()) {
			return fmt.Errorf("%d events wait for a place: %w", len(all), domain.ErrUnavailable)
		}
	}
}

// room waits until the queue is less than half full: a backlog leaves room for vendors who
// do not wait.
func (p *poller) room(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for a place in the queue: %w", err)
		}
		if p.draining.Load() {
			return errors.New("the instance is draining")
		}
		if p.queue.depth() < max(1, p.Config.Queue/2) {
			return nil
		}
		p.pause(breath, ctx.Done())
	}
}
