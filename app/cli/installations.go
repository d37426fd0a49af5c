package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/admitone/admitone/adapters/web"
)

const installationsPath = "/api/v1/installations"

func newInstallations() *cobra.Command {
	return group(&cobra.Command{
		Use:   "installations",
		Short: "Add, pause and change the installations that a running server keeps in its database, through its admin API",
	}, newInstallationsList(), newInstallationsShow(), newInstallationsAdd(), newInstallationsPause(), newInstallationsResume(),
		newInstallationsRotate(), newInstallationsRecheck(), newInstallationsRemove())
}

func newInstallationsList() *cobra.Command {
	var l adminCommand
	var tenant, channel string
	limit := 0
	c := &cobra.Command{
		Use:   "list",
		Short: "List the installations of the database, by id; those of the configuration file are not among them",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := filters(map[string]string{"tenant": tenant, "channel": channel})
			return l.list(cmd, installationsPath, "installations", q, limit, printInstallations)
		},
	}
	l.flags(c)
	c.Flags().StringVar(&tenant, "tenant", "", "only those of that tenant")
	c.Flags().StringVar(&channel, "channel", "", "only those of that channel")
	c.Flags().IntVar(&limit, "limit", 100, "at most so many")
	return c
}

var printInstallations = listing("no installations in the database",
	[]string{"ID", "STATE", "TENANT", "CHANNEL", "ACCOUNT", "SECRETS", "CHANGED"},
	func(in web.Installation) []string {
		return []string{in.ID, stateOf(in), in.Tenant, in.Channel, short(in.Account), secretsOf(in), stamp(in.ChangedAt)}
	})

func stateOf(in web.Installation) string {
	if in.Unreadable {
		return "unreadable"
	}
	return in.State
}

// secretsOf tells the names of the secrets, with the number of values where there are several.
func secretsOf(in web.Installation) string {
	names := slices.Sorted(maps.Keys(in.Secrets))
	for i, name := range names {
		if n := in.Secrets[name]; n > 1 {
			names[i] = fmt.Sprintf("%s (%d)", name, n)
		}
	}
	return strings.Join(names, ", ")
}

func newInstallationsShow() *cobra.Command {
	return oneInstallation("show ID", "Show one installation, without its secrets", http.MethodGet, "", nil, telling(printInstallation))
}

func printInstallation(w io.Writer, in web.Installation) error {
	quarantined := ""
	if in.Quarantined != nil {
		quarantined = strconv.Itoa(*in.Quarantined)
	}
	t := newTable(w)
	for _, f := range [][2]string{
		{"id", in.ID},
		{"state", stateOf(in)},
		{"tenant", in.Tenant},
		{"channel", in.Channel},
		{"account", in.Account},
		{"address", "/in/" + in.Channel + "/" + in.ID},
		{"secrets", secretsOf(in)},
		{"settings", string(in.Settings)},
		{"policy", string(in.Policy)},
		{"dispatched to", in.Dispatch.URL},
		{"quarantined", quarantined},
		{"added", stamp(in.CreatedAt)},
		{"changed", stamp(in.ChangedAt)},
	} {
		if f[1] != "" && f[1] != "{}" {
			row(t, f[0], f[1])
		}
	}
	return t.Flush()
}

func installationPath(id string) string { return installationsPath + "/" + url.PathEscape(id) }

// oneInstallation is a command that asks the server one thing of one installation.
func oneInstallation(use, short, method, below string, body any, tell func(io.Writer, json.RawMessage) error) *cobra.Command {
	var l adminCommand
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.ask(cmd, method, installationPath(args[0])+below, args[0], body, tell)
		},
	}
	l.flags(c)
	return c
}

func newInstallationsPause() *cobra.Command {
	return oneInstallation("pause ID", "Refuse an installation's deliveries with 503, so that the vendor sends them again later",
		http.MethodPatch, "", map[string]string{"state": "paused"}, say("paused; every instance refuses it within a second"))
}

func newInstallationsResume() *cobra.Command {
	return oneInstallation("resume ID", "Receive for a paused installation again",
		http.MethodPatch, "", map[string]string{"state": "active"}, say("resumed; every instance receives for it within a second"))
}

func newInstallationsRemove() *cobra.Command {
	return oneInstallation("remove ID", "Forget an installation and its secrets; its receipts stay",
		http.MethodDelete, "", nil, say("removed"))
}

func newInstallationsRecheck() *cobra.Command {
	return oneInstallation("recheck ID", "Check quarantined requests again, by the secrets that the installation has now",
		http.MethodPost, "/recheck", nil, telling(func(w io.Writer, r struct{ Requests, Accepted, Refused int }) error {
			_, err := fmt.Fprintf(w, "%s: %d authentic, %d not\n", plural(r.Requests, "request"), r.Accepted, r.Refused)
			return err
		}))
}

const secretHelp = "`NAME=VALUE`; the value may be file:PATH, or - for a line of standard input. Others can see what stands on a command line"

func newInstallationsAdd() *cobra.Command {
	var l adminCommand
	var a struct {
		tenant, channel, account, dispatchURL string
		paused                                bool
		secrets, settings, policy             []string
	}
	c := &cobra.Command{
		Use:   "add ID --tenant TENANT --channel CHANNEL --account ACCOUNT",
		Short: "Keep a new installation",
		Long: `Keep a new installation. Every instance receives for it within a second, at /in/CHANNEL/ID. Its
secrets are encrypted with store.durable.secret_key and never shown again.`,
		Example: `  admitone installations add acme-slack --tenant acme --channel slack --account T0ACME002 \
      --secret signing_secret=file:/run/secrets/acme-slack --policy guarantee=at-least-once`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			secrets, err := readSecrets(a.secrets, cmd.InOrStdin())
			if err != nil {
				return err
			}
			body := map[string]any{"id": args[0], "tenant": a.tenant, "channel": a.channel, "account": a.account}
			if a.paused {
				body["state"] = "paused"
			}
			if len(secrets) > 0 {
				body["secrets"] = secrets
			}
			for name, pairs := range map[string][]string{"settings": a.settings, "policy": a.policy} {
				values, err := readValues("--"+strings.TrimSuffix(name, "s"), pairs)
				if err != nil {
					return err
				}
				if len(values) > 0 {
					body[name] = values
				}
			}
			if a.dispatchURL != "" {
				body["dispatch"] = map[string]string{"url": a.dispatchURL}
			}
			return l.ask(cmd, http.MethodPost, installationsPath, args[0], body,
				say(fmt.Sprintf("added; the vendor calls /in/%s/%s", a.channel, args[0])))
		},
	}
	l.flags(c)
	f := c.Flags()
	f.StringVar(&a.tenant, "tenant", "", "the customer it belongs to")
	f.StringVar(&a.channel, "channel", "", "the channel it comes through")
	f.StringVar(&a.account, "account", "", "the vendor's own name of it")
	f.StringArrayVar(&a.secrets, "secret", nil, secretHelp)
	f.StringArrayVar(&a.settings, "setting", nil, "`NAME=VALUE`, the value in YAML")
	f.StringArrayVar(&a.policy, "policy", nil, "`KEY=VALUE`, such as fast_ttl=30h or backoff.max=1m")
	f.StringVar(&a.dispatchURL, "dispatch-url", "", "where its events go, instead of dispatch.http.url")
	f.BoolVar(&a.paused, "paused", false, "receive nothing until it is resumed")
	for _, name := range []string{"tenant", "channel", "account"} {
		needs(c, name)
	}
	return c
}

// needs makes a flag of c one that can't be left out.
func needs(c *cobra.Command, flag string) {
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return err
		}
		if !cmd.Flags().Changed(flag) {
			return usageError{fmt.Errorf("--%s is needed", flag)}
		}
		return nil
	}
}

func newInstallationsRotate() *cobra.Command {
	var l adminCommand
	var secrets []string
	dropOld := false
	c := &cobra.Command{
		Use:   "rotate ID --secret NAME=VALUE | --drop-old",
		Short: "Give an installation's secrets new values and accept the last ones, too, until they are dropped",
		Long: `Give an installation's secrets new values. The new one signs and both are accepted, so that no
request is refused while the vendor changes over. When its retries are over: --drop-old.`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(secrets) == 0 && !dropOld {
				return usageError{errors.New("give --secret NAME=VALUE, --drop-old or both")}
			}
			values, err := readSecrets(secrets, cmd.InOrStdin())
			if err != nil {
				return err
			}
			body := map[string]any{}
			if len(values) > 0 {
				body["secrets"] = values
			}
			if dropOld {
				body["drop_old"] = true
			}
			return l.ask(cmd, http.MethodPost, installationPath(args[0])+"/rotate", args[0], body, telling(func(w io.Writer, in web.Installation) error {
				_, err := fmt.Fprintf(w, "live now: %s\n", secretsOf(in))
				return err
			}))
		},
	}
	l.flags(c)
	c.Flags().StringArrayVar(&secrets, "secret", nil, secretHelp)
	c.Flags().BoolVar(&dropOld, "drop-old", false, "accept the first value of each secret alone, from now on")
	return c
}

// readSecrets reads NAME=VALUE pairs. A name that stands twice has several values.
func readSecrets(pairs []string, stdin io.Reader) (map[string][]string, error) {
	secrets := map[string][]string{}
	lines := bufio.NewReader(stdin)
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usageError{errors.New("--secret: must be NAME=VALUE")} // it may be a secret
		}
		if path, ok := strings.CutPrefix(value, "file:"); ok {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("--secret %s: %w", name, err)
			}
			value = string(b)
		} else if value == "-" {
			line, err := lines.ReadString('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("--secret %s: %w", name, err)
			}
			value = line
		}
		value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
		if strings.TrimSpace(value) == "" {
			return nil, usageError{fmt.Errorf("--secret %s: must not be empty", name)}
		}
		secrets[name] = append(secrets[name], value)
	}
	return secrets, nil
}

// readValues reads KEY=VALUE pairs, the values in YAML. A key with dots stands within another.
func readValues(flag string, pairs []string) (map[string]any, error) {
	values := map[string]any{}
	for _, pair := range pairs {
		key, text, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usageError{fmt.Errorf("%s %s: must be NAME=VALUE", flag, pair)}
		}
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			return nil, usageError{fmt.Errorf("%s %s: the value is no YAML", flag, key)}
		}
		at := values
		parts := strings.Split(key, ".")
		for _, part := range parts[:len(parts)-1] {
			within, ok := at[part].(map[string]any)
			if !ok {
				within = map[string]any{}
				at[part] = within
			}
			at = within
		}
		at[parts[len(parts)-1]] = value
	}
	return values, nil
}
