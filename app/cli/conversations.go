package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/domain"
)

const conversationsPath = "/api/v1/conversations"

func newConversations() *cobra.Command {
	return group(&cobra.Command{
		Use:   "conversations",
		Short: "Read and close the conversations that a running server has recorded, through its admin API",
	}, newConversationsList(), newConversationsMessages(), newConversationsClose())
}

func newConversationsList() *cobra.Command {
	var l ledgerCommand
	var tenant, platform, status string
	limit := 0
	c := &cobra.Command{
		Use:   "list",
		Short: "List conversations, those opened last first",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch domain.ConversationStatus(status) {
			case "", domain.ConversationPending, domain.ConversationClosed:
			default:
				return usageError{fmt.Errorf("--status %q: neither pending nor closed", status)}
			}
			q := url.Values{}
			for name, value := range map[string]string{"tenant": tenant, "platform": platform, "status": status} {
				if value != "" {
					q.Set(name, value)
				}
			}
			return l.list(cmd, conversationsPath, "conversations", q, limit, printConversations)
		},
	}
	l.flags(c)
	c.Flags().StringVar(&tenant, "tenant", "", "only those of that tenant")
	c.Flags().StringVar(&platform, "platform", "", "only those of that platform, such as slack or email")
	c.Flags().StringVar(&status, "status", "", "only those that are `pending` or closed")
	c.Flags().IntVar(&limit, "limit", 100, "at most so many")
	return c
}

func newConversationsMessages() *cobra.Command {
	var l ledgerCommand
	limit := 0
	c := &cobra.Command{
		Use:   "messages ID",
		Short: "Show the last messages of a conversation; with --json, newest first",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := conversationsPath + "/" + url.PathEscape(args[0]) + "/messages"
			return l.list(cmd, path, "messages", url.Values{}, limit, printMessages)
		},
	}
	l.flags(c)
	c.Flags().IntVar(&limit, "limit", 20, "at most so many")
	return c
}

func newConversationsClose() *cobra.Command {
	var l ledgerCommand
	c := &cobra.Command{
		Use:   "close ID",
		Short: "Close a pending conversation, so that the next message opens another",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := l.open()
			if err != nil {
				return err
			}
			var raw json.RawMessage
			path := conversationsPath + "/" + url.PathEscape(args[0]) + "/close"
			if err := api.do(cmd.Context(), http.MethodPost, path, nil, nil, &raw); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if l.json {
				return printJSON(cmd.OutOrStdout(), raw)
			}
			return say("closed")(cmd.OutOrStdout(), raw)
		},
	}
	l.flags(c)
	return c
}

// list shows at most limit members of the list called name at path.
func (l *ledgerCommand) list(cmd *cobra.Command, path, name string, q url.Values, limit int,
	tell func(w io.Writer, all []json.RawMessage, more bool) error,
) error {
	if limit < 1 {
		return usageError{fmt.Errorf("--limit %d: must be at least 1", limit)}
	}
	api, err := l.open()
	if err != nil {
		return err
	}
	all, next, err := api.list(cmd.Context(), path, name, q, limit)
	if err != nil {
		return err
	}
	if l.json {
		return printJSON(cmd.OutOrStdout(), map[string]any{name: all, "next": next})
	}
	return tell(cmd.OutOrStdout(), all, next != "")
}

// list returns at most limit members of a list as the server wrote them, and where the next page
// begins; that is empty if there are no more.
func (a adminAPI) list(ctx context.Context, path, name string, q url.Values, limit int) ([]json.RawMessage, string, error) {
	all := []json.RawMessage{}
	for {
		q.Set("limit", strconv.Itoa(min(limit-len(all), pageSize)))
		var page map[string]json.RawMessage
		if err := a.do(ctx, http.MethodGet, path, q, nil, &page); err != nil {
			return nil, "", err
		}
		var some []json.RawMessage
		var next string
		if err := json.Unmarshal(page[name], &some); err != nil {
			return nil, "", fmt.Errorf("%s of the answer: %w", name, err)
		}
		if err := json.Unmarshal(page["next"], &next); err != nil {
			return nil, "", fmt.Errorf("next of the answer: %w", err)
		}
		all = append(all, some...)
		if next == "" || len(some) == 0 || len(all) >= limit {
			return all, next, nil
		}
		q.Set("cursor", next)
	}
}

func printConversations(w io.Writer, all []json.RawMessage, more bool) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no conversations")
		return err
	}
	t := newTable(w)
	row(t, "OPENED", "STATUS", "TENANT", "PLATFORM", "ACCOUNT", "CONVERSATION", "ID", "CLOSED")
	for _, raw := range all {
		var c web.Conversation
		if err := json.Unmarshal(raw, &c); err != nil {
			return fmt.Errorf("conversation: %w", err)
		}
		row(t, stamp(c.OpenedAt), c.Status, c.Tenant, c.Platform, short(c.Account), short(c.ExternalID), c.ID, stamp(c.ClosedAt))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(w, "\n%d shown; there are more (--limit)\n", len(all))
	}
	return nil
}

// printMessages writes messages in the order in which they came.
func printMessages(w io.Writer, all []json.RawMessage, more bool) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no messages")
		return err
	}
	if more {
		fmt.Fprintf(w, "the last %d; there are more (--limit)\n\n", len(all))
	}
	for _, raw := range slices.Backward(all) {
		var m web.Message
		if err := json.Unmarshal(raw, &m); err != nil {
			return fmt.Errorf("message: %w", err)
		}
		from := m.Sender.ID
		if m.Sender.Name != "" {
			from = m.Sender.Name + " (" + from + ")"
		}
		if m.Content != "kept" {
			from = "what it said is " + m.Content
		}
		fmt.Fprintf(w, "%s  %s  %s  %s\n", stamp(m.ReceivedAt), m.State, m.ID, visible(from))
		for line := range strings.Lines(m.Text) {
			fmt.Fprintf(w, "    %s\n", visible(strings.TrimRight(line, "\r\n")))
		}
		for _, a := range m.Attachments {
			fmt.Fprintf(w, "    [%s]\n", visible(strings.TrimSpace(a.Name+" "+a.Type+" "+a.URL)))
		}
	}
	return nil
}
