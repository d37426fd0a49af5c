package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/admitone/admitone/app/child"
	"github.com/admitone/admitone/channels"
)

// What the demo's server is told, beside where things are.
const (
	// demoBackoff is so long that the server can be killed while events wait for their next
	// attempt: killed during one, an event would be lost, as at-most-once demands.
	demoBackoff = 2 * time.Second
	demoMargin  = time.Second // the least that must be left of it
	demoTimeout = 15 * time.Second
	demoLease   = 20 * time.Second
	demoDrain   = 5 * time.Second

	// demoPatience is how long the demo takes at most. Where all is well it ends far sooner.
	demoPatience = time.Minute
)

func newDemo(chs []channels.Channel) *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "See it work: a real server, vendors' retries and races, a kill -9; no configuration needed",
		Long: `See it work, without configuration and without any other program. A server with embedded stores
runs in a temporary folder, an application receives, and every channel's vendor sends signed
requests over HTTP: again and again, many copies at once, to a server that is killed and restarted.
The exit code is 0 only if each event was handled exactly once.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), cmd.OutOrStdout(), chs, keep)
		},
	}
	c.Flags().BoolVar(&keep, "keep", false, "leave server and application running afterwards, until Ctrl-C")
	return c
}

// A demo is one run.
type demo struct {
	screen *screen
	chs    []channels.Channel // whose vendors call
	asked  []channels.Channel // whose vendors are polled
	dir    string
	config string // file of the server's configuration
	admin  adminAPI
	public string // address of the server

	application *application
	server      *child.Process
	fleet       *fleet
	polled      []*polled
}

func runDemo(ctx context.Context, w io.Writer, chs []channels.Channel, keep bool) (err error) {
	d := &demo{screen: newScreen(w)}
	for _, c := range chs {
		if c.Polled() {
			d.asked = append(d.asked, c)
		} else if c.Simulate != nil {
			d.chs = append(d.chs, c)
		}
	}
	d.fleet = newFleet(d.chs)
	if d.dir, err = os.MkdirTemp("", "admitone-demo-"); err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	defer d.close()

	began := time.Now()
	d.screen.say("Admitone demo: a real server with embedded stores, and %d vendors that repeat themselves.\n", len(d.chs)+len(d.asked))
	limited, cancel := context.WithTimeoutCause(ctx, demoPatience, fmt.Errorf("not done within %s", demoPatience))
	defer cancel()
	err = d.play(limited)
	switch {
	case ctx.Err() != nil:
		d.screen.say("\nInterrupted.")
		return errTold
	case err != nil:
		d.failed(err)
	default:
		if err = d.report(limited, time.Since(began)); err != nil && !errors.Is(err, errTold) {
			d.failed(err)
		}
	}
	if keep && d.server.Runs() {
		err = errors.Join(err, d.keep(ctx))
	}
	if err != nil {
		return errTold
	}
	return nil
}

// play takes the server through all that vendors, networks and machines do to it.
func (d *demo) play(ctx context.Context) error {
	for _, s := range []struct {
		name string
		do   func(context.Context) (string, error)
	}{
		{"start", d.start},
		{"retries", d.retries},
		{"slow application", d.slow},
		{"races", d.races},
		{"forgeries", d.forgeries},
		{"polling", d.polling},
		{"kill -9", d.crash},
		{"late retries", d.late},
	} {
		if err := d.screen.step(s.name, d.fleet.sent, func() (string, error) { return s.do(ctx) }); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// start begins the application and the server.
func (d *demo) start(ctx context.Context) (string, error) {
	secret := newWebhookSecret()
	var err error
	if d.application, err = startApplication(ctx, secret); err != nil {
		return "", err
	}
	public, err := child.FreePort(ctx)
	if err != nil {
		return "", err
	}
	admin, err := child.FreePort(ctx)
	if err != nil {
		return "", err
	}
	d.public = "http://" + public
	if d.admin, err = newAdminAPI(admin, ""); err != nil {
		return "", err
	}
	installed := slices.Clone(d.chs)
	for _, c := range d.asked {
		p, err := newPolled(ctx, c, d.fleet)
		if err != nil {
			return "", err
		}
		d.polled = append(d.polled, p)
		installed = append(installed, p.channel)
	}
	type section = map[string]any
	text, err := toYAML(section{
		"server": section{"listen": public, "admin_listen": admin, "public_url": d.public, "drain_timeout": demoDrain.String()},
		"store": section{
			"durable": section{"driver": "sqlite", "dsn": "admitone.db"},
			"fast":    section{"driver": "memory"},
			"journal": section{"path": "journal"},
		},
		"dispatch": section{
			"target": "http",
			"http":   section{"url": d.application.url, "secret": secret, "timeout": demoTimeout.String()},
		},
		"policy": section{
			"lease":   demoLease.String(),
			"backoff": section{"initial": demoBackoff.String(), "max": demoBackoff.String()},
		},
		"tenants": exampleTenants(installed),
	})
	if err != nil {
		return "", err
	}
	d.config = filepath.Join(d.dir, "admitone.yaml")
	if err := os.WriteFile(d.config, text, 0o600); err != nil {
		return "", fmt.Errorf("write the configuration: %w", err)
	}
	d.fleet.aim(d.public)
	if d.server, err = startServer(ctx, d.dir, d.config, d.admin); err != nil {
		return "", err
	}
	return fmt.Sprintf("server at %s, an application at %s", d.public, d.application.url), nil
}

// close ends what the demo began, whatever became of it.
func (d *demo) close() {
	d.fleet.close() // a server that drains waits for connections on which nothing came yet
	d.server.Stop(demoDrain + 2*time.Second)
	d.application.close()
	for _, p := range d.polled {
		p.close()
	}
}

func (d *demo) failed(err error) {
	d.screen.say("\n%s: %v", d.screen.red("FAILED"), err)
	if d.server != nil && !d.server.Runs() {
		d.screen.say("The server has ended.")
	}
	if tail := d.server.LogTail(12); tail != "" {
		d.screen.say("\nThe server's last lines:\n%s", tail)
	}
}

// keep leaves everything running until ctx or the server ends.
func (d *demo) keep(ctx context.Context) error {
	d.screen.say(`
Still running; Ctrl-C ends it and deletes its files.

  vendors     %s/in/CHANNEL/demo-CHANNEL
  admin API   %s/api/v1/receipts, /api/v1/stats, /metrics
  files       %s

To try, in another terminal:

  admitone simulate %s --url %s --retries 3
  admitone receipts list --admin %s --limit 10
  admitone receipts stats --admin %s

What the application gets from now on:
`, d.public, d.admin.address, d.dir, d.chs[0].Name, d.public, d.admin.address, d.admin.address)
	d.application.tell(func(channel, kind, text string) {
		d.screen.say("  %s  %-10s %-16s %s", time.Now().Format(time.TimeOnly), channel, kind, visible(text))
	})
	select {
	case <-ctx.Done():
		d.screen.say("\nStopping.")
		return nil
	case <-d.server.Ended():
		d.failed(errors.New("the server does not run any more"))
		return errTold
	}
}
