package channeltest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.uber.org/fx"
	"go.yaml.in/yaml/v3"

	"github.com/admitone/admitone/channels"
)

func complete(k *subject) error {
	c := k.Channel
	var errs []error
	if folder := filepath.Base(k.dir); c.Name != folder {
		errs = append(errs, fmt.Errorf("the name is %q, the folder %q", c.Name, folder))
	}
	if err := fx.New(fx.NopLogger, channels.Module(c)).Err(); err != nil {
		errs = append(errs, fmt.Errorf("channels.Module: %w", err))
	}
	for what, text := range map[string]string{
		"Scope": c.Vendor.Scope, "Fallback": c.Vendor.Fallback, "MessageKey": c.Vendor.MessageKey,
		"Unnumbered": c.Vendor.Unnumbered, "Source": c.Vendor.Source,
	} {
		if strings.TrimSpace(text) == "" {
			errs = append(errs, fmt.Errorf("vendor data: %s is empty: say so in words if there is none", what))
		}
	}
	for name := range k.Credentials.Secrets {
		if !slices.ContainsFunc(c.Secrets, func(s channels.Secret) bool { return s.Name == name }) {
			errs = append(errs, fmt.Errorf("the fixtures need the secret %s, which Secrets does not list", name))
		}
	}
	for name := range k.Credentials.Settings {
		if name != "public_url" && !slices.Contains(c.Settings, name) {
			errs = append(errs, fmt.Errorf("the fixtures need the setting %s, which Settings does not list", name))
		}
	}
	if _, err := k.open(c.Example); err != nil {
		errs = append(errs, fmt.Errorf("the example does not open: %w", err))
	}
	return errors.Join(errs...)
}

// A sample is as much of a configuration as concerns a channel.
type sample struct {
	Channels map[string]map[string]any `yaml:"channels"`
	Tenants  []struct {
		ID            string `yaml:"id"`
		Installations []struct {
			ID       string         `yaml:"id"`
			Channel  string         `yaml:"channel"`
			Account  string         `yaml:"account"`
			Secrets  map[string]any `yaml:"secrets"`
			Settings map[string]any `yaml:"settings"`
		} `yaml:"installations"`
	} `yaml:"tenants"`
}

func sampleDecodes(k *subject) error {
	text, err := os.ReadFile(filepath.Join(k.dir, "sample.yaml"))
	if err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	var s sample
	if err := yaml.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("sample.yaml: %w", err)
	}
	var errs []error
	for name := range s.Channels {
		if name != k.Channel.Name {
			errs = append(errs, fmt.Errorf("sample.yaml: section %s is another channel's", name))
		}
	}
	shown := len(s.Channels) > 0
	for _, t := range s.Tenants {
		for _, i := range t.Installations {
			shown = true
			if t.ID == "" || i.ID == "" || i.Channel != k.Channel.Name {
				errs = append(errs, fmt.Errorf("sample.yaml: installation %q of tenant %q and channel %q: all three are needed", i.ID, t.ID, i.Channel))
			}
			for name := range i.Secrets {
				if !slices.ContainsFunc(k.Channel.Secrets, func(s channels.Secret) bool { return s.Name == name }) {
					errs = append(errs, fmt.Errorf("sample.yaml: the channel has no secret %s", name))
				}
			}
			for name := range i.Settings {
				if name != "public_url" && !slices.Contains(k.Channel.Settings, name) {
					errs = append(errs, fmt.Errorf("sample.yaml: the channel has no setting %s", name))
				}
			}
		}
	}
	if !shown {
		errs = append(errs, errors.New("sample.yaml: shows neither a section of channels nor an installation"))
	}
	readme, err := os.ReadFile(filepath.Join(k.dir, "README.md"))
	switch {
	case err != nil:
		errs = append(errs, fmt.Errorf("readme: %w", err))
	case !bytes.Contains(readme, bytes.TrimSpace(text)):
		errs = append(errs, errors.New("README.md does not show the text of sample.yaml"))
	}
	return errors.Join(errs...)
}

func answers(k *subject) error {
	if err := fit(k.Channel.Acknowledge); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	if len(k.Channel.Acknowledge.Body) > 0 && strings.HasPrefix(k.Channel.Acknowledge.ContentType, "text/plain") {
		return errors.New("acknowledge: vendors show plain text to users")
	}
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	for _, f := range slices.Concat(k.events, k.handshakes) {
		r := k.request(f)
		if err := k.mustAccept(e, r, f.name); err != nil {
			return err
		}
		b, err := k.extract(e, r)
		if err != nil {
			return fmt.Errorf("%s: extract: %w", f.name, err)
		}
		if b.Reply == nil {
			continue
		}
		if err := fit(*b.Reply); err != nil {
			return fmt.Errorf("%s: reply: %w", f.name, err)
		}
	}
	return nil
}

func fit(r channels.Reply) error {
	if (len(r.Body) > 0) != (r.ContentType != "") {
		return fmt.Errorf("content type %q with a body of %d bytes", r.ContentType, len(r.Body))
	}
	return nil
}
