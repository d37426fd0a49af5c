package app_test

import (
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/admitone/admitone/app"
)

// goal is how far the heap grows, in bytes, until garbage is collected the next time.
func goal() uint64 {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestGarbageIsLeftForAWhileUnlessTheEnvironmentSaysForHowLong(t *testing.T) {
	for _, tt := range []struct {
		gogc, limit string
		longer      bool
	}{
		{"", "", true},
		{"100", "", false},
		{"", "1GiB", false},
	} {
		t.Setenv("GOGC", tt.gogc)
		t.Setenv("GOMEMLIMIT", tt.limit)
		before := goal()
		release := app.KeepHeadroom()
		if got := goal() > before+32<<20; got != tt.longer {
			t.Errorf("GOGC=%s GOMEMLIMIT=%s: garbage is left for longer: %t; want %t", tt.gogc, tt.limit, got, tt.longer)
		}
		release()
		if now := goal(); now > before+32<<20 {
			t.Errorf("GOGC=%s GOMEMLIMIT=%s: after the release the heap may grow to %d bytes, before to %d", tt.gogc, tt.limit, now, before)
		}
	}
}
