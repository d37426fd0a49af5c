package storetest_test

import "time"

// A gap is where a broken store lets others in between a look and what follows from it. Two
// calls that are in it at once let each other go on, so that the bug shows whenever calls
// overlap, however the scheduler runs them; one that is alone goes on by itself.
type gap chan struct{}

// alone is how long a call waits for another: callers that start together are all there by then.
const alone = 20 * time.Millisecond

func newGap() gap { return make(gap) }

func (g gap) wait() {
	t := time.NewTimer(alone)
	defer t.Stop()
	select {
	case g <- struct{}{}:
	case <-g:
	case <-t.C:
	}
}
