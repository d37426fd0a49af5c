package intake

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/admitone/admitone/domain"
)

// An item is an event that waits to be begun, or is being dispatched.
type item struct {
	receipt      domain.Receipt
	installation *Installation // nil if it is gone from the configuration
	numbered     bool
	lane         int64     // its conversation's number, once the queue has it
	waits        int       // begins refused because of its conversation
	doubt        time.Time // when the first of them began that may have been applied since
}

// laned reports whether the item keeps its place in its conversation: that holds for first
// attempts only.
func (it *item) laned() bool { return it.numbered && it.receipt.State == domain.Claimed }

// A queue holds what is admitted and not yet begun on this instance. A place in it is taken
// before the claim, so that nothing is admitted which finds no place. Events of one
// conversation come out one at a time, in the order of their claims.
type queue struct {
	size    int
	workers int
	several func() bool // whether there is more than one tenant
	room    func()      // told when what is owed to others' events is free
	ready   chan *item  // never blocks: each item has a place

	mu     sync.Mutex
	places map[string]int     // by tenant: taken; under "" those taken before it is known for whom
	atWork map[string]int     // by tenant: items that are ready or being worked on
	held   map[string][]*item // by tenant: what is to be ready when its share is not used up
	taken  int                // places in all
	owed   int                // free places that no new claim gets, since others left more than found room
	known  map[string]bool    // receipts that have a place or are being dispatched
	lanes  map[int64]*lane
	closed bool
	end    chan struct{}
}

// A lane is one conversation.
type lane struct {
	items []*item // those that wait, by seq
	busy  bool    // one is ready, or being worked on, or waits for a time
}

func newQueue(size, workers int, several func() bool, room func()) *queue {
	return &queue{
		size:    size,
		workers: workers,
		several: several,
		room:    room,
		ready:   make(chan *item, size),
		places:  map[string]int{},
		atWork:  map[string]int{},
		held:    map[string][]*item{},
		known:   map[string]bool{},
		lanes:   map[int64]*lane{},
		end:     make(chan struct{}),
	}
}

// reserve takes at most n places for new claims of tenant and returns how many it got. The tenant is
// empty if it is not known yet whose events they will be.
//
// Where there are several tenants, one may have three times as many places as are left free: the
// first that floods the queue gets three quarters, the next as much of the rest, and who has more
// than its part when others come gets no more until it has not. So one that is quiet finds room.
func (q *queue) reserve(tenant string, n int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.take(tenant, n, q.size-q.taken-q.owed)
}

// reserveLeft takes at most n places for what others left. If it gets none, a part of the queue is
// owed to that, until pay is told otherwise: new events would else wait here for earlier ones of their
// conversations, which find no room because of them.
func (q *queue) reserveLeft(n int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n = q.take("", n, q.size-q.taken); n == 0 && !q.closed {
		q.owed = min(takeUpLimit, q.size/4)
	}
	return n
}

// pay ends what is owed, as nothing is left by others that has not found room.
func (q *queue) pay() {
	q.mu.Lock()
	q.owed = 0
	q.mu.Unlock()
}

// take takes at most n of the free places that tenant may have. q.mu is held.
func (q *queue) take(tenant string, n, free int) int {
	if q.closed {
		return 0
	}
	n = min(n, free)
	if q.several() {
		n = min(n, (3*free-q.places[tenant]+3)/4)
	}
	n = max(0, n)
	q.add(tenant, n)
	return n
}

// add takes n places for tenant, or gives them back if n is negative. q.mu is held.
func (q *queue) add(tenant string, n int) {
	q.taken += n
	if q.places[tenant] += n; q.places[tenant] == 0 {
		delete(q.places, tenant)
	}
	if n < 0 && q.owed > 0 && q.size-q.taken >= q.owed {
		q.room()
	}
}

// release gives n places of tenant back.
func (q *queue) release(tenant string, n int) {
	q.mu.Lock()
	q.add(tenant, -n)
	q.mu.Unlock()
}

// found gives tenant a place that was reserved before it was known for whom.
func (q *queue) found(tenant string) {
	q.mu.Lock()
	q.add("", -1)
	q.add(tenant, 1)
	q.mu.Unlock()
}

func (q *queue) depth() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken
}

// know enters a receipt as this instance's before it is claimed, so that the sweep does not
// take it for one that nobody knows of.
func (q *queue) know(id string) {
	q.mu.Lock()
	q.known[id] = true
	q.mu.Unlock()
}

func (q *queue) forget(id string) {
	q.mu.Lock()
	delete(q.known, id)
	q.mu.Unlock()
}

func (q *queue) knows(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.known[id]
}

// push puts an item into the place that was reserved for it. It reports false if the queue is
// closed and the item has no receipt: nobody would take it up.
func (q *queue) push(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed && !it.numbered {
		return false
	}
	if it.numbered {
		q.known[it.receipt.ID] = true
	}
	if !it.laned() {
		q.offer(it)
		return true
	}
	it.lane = it.receipt.Key.Lane(it.receipt.Conversation)
	l := q.lanes[it.lane]
	if l == nil {
		l = &lane{}
		q.lanes[it.lane] = l
	}
	l.insert(it)
	q.next(it.lane, l)
	return true
}

func (l *lane) insert(it *item) {
	i := sort.Search(len(l.items), func(i int) bool { return l.items[i].receipt.Seq > it.receipt.Seq })
	l.items = slices.Insert(l.items, i, it)
}

// next makes the first of a lane ready unless one is at work. q.mu is held.
func (q *queue) next(id int64, l *lane) {
	switch {
	case l.busy:
	case len(l.items) == 0:
		delete(q.lanes, id)
	default:
		l.busy = true
		it := l.items[0]
		l.items = l.items[1:]
		q.offer(it)
	}
}

// offer makes an item ready, or holds it back while its tenant uses up its share: so a tenant
// whose application hangs leaves workers to the others. q.mu is held.
func (q *queue) offer(it *item) {
	tenant := it.receipt.Key.Tenant
	if q.atWork[tenant] >= q.share() {
		q.held[tenant] = append(q.held[tenant], it)
		return
	}
	q.atWork[tenant]++
	q.ready <- it
}

// share returns how many of the workers one tenant may use: three quarters if there are others.
func (q *queue) share() int {
	if q.several() {
		return max(1, q.workers*3/4)
	}
	return q.workers
}

// freed gives back the part in its tenant's share of an item that is worked on no more.
func (q *queue) freed(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	tenant := it.receipt.Key.Tenant
	if held := q.held[tenant]; len(held) > 0 {
		q.held[tenant] = held[1:]
		if len(held) == 1 {
			delete(q.held, tenant)
		}
		q.ready <- held[0]
		return
	}
	if q.atWork[tenant]--; q.atWork[tenant] == 0 {
		delete(q.atWork, tenant)
	}
}

// pop waits for an item. It returns nil when the queue is closed; then what is in it stays.
// Events without a receipt come out even then: nobody else could take them up.
func (q *queue) pop() *item {
	select {
	case <-q.end:
	default:
		select {
		case it := <-q.ready:
			return it
		case <-q.end:
		}
	}
	for {
		select {
		case it := <-q.ready:
			if !it.numbered {
				return it
			}
		default:
			return nil
		}
	}
}

// begun gives back the place of an item whose dispatch has begun.
func (q *queue) begun(it *item) { q.release(it.receipt.Key.Tenant, 1) }

// ended forgets an item that this instance is done with and lets the next of its
// conversation come.
func (q *queue) ended(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.known, it.receipt.ID)
	if it.laned() {
		q.advance(it)
	}
}

func (q *queue) advance(it *item) {
	if l := q.lanes[it.lane]; l != nil {
		l.busy = false
		q.next(it.lane, l)
	}
}

// postpone puts an item back whose turn has not come, and wakes its conversation after a while.
func (q *queue) postpone(ctx context.Context, it *item, after time.Duration) {
	time.AfterFunc(after, func() {
		if ctx.Err() != nil {
			return
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if !it.laned() {
			q.offer(it)
			return
		}
		l := q.lanes[it.lane]
		l.insert(it)
		l.busy = false
		q.next(it.lane, l)
	})
}

// handBack forgets an item that has waited long for its conversation, with all that waits behind it,
// if places are owed to what others left: among that may be what they wait for. They stay claimed,
// and are found again as what nobody knows of, after all that is older. It reports whether it has.
// What may yet prove to have been begun stays.
func (q *queue) handBack(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.owed == 0 || q.size-q.taken >= q.owed || it.waits < longWait || !it.doubt.IsZero() {
		return false
	}
	l := q.lanes[it.lane]
	l.items = slices.DeleteFunc(append(l.items, it), func(it *item) bool {
		if !it.doubt.IsZero() {
			return false
		}
		delete(q.known, it.receipt.ID)
		q.add(it.receipt.Key.Tenant, -1)
		return true
	})
	q.advance(it)
	return true
}

// longWait is after how many refused begins an item has waited long: half a second.
const longWait = 10

// close lets nothing more in or out.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.closed = true
	for _, held := range q.held {
		for _, it := range held {
			q.ready <- it // of these the workers take those without a receipt
		}
	}
	clear(q.held)
	close(q.end)
}
