package channeltest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// A PollSpec tells the kit how to drive a channel whose vendor has to be asked.
type PollSpec struct {
	Channel channels.Channel
	// Start returns a simulated vendor with one empty account, fresh at each call.
	Start func() PollVendor
}

// A PollVendor is a vendor of one account, simulated. Functions that are nil name what the
// vendor has not; the promises about it are not checked then.
type PollVendor struct {
	Credentials channels.Credentials
	Close       func()
	// Put makes an event new whose text holds name; put again, the vendor shows the same
	// event once more, under another number of its own.
	Put func(name string)
	// Poison makes an event new that can't be understood.
	Poison func()
	// Forget makes the vendor forget all checkpoints so far.
	Forget func()
	// Revoke makes the vendor refuse the credentials.
	Revoke func()
	// Fail makes every call fail: because the vendor is busy, or by its own fault; Heal ends it.
	Fail func(busy bool)
	Heal func()
	// Hang makes calls hang until the caller gives up.
	Hang func()
	// Calls returns how often the vendor was called.
	Calls func() int
	// Fetched returns how often events were handed out.
	Fetched func() int
}

// RunPoll checks s.Channel, whose folder is the working directory, with one parallel subtest for
// each promise.
func RunPoll(t *testing.T, s PollSpec) {
	t.Helper()
	for _, c := range pollChecks() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := c.on(t.Context(), ".", s); err != nil {
				t.Error(err)
			}
		})
	}
}

// CheckPoll returns what the subtest of RunPoll called name would report of the channel whose
// folder is dir; nil if the promise is kept. It is for tests of the kit itself.
func CheckPoll(ctx context.Context, dir, name string, s PollSpec) error {
	for _, c := range pollChecks() {
		if c.name == name {
			return c.on(ctx, dir, s)
		}
	}
	return fmt.Errorf("there is no check %s of a polled channel", name)
}

// A pollCheck looks at one promise.
type pollCheck struct {
	name    string
	promise string
	run     func(*poller) error
}

func (c pollCheck) on(ctx context.Context, dir string, s PollSpec) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("folder: %w", err)
	}
	v := s.Start()
	if v.Close != nil {
		defer v.Close()
	}
	p := &poller{ctx: ctx, PollSpec: s, PollVendor: v, dir: dir, now: time.Now(), got: map[string]int{}}
	if err := guard(func() error { return c.run(p) }); err != nil {
		return fmt.Errorf("broken promise: %s\n%w", c.promise, err)
	}
	return nil
}

func pollChecks() []pollCheck {
	return []pollCheck{
		{"Complete", "a channel tells everything that configuration, key table and simulators are made from", pollComplete},
		{"SampleDecodes", "sample.yaml can be used as it stands, and README.md shows it", pollSample},
		{"UnfitIsRefused", "a channel can't be opened without its secrets, or with a setting that it does not know", pollUnfit},
		{"OpenAsksNobody", "a server must start while the vendor is away", pollOpenAsksNobody},
		{"FirstRoundIsTheBeginning", "what is in the account at the first round is old", pollFirst},
		{"OffersWhatIsNew", "what is new is offered, in order", pollOffers},
		{"EventsAreSound", "every event can be stored, decoded and dispatched", pollSound},
		{"SameEventSameID", "an event that the vendor shows again has the same id", pollSameID},
		{"AcceptedIsNotFetchedAgain", "what was taken in is not fetched in each round", pollNotAgain},
		{"RefusedIsOfferedAgain", "what could not be taken in is offered again", pollRefused},
		{"SavedIsAccepted", "a checkpoint lies behind nothing that was not taken in", pollSavedIsAccepted},
		{"ProgressIsKept", "a backlog that is cut off does not begin anew each time", pollProgress},
		{"CheckpointNeverGoesBack", "a checkpoint never goes back", pollNeverBack},
		{"LostSaveEndsTheRound", "a round that can't save goes on no further", pollLostSave},
		{"ForgottenLeavesNoGap", "what came while the vendor forgot the checkpoint is offered", pollForgotten},
		{"PoisonIsParkedAndPassed", "what can't be understood is offered with its bytes and its fault, and holds up nothing", pollPoison},
		{"FailureIsTold", "a vendor that fails is an error, and nothing is lost by it", pollFailure},
		{"BusyIsTold", "a vendor that wants to be left alone is told as such", pollBusy},
		{"RevokedIsTold", "credentials that are refused are told as such, and not tried over and over", pollRevoked},
		{"CancelEndsTheRound", "a round ends with its context", pollCancel},
		{"NoSecretInErrors", "no error tells a secret", pollNoSecret},
		{"SimulatedVendorIsPolled", "the simulated vendor does what the vendor does", pollSimulated},
	}
}

// A poller polls the account of one check, as a server would.
type poller struct {
	ctx context.Context //nolint:containedctx // of this one check
	PollSpec
	PollVendor
	dir   string
	now   time.Time
	poll  *channels.Poll
	saved domain.Checkpoint
	saves []domain.Checkpoint

	refuse error // of Accept
	after  int   // items that are taken in before it refuses
	lost   error // of Save

	got   map[string]int // items taken in, by event id
	items []channels.Item
	errs  []error
}

var errRefused = errors.New("not taken in")

// round polls once. The channel is opened anew each time: any instance may do the next round.
func (p *poller) round(ctx context.Context) (caughtUp bool, err error) {
	if p.poll == nil {
		poll, err := p.Channel.OpenPoll(p.Credentials)
		if err != nil {
			return false, fmt.Errorf("OpenPoll: %w", err)
		}
		p.poll = &poll
	}
	p.now = p.now.Add(time.Second)
	err = guard(func() (err error) {
		caughtUp, err = p.poll.Round(ctx, channels.Round{
			Now: p.now, Checkpoint: p.saved,
			Accept: func(_ context.Context, items []channels.Item) error {
				for _, i := range items {
					if p.refuse != nil && p.after == 0 {
						return p.refuse
					}
					p.after--
					p.got[i.Event.ID]++
					i.Event.Payload.Body = slices.Clone(i.Event.Payload.Body)
					p.items = append(p.items, i)
				}
				return nil
			},
			Save: func(_ context.Context, c domain.Checkpoint) error {
				if p.lost != nil {
					return p.lost
				}
				p.saved = c
				p.saves = append(p.saves, c)
				return nil
			},
		})
		return err
	})
	if err != nil {
		p.errs = append(p.errs, err)
	}
	return caughtUp, err
}

// restart opens the channel anew, as another instance does.
func (p *poller) restart() { p.poll = nil }

// must polls once, which must go well.
func (p *poller) must() error {
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	caughtUp, err := p.round(ctx)
	if err == nil && !caughtUp {
		err = errors.New("it has not caught up")
	}
	if err != nil {
		return fmt.Errorf("a round: %w", err)
	}
	return nil
}

// fails polls once, which must fail.
func (p *poller) fails() error {
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	caughtUp, err := p.round(ctx)
	switch {
	case err == nil:
		return errors.New("a round that could not do everything returned no error")
	case caughtUp:
		return errors.New("a round that could not do everything says that it has caught up")
	}
	return nil
}

// texts returns the names in the texts of what was taken in, in order, each once.
func (p *poller) texts() ([]string, error) {
	var all []string
	seen := map[string]bool{}
	for _, i := range p.items {
		if i.Fault != nil || seen[i.Event.ID] {
			continue
		}
		seen[i.Event.ID] = true
		c, err := p.Channel.Decode(i.Event)
		if err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
		all = append(all, strings.TrimSpace(c.Text))
	}
	return all, nil
}

// want fails unless the events of these names were taken in, in this order, and no others.
func (p *poller) want(names ...string) error {
	got, err := p.texts()
	if err != nil {
		return err
	}
	if len(got) != len(names) {
		return fmt.Errorf("%d events were taken in: %q; want %q", len(got), got, names)
	}
	for i, name := range names {
		if !strings.Contains(got[i], name) {
			return fmt.Errorf("event %d is %q; want %q", i, got[i], name)
		}
	}
	return nil
}

// begin does the first round and puts names, which are new then.
func (p *poller) begin(names ...string) error {
	if err := p.must(); err != nil {
		return err
	}
	p.put(names...)
	return nil
}

func (p *poller) put(names ...string) {
	for _, name := range names {
		p.Put(name)
	}
}

// many returns n names.
func many(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("event-%03d.", i)
	}
	return names
}
