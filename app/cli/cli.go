// Package cli holds the commands of admitone. Each command is a file.
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
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // the thing asked for failed
	exitUsage  = 2 // it was asked for wrongly
)

// A usageError is a command line that can't be meant.
type usageError struct{ error }

// Main runs the command that args name and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
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

func newRoot() *cobra.Command {
	root := group(&cobra.Command{
		Use:           "admitone",
		Short:         "Stands between messaging platforms and your application and hands each event on once",
		SilenceUsage:  true,
		SilenceErrors: true,
	},
		newDemo(), newServe(), newTorture(), newVerify(), newCheck(), newMigrate(), newReceipts(), newChannels(), newSimulate(), newVersion())
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
