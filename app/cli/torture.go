package cli

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/admitone/admitone/app/torture"
	"github.com/admitone/admitone/channels"
)

func newTorture(chs []channels.Channel) *cobra.Command {
	o := torture.Options{}
	c := &cobra.Command{
		Use:   "torture",
		Short: "Prove the promises on this machine: instances are killed, stalled and cut off while vendors send",
		Long: `Prove the promises on this machine. Several instances run as processes of their own, on embedded stores
or on those that are given; every channel's vendor sends by its own rules of retry, in shortened time, with
races, copies and forgeries; an application receives, fails, stalls and dies. Meanwhile instances are killed,
halted and restarted, and their ways to the stores are slowed, cut and made to lose answers; servers that are
given are left running. When it is over, what the vendors were told, what the application got and what the
ledger says are compared. The exit code is 1 if anything contradicts a promise; each violation is printed with
its receipt's history.

A database must hold no receipts but those of earlier runs: instances would take up what waits there. What a
run has written stays, under tenants of its own that begin with torture-.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkTorture(o); err != nil {
				return usageError{err}
			}
			if !cmd.Flags().Changed("seed") {
				o.Seed = uint64(rand.Uint32()) //nolint:gosec // it is told, not secret
			}
			screen := newScreen(cmd.OutOrStdout())
			o.Channels, o.Out, o.Live = chs, screen.w, screen.live
			report, err := torture.Run(cmd.Context(), o)
			switch {
			case cmd.Context().Err() != nil:
				fmt.Fprintln(cmd.ErrOrStderr(), "interrupted")
				return errTold
			case err != nil:
				return err
			case report.Total > 0:
				return errTold
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.Postgres, "postgres", "", "URL of a PostgreSQL database; without it the instances share an embedded one")
	f.StringVar(&o.Redis, "redis", "", "URL of a Redis server; without it each instance has its memory")
	f.IntVar(&o.Instances, "instances", 3, "how many instances run")
	f.IntVar(&o.Events, "events", 3000, "how many events the vendors send")
	f.Uint64Var(&o.Seed, "seed", 0, "what is sent and which harm is done follow from it; drawn if left out")
	f.Float64Var(&o.TimeScale, "time-scale", 20, "by how much the vendors' deadlines and waits are divided")
	f.DurationVar(&o.Duration, "duration", 35*time.Second, "how long the storm lasts; longer, if sending takes longer")
	return c
}

func checkTorture(o torture.Options) error {
	switch {
	case o.Instances < 1 || o.Instances > 64:
		return fmt.Errorf("--instances %d: from 1 to 64", o.Instances)
	case o.Events < 1 || o.Events > 100_000_000:
		return fmt.Errorf("--events %d: from 1 to 100000000", o.Events)
	case !(o.TimeScale > 0) || math.IsInf(o.TimeScale, 0):
		return errors.New("--time-scale: must be positive")
	case o.Duration <= 0:
		return errors.New("--duration: must be positive")
	case (o.Postgres == "") != (o.Redis == ""):
		return errors.New("--postgres and --redis go together")
	}
	return nil
}
