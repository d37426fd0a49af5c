package torture

import (
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// A Checked is a checker of a few events with what was sent to it.
type Checked struct {
	c    *checker
	plan *plan
	Now  time.Time
}

// Outcomes of attempts.
const (
	Taken    = taken
	Slowly   = slowly
	Declined = declined
	Broken   = broken
	Cut      = cut
	Rejected = rejected
)

// What a delivery is, and what may be done to an instance.
const (
	Genuine = genuine
	Late    = late
	Killed  = killed
	Ended   = terminated
	CutOff  = cutOff
	Other   = other
	Gone    = applicationGone

	Lease       = lease
	MaxAttempts = maxAttempts
)

// NewChecked returns a checker to which n events were sent, with instances called "a" and "b".
func NewChecked(n int, chs []channels.Channel) (*Checked, error) {
	p, err := newPlan(1, "test", chs)
	if err != nil {
		return nil, err
	}
	k := &Checked{c: newChecker(p, n), plan: p, Now: time.Now()}
	k.c.holders = map[string]*instance{"a": {name: "a"}, "b": {name: "b"}}
	for i := range n {
		e := p.event(uint32(i))
		key, err := e.key(genuine)
		if err != nil {
			return nil, err
		}
		k.c.send(e, key)
	}
	return k, nil
}

// Find returns the number of an event with a guarantee, of a vendor that comes again.
func (k *Checked) Find(g domain.Guarantee) uint32 {
	for i := range k.c.events {
		if e := k.plan.event(uint32(i)); e.in.guarantee == g && e.in.channel.Vendor.ComesAgain {
			return uint32(i)
		}
	}
	return 0
}

// Next returns the number of the event after n of the same installation.
func (k *Checked) Next(n uint32) uint32 {
	for i := n + 1; int(i) < len(k.c.events); i++ {
		if k.plan.event(i).in == k.plan.event(n).in {
			return i
		}
	}
	return n
}

// Receipt returns one of event n as it is handled by "a" at once.
func (k *Checked) Receipt(n uint32) domain.Receipt {
	e := k.plan.event(n)
	ev, err := e.in.extract(e, genuine)
	if err != nil {
		return domain.Receipt{}
	}
	return domain.Receipt{
		ID: uuid.NewSHA1(uuid.Nil, []byte{byte(n)}).String(), Installation: e.in.id, Guarantee: e.in.guarantee, State: domain.Handled,
		Key:     domain.Key{Tenant: e.in.tenant, Platform: e.in.channel.Platform, Account: e.in.cred.Account, EventID: ev.ID},
		Attempt: 1, Holder: "a", ClaimedAt: k.Now, BegunAt: k.Now, HandledAt: k.Now.Add(time.Second),
	}
}

func (k *Checked) Promise(n uint32, what uint8, admitted bool) { k.c.promise(n, what, admitted) }

func (k *Checked) Begun(r domain.Receipt, n uint32, attempt uint16, out outcome) {
	k.c.begun(begin{receipt: uuid.MustParse(r.ID), event: n, attempt: attempt, outcome: out})
}

func (k *Checked) Replay(r domain.Receipt) { k.c.replay(uuid.MustParse(r.ID)) }

// Incident says that something was done to an instance, or to all if it is empty.
func (k *Checked) Incident(kind, holder string, from, to time.Time) {
	k.c.incidents = append(k.c.incidents, incident{kind: kind, instance: k.c.holders[holder], from: from, to: to})
}

// Finish checks receipts and returns the promises that were found broken, each with why.
func (k *Checked) Finish(receipts ...domain.Receipt) []Violation {
	for _, r := range receipts {
		k.c.receipt(r)
	}
	k.c.finish()
	return k.c.violations
}

// Remember notes that n events were sent, some under two keys, and returns what remembers them.
func Remember(n int) *Checked {
	p := &plan{installations: []*installation{{}}}
	k := &Checked{c: newChecker(p, n), plan: p}
	for i := range n {
		e := event{n: uint32(i), in: p.installations[0]}
		k.c.send(e, domain.DigestOf("genuine", strconv.Itoa(i)))
		if i%12 == 0 {
			k.c.send(e, domain.DigestOf("phantom", strconv.Itoa(i)))
		}
	}
	return k
}

// Roundtrip notes begins in a file and reads them again.
func Roundtrip(path string, n int) (int, error) {
	l, err := newBeginLog(path)
	if err != nil {
		return 0, err
	}
	defer l.close() //nolint:errcheck // a test
	errs := make(chan error)
	for i := range n {
		go func() {
			errs <- l.note(begin{receipt: uuid.New(), event: uint32(i), attempt: uint16(i), outcome: taken})
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	seen := map[uint32]bool{}
	err = l.read(func(b begin) {
		if b.attempt == uint16(b.event) && b.outcome == taken {
			seen[b.event] = true
		}
	})
	return len(seen), err
}

// Pace returns how far apart new events are after so many answers that refuse, and then so many that admit.
func Pace(refused, admitted int) (first, then time.Duration) {
	v := newVendors(nil, nil, nil, 1)
	for range refused {
		first = v.pace(slower)
	}
	for range admitted {
		then = v.pace(faster)
	}
	return first, then
}
