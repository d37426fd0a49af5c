package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.uber.org/dig"
	"go.uber.org/fx"

	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/app/config"
	"github.com/admitone/admitone/channels"
)

func newServe(chs []channels.Channel) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: "Run the server. Without a file: embedded stores under ./data, dispatch to the log, no installations.\n" +
			"SIGTERM and SIGINT drain: it stops admitting, finishes what is running, and hands back the rest.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(file, os.Environ(), chs)
			if err != nil {
				return err
			}
			defer app.KeepHeadroom()()
			return run(cmd.Context(), fx.New(app.Options(cfg, chs, newLogger(cmd.ErrOrStderr()))))
		},
	}
	c.Flags().StringVar(&file, "config", "", "configuration file")
	return c
}

// run starts a, waits until ctx ends or a ends by itself, and stops it.
func run(ctx context.Context, a *fx.App) error {
	if err := a.Err(); err != nil {
		return dig.RootCause(err)
	}
	start, cancel := context.WithTimeout(ctx, a.StartTimeout())
	defer cancel()
	if err := a.Start(start); err != nil {
		return dig.RootCause(err)
	}
	code := 0
	select {
	case <-ctx.Done():
	case sig := <-a.Wait():
		code = sig.ExitCode
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.StopTimeout())
	defer cancel()
	if err := a.Stop(stop); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if code != 0 {
		return errTold
	}
	return nil
}
