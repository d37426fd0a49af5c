package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/domain"
)

// widest is how much of an id a table shows: what is longer would break every line of it.
const widest = 44

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// newTable aligns cells that are ended by tabs.
func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// row writes cells, in which strangers' characters can't steer the terminal.
func row(w io.Writer, cells ...string) {
	for i, c := range cells {
		cells[i] = visible(c)
		if c == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// visible replaces what a terminal would not show but obey, and what would break a table.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

func short(s string) string {
	r := []rune(s)
	if len(r) <= widest {
		return s
	}
	return string(r[:widest-1]) + "…"
}

func stamp(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

var printReceipts = listing("no receipts",
	[]string{"CLAIMED", "STATE", "TENANT", "CHANNEL", "KIND", "EVENT", "TRIES", "DELIVERIES", "ID", "WHY"},
	func(r web.Receipt) []string {
		why := r.LastError
		if r.State == string(domain.Handled) {
			why = ""
		}
		return []string{
			stamp(r.ClaimedAt), r.State, r.Tenant, r.Channel, r.Kind, short(r.EventID),
			strconv.Itoa(r.Attempt), strconv.Itoa(r.Deliveries), r.ID, why,
		}
	})

func printReceipt(w io.Writer, r receiptWithHistory) error {
	t := newTable(w)
	for _, f := range [][2]string{
		{"id", r.ID},
		{"state", r.State},
		{"why", r.LastError},
		{"tenant", r.Tenant},
		{"platform", r.Platform},
		{"channel", r.Channel},
		{"account", r.Account},
		{"event id", r.EventID},
		{"message key", r.MessageKey},
		{"kind", r.Kind},
		{"attempts", strconv.Itoa(r.Attempt)},
		{"deliveries", strconv.Itoa(r.Deliveries)},
		{"vendor's retry count", strconv.Itoa(r.VendorAttempt)},
		{"claimed", stamp(r.ClaimedAt)},
		{"begun", stamp(r.BegunAt)},
		{"handled", stamp(r.HandledAt)},
		{"lease until", stamp(r.LeaseUntil)},
		{"holder", r.Holder},
		{"digest", r.Digest},
	} {
		if f[1] != "" {
			row(t, f[0], f[1])
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.History) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nhistory")
	for _, h := range r.History {
		what := h.What
		if h.Attempt > 0 {
			what += " " + strconv.Itoa(h.Attempt)
		}
		row(t, "  "+stamp(h.At), what, h.State, h.Reason, h.By)
	}
	return t.Flush()
}

func printStats(w io.Writer, s ledgerStats) error {
	type owner struct{ tenant, platform string }
	sums := map[owner]map[domain.State]int64{}
	for _, c := range s.Counts {
		o := owner{c.Tenant, c.Platform}
		if sums[o] == nil {
			sums[o] = map[domain.State]int64{}
		}
		sums[o][c.State] += c.Receipts
	}
	t := newTable(w)
	head := []string{"TENANT", "PLATFORM", "RECEIPTS"}
	for _, st := range domain.States {
		head = append(head, strings.ToUpper(string(st)))
	}
	row(t, head...)
	owners := slices.SortedFunc(maps.Keys(sums), func(a, b owner) int {
		return strings.Compare(a.tenant+"\x00"+a.platform, b.tenant+"\x00"+b.platform)
	})
	for _, o := range owners {
		var total int64
		cells := []string{o.tenant, o.platform, ""}
		for _, st := range domain.States {
			total += sums[o][st]
			cells = append(cells, strconv.FormatInt(sums[o][st], 10))
		}
		cells[2] = strconv.FormatInt(total, 10)
		row(t, cells...)
	}
	fmt.Fprintln(t)
	oldest := "none is open"
	if s.OldestOpen != nil {
		oldest = fmt.Sprintf("%s (%s ago)", stamp(s.OldestOpen), time.Since(*s.OldestOpen).Round(time.Second))
	}
	fmt.Fprintf(t, "oldest open receipt\t%s\n", oldest)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nsince the server began")
	for _, v := range domain.Verdicts {
		fmt.Fprintf(t, "  %s\t%d\n", v, s.Verdicts[v])
	}
	fmt.Fprintf(t, "  vendors' retries\t%d\n", s.VendorRetries)
	fmt.Fprintf(t, "  duplicates of unhandled receipts\t%d\n", s.DuplicatesOfUnhandled)
	return t.Flush()
}
