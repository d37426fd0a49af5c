package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// mailPlatform is the platform of the channels of mail.
const mailPlatform = "email"

// A simulation is what the command line of simulate says.
type simulation struct {
	url, publicURL string
	secrets        []string
	account        string
	text, eventID  string
	eml            string // a file
	retries, race  int
	interval       time.Duration
}

func newSimulate(chs []channels.Channel) *cobra.Command {
	var s simulation
	names := make([]string, len(chs))
	for i, c := range chs {
		names[i] = c.Name
	}
	c := &cobra.Command{
		Use:   "simulate CHANNEL",
		Short: "Send a correctly signed request, as a vendor would, to a running server",
		Long: `Send a correctly signed request, as a vendor would, to a running server: first one delivery, or
several copies of it at the same moment, then the vendor's retries. Account and secret are those
of configs/quickstart.yaml unless told, so that this works without a vendor's account:

  admitone serve --config configs/quickstart.yaml
  admitone simulate slack --retries 3

A vendor that has to be asked, as gmail has, is simulated where the server looks for it: --url is
its address then, and the run ends when the server has fetched everything.

Each run is a new event unless --event-id names one: with the same id again, the run is a retry.
The exit code is 1 if an answer is not 200 or if more than one copy was admitted.

Channels: ` + strings.Join(names, ", "),
		ValidArgs: names,
		Args: usage(func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return errors.New("simulate wants the name of one channel: " + strings.Join(names, ", "))
			case !slices.Contains(names, args[0]):
				return fmt.Errorf("there is no channel %q; there are %s", args[0], strings.Join(names, ", "))
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := chs[slices.Index(names, args[0])]
			if c.Polled() {
				if !cmd.Flags().Changed("url") {
					s.url = endpointOf(c.Example)
				}
				return s.runPolled(cmd.Context(), cmd.OutOrStdout(), c)
			}
			return s.run(cmd.Context(), cmd.OutOrStdout(), c)
		},
	}
	f := c.Flags()
	f.StringVar(&s.url, "url", "http://127.0.0.1:8080", "`address` of the server; if it has no path, /in/CHANNEL/demo-CHANNEL follows")
	f.StringVar(&s.publicURL, "public-url", "", "the server's server.public_url, which some vendors sign; that of --url if left out")
	f.StringArrayVar(&s.secrets, "secret", nil, "what signs, as `[NAME=]SECRET`; the channel's example if left out")
	f.StringVar(&s.account, "account", "", "the vendor's name of the installation; the channel's example if left out")
	f.StringVar(&s.text, "text", "Hello from a simulated vendor", "text of the message")
	f.StringVar(&s.eventID, "event-id", "", "the vendor's number of the event; a new one if left out")
	f.StringVar(&s.eml, "eml", "", "`file` with a mail to send as it is, instead of one of --text and --event-id; channels of mail only")
	f.IntVar(&s.retries, "retries", 0, "how many times the vendor sends the event again")
	f.IntVar(&s.race, "race", 1, "how many copies of the first delivery are sent at the same moment")
	f.DurationVar(&s.interval, "interval", 0, "wait before each retry")
	return c
}

func (s simulation) run(ctx context.Context, w io.Writer, c channels.Channel) error {
	v, err := s.vendor(c)
	if err != nil {
		return usageError{err}
	}
	defer v.client.CloseIdleConnections()
	m, err := s.message(c)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s event %s to %s\n\n", c.Name, m.eventID, v.url)
	t := tally{w: w}
	if err := t.first(ctx, v, m, s.race); err != nil {
		return err
	}
	for retry := 1; retry <= s.retries; retry++ {
		if err := pause(ctx, s.interval); err != nil {
			return err
		}
		a, err := v.deliver(ctx, m, retry)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.add(fmt.Sprintf("retry %d", retry), a, err)
	}
	return t.sum(v)
}

func (s simulation) vendor(c channels.Channel) (vendor, error) {
	switch {
	case s.retries < 0:
		return vendor{}, fmt.Errorf("--retries %d: can't be negative", s.retries)
	case s.race < 1:
		return vendor{}, fmt.Errorf("--race %d: one copy is the least", s.race)
	case s.eml != "" && c.Platform != mailPlatform:
		return vendor{}, fmt.Errorf("--eml: channel %s brings no mail", c.Name)
	case s.interval < 0:
		return vendor{}, fmt.Errorf("--interval %s: can't be negative", s.interval)
	}
	to, err := url.Parse(s.url)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return vendor{}, fmt.Errorf("--url %q: must be like http://127.0.0.1:8080", s.url)
	}
	if to.Path == "" || to.Path == "/" {
		to.Path = "/in/" + c.Name + "/" + exampleID(c.Name)
	}
	v := vendor{channel: c, cred: c.Example, url: to.String(), publicURL: s.publicURL, client: newVendorClient(s.race)}
	if v.publicURL == "" {
		v.publicURL = to.Scheme + "://" + to.Host
	}
	if s.account != "" {
		v.cred.Account = s.account
	}
	if v.cred.Secrets, err = s.credentials(c); err != nil {
		return vendor{}, err
	}
	return v, nil
}

// credentials returns the secrets of the channel's example with those that --secret names instead.
// A secret without a name is the first that the channel lists.
func (s simulation) credentials(c channels.Channel) (map[string][]string, error) {
	secrets := map[string][]string{}
	maps.Copy(secrets, c.Example.Secrets)
	for _, said := range s.secrets {
		if said == "" {
			return nil, errors.New("--secret: is empty")
		}
		if len(c.Secrets) == 0 {
			return nil, fmt.Errorf("--secret: channel %s has none", c.Name)
		}
		name, secret := c.Secrets[0].Name, said
		if n, value, ok := strings.Cut(said, "="); ok && slices.ContainsFunc(c.Secrets, func(s channels.Secret) bool { return s.Name == n }) {
			name, secret = n, value
		}
		secrets[name] = []string{secret}
	}
	return secrets, nil
}

func (s simulation) message(c channels.Channel) (message, error) {
	if s.eml != "" {
		mail, err := os.ReadFile(s.eml)
		if err != nil {
			return message{}, fmt.Errorf("--eml: %w", err)
		}
		return message{eventID: s.eml, mail: mail}, nil
	}
	m := message{eventID: s.eventID, text: s.text}
	if m.eventID == "" {
		m.eventID = newEventID()
	}
	if c.Name != "twilio" { // whose event id is that of the message
		m.number = messageNumber(m.eventID)
	}
	return m, nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A tally prints deliveries and sums them up.
type tally struct {
	w                                           io.Writer
	sent, admitted, duplicate, refused, dropped int
	last                                        int // status that was not 200
	ignored                                     bool
}

// first sends the copies of the first delivery. Its error says that the server can't be reached.
func (t *tally) first(ctx context.Context, v vendor, m message, copies int) error {
	requests := make([]*http.Request, copies)
	for i := range requests {
		var err error
		if requests[i], err = v.request(ctx, m, 0); err != nil {
			return err
		}
	}
	answers, errs := make([]answer, copies), make([]error, copies)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i, r := range requests {
		all.Go(func() {
			<-start
			answers[i], errs[i] = v.send(r)
		})
	}
	close(start)
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !slices.Contains(errs, nil) {
		err := fmt.Errorf("no answer from %s: %s", v.url, why(errs[0]))
		if errors.Is(errs[0], syscall.ECONNREFUSED) {
			err = fmt.Errorf("%w\nNothing listens there. Start a server, for example with admitone serve --config configs/quickstart.yaml,\nor say with --url where one runs", err)
		}
		return err
	}
	for i := range answers {
		what := "first"
		if copies > 1 {
			what = fmt.Sprintf("copy %d", i+1)
		}
		t.add(what, answers[i], errs[i])
	}
	return nil
}

func (t *tally) add(what string, a answer, err error) {
	t.sent++
	if err != nil {
		t.dropped++
		fmt.Fprintf(t.w, "  %-10s  ---  no answer: %s\n", what, why(err))
		return
	}
	verdict := a.verdict
	switch {
	case a.status != http.StatusOK:
		t.refused++
		t.last = a.status
		if verdict == "" {
			verdict = strings.ToLower(http.StatusText(a.status))
		}
	case verdict == string(domain.Admitted):
		t.admitted++
	case verdict == string(domain.Duplicate):
		t.duplicate++
	case verdict == string(domain.Ignored):
		t.ignored = true
	case verdict == "":
		verdict = "no verdict: this is no Admitone"
	}
	fmt.Fprintf(t.w, "  %-10s  %d  %-12s %8s\n", what, a.status, verdict, milliseconds(a.took))
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

func (t *tally) sum(v vendor) error {
	fmt.Fprintf(t.w, "\n%d sent: %d admitted, %s, %d refused", t.sent, t.admitted, plural(t.duplicate, "duplicate"), t.refused)
	if t.dropped > 0 {
		fmt.Fprintf(t.w, ", %d without an answer", t.dropped)
	}
	fmt.Fprintln(t.w)
	if hint := t.hint(v); hint != "" {
		fmt.Fprintf(t.w, "\n%s\n", hint)
	}
	if t.refused+t.dropped > 0 {
		return errTold
	}
	if t.admitted > 1 {
		return fmt.Errorf("%d copies of one event were admitted", t.admitted)
	}
	return nil
}

// hint says what to do about answers that nobody wants.
func (t *tally) hint(v vendor) string {
	switch {
	case t.last == http.StatusUnauthorized:
		return "401: the server does not believe that " + v.channel.Name + ` sent this. The installation has another secret (--secret),
or, if the vendor signs the address that it calls, the server has another server.public_url than
` + v.publicURL + " (--public-url)."
	case t.last == http.StatusNotFound:
		return "404: the server has no such installation, or it is not for that account. configs/quickstart.yaml has one;\n" +
			"in another configuration it would be\n\n" + wanted(v)
	case t.last == http.StatusServiceUnavailable:
		return "503: the server can't take events now and stored nothing; a vendor comes again later."
	case t.ignored:
		return "Ignored: authentic, but there is nothing to hand on. The installation is for another account than\n" +
			v.cred.Account + " (--account)."
	}
	return ""
}

// wanted returns the configuration of the installation that v sends to. A secret that is not
// an invented one is not shown.
func wanted(v vendor) string {
	c := v.channel
	c.Example.Account = v.cred.Account
	tenants := exampleTenants([]channels.Channel{c})
	in := &tenants[0].Installations[0]
	for name, list := range v.cred.Secrets {
		if !slices.Equal(list, c.Example.Secrets[name]) {
			in.Secrets[name] = "that of --secret"
		}
	}
	if u, err := url.Parse(v.url); err == nil {
		if id, ok := strings.CutPrefix(u.Path, "/in/"+c.Name+"/"); ok {
			in.ID, _, _ = strings.Cut(id, "/")
		}
	}
	text, err := toYAML(map[string]any{"tenants": tenants})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
