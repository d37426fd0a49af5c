// Package cli holds the commands of admitone. Each command is a file.
//
// [Main] is also how another module makes a server with channels of its own: see
// docs/add-a-channel.md.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/channels"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // the thing asked for failed
	exitUsage  = 2 // it was asked for wrongly
)

// A usageError is a command line that can't be meant.
type usageError struct{ error }

// Main runs the command that args name, without the program's own name, and returns the exit
// code: 0 done, 1 the thing asked for failed, 2 wrong usage. SIGINT and SIGTERM end it in good
// order.
//
// The program has the channels of [app.Channels] and, after them, those in private: in every
// command each is what a built-in one is. A channel that lacks something, or has the name of
// another, makes every command fail. To leave a built-in channel out, the configuration
// switches it off.
//
// A program calls Main once, from its main function, and exits with its result: demo and
// torture start the running program again as their servers.
func Main(args []string, stdout, stderr io.Writer, private ...channels.Channel) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	chs := append(app.Channels(), private...)
	if err := channels.Check(chs); err != nil {
		fmt.Fprintf(stderr, "admitone: %v\n", err)
		return exitFailed
	}
	root := newRoot(chs)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "admitone: %v\n", err)
		return exitUsage
	case errors.Is(err, errTold):
		return exitFailed
	default:
		fmt.Fprintf(stderr, "admitone: %v\n", err)
		return exitFailed
	}
}

// errTold ends a command that has said itself what failed.
var errTold = errors.New("failed")

func newRoot(chs []channels.Channel) *cobra.Command {
	root := group(&cobra.Command{
		Use:           "admitone",
		Short:         "Stands between messaging platforms and your application and hands each event on once",
		SilenceUsage:  true,
		SilenceErrors: true,
	},
		newDemo(chs), newServe(chs), newTorture(chs), newVerify(chs), newCheck(chs), newMigrate(chs), newReceipts(), newInstallations(), newConversations(), newChannels(chs), newSimulate(chs), newVersion())
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return root
}

// group makes c a command that does nothing but hold others. Without one of them it prints its help.
func group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError{fmt.Errorf("unknown command %q; %s --help lists them", args[0], cmd.CommandPath())}
		}
		return nil
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	c.AddCommand(commands...)
	return c
}

// usage makes the errors of an argument check those of wrong usage.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// newLogger writes to w: text where a person reads, JSON elsewhere.
func newLogger(w io.Writer) *slog.Logger {
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(w, nil))
}
