package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	checkout = "../../.."
	guide    = checkout + "/docs/add-a-channel.md"
)

var update = flag.Bool("update", false, "write the files that docs/add-a-channel.md shows anew")

// program is the built generator.
var program string

func TestMain(m *testing.M) {
	if err := run(m); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(m *testing.M) (err error) {
	dir, err := os.MkdirTemp("", "admitone-newchannel-")
	if err != nil {
		return fmt.Errorf("make a folder for the generator: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program = filepath.Join(dir, "newchannel")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".") //nolint:noctx // nothing is to be done without it
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the generator: %w: %s", err, out)
	}
	m.Run()
	return nil
}

// command runs a program in dir and returns all that it said, and whether its exit code is 0.
func command(t *testing.T, dir, name string, args ...string) (string, bool) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", name, err)
	}
	return string(out), err == nil
}

// must is command, of which the exit code has to be 0.
func must(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, ok := command(t, dir, name, args...)
	if !ok {
		t.Fatalf("%s %s: %s", name, strings.Join(args, " "), out)
	}
	return out
}

// newTree returns a folder with as much of Admitone's module as the generator looks at.
func newTree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, file := range []string{"go.mod", "app/channels.go"} {
		text, err := os.ReadFile(filepath.Join(checkout, file))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, file), text)
	}
	if err := os.Mkdir(filepath.Join(root, "channels"), 0o700); err != nil {
		t.Fatal(err)
	}
	return root
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// overlay returns an argument that makes the go command see the Go files of root in the
// checkout, in which nothing is written.
func overlay(t *testing.T, root string) string {
	t.Helper()
	there, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		below, err := filepath.Rel(root, path)
		replace[filepath.Join(there, below)] = path
		return err
	}); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	write(t, file, text)
	return "-overlay=" + file
}

func TestSkeletonPassesTheKit(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pigeon", "x9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := newTree(t)
			must(t, root, program, name)
			kit := filepath.Join(root, "kit")
			// vet wants a folder that is there.
			must(t, checkout, "go", "test", "-c", "-vet=off", overlay(t, root), "-buildvcs=false", "-o", kit, "./channels/"+name)
			told := must(t, filepath.Join(root, "channels", name), kit, "-test.v")
			for _, promise := range []string{"Complete", "SampleDecodes", "Golden", "ForgedIsRefused", "UnreadableIsTold", "SimulatedRequestIsGenuine"} {
				if !strings.Contains(told, "--- PASS: TestChannelKeepsEveryPromise/"+promise+" ") {
					t.Errorf("the kit did not look at %s:\n%s", promise, told)
				}
			}
		})
	}
}

func TestSkeletonIsAChannelOfTheServer(t *testing.T) {
	t.Parallel()
	root := newTree(t)
	must(t, root, program, "pigeon")
	server := filepath.Join(root, "server")
	must(t, checkout, "go", "build", overlay(t, root), "-buildvcs=false", "-o", server, "./app/cmd/admitone")
	if table := must(t, root, server, "channels"); !regexp.MustCompile(`(?m)^PIGEON +\(platform pigeon\)$`).MatchString(table) {
		t.Errorf("the server does not have the channel:\n%s", table)
	}
}

func TestSkeletonIsFormatted(t *testing.T) {
	t.Parallel()
	root := newTree(t)
	must(t, root, program, "pigeon")
	for _, file := range []string{"app/channels.go", "channels/pigeon/pigeon.go", "channels/pigeon/pigeon_test.go"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if formatted, err := format.Source(text); err != nil || !bytes.Equal(formatted, text) {
			t.Errorf("%s is not formatted: %v", file, err)
		}
	}
}

func TestSkeletonStaysInItsOwnModuleElsewhere(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "go.mod"), []byte("module example.com/team/bots\n"))
	below := filepath.Join(root, "inbound")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	told := must(t, below, program, "pigeon")
	const path = `"example.com/team/bots/inbound/pigeon"`
	test, err := os.ReadFile(filepath.Join(below, "pigeon", "pigeon_test.go"))
	if err != nil || !strings.Contains(string(test), path) || !strings.Contains(told, path) {
		t.Errorf("the test imports no %s, or it is not told (%v):\n%s\n%s", path, err, test, told)
	}
}

func TestUnfitNameIsRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Pigeon", "9x", "pigeon_post", "../pigeon", "func", "string", "main", "internal", "channels", "hmac"} {
		root := newTree(t)
		told, ok := command(t, root, program, name)
		if ok || !strings.Contains(told, fmt.Sprintf("name %q", name)) {
			t.Errorf("newchannel %q succeeds: %t; want an error about the name: %s", name, ok, told)
		}
		if made, err := os.ReadDir(filepath.Join(root, "channels")); err != nil || len(made) > 0 {
			t.Errorf("newchannel %q leaves %v, %v", name, made, err)
		}
	}
}

func TestFolderIsNotWrittenOver(t *testing.T) {
	t.Parallel()
	root := newTree(t)
	must(t, root, program, "pigeon")
	list := filepath.Join(root, "app", "channels.go")
	before, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if told, ok := command(t, root, program, "pigeon"); ok || !strings.Contains(told, "exists") {
		t.Errorf("a second channel of the name is made: %s", told)
	}
	if after, err := os.ReadFile(list); err != nil || string(after) != string(before) {
		t.Errorf("the list is changed (%v):\n%s", err, after)
	}
}

// shown is a file of the guide: its path in a line of its own, and its text in a block.
var shown = regexp.MustCompile("(?s)\n`(channels/pigeon/[^`\n]+)`:\n\n```[a-z]*\n(.*?)\n?```\n")

func TestGuideShowsTheSkeletonAsItIs(t *testing.T) {
	t.Parallel()
	root := newTree(t)
	must(t, root, program, "pigeon")
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	now := shown.ReplaceAllStringFunc(string(text), func(part string) string {
		n++
		m := shown.FindStringSubmatchIndex(part)
		file, err := os.ReadFile(filepath.Join(root, part[m[2]:m[3]]))
		if err != nil {
			t.Error(err)
			return part
		}
		return part[:m[4]] + strings.TrimSuffix(string(file), "\n") + "\n```\n"
	})
	if n < 5 {
		t.Errorf("the guide shows %d files; want the channel, its test, its sample, a fixture and its golden file", n)
	}
	switch {
	case now == string(text):
	case *update:
		write(t, guide, []byte(now))
	default:
		t.Error("docs/add-a-channel.md shows files as they no longer are; run go test ./app/cmd/newchannel -update")
	}
}
