package cli_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/app/cli"
)

var update = flag.Bool("update", false, "write docs/channels.md and configs/quickstart.yaml anew")

// program is the built server.
var program string

func TestMain(m *testing.M) {
	if err := run(m); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(m *testing.M) (err error) {
	if err := os.Unsetenv("ADMITONE_SERVER_ADMIN_TOKEN"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "admitone-cli-")
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

// A result is what a command left behind.
type result struct {
	code           int
	stdout, stderr string
}

// admitone runs a command in this process.
func admitone(args ...string) result {
	var stdout, stderr bytes.Buffer
	code := cli.Main(args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// same fails unless the file at path holds want, or writes it with -update.
func same(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	if string(got) == want {
		return
	}
	if !*update {
		t.Fatalf("%s is stale; run go test ./app/cli -update", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
}
