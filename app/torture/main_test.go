package torture_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/app/cli"
)

// program is the built server.
var program string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		// an instance of a torture that runs in this binary
		os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) //nolint:forbidigo // it is a server
	}
	if err := run(m); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // the exit code of a test binary is decided here
	}
}

func run(m *testing.M) (err error) {
	dir, err := os.MkdirTemp("", "admitone-torture-test-")
	if err != nil {
		return fmt.Errorf("make a folder for the server: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program = filepath.Join(dir, "admitone")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "../cmd/admitone") //nolint:noctx // nothing is to be done without it
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the server: %w: %s", err, out)
	}
	m.Run()
	return servertest.Shutdown()
}

// command runs the command of a build and returns its exit code and what it printed.
func command(t *testing.T, program string, args ...string) (code int, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append([]string{"torture"}, args...)...)
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("torture: %v", err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// onServers returns the arguments for a database and a Redis that nobody else uses.
func onServers(t *testing.T) []string {
	t.Helper()
	return []string{"--postgres", servertest.Postgres(t).Database(t).DSN, "--redis", "redis://" + servertest.Redis(t).Addr() + "/0"}
}

// extra returns the arguments in an environment variable, such as --seed 3 --events 5000.
func extra(name string) []string { return strings.Fields(os.Getenv(name)) }
