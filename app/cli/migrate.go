package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/app/config"
	"github.com/admitone/admitone/channels"
)

func newMigrate(chs []channels.Channel) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:       "migrate up|down|status",
		Short:     "Bring the schema up to date, take its last step back, or tell where it stands",
		Long:      "Schema migrations. serve applies what is missing itself unless store.durable.migrate is false.\ndown drops the tables of the last step with all they hold.",
		ValidArgs: []string{"up", "down", "status"},
		Args:      usage(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Load(file, os.Environ(), chs)
			if err != nil {
				return err
			}
			store := app.StoreConfig(cfg)
			switch args[0] {
			case "up":
				err = sqlstore.Migrate(cmd.Context(), store)
			case "down":
				err = sqlstore.MigrateDown(cmd.Context(), store)
			}
			if err != nil {
				return err
			}
			st, err := sqlstore.Schema(cmd.Context(), store)
			if err != nil {
				return err
			}
			state := "complete"
			switch {
			case st.Dirty:
				state = "left half done by a migrator that died; admitone migrate up mends it"
			case st.Version < st.Latest:
				state = "behind; admitone migrate up completes it"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "schema at step %d of %d: %s\n", st.Version, st.Latest, state)
			return err
		},
	}
	c.Flags().StringVar(&file, "config", "", "configuration file")
	return c
}
