package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/domain"
)

const receiptsPath = "/api/v1/receipts"

func newReceipts() *cobra.Command {
	return group(&cobra.Command{
		Use:   "receipts",
		Short: "Look at the ledger of a running server and act on it, through its admin API",
	}, newReceiptsList(), newReceiptsShow(), newReceiptsReplay(), newReceiptsDiscard(), newReceiptsStats())
}

// A selection is what the command line says of which receipts are meant.
type selection struct {
	state, tenant, platform, since, query string
	limit                                 int
}

func (s *selection) flags(c *cobra.Command, limit string) {
	c.Flags().StringVar(&s.state, "state", "", "only those in that `state`: "+strings.Join(stateNames(), ", "))
	c.Flags().StringVar(&s.tenant, "tenant", "", "only those of that tenant")
	c.Flags().StringVar(&s.platform, "platform", "", "only those of that platform, such as slack or email")
	c.Flags().StringVar(&s.since, "since", "", "only those claimed since then: `when` is how long ago, such as 24h, or 2026-01-31T12:00:00Z")
	c.Flags().IntVar(&s.limit, "limit", 100, limit)
}

func stateNames() []string {
	names := make([]string, len(domain.States))
	for i, s := range domain.States {
		names[i] = string(s)
	}
	return names
}

func (s *selection) empty() bool {
	return s.state == "" && s.tenant == "" && s.platform == "" && s.since == ""
}

func (s *selection) check() error {
	if s.state != "" && !slices.Contains(domain.States, domain.State(s.state)) {
		return usageError{fmt.Errorf("--state %q: there is no such state; there are %s", s.state, strings.Join(stateNames(), ", "))}
	}
	if s.limit < 1 {
		return usageError{fmt.Errorf("--limit %d: must be at least 1", s.limit)}
	}
	if s.since == "" {
		return nil
	}
	if ago, err := time.ParseDuration(s.since); err == nil && ago >= 0 {
		return nil
	}
	if _, err := time.Parse(time.RFC3339, s.since); err != nil {
		return usageError{fmt.Errorf("--since %q: neither how long ago, such as 24h, nor a time such as 2026-01-31T12:00:00Z", s.since)}
	}
	return nil
}

func newReceiptsList() *cobra.Command {
	var l adminCommand
	var s selection
	c := &cobra.Command{
		Use:   "list",
		Short: "List receipts, newest first",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			q := filters(map[string]string{
				"state": s.state, "tenant": s.tenant, "platform": s.platform, "since": s.since, "q": s.query,
			})
			return l.list(cmd, receiptsPath, "receipts", q, s.limit, printReceipts)
		},
	}
	l.flags(c)
	s.flags(c, "at most so many")
	c.Flags().StringVar(&s.query, "query", "", "only those with exactly that `id`: a receipt's, an event's or a message key")
	return c
}

// A receiptWithHistory is one receipt as the admin API shows it.
type receiptWithHistory struct {
	web.Receipt
	History []struct {
		At      *time.Time `json:"at"`
		What    string     `json:"what"`
		Attempt int        `json:"attempt"`
		State   string     `json:"state"`
		Reason  string     `json:"reason"`
		By      string     `json:"by"`
	} `json:"history"`
}

func newReceiptsShow() *cobra.Command {
	var l adminCommand
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show one receipt with its history",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.ask(cmd, http.MethodGet, receiptsPath+"/"+url.PathEscape(args[0]), args[0], nil, telling(printReceipt))
		},
	}
	l.flags(c)
	return c
}

func newReceiptsReplay() *cobra.Command {
	var l adminCommand
	var s selection
	c := &cobra.Command{
		Use:   "replay ID... | --state STATE | --tenant TENANT | --platform PLATFORM | --since WHEN",
		Short: "Hand events to the application again, by id or by filter",
		Long: `Hand events to the application again: those with the ids, or those that the filter selects. By
filter, failed and lost ones are meant unless --state says otherwise. A receipt keeps its id, and
a vendor's retry stays a duplicate of it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.check(); err != nil {
				return err
			}
			api, err := l.open()
			switch {
			case err != nil:
				return err
			case len(args) > 0 && !s.empty():
				return usageError{errors.New("give either ids or a filter")}
			case len(args) > 0:
				return l.each(cmd, api, args, "replay", "replayed")
			case s.empty():
				return usageError{errors.New("give the ids of receipts, or a filter such as --state lost")}
			}
			return l.replayAll(cmd, api, s)
		},
	}
	l.flags(c)
	s.flags(c, "by filter, at most so many")
	return c
}

// each does one thing to each receipt and tells of each. What can't be done to one does not
// keep it from the others.
func (l *adminCommand) each(cmd *cobra.Command, api adminAPI, ids []string, verb, done string) error {
	n := 0
	var failed error
	for _, id := range ids {
		var out json.RawMessage
		err := api.do(cmd.Context(), http.MethodPost, receiptsPath+"/"+url.PathEscape(id)+"/"+verb, nil, nil, &out)
		if p := (*problem)(nil); err != nil && !errors.As(err, &p) {
			return err // that of the next one would be the same
		}
		if err != nil {
			failed = errTold
			fmt.Fprintf(cmd.ErrOrStderr(), "admitone: %s not %s: %v\n", id, done, err)
			continue
		}
		n++
		if !l.json {
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", done, id)
		}
	}
	if l.json {
		return errors.Join(printJSON(cmd.OutOrStdout(), map[string]int{done: n}), failed)
	}
	return failed
}

func (l *adminCommand) replayAll(cmd *cobra.Command, api adminAPI, s selection) error {
	n := 0
	for n < s.limit {
		most := min(s.limit-n, pageSize)
		body := map[string]any{"limit": most}
		for name, value := range map[string]string{"state": s.state, "tenant": s.tenant, "platform": s.platform, "since": s.since} {
			if value != "" {
				body[name] = value
			}
		}
		var out struct {
			Replayed int `json:"replayed"`
		}
		if err := api.do(cmd.Context(), http.MethodPost, receiptsPath+"/replay", nil, body, &out); err != nil {
			return err
		}
		n += out.Replayed
		if out.Replayed < most {
			break
		}
	}
	if l.json {
		return printJSON(cmd.OutOrStdout(), map[string]int{"replayed": n})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "replayed %s\n", plural(n, "receipt"))
	if n == s.limit {
		fmt.Fprintln(cmd.OutOrStdout(), "There may be more; --limit says how many at once.")
	}
	return nil
}

func newReceiptsDiscard() *cobra.Command {
	var l adminCommand
	c := &cobra.Command{
		Use:   "discard ID...",
		Short: "Close failed, lost or retrying receipts by hand",
		Args:  usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := l.open()
			if err != nil {
				return err
			}
			return l.each(cmd, api, args, "discard", "discarded")
		},
	}
	l.flags(c)
	return c
}

// ledgerStats is what the admin API counts.
type ledgerStats struct {
	Counts []struct {
		Tenant   string       `json:"tenant"`
		Platform string       `json:"platform"`
		State    domain.State `json:"state"`
		Receipts int64        `json:"receipts"`
	} `json:"counts"`
	OldestOpen            *time.Time               `json:"oldest_open"`
	Verdicts              map[domain.Verdict]int64 `json:"verdicts"`
	VendorRetries         int64                    `json:"vendor_retries"`
	DuplicatesOfUnhandled int64                    `json:"duplicates_of_unhandled"`
}

func newReceiptsStats() *cobra.Command {
	var l adminCommand
	c := &cobra.Command{
		Use:   "stats",
		Short: "Count receipts by tenant, platform and state",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.ask(cmd, http.MethodGet, "/api/v1/stats", "", nil, telling(printStats))
		},
	}
	l.flags(c)
	return c
}
