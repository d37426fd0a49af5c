package channels

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Settings are an installation's own, as its configuration says.
type Settings map[string]any

// Decode fills the struct that into points to from s, by its yaml tags. A setting that it
// does not name is an error, except public_url, which belongs to the server.
func (s Settings) Decode(into any) error {
	own := make(Settings, len(s))
	for k, v := range s {
		if k != "public_url" {
			own[k] = plain(v)
		}
	}
	b, err := yaml.Marshal(own)
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}

// plain returns a number as the configuration's YAML would bring it. One that has been read
// from JSON is a float or a text, and as such fits neither a string nor an integer.
func plain(v any) any {
	switch n := v.(type) {
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: n.String()}
	case float64:
		if i := int64(n); float64(i) == n {
			return i
		}
	}
	return v
}
