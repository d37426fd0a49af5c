package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/admitone/admitone/channels"
)

func newChannels(chs []channels.Channel) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "channels",
		Short: "Print the key table: how each channel tells events apart and what its vendor does",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows := keyTable(chs)
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(rows)
			}
			return printKeyTable(cmd, rows)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// A keyRow is what the key table says of one channel.
type keyRow struct {
	Channel         string `json:"channel"`
	Platform        string `json:"platform"`
	EventID         string `json:"event_id"`
	Scope           string `json:"scope"`
	Fallback        string `json:"fallback"`
	MessageKey      string `json:"message_key"`
	Unnumbered      string `json:"unnumbered"`
	Deadline        string `json:"deadline"`
	RetryWindow     string `json:"retry_window"`
	AfterAnError    string `json:"after_an_error"`
	ComesAgain      bool   `json:"comes_again_after_503"`
	Acknowledgement string `json:"acknowledgement"`
	Source          string `json:"source"`
}

func keyTable(chs []channels.Channel) []keyRow {
	rows := make([]keyRow, len(chs))
	for i, c := range chs {
		ack := "200, empty"
		if c.Acknowledge.ContentType != "" {
			ack = fmt.Sprintf("200 %s: %s", c.Acknowledge.ContentType, c.Acknowledge.Body)
		}
		v, deadline := c.Vendor, span(c.Vendor.Deadline)
		if c.Polled() {
			ack, deadline = "none: it is polled", "is polled"
		}
		rows[i] = keyRow{
			Channel: c.Name, Platform: c.Platform, EventID: v.EventID, Scope: v.Scope, Fallback: v.Fallback,
			MessageKey: v.MessageKey, Unnumbered: v.Unnumbered, Deadline: deadline, RetryWindow: span(v.RetryWindow),
			AfterAnError: v.Behaviour, ComesAgain: v.ComesAgain, Acknowledgement: ack, Source: v.Source,
		}
	}
	return rows
}

// span writes a duration without the zeros that time.Duration adds: 24h6m, not 24h6m0s.
func span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func printKeyTable(cmd *cobra.Command, rows []keyRow) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for i, r := range rows {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\t(platform %s)\n", strings.ToUpper(r.Channel), r.Platform)
		for _, f := range [][2]string{
			{"event id", r.EventID},
			{"scope", r.Scope},
			{"fallback", r.Fallback},
			{"message key", r.MessageKey},
			{"no id, never repeated", r.Unnumbered},
			{"vendor waits", r.Deadline},
			{"retry window", r.RetryWindow},
			{"after an error", r.AfterAnError},
			{"acknowledgement", r.Acknowledgement},
		} {
			if f[1] != "" {
				fmt.Fprintf(w, "  %s\t%s\n", f[0], f[1])
			}
		}
	}
	return w.Flush()
}
