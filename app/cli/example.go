package cli

import (
	"bytes"
	"maps"

	"go.yaml.in/yaml/v3"

	"github.com/admitone/admitone/channels"
)

// exampleTenant is the customer to whom every example installation belongs.
const exampleTenant = "demo"

// exampleID returns the id of the installation that a channel's example makes.
func exampleID(channel string) string { return "demo-" + channel }

// The part of a configuration that installations stand in.
type (
	tenant struct {
		ID            string         `yaml:"id"`
		Installations []installation `yaml:"installations"`
	}
	installation struct {
		ID       string            `yaml:"id"`
		Channel  string            `yaml:"channel"`
		Account  string            `yaml:"account"`
		Secrets  map[string]string `yaml:"secrets,omitempty"`
		Settings map[string]any    `yaml:"settings,omitempty"`
	}
)

// exampleTenants returns the tenant demo with one installation of each channel, for credentials
// that each channel invented.
func exampleTenants(chs []channels.Channel) []tenant {
	t := tenant{ID: exampleTenant}
	for _, c := range chs {
		in := installation{
			ID: exampleID(c.Name), Channel: c.Name, Account: c.Example.Account,
			Secrets: map[string]string{}, Settings: maps.Clone(c.Example.Settings),
		}
		for name, list := range c.Example.Secrets {
			in.Secrets[name] = list[0]
		}
		t.Installations = append(t.Installations, in)
	}
	return []tenant{t}
}

// toYAML writes v as a configuration file would.
func toYAML(v any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}
