package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/app/config"
	"github.com/admitone/admitone/channels"
)

// checkTimeout bounds each connection that check tries.
const checkTimeout = 5 * time.Second

func newCheck(chs []channels.Channel) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "check",
		Short: "Validate the configuration and try every connection",
		Long:  "Validate the configuration and try every connection. Each finding is printed with the key it is about;\nthe exit code is 1 if any is an error. Nothing is migrated, stored or dispatched.",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := report{w: cmd.OutOrStdout()}
			check(cmd.Context(), file, chs, &r)
			if r.errors > 0 {
				fmt.Fprintf(r.w, "%d error(s)\n", r.errors)
				return errTold
			}
			fmt.Fprintln(r.w, "no errors")
			return nil
		},
	}
	c.Flags().StringVar(&file, "config", "", "configuration file")
	return c
}

type report struct {
	w      io.Writer
	errors int
}

func (r *report) err(key string, err error) {
	r.errors++
	r.line("error", key, err.Error())
}

func (r *report) line(severity, key, text string) {
	if key != "" {
		key += ": "
	}
	fmt.Fprintf(r.w, "%-7s  %s%s\n", severity, key, strings.TrimPrefix(text, key))
}

func check(ctx context.Context, file string, chs []channels.Channel, r *report) {
	cfg, err := config.Load(file, os.Environ(), chs)
	if err != nil {
		for _, f := range config.Errors(err) {
			r.err(f.Key, errors.New(f.Text))
		}
		return
	}
	for _, f := range cfg.Findings() {
		r.line(string(f.Severity), f.Key, f.Text)
	}
	if _, err := app.Directory(cfg, chs); err != nil {
		r.err("tenants", err)
	}
	checkDurable(ctx, cfg, r)
	checkFast(ctx, cfg, r)
	checkDispatch(ctx, cfg, r)
}

func checkDurable(ctx context.Context, cfg *config.Config, r *report) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	const key = "store.durable.dsn"
	if cfg.Store.Durable.Driver == config.SQLite {
		if _, err := os.Stat(string(cfg.Store.Durable.DSN)); errors.Is(err, os.ErrNotExist) {
			r.line("ok", key, "the file is not there yet; serve makes it")
			return
		}
	}
	if err := sqlstore.Check(ctx, app.StoreConfig(cfg)); err != nil {
		r.err(key, err)
		return
	}
	st, err := sqlstore.Schema(ctx, app.StoreConfig(cfg))
	switch {
	case err != nil:
		r.err(key, err)
	case (st.Dirty || st.Version < st.Latest) && !cfg.Store.Durable.Migrate:
		r.err("store.durable.migrate", fmt.Errorf("the schema is at step %d of %d: run admitone migrate up", st.Version, st.Latest))
	default:
		r.line("ok", key, fmt.Sprintf("reached; schema at step %d of %d", st.Version, st.Latest))
	}
}

func checkFast(ctx context.Context, cfg *config.Config, r *report) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	const key = "store.fast.url"
	s, err := app.OpenFastStore(cfg, slog.New(slog.DiscardHandler)) //nolint:contextcheck // each call brings its own
	if err == nil && s != nil {
		err = errors.Join(s.Ready(ctx), s.Close())
	}
	switch {
	case err != nil:
		r.err(key, err)
	case cfg.Store.Fast.Driver == config.Redis:
		r.line("ok", key, "reached")
	}
}

// checkDispatch sees whether something listens where events go. It sends nothing: an event that
// nobody wrote would be handled.
func checkDispatch(ctx context.Context, cfg *config.Config, r *report) {
	if cfg.Dispatch.Target == config.TargetHTTP {
		dial(ctx, "dispatch.http.url", string(cfg.Dispatch.HTTP.URL), r)
	}
	for in := range cfg.Installations() {
		if in.Dispatch.URL != "" {
			dial(ctx, "installation "+in.ID+": dispatch.url", string(in.Dispatch.URL), r)
		}
	}
}

func dial(ctx context.Context, key, target string, r *report) {
	u, err := url.Parse(target)
	if err != nil {
		r.err(key, errors.New("not a URL"))
		return
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	d := net.Dialer{Timeout: checkTimeout}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		r.err(key, err)
		return
	}
	_ = conn.Close() // nothing was written
	r.line("ok", key, "something listens there")
}
