package torture_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maxSeeds is how many storms a mutant is put to. The first one catches it nearly always; the second
// is for a machine too busy to do in time what shows it.
const maxSeeds = 2

// Each patch in testdata/mutants breaks the server in one way, and torture must find it. They take
// minutes, so they run by hand: TORTURE_MUTANTS="--events 4000 --duration 40s".
func TestEachMutantIsCaught(t *testing.T) {
	args := extra("TORTURE_MUTANTS")
	if len(args) == 0 {
		t.Log("TORTURE_MUTANTS is not set: the patches are applied, and nothing is built")
	}
	for _, patch := range patches(t) {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			dir := t.TempDir()
			if len(args) == 0 {
				copySources(t, dir, func(path string) bool { return strings.Contains(read(t, patch), "--- a/"+path+"\n") })
				do(t, dir, "git", "apply", patch)
				return
			}
			copySources(t, dir, func(string) bool { return true })
			do(t, dir, "git", "apply", patch)
			mutant := filepath.Join(dir, "mutant")
			do(t, dir, "go", "build", "-buildvcs=false", "-o", mutant, "./app/cmd/admitone")
			where, text := onServers(t), ""
			for seed := range maxSeeds {
				var code int
				code, text = command(t, mutant, slices.Concat(where, args, []string{"--seed", strconv.Itoa(seed + 1)})...)
				if _, violations, found := strings.Cut(text, "VIOLATION of"); found && code == 1 {
					first, _, _ := strings.Cut(violations, "\n")
					_, last, _ := strings.Cut(text, "FAILED")
					t.Logf("first: %s; FAILED%s", first, strings.TrimSpace(last))
					return
				}
			}
			t.Errorf("not caught in %d runs; the last one:\n%s", maxSeeds, text)
		})
	}
}

func patches(t *testing.T) []string {
	t.Helper()
	dir, err := filepath.Abs("testdata/mutants")
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil || len(all) == 0 {
		t.Fatalf("mutants: %d, %v", len(all), err)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// copySources copies those sources of the server to dir that are wanted.
func copySources(t *testing.T, dir string, wanted func(path string) bool) {
	t.Helper()
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != ".":
			return fs.SkipDir
		case !d.Type().IsRegular() || !wanted(path):
			return nil
		}
		b, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	})
	if err != nil {
		t.Fatalf("copy the sources: %v", err)
	}
}

func do(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args[:2], " "), err, out)
	}
}
