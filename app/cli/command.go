package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"
)

// pageSize is the most that the admin API gives or replays at once.
const pageSize = 1000

// An adminCommand is what a command line says of the server and the form of its answer.
type adminCommand struct {
	admin, token string
	json         bool
}

func (l *adminCommand) flags(c *cobra.Command) {
	c.Flags().StringVar(&l.admin, "admin", "http://127.0.0.1:8081", "`address` of the server's admin listener")
	c.Flags().StringVar(&l.token, "token", "", "the server's server.admin_token; ADMITONE_SERVER_ADMIN_TOKEN if left out")
	c.Flags().BoolVar(&l.json, "json", false, "print JSON")
}

func (l *adminCommand) open() (adminAPI, error) {
	token := l.token
	if token == "" {
		token = os.Getenv("ADMITONE_SERVER_ADMIN_TOKEN")
	}
	api, err := newAdminAPI(l.admin, token)
	if err != nil {
		return api, usageError{err}
	}
	return api, nil
}

// ask does one thing at path and tells what the server says of it. about names in an error
// what was asked about; empty if that goes without saying.
func (l *adminCommand) ask(cmd *cobra.Command, method, path, about string, body any, tell func(io.Writer, json.RawMessage) error) error {
	api, err := l.open()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	switch err := api.do(cmd.Context(), method, path, nil, body, &raw); {
	case err != nil && about == "":
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", about, err)
	}
	if l.json {
		return printJSON(cmd.OutOrStdout(), raw)
	}
	return tell(cmd.OutOrStdout(), raw)
}

// telling reads an answer for tell.
func telling[T any](tell func(io.Writer, T) error) func(io.Writer, json.RawMessage) error {
	return func(w io.Writer, raw json.RawMessage) error {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		return tell(w, v)
	}
}

// say tells no more than that it is done.
func say(text string) func(io.Writer, json.RawMessage) error {
	return func(w io.Writer, _ json.RawMessage) error {
		_, err := fmt.Fprintln(w, text)
		return err
	}
}

// list shows at most limit members of the list called name at path.
func (l *adminCommand) list(cmd *cobra.Command, path, name string, q url.Values, limit int,
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

// filters returns what is asked for of a list: those of values that are set.
func filters(values map[string]string) url.Values {
	q := url.Values{}
	for name, value := range values {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// listing prints a list as a table under head, each member as the cells that it has, or none if
// there is nothing in it.
func listing[T any](none string, head []string, cells func(T) []string) func(io.Writer, []json.RawMessage, bool) error {
	return func(w io.Writer, all []json.RawMessage, more bool) error {
		if len(all) == 0 {
			_, err := fmt.Fprintln(w, none)
			return err
		}
		t := newTable(w)
		row(t, head...)
		for _, raw := range all {
			var v T
			if err := json.Unmarshal(raw, &v); err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
			row(t, cells(v)...)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if more {
			fmt.Fprintf(w, "\n%d shown; there are more (--limit)\n", len(all))
		}
		return nil
	}
}
