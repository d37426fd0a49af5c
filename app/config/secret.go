package config

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const redacted = "[redacted]"

// A Secret holds the values of one secret: any of them is accepted, the first one signs. It is
// empty if the secret is not set. Whatever prints or encodes it shows none of them.
type Secret []string

// Set reports whether there is a value.
func (s Secret) Set() bool { return len(s) > 0 }

// String tells only whether the secret is set.
func (s Secret) String() string {
	if !s.Set() {
		return ""
	}
	return redacted
}

// Format implements fmt.Formatter for every verb, %#v included.
func (s Secret) Format(f fmt.State, _ rune) { write(f, s.String()) }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler, which JSON and YAML encoders use.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Secrets are those of one installation or section by name, as channels.Credentials has
// them. Whatever prints or encodes them shows names only.
type Secrets map[string][]string

// String returns the names.
func (s Secrets) String() string {
	names := slices.Sorted(maps.Keys(s))
	for i, n := range names {
		names[i] = n + ":" + redacted
	}
	return "map[" + strings.Join(names, " ") + "]"
}

// Format implements fmt.Formatter for every verb, %#v included.
func (s Secrets) Format(f fmt.State, _ rune) { write(f, s.String()) }

// LogValue implements slog.LogValuer.
func (s Secrets) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON implements json.Marshaler.
func (s Secrets) MarshalJSON() ([]byte, error) { return json.Marshal(s.hidden()) }

// MarshalYAML implements yaml.Marshaler.
func (s Secrets) MarshalYAML() (any, error) { return s.hidden(), nil }

func (s Secrets) hidden() map[string]string {
	h := make(map[string]string, len(s))
	for name := range s {
		h[name] = redacted
	}
	return h
}

// An Address is a URL or a data source name, which may hold a password. string(a) is the
// address itself; whatever prints or encodes it shows it without.
type Address string

// Greedy up to the last @, so that a password with an unescaped delimiter is hidden whole.
var (
	userPassword  = regexp.MustCompile(`(://[^:@/]*):.*@`)
	queryPassword = regexp.MustCompile(`(?i)([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*`)
	wordPassword  = regexp.MustCompile(`(?i)(\bpassword\s*=\s*)('[^']*'|[^\s&]+)`)
)

// String returns the address without passwords.
func (a Address) String() string {
	s := userPassword.ReplaceAllString(string(a), "${1}:"+redacted+"@")
	s = queryPassword.ReplaceAllString(s, "${1}"+redacted)
	return wordPassword.ReplaceAllString(s, "${1}"+redacted)
}

// Format implements fmt.Formatter for every verb, %#v included.
func (a Address) Format(f fmt.State, verb rune) {
	write(f, fmt.Sprintf(fmt.FormatString(f, verb), a.String()))
}

// LogValue implements slog.LogValuer.
func (a Address) LogValue() slog.Value { return slog.StringValue(a.String()) }

// MarshalText implements encoding.TextMarshaler, which JSON and YAML encoders use.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func write(w io.Writer, s string) {
	// fmt keeps what a Formatter writes in memory and never fails.
	_, _ = io.WriteString(w, s)
}
