package channels

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"

	"go.uber.org/fx"
)

var nameForm = regexp.MustCompile(`^[a-z0-9]+$`)

// Module adds c to the value group "channels", from which the application makes its route,
// its configuration section, its row of the key table, its metric labels and its simulator.
// A channel that lacks what these need is an error of whoever wrote it, told at start.
func Module(c Channel) fx.Option {
	if err := c.complete(); err != nil {
		return fx.Error(err)
	}
	return fx.Supply(fx.Annotate(c, fx.ResultTags(`group:"channels"`)))
}

// Check returns an error for each of chs that lacks something, and for each name that two of
// them have.
func Check(chs []Channel) error {
	var errs []error
	names := make(map[string]bool, len(chs))
	for _, c := range chs {
		errs = append(errs, c.complete())
		if names[c.Name] {
			errs = append(errs, fmt.Errorf("channel %s: there are two of this name", c.Name))
		}
		names[c.Name] = true
	}
	return errors.Join(errs...)
}

func (c Channel) complete() error {
	if !nameForm.MatchString(c.Name) {
		return fmt.Errorf("channel %q: a name is made of a-z and 0-9", c.Name)
	}
	var errs []error
	for _, part := range []struct {
		name  string
		lacks bool
	}{
		{"Platform", c.Platform == ""},
		{"Open or OpenPoll, one of them", (c.Open == nil) == (c.OpenPoll == nil)},
		{"Decode", c.Decode == nil},
		{"Simulate", c.Simulate == nil && !c.Polled()},
		{"SimulateVendor", c.SimulateVendor == nil && c.Polled()},
		{"Vendor.EventID", c.Vendor.EventID == ""},
		{"Vendor.RetryWindow", c.Vendor.RetryWindow == 0},
		{"Vendor.Deadline", c.Vendor.Deadline == 0 && !c.Polled()},
		{"Vendor.Behaviour", c.Vendor.Behaviour == ""},
		{"Example.Account", c.Example.Account == ""},
	} {
		if part.lacks {
			errs = append(errs, fmt.Errorf("channel %s: lacks %s", c.Name, part.name))
		}
	}
	for _, s := range c.Secrets {
		if !s.Optional && len(c.Example.Secrets[s.Name]) == 0 {
			errs = append(errs, fmt.Errorf("channel %s: lacks Example.Secrets[%s]", c.Name, s.Name))
		}
	}
	return errors.Join(errs...)
}

// Polled reports whether the vendor has to be asked: then no address leads to the channel.
func (c Channel) Polled() bool { return c.OpenPoll != nil }

// Uses reports whether the vendor calls with method.
func (c Channel) Uses(method string) bool {
	if c.Methods == nil {
		return method == http.MethodPost
	}
	return slices.Contains(c.Methods, method)
}

// NeedsSecrets reports whether an endpoint can't be opened without secrets of its own.
func (c Channel) NeedsSecrets() bool {
	for _, s := range c.Secrets {
		if !s.Optional {
			return true
		}
	}
	return false
}
