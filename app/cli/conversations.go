package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
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
	var l adminCommand
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
			q := filters(map[string]string{"tenant": tenant, "platform": platform, "status": status})
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
	var l adminCommand
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
	var l adminCommand
	c := &cobra.Command{
		Use:   "close ID",
		Short: "Close a pending conversation, so that the next message opens another",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := conversationsPath + "/" + url.PathEscape(args[0]) + "/close"
			return l.ask(cmd, http.MethodPost, path, args[0], nil, say("closed"))
		},
	}
	l.flags(c)
	return c
}

var printConversations = listing("no conversations",
	[]string{"OPENED", "STATUS", "TENANT", "PLATFORM", "ACCOUNT", "CONVERSATION", "ID", "CLOSED"},
	func(c web.Conversation) []string {
		return []string{
			stamp(c.OpenedAt), c.Status, c.Tenant, c.Platform, short(c.Account), short(c.ExternalID), c.ID, stamp(c.ClosedAt),
		}
	})

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
