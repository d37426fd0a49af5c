package channeltest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/fx"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

func pollComplete(p *poller) error {
	c := p.Channel
	if err := fx.New(fx.NopLogger, channels.Module(c)).Err(); err != nil {
		return fmt.Errorf("channels.Module: %w", err)
	}
	if folder := filepath.Base(p.dir); c.Name != folder {
		return fmt.Errorf("the name is %q, the folder %q", c.Name, folder)
	}
	if !c.Polled() {
		return errors.New("it has no OpenPoll")
	}
	poll, err := c.OpenPoll(c.Example)
	if err != nil {
		return fmt.Errorf("the example does not open: %w", err)
	}
	if poll.Every <= 0 || poll.Round == nil {
		return fmt.Errorf("the example is polled every %s", poll.Every)
	}
	return nil
}

func pollSample(p *poller) error {
	return sampleDecodes(&subject{Spec: Spec{Channel: p.Channel, Credentials: p.Credentials}, dir: p.dir})
}

func pollUnfit(p *poller) error {
	for _, s := range p.Channel.Secrets {
		if s.Optional {
			continue
		}
		for what, values := range map[string][]string{"none": nil, "an empty one": {""}} {
			c := p.Credentials
			c.Secrets = map[string][]string{s.Name: values}
			if _, err := p.Channel.OpenPoll(c); err == nil {
				return fmt.Errorf("with %s for %s it opens", what, s.Name)
			}
		}
	}
	c := p.Credentials
	c.Settings = channels.Settings{"no_such_setting": "x"}
	if _, err := p.Channel.OpenPoll(c); err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		return fmt.Errorf("an unknown setting: %w; want an error that names it", err)
	}
	return nil
}

func pollOpenAsksNobody(p *poller) error {
	before := p.Calls()
	if _, err := p.Channel.OpenPoll(p.Credentials); err != nil {
		return err
	}
	if n := p.Calls() - before; n != 0 {
		return fmt.Errorf("OpenPoll called the vendor %d times", n)
	}
	return nil
}

func pollFirst(p *poller) error {
	p.put("old-1", "old-2")
	if err := p.begin("new"); err != nil {
		return err
	}
	if p.saved == (domain.Checkpoint{}) {
		return errors.New("the first round saved nothing")
	}
	if err := p.must(); err != nil {
		return err
	}
	return p.want("new")
}

func pollOffers(p *poller) error {
	names := many(120)
	if err := p.begin(names...); err != nil {
		return err
	}
	if err := p.must(); err != nil {
		return err
	}
	p.put("last-1", "last-2")
	p.restart()
	if err := p.must(); err != nil {
		return err
	}
	return p.want(append(names, "last-1", "last-2")...)
}

func pollSound(p *poller) error {
	if err := p.begin(`Grüße 😀 100% "quoted" +1`, "plain"); err != nil {
		return err
	}
	if err := p.must(); err != nil {
		return err
	}
	s := &subject{Spec: Spec{Channel: p.Channel, Credentials: p.Credentials}, dir: p.dir}
	for _, i := range p.items {
		if i.Event.ID == "" {
			return errors.New("an event has no id")
		}
		if i.Event.Account != "" && i.Event.Account != p.Credentials.Account {
			return fmt.Errorf("an event is for account %q", i.Event.Account)
		}
		if err := s.sound(i.Event); err != nil {
			return err
		}
	}
	return p.want("Grüße", "plain")
}

func pollSameID(p *poller) error {
	if err := p.begin("again", "other"); err != nil {
		return err
	}
	if err := p.must(); err != nil {
		return err
	}
	p.put("again")
	if err := p.must(); err != nil {
		return err
	}
	if len(p.got) != 2 {
		return fmt.Errorf("two events, of which one came again, have %d ids", len(p.got))
	}
	first, last := p.items[0].Event, p.items[len(p.items)-1].Event
	if first.ID != last.ID || first.Digest != last.Digest || first.MessageKey != last.MessageKey {
		return fmt.Errorf("an event is %+v at first and %+v when it comes again", identities([]domain.Event{first}), identities([]domain.Event{last}))
	}
	return nil
}

func pollNotAgain(p *poller) error {
	if err := p.begin(many(20)...); err != nil {
		return err
	}
	for range 5 {
		if err := p.must(); err != nil {
			return err
		}
		p.restart()
	}
	if n := p.Fetched(); n > 20 {
		return fmt.Errorf("20 events were fetched %d times in 5 rounds", n)
	}
	return p.want(many(20)...)
}

func pollRefused(p *poller) error {
	if err := p.begin("1st", "2nd"); err != nil {
		return err
	}
	p.refuse = errRefused
	for range 2 {
		if err := p.fails(); err != nil {
			return err
		}
		if !errors.Is(p.errs[len(p.errs)-1], errRefused) {
			return fmt.Errorf("a round whose Accept failed returned %w", p.errs[len(p.errs)-1])
		}
		p.restart()
	}
	p.refuse = nil
	if err := p.must(); err != nil {
		return err
	}
	return p.want("1st", "2nd")
}

// pollSavedIsAccepted lets the process die after each number of items: from what was saved by
// then, another must find the rest.
func pollSavedIsAccepted(p *poller) error {
	names := many(40)
	if err := p.begin(names...); err != nil {
		return err
	}
	start := p.saved
	for dies := 0; dies < 40; dies += 7 {
		p.saved, p.items, p.got = start, nil, map[string]int{}
		p.refuse, p.after = errRefused, dies
		p.restart()
		if err := p.fails(); err != nil {
			return err
		}
		p.refuse, p.after = nil, 0
		p.restart()
		if err := p.must(); err != nil {
			return err
		}
		if err := p.want(names...); err != nil {
			return fmt.Errorf("after a death behind %d events: %w", dies, err)
		}
	}
	return nil
}

func pollProgress(p *poller) error {
	const all, left = 200, 60
	if err := p.begin(many(all)...); err != nil {
		return err
	}
	for range all/left + 2 {
		p.refuse, p.after = errRefused, left
		ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
		_, err := p.round(ctx)
		cancel()
		p.restart()
		if err == nil {
			return p.want(many(all)...)
		}
	}
	return fmt.Errorf("a process that dies behind each %d events has not taken in %d after %d of them", left, all, all/left+2)
}

func pollNeverBack(p *poller) error {
	if err := p.begin(many(40)...); err != nil {
		return err
	}
	for i := range 4 {
		if i == 2 && p.Forget != nil {
			p.Forget()
		}
		if err := p.must(); err != nil {
			return err
		}
		p.put(fmt.Sprint("more-", i))
	}
	for i := range p.saves[1:] {
		if p.saves[i+1].Before(p.saves[i]) {
			return fmt.Errorf("checkpoint %d/%d was saved after %d/%d", p.saves[i+1].Generation, p.saves[i+1].Position, p.saves[i].Generation, p.saves[i].Position)
		}
	}
	return nil
}

func pollLostSave(p *poller) error {
	if err := p.begin(many(100)...); err != nil {
		return err
	}
	p.lost = errors.New("the lease is over")
	if err := p.fails(); err != nil {
		return err
	}
	if !errors.Is(p.errs[len(p.errs)-1], p.lost) {
		return fmt.Errorf("a round whose Save failed returned %w", p.errs[len(p.errs)-1])
	}
	if n := len(p.items); n > 50 {
		return fmt.Errorf("%d events were offered after a save had failed", n)
	}
	return nil
}

func pollForgotten(p *poller) error {
	if p.Forget == nil {
		return nil
	}
	if err := p.begin("before"); err != nil {
		return err
	}
	if err := p.must(); err != nil {
		return err
	}
	p.put("gap-1", "gap-2")
	p.Forget()
	p.restart()
	if err := p.must(); err != nil {
		return err
	}
	p.put("after")
	if err := p.must(); err != nil {
		return err
	}
	fetched := p.Fetched()
	if err := p.must(); err != nil {
		return err
	}
	if n := p.Fetched() - fetched; n != 0 {
		return fmt.Errorf("a round after the recovery fetches %d events once more", n)
	}
	return p.want("before", "gap-1", "gap-2", "after")
}

func pollPoison(p *poller) error {
	if p.Poison == nil {
		return nil
	}
	if err := p.begin("before"); err != nil {
		return err
	}
	p.Poison()
	p.put("behind")
	for range 2 {
		if err := p.must(); err != nil {
			return err
		}
	}
	parked := 0
	for _, i := range p.items {
		if i.Fault == nil {
			continue
		}
		parked++
		if !errors.Is(i.Fault, domain.ErrUnreadable) || i.Event.ID == "" || len(i.Event.Payload.Body) == 0 {
			return fmt.Errorf("it is offered as %q with %d bytes and the fault %w", i.Event.ID, len(i.Event.Payload.Body), i.Fault)
		}
	}
	if parked != 1 {
		return fmt.Errorf("it is offered %d times", parked)
	}
	return p.want("before", "behind")
}

func pollFailure(p *poller) error {
	if err := p.begin("1st"); err != nil {
		return err
	}
	p.Fail(false)
	if err := p.fails(); err != nil {
		return err
	}
	if err := p.errs[len(p.errs)-1]; errors.Is(err, channels.ErrRevoked) || errors.Is(err, errPanic) {
		return fmt.Errorf("a vendor's own fault is told as %w", err)
	}
	p.Heal()
	if err := p.must(); err != nil {
		return err
	}
	return p.want("1st")
}

func pollBusy(p *poller) error {
	if err := p.begin("1st"); err != nil {
		return err
	}
	p.Fail(true)
	calls := p.Calls()
	if err := p.fails(); err != nil {
		return err
	}
	if _, ok := errors.AsType[*channels.BusyError](p.errs[len(p.errs)-1]); !ok {
		return fmt.Errorf("a busy vendor is told as %w", p.errs[len(p.errs)-1])
	}
	if n := p.Calls() - calls; n > 2 {
		return fmt.Errorf("a busy vendor was called %d times in one round", n)
	}
	p.Heal()
	if err := p.must(); err != nil {
		return err
	}
	return p.want("1st")
}

func pollRevoked(p *poller) error {
	if err := p.begin(many(20)...); err != nil {
		return err
	}
	p.Revoke()
	calls := p.Calls()
	if err := p.fails(); err != nil {
		return err
	}
	if err := p.errs[len(p.errs)-1]; !errors.Is(err, channels.ErrRevoked) {
		return fmt.Errorf("refused credentials are told as %w", err)
	}
	if n := p.Calls() - calls; n > 3 {
		return fmt.Errorf("refused credentials were tried with %d calls in one round", n)
	}
	return nil
}

func pollCancel(p *poller) error {
	if err := p.begin("1st"); err != nil {
		return err
	}
	p.Hang()
	ctx, cancel := context.WithTimeout(p.ctx, 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := p.round(ctx); err == nil {
		return errors.New("a round that was cancelled returned no error")
	}
	if took := time.Since(began); took > 10*time.Second {
		return fmt.Errorf("a round went on for %s after its context had ended", took)
	}
	return nil
}

func pollNoSecret(p *poller) error {
	if err := p.begin("1st"); err != nil {
		return err
	}
	for _, spoil := range []func(){func() { p.Fail(false) }, func() { p.Fail(true) }, p.Revoke} {
		spoil()
		if err := p.fails(); err != nil {
			return err
		}
		p.Heal()
	}
	for name, values := range p.Credentials.Secrets {
		c := p.Credentials
		c.Secrets = map[string][]string{name: {values[0][:len(values[0])/2]}}
		if _, err := p.Channel.OpenPoll(c); err != nil {
			p.errs = append(p.errs, err)
		}
		for _, err := range p.errs {
			for _, word := range words(values[0]) {
				if strings.Contains(err.Error(), word) {
					return fmt.Errorf("an error repeats %d bytes of the secret %s", len(word), name)
				}
			}
		}
	}
	return nil
}

// words returns what may be secret in a secret: itself, and each part of it that is long.
func words(secret string) []string {
	all := []string{secret}
	for _, w := range strings.FieldsFunc(secret, func(r rune) bool { return strings.ContainsRune(`{}":, `+"\n", r) }) {
		if len(w) >= 12 && !strings.Contains(w, "/") && !strings.Contains(w, "_") {
			all = append(all, w)
		}
	}
	return all
}

func pollSimulated(p *poller) error {
	l, err := (&net.ListenConfig{}).Listen(p.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	sim, cred, err := p.Channel.SimulateVendor("http://" + l.Addr().String())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	s := &http.Server{Handler: sim, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }() // it ends by Close
	defer s.Close()                //nolint:errcheck // its connections are of no more use
	p.Credentials, p.poll = cred, nil
	if err := p.must(); err != nil {
		return err
	}
	rounds := sim.Rounds()
	if rounds == 0 {
		return errors.New("after a round the simulated vendor was never asked")
	}
	play := func(id, text string, retry int) error {
		return sim.Put(channels.Simulation{
			Account: cred.Account, EventID: id, Message: "5" + id, From: "15550100", Text: text, Retry: retry, Now: p.now,
		})
	}
	if err := errors.Join(play("1001", "good morning", 0), play("1002", "good night", 0), play("1001", "good morning", 1)); err != nil {
		return err
	}
	if err := p.must(); err != nil {
		return err
	}
	if sim.Rounds() <= rounds || sim.Fetched() != 3 {
		return fmt.Errorf("it says %d rounds and %d events fetched; want more than %d, and 3", sim.Rounds(), sim.Fetched(), rounds)
	}
	if len(p.got) != 2 {
		return fmt.Errorf("two simulated events, one of them repeated, have %d ids", len(p.got))
	}
	return p.want("good morning", "good night")
}
