package storetest

import (
	"context"
	"testing"
	"time"
)

const (
	// soon is a time that ends while a check waits for it; long is one that never does.
	soon = time.Millisecond
	long = 10 * time.Minute
	// patience is how long a check waits for what must come, on a busy machine, and most how
	// long it may take as a whole.
	patience = 10 * time.Second
	most     = 2 * time.Minute
)

// A promise is one sentence of a port and how it is checked, by a trial K on a fresh store.
type promise[K any] struct {
	name, text string
	check      func(K)
}

// try checks each promise with one subtest, on a trial of its own from prepare. Its context ends
// with the check.
func try[K any](t *testing.T, promises []promise[K], prepare func(*testing.T, context.Context) K) {
	t.Helper()
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("broken promise: %s", p.text)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), most)
			defer cancel()
			p.check(prepare(t, ctx))
		})
	}
}
