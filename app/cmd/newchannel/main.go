// Command newchannel makes the skeleton of a channel: a folder with the channel of an invented
// vendor, its sample, README, fixtures and test, all of which pass the kit as they are.
//
//	go run ./app/cmd/newchannel pigeon
//
// In Admitone's own module the folder is channels/pigeon, and app/channels.go gets its line. In
// another module that requires Admitone it is pigeon below the working directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
)

// admitone is the module whose channels are built in.
const admitone = "github.com/admitone/admitone"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "newchannel:", err)
		os.Exit(1)
	}
}

// errUsage is a command line that can't be meant; what is wrong has been told.
var errUsage = errors.New("usage")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("newchannel", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "Usage: newchannel NAME\n\nMakes the skeleton of a channel. NAME is one word of a-z and 0-9.")
	}
	if err := f.Parse(args); err != nil {
		return errors.Join(errUsage, err)
	}
	if f.NArg() != 1 {
		f.Usage()
		return errUsage
	}
	name := f.Arg(0)
	if err := fit(name); err != nil {
		return err
	}
	m, err := workingModule(ctx)
	if err != nil {
		return err
	}
	if m.path == admitone {
		return builtIn(m, name, stdout)
	}
	return private(m, name, stdout)
}

// builtIn makes a channel of Admitone itself.
func builtIn(m module, name string, stdout io.Writer) error {
	list := filepath.Join(m.root, "app", "channels.go")
	source, err := os.ReadFile(list)
	if err != nil {
		return fmt.Errorf("the list of channels: %w", err)
	}
	importPath := path.Join(admitone, "channels", name)
	source, err = register(source, importPath, name)
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	if err := write(filepath.Join(m.root, "channels", name), importPath, name); err != nil {
		return err
	}
	if err := os.WriteFile(list, source, 0o644); err != nil { //nolint:gosec // source code is for everybody
		return fmt.Errorf("the list of channels: %w", err)
	}
	_, err = fmt.Fprintf(stdout, `Made channels/%[1]s, the channel of an invented vendor, and its line in app/channels.go. It passes the kit:

  go test ./channels/%[1]s

What is generated from all channels is to be made anew, docs/channels.md and configs/quickstart.yaml:

  go test ./app/cli -run 'Quickstart|Documented' -update

Now make it your vendor's: docs/add-a-channel.md says what each part must keep to.
`, name)
	return err
}

// private makes a channel of another module, below the working directory.
func private(m module, name string, stdout io.Writer) error {
	below, err := filepath.Rel(m.root, m.dir)
	if err != nil {
		return fmt.Errorf("the folder in its module: %w", err)
	}
	importPath := path.Join(m.path, filepath.ToSlash(below), name)
	if err := write(filepath.Join(m.dir, name), importPath, name); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, `Made %[1]s, the channel of an invented vendor. A program with it, beside the built-in ones:

  package main

  import (
  	"os"

  	"%[2]s/app/cli"

  	"%[3]s"
  )

  func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr, %[1]s.New())) }

Now make it your vendor's: docs/add-a-channel.md says what each part must keep to.
`, name, admitone, importPath)
	return err
}
