// Package e2e_test runs the built server as processes of its own, on real stores, between
// vendors that send and an application that counts what it gets.
//
// A deployment is what one test has for itself: a database on the PostgreSQL server that
// the tests share, a Redis or embedded stores, a proxy before each store that can break it
// in the ways in which networks break, and an application. BR-n in a comment names the kind
// of field report that a test stands for.
package e2e_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/servertest"
)

// program is the built server.
var program string

func TestMain(m *testing.M) {
	err := error(nil)
	if file := os.Getenv(configVariable); file != "" {
		err = serveStopping(stop(os.Getenv(stopVariable)), file)
	} else {
		err = run(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // the exit code of a test binary is decided here
	}
}

func run(m *testing.M) (err error) {
	dir, err := os.MkdirTemp("", "admitone-e2e-")
	if err != nil {
		return fmt.Errorf("make a folder for the server: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program = filepath.Join(dir, "admitone")
	build := exec.Command("go", "build", "-race", "-buildvcs=false", "-o", program, "../cmd/admitone") //nolint:noctx // nothing is to be done without it
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the server: %w: %s", err, out)
	}
	// Most tests wait most of the time. A number on the command line wins.
	if err := flag.Set("test.parallel", "6"); err != nil {
		return fmt.Errorf("set the number of parallel tests: %w", err)
	}
	m.Run()
	return servertest.Shutdown()
}

// patience is how long a test waits for what must come. It is long since machines that run
// tests are small and busy; nothing waits for it where all is well.
const patience = 30 * time.Second

// await waits until done reports true. If it does not within patience, the test fails.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	awaitWithin(t, patience, what, done)
}

func awaitWithin(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("within %s this did not come about: %s", limit, what)
		}
	}
}
