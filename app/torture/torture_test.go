package torture_test

import (
	"strings"
	"testing"
)

// Longer and other runs: TORTURE_ARGS="--seed 3 --events 5000 --duration 60s".
var short = []string{"--seed", "7", "--events", "500", "--duration", "7s"}

func TestNoPromiseIsBrokenOnEmbeddedStores(t *testing.T) {
	holds(t)
}

func TestNoPromiseIsBrokenOnServers(t *testing.T) {
	holds(t, onServers(t)...)
}

func holds(t *testing.T, args ...string) {
	t.Helper()
	code, text := command(t, program, append(append(args, short...), extra("TORTURE_ARGS")...)...)
	if code != 0 || !strings.Contains(text, "PASSED") {
		t.Errorf("exit code %d; want 0:\n%s", code, text)
	}
	t.Log(text)
}
