package cli

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/app/config"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// Of verify: how long after its time an open receipt may lie before it counts as stuck, and
// how many of each kind of finding are named.
const (
	verifyGrace = time.Minute
	verifyNamed = 20
)

func newVerify(chs []channels.Channel) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "verify",
		Short: "Check the ledger's balance: every admitted event is handled, failed, lost, discarded or open within its time",
		Long: "Check the ledger's balance in the durable store of the configuration. The sums are printed by tenant and\n" +
			"platform, broken and stuck receipts by name; the exit code is 1 if there are any. Repeated are those that the\n" +
			"vendor has sent again and that are not handled: the ledger is in order with them, the application is probably\n" +
			"not. It reads every receipt and changes nothing. Open receipts count as stuck a minute after somebody should have taken them up: run it while\n" +
			"a server runs.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(file, os.Environ(), chs)
			if err != nil {
				return err
			}
			store := app.StoreConfig(cfg)
			store.Migrate = false // nobody expects verify to change a schema
			s, err := sqlstore.Open(cmd.Context(), store)
			if err != nil {
				return err
			}
			defer s.Close() //nolint:errcheck // it only read
			audit, err := s.Audit(cmd.Context(), verifyGrace, verifyNamed)
			if err != nil {
				return err
			}
			return printAudit(cmd, audit)
		},
	}
	c.Flags().StringVar(&file, "config", "", "configuration file")
	return c
}

func printAudit(cmd *cobra.Command, a ports.Audit) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "tenant\tplatform\tadmitted\thandled\tfailed\tlost\tdiscarded\topen\trepeated\t\n")
	balanced := true
	for _, s := range a.Sums {
		open := s.States[domain.Claimed] + s.States[domain.Dispatching] + s.States[domain.Retrying]
		mark := ""
		if !s.Balanced() {
			mark, balanced = "does not add up", false
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", s.Tenant, s.Platform, s.Admitted, s.States[domain.Handled],
			s.States[domain.Failed], s.States[domain.Lost], s.States[domain.Discarded], open, s.Repeated, mark)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	name := func(r domain.Receipt, why string) {
		fmt.Fprintf(out, "receipt %s (%s, %s, %s, attempt %d, claimed %s): %s\n",
			r.ID, r.Key.Tenant, r.Key.Platform, r.State, r.Attempt, r.ClaimedAt.Format(time.RFC3339), why)
	}
	for _, r := range a.Repeated {
		name(r, fmt.Sprintf("not handled, and delivered %d times", r.Deliveries))
	}
	for _, f := range a.Findings {
		name(f.Receipt, f.Why)
	}
	if !balanced || len(a.Findings) > 0 {
		fmt.Fprintln(out, "the ledger is NOT in order")
		return errTold
	}
	fmt.Fprintln(out, "the ledger is in order")
	return nil
}
