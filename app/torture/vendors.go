package torture

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/domain"
)

// senders is how many deliveries are under way at a time.
const senders = 96

// Bounds of what the time scale makes of the vendors' times: a deadline below the least would only
// show that the machine is busy, and a wait above the most would outlast the storm.
const (
	leastDeadline = 200 * time.Millisecond
	mostDeadline  = 4 * time.Second
	mostWait      = 6 * time.Second
)

// Bounds of what the time between two new events changes by, and of that time. A refusal lengthens it
// and an admission makes it shorter, so that no more than some one in nine is refused where more is to be
// sent than the instances can take: they are to be at work, and not to say no all the time.
const (
	slower  = 1.08
	faster  = 0.99
	mostGap = 20 * time.Millisecond
)

// Vendors send what the plan says, by the rules of each one.
type vendors struct {
	plan    *plan
	fleet   *fleet
	checker *checker
	client  *http.Client
	scale   float64
	began   time.Time

	sent, admitted, duplicates, refused, unanswered, forgeries atomic.Int64

	mu    sync.Mutex
	queue deliveries
	under int           // deliveries under way
	gap   time.Duration // between two new events at least
	wake  chan struct{}
}

// A delivery is one that is due.
type delivery struct {
	at     time.Duration // since the storm began
	n      uint32
	retry  uint8
	what   uint8
	target int8 // instance, or -1 for any
}

type deliveries []delivery

func (d deliveries) Len() int           { return len(d) }
func (d deliveries) Less(i, j int) bool { return d[i].at < d[j].at }
func (d deliveries) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }

// Push implements heap.Interface.
func (d *deliveries) Push(x any) { *d = append(*d, x.(delivery)) }

// Pop implements heap.Interface.
func (d *deliveries) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

func newVendors(p *plan, f *fleet, c *checker, scale float64) *vendors {
	return &vendors{
		plan: p, fleet: f, checker: c, scale: scale, began: time.Now(), wake: make(chan struct{}, 1),
		client: &http.Client{
			Transport:     &http.Transport{MaxIdleConnsPerHost: senders, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (v *vendors) now() time.Duration { return time.Since(v.began) }

func (v *vendors) add(ds ...delivery) {
	v.mu.Lock()
	for _, d := range ds {
		heap.Push(&v.queue, d)
	}
	v.mu.Unlock()
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// storm sends events number 0 to n-1, evenly over the time or as fast as the instances take them, and
// whatever follows from them. It returns when all are sent and the time is over; retries may still be due.
func (v *vendors) storm(ctx context.Context, n int, over time.Duration) error {
	last := time.Duration(0)
	for i := range n {
		due := time.Duration(float64(over) * float64(i) / float64(n))
		if err := v.pause(ctx, max(due, last+v.pace(1))-v.now()); err != nil {
			return err
		}
		last = v.now()
		// what can't be sent now would only fill the memory
		if err := poll(ctx, 2*time.Millisecond, func() (bool, error) { return v.idle(), nil }); err != nil {
			return err
		}
		e := v.plan.event(uint32(i))
		if err := v.first(e); err != nil {
			return err
		}
	}
	return v.pause(ctx, over-v.now())
}

// pace changes the time between two new events by a factor, and returns it.
func (v *vendors) pace(by float64) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.gap = time.Duration(min(max(float64(v.gap), float64(mostGap)/1000)*by, float64(mostGap)))
	return v.gap
}

// idle reports whether a sender is free.
func (v *vendors) idle() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.under < senders
}

// first lets the vendor begin with e.
func (v *vendors) first(e event) error {
	keys := []int{genuine}
	if e.phantom {
		keys = append(keys, phantom)
	}
	for _, what := range keys {
		k, err := e.key(what)
		if err != nil {
			return err
		}
		v.checker.send(e, k)
	}
	d := dice(v.plan.seed, diceSend, uint64(e.n), 0)
	now := v.now()
	var all []delivery
	if e.forged {
		all = append(all, delivery{at: now, n: e.n, what: forged, target: -1})
	}
	target := int8(-1)
	if e.one {
		target = int8(d.IntN(len(v.fleet.instances))) //nolint:gosec // there are fewer
	}
	for range e.copies {
		all = append(all, delivery{at: now, n: e.n, what: genuine, target: target})
	}
	if e.phantom {
		all = append(all, delivery{at: now + time.Duration(d.IntN(300))*time.Millisecond, n: e.n, what: phantom, target: -1})
	}
	v.add(all...)
	return nil
}

// late sends one more copy of some events, long after the vendor was answered.
func (v *vendors) late(n int) {
	for i := range n {
		if e := v.plan.event(uint32(i)); e.late {
			v.add(delivery{at: v.now(), n: e.n, what: late, target: -1})
		}
	}
}

// run sends what is due until ctx ends.
func (v *vendors) run(ctx context.Context) {
	due := make(chan delivery)
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			d := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // which instance a load balancer takes is no secret
			for x := range due {
				v.deliver(ctx, x, d)
				v.mu.Lock()
				v.under--
				v.mu.Unlock()
			}
		})
	}
	for {
		v.mu.Lock()
		wait := time.Hour
		if len(v.queue) > 0 {
			wait = v.queue[0].at - v.now()
		}
		if wait > 0 {
			v.mu.Unlock()
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-v.wake:
			case <-ctx.Done():
			}
			t.Stop()
			if ctx.Err() != nil {
				break
			}
			continue
		}
		x := heap.Pop(&v.queue).(delivery)
		v.under++
		v.mu.Unlock()
		select {
		case due <- x:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(due)
	all.Wait()
}

// done waits until no vendor has anything left to send.
func (v *vendors) done(ctx context.Context) error {
	return poll(ctx, 20*time.Millisecond, func() (bool, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		return len(v.queue) == 0 && v.under == 0, nil
	})
}

// deadline is how long the vendor of e waits here.
func (v *vendors) deadline(e event) time.Duration {
	return min(max(v.scaled(e.in.channel.Vendor.Deadline), leastDeadline), mostDeadline)
}

func (v *vendors) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) / v.scale) }

// deliver sends one delivery and does what its vendor does about the answer.
func (v *vendors) deliver(ctx context.Context, x delivery, d *rand.Rand) {
	e := v.plan.event(x.n)
	status, verdict, err := v.send(ctx, e, x, d)
	if ctx.Err() != nil {
		return
	}
	v.sent.Add(1)
	if x.what == forged {
		v.forgeries.Add(1)
		if err == nil && status != http.StatusUnauthorized {
			v.checker.accuse("P6", e.n, "a forged request was answered %d %s", status, verdict)
		}
		return
	}
	ok := err == nil && status == http.StatusOK
	switch {
	case ok && verdict == string(domain.Admitted):
		v.admitted.Add(1)
		v.pace(faster)
		v.checker.promise(x.n, x.what, true)
	case ok && verdict == string(domain.Duplicate):
		v.duplicates.Add(1)
		v.checker.promise(x.n, x.what, false)
	case err != nil:
		v.unanswered.Add(1)
	case status == http.StatusServiceUnavailable:
		v.refused.Add(1)
		v.pace(slower)
	default:
		v.checker.accuse("P2", e.n, "a genuine delivery was answered %d %s", status, verdict)
	}
	if x.what == late {
		return
	}
	retries := e.in.channel.Vendor.Retries
	switch {
	case ok && e.again && x.retry == 0 && x.what == genuine:
		v.add(delivery{at: v.now() + time.Duration(d.IntN(3000))*time.Millisecond, n: x.n, retry: 1, what: x.what, target: -1})
	case !ok && int(x.retry) < len(retries) && !v.checker.promised(x.n):
		wait := min(v.scaled(retries[x.retry]), mostWait)
		v.add(delivery{at: v.now() + wait, n: x.n, retry: x.retry + 1, what: x.what, target: -1})
	}
}

// send sends a delivery to one instance, and to another if nothing listens there: so does the load
// balancer between them and the vendor.
func (v *vendors) send(ctx context.Context, e event, x delivery, d *rand.Rand) (status int, verdict string, err error) {
	ctx, cancel := context.WithTimeout(ctx, v.deadline(e))
	defer cancel()
	at := int(x.target)
	if at < 0 {
		at = d.IntN(len(v.fleet.instances))
	}
	for range cmp.Or(len(v.fleet.instances), 1) {
		in := v.fleet.instances[at%len(v.fleet.instances)]
		var r *http.Request
		if r, err = e.request(in.public, int(x.what), int(x.retry), time.Now()); err != nil {
			return 0, "", err
		}
		var resp *http.Response
		if resp, err = v.client.Do(r.WithContext(ctx)); err == nil {
			_, err = io.CopyN(io.Discard, resp.Body, 64<<10)
			_ = resp.Body.Close() // it was read only
			if err == nil || errors.Is(err, io.EOF) {
				return resp.StatusCode, resp.Header.Get(web.HeaderVerdict), nil
			}
			return 0, "", err
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return 0, "", err
		}
		at++
	}
	return 0, "", err
}

func (v *vendors) pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
