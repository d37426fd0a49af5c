package torture_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each patch in testdata/mutants breaks the server in one way, and torture must find it. They take
// minutes, so they are run by hand: TORTURE_MUTANTS="--seed 1" task torture:mutants.
func TestEachMutantIsCaught(t *testing.T) {
	args := extra("TORTURE_MUTANTS")
	if len(args) == 0 {
		t.Log("TORTURE_MUTANTS is not set: the patches are applied, and nothing is built")
	}
	patches, err := filepath.Glob("testdata/mutants/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatalf("mutants: %d, %v", len(patches), err)
	}
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			dir := mutate(t, patch)
			if len(args) == 0 {
				return
			}
			mutant := filepath.Join(dir, "mutant")
			do(t, dir, "go", "build", "-buildvcs=false", "-o", mutant, "./app/cmd/admitone")
			code, text := torture(t, mutant, append(onServers(t), args...)...)
			if code != 1 || !strings.Contains(text, "VIOLATION of") {
				t.Errorf("exit code %d; want 1 and a violation:\n%s", code, text)
				return
			}
			_, violations, _ := strings.Cut(text, "VIOLATION of")
			first, _, _ := strings.Cut(violations, "\n")
			_, last, _ := strings.Cut(text, "FAILED")
			t.Logf("first: %s; FAILED%s", first, strings.TrimSpace(last))
		})
	}
}

// mutate applies patch to a copy of the sources, and returns its folder.
func mutate(t *testing.T, patch string) string {
	t.Helper()
	patch, err := filepath.Abs(patch)
	if err != nil {
		t.Fatal(err)
	}
	root, dir := os.DirFS("../.."), t.TempDir()
	err = fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != ".":
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, path), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		b, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, path), b, 0o600)
	})
	if err != nil {
		t.Fatalf("copy the sources: %v", err)
	}
	do(t, dir, "git", "apply", patch)
	return dir
}

func do(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args[:2], " "), err, out)
	}
}
