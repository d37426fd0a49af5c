package torture_test

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/app/torture"
	"github.com/admitone/admitone/domain"
)

func TestCheckerFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	const once, least = domain.AtMostOnce, domain.AtLeastOnce
	for name, tt := range map[string]struct {
		guarantee domain.Guarantee
		plant     func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt
		want      string // promise; empty if nothing is wrong
	}{
		"handled at once": {once, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Promise(n, torture.Genuine, true)
			k.Promise(n, torture.Genuine, false)
			k.Promise(n, torture.Late, false)
			k.Begun(r, n, 1, torture.Taken)
			return []domain.Receipt{r}
		}, ""},
		"promised, and no receipt": {once, func(k *torture.Checked, n uint32, _ domain.Receipt) []domain.Receipt {
			k.Promise(n, torture.Genuine, false)
			return nil
		}, "P2"},
		"never promised, and no receipt": {once, func(*torture.Checked, uint32, domain.Receipt) []domain.Receipt { return nil }, ""},
		"dispatched, and no receipt": {once, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Taken)
			return nil
		}, "P2"},
		"handled, and never dispatched": {least, func(_ *torture.Checked, _ uint32, r domain.Receipt) []domain.Receipt {
			return []domain.Receipt{r}
		}, "P2"},
		"handled, and only declined": {least, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Declined)
			return []domain.Receipt{r}
		}, "P2"},
		"admitted twice": {once, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Promise(n, torture.Genuine, true)
			k.Promise(n, torture.Genuine, true)
			k.Begun(r, n, 1, torture.Taken)
			return []domain.Receipt{r}
		}, "P1"},
		"two receipts": {once, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Taken)
			return []domain.Receipt{r, r}
		}, "P1"},
		"begun under two ids": {least, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Taken)
			k.Begun(k.Receipt(n+1), n, 1, torture.Taken)
			return []domain.Receipt{r}
		}, "P1"},
		"a late copy admitted": {once, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Promise(n, torture.Genuine, false)
			k.Promise(n, torture.Late, true)
			k.Begun(r, n, 1, torture.Taken)
			return []domain.Receipt{r}
		}, "P1"},
		"at-most-once, declined and then taken": {once, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Declined)
			k.Begun(r, n, 2, torture.Taken)
			r.Attempt = 2
			return []domain.Receipt{r}
		}, ""},
		"at-most-once, begun twice": {once, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Cut)
			k.Begun(r, n, 2, torture.Taken)
			r.Attempt = 2
			return []domain.Receipt{r}
		}, "P3"},
		"at-most-once, tried again after it was taken": {once, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 2, torture.Declined) // the log is in no order
			k.Begun(r, n, 1, torture.Taken)
			r.Attempt = 2
			return []domain.Receipt{r}
		}, "P3"},
		"at-most-once, begun twice by a replay": {once, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Broken)
			k.Replay(r)
			k.Begun(r, n, 2, torture.Taken)
			r.Attempt = 2
			return []domain.Receipt{r}
		}, ""},
		"one attempt twice": {least, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Declined)
			k.Begun(r, n, 1, torture.Taken)
			return []domain.Receipt{r}
		}, "P3"},
		"an attempt that was not committed": {least, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Broken)
			k.Begun(r, n, 2, torture.Taken)
			return []domain.Receipt{r}
		}, "P3"},
		"at-least-once, begun twice": {least, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Taken)
			k.Begun(r, n, 2, torture.Taken)
			r.Attempt = 2
			return []domain.Receipt{r}
		}, ""},
		"settled after the lease": {least, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Taken)
			r.HandledAt = r.BegunAt.Add(torture.Lease + time.Millisecond)
			return []domain.Receipt{r}
		}, "P3"},
		"given up too early": {least, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Broken)
			r.State, r.LastError = domain.Failed, "500"
			return []domain.Receipt{r}
		}, "P4"},
		"given up after its attempts": {least, func(_ *torture.Checked, _ uint32, r domain.Receipt) []domain.Receipt {
			r.State, r.LastError, r.Attempt = domain.Failed, "500", torture.MaxAttempts
			return []domain.Receipt{r}
		}, ""},
		"rejected": {least, func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, n, 1, torture.Rejected)
			r.State, r.LastError = domain.Failed, "400"
			return []domain.Receipt{r}
		}, ""},
		"at-least-once, and lost":                {least, lost(torture.Killed, "a", 0), "P4"},
		"lost by a kill":                         {once, lost(torture.Killed, "a", 0), ""},
		"lost, and killed long after it":         {once, lost(torture.Killed, "a", torture.Lease-time.Second), "P3"},
		"lost by a drain":                        {once, lost(torture.Ended, "a", 0), "P3"},
		"lost, and another killed":               {once, lost(torture.Killed, "b", 0), "P3"},
		"lost, and killed before":                {once, lost(torture.Killed, "a", -time.Minute), "P3"},
		"lost, cut off until the lease's end":    {once, lost(torture.CutOff, "", torture.Lease), ""},
		"lost, cut off and back in time":         {once, lost(torture.CutOff, "a", 0), "P3"},
		"lost, and only the fast store was off":  {once, lost(torture.Other, "a", torture.Lease), "P3"},
		"lost on the way, cut off all the while": {once, unseen(torture.CutOff, torture.Lease), ""},
		"lost on the way, cut off at the end":    {once, unseen(torture.CutOff, -torture.Lease/4), "P3"},
		"lost on the way, and no application":    {once, unseen(torture.Gone, time.Second), ""},
		"in order":                               {once, inOrder(1, 2, domain.Handled), ""},
		"begun out of order":                     {once, inOrder(2, 1, domain.Handled), "order"},
		"arrived late from a cut dispatch":       {least, inOrder(2, 1, domain.Failed), ""},
		"still open": {least, func(_ *torture.Checked, _ uint32, r domain.Receipt) []domain.Receipt {
			r.State = domain.Retrying
			return []domain.Receipt{r}
		}, "P8"},
		"discarded by nobody": {least, func(_ *torture.Checked, _ uint32, r domain.Receipt) []domain.Receipt {
			r.State = domain.Discarded
			return []domain.Receipt{r}
		}, "P9"},
		"a receipt that nobody sent": {once, func(_ *torture.Checked, _ uint32, r domain.Receipt) []domain.Receipt {
			r.Key.EventID += "#0123456789abcdef"
			return []domain.Receipt{r}
		}, "P6"},
		"a dispatch that nobody sent": {once, func(k *torture.Checked, _ uint32, r domain.Receipt) []domain.Receipt {
			k.Begun(r, 1_000_000, 1, torture.Taken)
			return nil
		}, "P6"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, err := torture.NewChecked(64, app.Channels())
			if err != nil {
				t.Fatal(err)
			}
			n := k.Find(tt.guarantee)
			got := k.Finish(tt.plant(k, n, k.Receipt(n))...)
			if tt.want == "" && len(got) > 0 {
				t.Errorf("violations %+v; want none", got)
			}
			if tt.want != "" && !slices.ContainsFunc(got, func(v torture.Violation) bool { return v.Promise == tt.want }) {
				t.Errorf("violations %+v; want one of %s", got, tt.want)
			}
		})
	}
}

// lost plants a lost receipt of "a", and an incident that begins some time after it was begun.
func lost(kind, instance string, after time.Duration) func(*torture.Checked, uint32, domain.Receipt) []domain.Receipt {
	return func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
		k.Begun(r, n, 1, torture.Taken)
		r.State, r.LastError, r.HandledAt = domain.Lost, "the lease ran out", time.Time{}
		k.Incident(kind, instance, r.BegunAt.Add(after), r.BegunAt.Add(after+time.Second))
		return []domain.Receipt{r}
	}
}

// unseen plants a lost receipt of "a" that the application never got. "a" is cut off at the end of its
// lease, and from the begin on something is done for a time.
func unseen(kind string, takes time.Duration) func(*torture.Checked, uint32, domain.Receipt) []domain.Receipt {
	return func(k *torture.Checked, _ uint32, r domain.Receipt) []domain.Receipt {
		r.State, r.LastError, r.HandledAt = domain.Lost, "the lease ran out", time.Time{}
		end := r.BegunAt.Add(torture.Lease)
		k.Incident(torture.CutOff, "a", end, end.Add(time.Second))
		from := r.BegunAt
		if takes < 0 {
			from, takes = end.Add(takes), -takes
		}
		k.Incident(kind, "a", from, from.Add(takes))
		return []domain.Receipt{r}
	}
}

// inOrder plants two receipts of a conversation, with the places of their begins in the application's
// log. The first ends in state.
func inOrder(first, second int, state domain.State) func(*torture.Checked, uint32, domain.Receipt) []domain.Receipt {
	return func(k *torture.Checked, n uint32, r domain.Receipt) []domain.Receipt {
		next := k.Receipt(k.Next(n))
		r.Conversation, next.Conversation = "C1", "C1"
		r.Seq, next.Seq = 1, 2
		begin := func() { k.Begun(r, n, 1, torture.Taken) }
		if first < second {
			begin()
		}
		k.Begun(next, k.Next(n), 1, torture.Taken)
		if first > second {
			begin()
		}
		if r.State = state; state == domain.Failed {
			r.LastError, r.Attempt = "timeout", torture.MaxAttempts
		}
		return []domain.Receipt{r, next}
	}
}

// A million events are to fit into the memory of a small machine. The test is not parallel: it weighs
// the heap.
func TestLittleIsRememberedOfAnEvent(t *testing.T) {
	const n, most = 200_000, 128
	heap := func() (m runtime.MemStats) {
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m
	}
	before := heap()
	k := torture.Remember(n)
	after := heap()
	runtime.KeepAlive(k)
	if got := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n; got < 1 || got > most {
		t.Errorf("%d bytes are remembered of an event; want at most %d", got, most)
	}
}

func TestBeginsAreReadAsTheyWereNoted(t *testing.T) {
	t.Parallel()
	const n = 500
	got, err := torture.Roundtrip(filepath.Join(t.TempDir(), "begins"), n)
	if err != nil || got != n {
		t.Errorf("%d of %d begins were read again, %v", got, n, err)
	}
}

func TestWrongUsageIsTold(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"--postgres":   {"--postgres", "postgres://127.0.0.1:1/x"},
		"--events":     {"--events", "0"},
		"--instances":  {"--instances", "0"},
		"--time-scale": {"--time-scale", "0"},
		"--duration":   {"--duration", "-1s"},
	} {
		if code, text := command(t, program, args...); code != 2 || !strings.Contains(text, name) {
			t.Errorf("%v: exit code %d, %q; want 2 and a word of %s", args, code, text, name)
		}
	}
}

func TestNewEventsComeAsFastAsTheyAreTaken(t *testing.T) {
	t.Parallel()
	slow, fast := torture.Pace(200, 1000)
	if slow < 10*time.Millisecond || slow > 100*time.Millisecond {
		t.Errorf("after refusals new events come every %s; want them slowed down, within bounds", slow)
	}
	if fast > time.Millisecond {
		t.Errorf("after admissions new events come every %s; want them fast again", fast)
	}
}
