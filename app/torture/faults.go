package torture

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/admitone/admitone/adapters/redis"
	"github.com/admitone/admitone/app/flaky"
)

// Kinds of incidents that explain why a holder could not settle.
const (
	killed     = "kill"
	terminated = "term"
	halted     = "halt"
	cutOff     = "cut off"
	other      = "other"

	applicationGone = "application gone"
)

// A storm does harm, one thing after another and some at the same time.
type storm struct {
	fleet       *fleet
	application *application
	sqlite      string          // file to lock; empty with servers
	redis       *goredis.Client // past the proxies; nil with embedded stores

	crashPostgres, crashRedis Crash // nil for what is not to be killed

	mu      sync.Mutex
	counts  map[string]int
	running sync.WaitGroup
}

// A fault is one kind of harm. do returns when it is over, and reports whether it was done.
type fault struct {
	name   string
	weight int
	do     func(ctx context.Context, s *storm, in *instance, d *rand.Rand) bool
}

// milliseconds returns a time between least and most.
func milliseconds(d *rand.Rand, least, most int) time.Duration {
	return time.Duration(least+d.IntN(most-least+1)) * time.Millisecond
}

func processFaults() []fault {
	return []fault{
		{"kill -9", 6, func(ctx context.Context, s *storm, in *instance, d *rand.Rand) bool {
			return s.restart(ctx, in, killed, d.IntN(4) == 0, milliseconds(d, 0, 1500))
		}},
		{"SIGTERM", 3, func(ctx context.Context, s *storm, in *instance, d *rand.Rand) bool {
			return s.restart(ctx, in, terminated, d.IntN(4) == 0, milliseconds(d, 0, 500))
		}},
		{"SIGSTOP", 3, func(ctx context.Context, s *storm, in *instance, d *rand.Rand) bool {
			return s.halt(ctx, in, milliseconds(d, 300, 3000))
		}},
		{"SIGSTOP past the lease", 1, func(ctx context.Context, s *storm, in *instance, d *rand.Rand) bool {
			return s.halt(ctx, in, lease+milliseconds(d, 500, 2500))
		}},
		{"application declines", 1, mooded(declining, 300, 2000)},
		{"application breaks", 1, mooded(breaking, 200, 600)},
		{"application stalls", 1, mooded(sluggish, 200, 1000)},
		{"application dies", 2, func(ctx context.Context, s *storm, _ *instance, d *rand.Rand) bool {
			down := milliseconds(d, 200, 1500)
			end := s.fleet.begin(applicationGone, nil)
			defer end()
			s.application.die()
			wait(ctx, down)
			back, cancel := context.WithTimeout(context.WithoutCancel(ctx), startPatience)
			defer cancel()
			if err := poll(back, 20*time.Millisecond, func() (bool, error) { return s.application.start(back) == nil, nil }); err != nil {
				s.fleet.accuse("the application can't be started again: %v", err)
			}
			return true
		}},
	}
}

func mooded(m mood, least, most int) func(context.Context, *storm, *instance, *rand.Rand) bool {
	return func(ctx context.Context, s *storm, _ *instance, d *rand.Rand) bool {
		s.application.mood.Store(uint32(m))
		wait(ctx, milliseconds(d, least, most))
		s.application.mood.Store(uint32(usual))
		return true
	}
}

func embeddedFaults() []fault {
	return []fault{
		{"durable store locked", 3, func(ctx context.Context, s *storm, _ *instance, d *rand.Rand) bool {
			return s.lock(ctx, milliseconds(d, 300, 2500))
		}},
		{"durable store locked past the lease", 1, func(ctx context.Context, s *storm, _ *instance, d *rand.Rand) bool {
			return s.lock(ctx, lease+milliseconds(d, 300, 1500))
		}},
	}
}

func serverFaults() []fault {
	durable := func(in *instance) *flaky.Proxy { return in.durable }
	fast := func(in *instance) *flaky.Proxy { return in.fast }
	return []fault{
		{"durable store slow", 2, network(durable, other, 500, 3000, func(p *flaky.Proxy, d *rand.Rand) { p.Slow(milliseconds(d, 20, 300)) })},
		{"durable store swallowed", 2, network(durable, cutOff, 300, 3000, func(p *flaky.Proxy, _ *rand.Rand) { p.Swallow() })},
		{"durable store swallowed past the lease", 4, network(durable, cutOff, 5500, 7000, func(p *flaky.Proxy, _ *rand.Rand) { p.Swallow() })},
		{"durable store cut off", 3, network(durable, cutOff, 200, 3000, func(p *flaky.Proxy, _ *rand.Rand) { p.Refuse() })},
		{"durable store's answers lost", 2, network(durable, cutOff, 200, 1500, func(p *flaky.Proxy, _ *rand.Rand) { p.LoseAnswers() })},
		{"claims committed, answer lost", 3, spoiled("claim", true)},
		{"claims lost before the commit", 2, spoiled("claim", false)},
		{"begins committed, answer lost", 3, spoiled("begin", true)},
		{"begins committed, answer lost, and nothing else", 3, alone(func(ctx context.Context, _ *storm, in *instance, d *rand.Rand) bool {
			in.durable.Spoil(flaky.Loss{Statement: "begin", Applied: true, Times: 6 + d.IntN(6), EveryOther: true})
			wait(ctx, milliseconds(d, 1000, 1500))
			in.durable.Spoil(flaky.Loss{})
			wait(ctx, lease+slack) // what was lost by this has no other excuse
			return true
		})},
		{"begins lost before the commit", 2, spoiled("begin", false)},
		{"settles committed, answer lost", 2, spoiled("handled", true)},
		{"settles lost before the commit", 2, spoiled("handled", false)},
		{"settles held up past the lease", 3, alone(func(ctx context.Context, s *storm, in *instance, d *rand.Rand) bool {
			// the instance gives the connection up; what it has sent arrives all the same
			defer s.fleet.begin(cutOff, in)()
			return in.durable.HoldCommit(ctx, "handled", lease+milliseconds(d, 100, 1000))
		})},
		{"durable store cut off from all", 2, func(ctx context.Context, s *storm, _ *instance, d *rand.Rand) bool {
			return s.all(ctx, durable, milliseconds(d, 300, 2500), (*flaky.Proxy).Refuse)
		}},
		{"durable store stands still", 1, func(ctx context.Context, s *storm, _ *instance, d *rand.Rand) bool {
			return s.all(ctx, durable, milliseconds(d, 300, 2500), (*flaky.Proxy).Swallow)
		}},
		{"fast store slow", 1, network(fast, other, 500, 3000, func(p *flaky.Proxy, d *rand.Rand) { p.Slow(milliseconds(d, 20, 300)) })},
		{"fast store swallowed", 2, network(fast, other, 300, 3000, func(p *flaky.Proxy, _ *rand.Rand) { p.Swallow() })},
		{"fast store cut off", 2, network(fast, other, 300, 3000, func(p *flaky.Proxy, _ *rand.Rand) { p.Refuse() })},
		{"fast store emptied", 2, func(ctx context.Context, s *storm, _ *instance, _ *rand.Rand) bool { return s.empty(ctx) }},
		{"fast store's answers lost", 1, network(fast, other, 300, 1500, func(p *flaky.Proxy, _ *rand.Rand) { p.LoseAnswers() })},
	}
}

// crashFaults are those of the servers that may be killed.
func (s *storm) crashFaults() []fault {
	var faults []fault
	if s.crashPostgres != nil {
		faults = append(faults, fault{"durable store killed", 5, crashed(s.crashPostgres, cutOff)})
	}
	if s.crashRedis != nil {
		faults = append(faults, fault{"fast store killed", 4, crashed(s.crashRedis, other)})
	}
	return faults
}

// crashed kills a server and starts it again after a while. It waits for harm that is to be the only
// one: were it left out then, as what is done to one instance is, it would be left out nearly always.
func crashed(crash Crash, kind string) func(context.Context, *storm, *instance, *rand.Rand) bool {
	var one sync.Mutex // a server can't be killed again before it is back
	return func(ctx context.Context, s *storm, _ *instance, d *rand.Rand) bool {
		down := milliseconds(d, 0, 2000)
		one.Lock()
		defer one.Unlock()
		for _, in := range s.fleet.instances {
			in.harm.RLock()
			defer in.harm.RUnlock()
		}
		if ctx.Err() != nil {
			return false
		}
		defer s.fleet.begin(kind, nil)()
		restart, err := crash()
		if err != nil {
			s.fleet.accuse("a store can't be killed: %v", err)
			return false
		}
		wait(ctx, down)
		if err := restart(context.WithoutCancel(ctx)); err != nil {
			s.fleet.accuse("a store can't be started again: %v", err)
		}
		return true
	}
}

// network makes one instance's way to a store bad for a while.
func network(store func(*instance) *flaky.Proxy, kind string, least, most int, spoil func(*flaky.Proxy, *rand.Rand),
) func(context.Context, *storm, *instance, *rand.Rand) bool {
	return func(ctx context.Context, s *storm, in *instance, d *rand.Rand) bool {
		if !in.harm.TryRLock() {
			return false
		}
		defer in.harm.RUnlock()
		p := store(in)
		takes := milliseconds(d, least, most)
		end := s.fleet.begin(kind, in)
		spoil(p, d)
		wait(ctx, takes)
		p.Heal()
		end()
		return true
	}
}

// spoiled loses some commits, every other one, so that what is tried again gets through.
func spoiled(statement string, applied bool) func(context.Context, *storm, *instance, *rand.Rand) bool {
	return func(ctx context.Context, _ *storm, in *instance, d *rand.Rand) bool {
		if !in.harm.TryRLock() {
			return false
		}
		defer in.harm.RUnlock()
		in.durable.Spoil(flaky.Loss{Statement: statement, Applied: applied, Times: 2 + d.IntN(6), EveryOther: true})
		wait(ctx, milliseconds(d, 500, 1500))
		in.durable.Spoil(flaky.Loss{})
		return true
	}
}

// alone does harm to an instance when all other harm to it is over, and keeps any more away meanwhile:
// so that what comes of it can't be put down to anything else.
func alone(harm func(context.Context, *storm, *instance, *rand.Rand) bool) func(context.Context, *storm, *instance, *rand.Rand) bool {
	return func(ctx context.Context, s *storm, in *instance, d *rand.Rand) bool {
		in.harm.Lock()
		defer in.harm.Unlock()
		wait(ctx, slack)
		return ctx.Err() == nil && harm(ctx, s, in, d)
	}
}

// all makes every instance's way to a store bad at once.
func (s *storm) all(ctx context.Context, store func(*instance) *flaky.Proxy, takes time.Duration, spoil func(*flaky.Proxy)) bool {
	for _, in := range s.fleet.instances {
		if !in.harm.TryRLock() {
			return false
		}
		defer in.harm.RUnlock()
	}
	end := s.fleet.begin(cutOff, nil)
	for _, in := range s.fleet.instances {
		spoil(store(in))
	}
	wait(ctx, takes)
	for _, in := range s.fleet.instances {
		store(in).Heal()
	}
	end()
	return true
}

// run does harm until ctx ends, and returns when all of it is over.
func (s *storm) run(ctx context.Context, seed uint64) {
	faults := processFaults()
	if s.sqlite != "" {
		faults = append(faults, embeddedFaults()...)
	} else {
		faults = append(faults, serverFaults()...)
		faults = append(faults, s.crashFaults()...)
	}
	var deck []fault
	for i := uint64(0); ; i++ {
		d := dice(seed, diceFaults, i, 0)
		wait(ctx, milliseconds(d, 150, 900))
		if ctx.Err() != nil {
			break
		}
		if len(deck) == 0 {
			deck = shuffled(faults, d)
		}
		f := deck[0]
		deck = deck[1:]
		in := s.fleet.instances[d.IntN(len(s.fleet.instances))]
		s.running.Go(func() {
			if f.do(ctx, s, in, d) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.counts[f.name]++
			}
		})
	}
	s.running.Wait()
	s.application.mood.Store(uint32(calm))
	for _, in := range s.fleet.instances {
		for _, p := range []*flaky.Proxy{in.durable, in.fast} {
			if p != nil {
				p.Heal()
			}
		}
	}
}

// shuffled returns each fault as often as it has weight, first one of each: so no kind is missing
// from a storm by chance.
func shuffled(faults []fault, d *rand.Rand) []fault {
	var deck []fault
	for _, f := range faults {
		for range f.weight - 1 {
			deck = append(deck, f)
		}
	}
	d.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	first := slices.Clone(faults)
	d.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
	return append(first, deck...)
}

// restart ends an instance's process and begins another one after a while. One that has not been
// ready yet is left alone, unless its start is to be disturbed too.
func (s *storm) restart(ctx context.Context, in *instance, kind string, starting bool, after time.Duration) bool {
	if !in.harm.TryRLock() {
		return false
	}
	defer in.harm.RUnlock()
	if !in.busy.TryLock() {
		return false
	}
	defer in.busy.Unlock()
	if !in.process.Runs() || !in.ready && !starting {
		return false
	}
	end := s.fleet.begin(kind, in)
	defer end()
	if kind == killed {
		_ = in.process.Kill() // it fails only if the server has ended
	} else {
		in.process.Stop(drainTimeout + 10*time.Second)
	}
	wait(ctx, after)
	if err := in.start(); err != nil {
		s.fleet.accuse("%s can't be started: %v", in.name, err)
	}
	return true
}

// halt makes an instance stand still.
func (s *storm) halt(ctx context.Context, in *instance, takes time.Duration) bool {
	if !in.harm.TryRLock() {
		return false
	}
	defer in.harm.RUnlock()
	if !in.busy.TryLock() {
		return false
	}
	defer in.busy.Unlock()
	if !in.process.Runs() || in.process.Halt() != nil {
		return false
	}
	end := s.fleet.begin(halted, in)
	defer end()
	wait(ctx, takes)
	_ = in.process.Resume() // it fails only if the server has ended
	return true
}

// empty deletes what the instances keep in Redis, and nothing else that may be there.
func (s *storm) empty(ctx context.Context) bool {
	keys := s.redis.Scan(ctx, 0, redis.KeyPrefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if s.redis.Del(ctx, keys.Val()).Err() != nil {
			return false
		}
	}
	return keys.Err() == nil
}

// lock holds the file of the durable store as another process would that writes to it for long.
func (s *storm) lock(ctx context.Context, takes time.Duration) bool {
	db, err := sql.Open("sqlite", "file:"+s.sqlite+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return false
	}
	defer db.Close() //nolint:errcheck // it changed nothing
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return false // the instances were faster
	}
	end := s.fleet.begin(cutOff, nil)
	defer end()
	wait(ctx, takes)
	return tx.Rollback() == nil
}

// wait returns after d or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
