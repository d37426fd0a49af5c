package channels_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/fx"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// whole returns a channel that lacks nothing.
func whole() channels.Channel {
	return channels.Channel{
		Name:     "toy",
		Platform: "toy",
		Open:     func(channels.Credentials) (channels.Endpoint, error) { return nil, nil },
		Decode:   func(domain.Event) (domain.Content, error) { return domain.Content{}, nil },
		Simulate: func(channels.Credentials, channels.Simulation) (*http.Request, error) { return nil, nil },
		Vendor: channels.Vendor{
			EventID: "event", RetryWindow: time.Hour, Deadline: time.Second, Behaviour: "It comes again.",
		},
		Secrets: []channels.Secret{{Name: "key"}, {Name: "other", Optional: true}},
		Example: channels.Credentials{Account: "A1", Secrets: map[string][]string{"key": {"demo-key"}}},
	}
}

func openNothing(channels.Credentials) (channels.Poll, error) { return channels.Poll{}, nil }

func TestPolledChannelNeedsNoDeadline(t *testing.T) {
	t.Parallel()
	c := whole()
	c.Open, c.Simulate, c.Vendor.Deadline = nil, nil, 0
	c.OpenPoll = openNothing
	c.SimulateVendor = func(string) (channels.Simulator, channels.Credentials, error) {
		return nil, channels.Credentials{}, nil
	}
	if err := fx.New(fx.NopLogger, channels.Module(c)).Err(); err != nil || !c.Polled() || whole().Polled() {
		t.Errorf("Module of a polled channel: %v; polled %t, of a webhook %t; want nil, true, false", err, c.Polled(), whole().Polled())
	}
}

func TestModuleJoinsTheGroup(t *testing.T) {
	t.Parallel()
	type all struct {
		fx.In
		Channels []channels.Channel `group:"channels"`
	}
	var got []channels.Channel
	other := whole()
	other.Name = "other"
	app := fx.New(fx.NopLogger, channels.Module(whole()), channels.Module(other),
		fx.Invoke(func(a all) { got = a.Channels }))
	if err := app.Err(); err != nil {
		t.Fatalf("start: %v", err)
	}
	if len(got) != 2 {
		t.Errorf("the group has %d channels; want 2", len(got))
	}
}

func TestIncompleteChannelIsRefused(t *testing.T) {
	t.Parallel()
	for lacks, spoil := range map[string]func(*channels.Channel){
		"a-z and 0-9":        func(c *channels.Channel) { c.Name = "Toy-1" },
		"a name is made":     func(c *channels.Channel) { c.Name = "" },
		"Platform":           func(c *channels.Channel) { c.Platform = "" },
		"Open":               func(c *channels.Channel) { c.Open = nil },
		"Decode":             func(c *channels.Channel) { c.Decode = nil },
		"Simulate":           func(c *channels.Channel) { c.Simulate = nil },
		"Vendor.EventID":     func(c *channels.Channel) { c.Vendor.EventID = "" },
		"Vendor.RetryWindow": func(c *channels.Channel) { c.Vendor.RetryWindow = 0 },
		"Vendor.Deadline":    func(c *channels.Channel) { c.Vendor.Deadline = 0 },
		"OpenPoll, one of":   func(c *channels.Channel) { c.OpenPoll = openNothing },
		"SimulateVendor":     func(c *channels.Channel) { c.Open, c.OpenPoll = nil, openNothing },
		"Vendor.Behaviour":   func(c *channels.Channel) { c.Vendor.Behaviour = "" },
		"Example.Account":    func(c *channels.Channel) { c.Example.Account = "" },
		"Secrets[key]":       func(c *channels.Channel) { c.Example.Secrets = nil },
	} {
		c := whole()
		spoil(&c)
		err := fx.New(fx.NopLogger, channels.Module(c)).Err()
		if err == nil || !strings.Contains(err.Error(), lacks) {
			t.Errorf("error = %v; want one that says %q", err, lacks)
		}
	}
}

func TestEverythingLackingIsToldAtOnce(t *testing.T) {
	t.Parallel()
	err := fx.New(fx.NopLogger, channels.Module(channels.Channel{Name: "toy"})).Err()
	if err == nil || !strings.Contains(err.Error(), "Platform") || !strings.Contains(err.Error(), "Vendor.Behaviour") {
		t.Errorf("error = %v; want one that tells all that is lacking", err)
	}
}

func TestTwoChannelsOfOneNameAreRefused(t *testing.T) {
	t.Parallel()
	other := whole()
	other.Name = "other"
	if err := channels.Check([]channels.Channel{whole(), other}); err != nil {
		t.Errorf("Check of two channels = %v; want no error", err)
	}
	incomplete := channels.Channel{Name: "third", Platform: "toy"}
	err := channels.Check([]channels.Channel{whole(), other, whole(), incomplete})
	for _, want := range []string{"channel toy: there are two of this name", "channel third: lacks Open"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v; want an error that says %q", err, want)
		}
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		methods []string
		method  string
		want    bool
	}{
		{nil, http.MethodPost, true},
		{nil, http.MethodGet, false},
		{[]string{http.MethodGet, http.MethodPost}, http.MethodGet, true},
		{[]string{http.MethodGet}, http.MethodPost, false},
		{[]string{}, http.MethodPost, false},
	} {
		c := whole()
		c.Methods = tt.methods
		if got := c.Uses(tt.method); got != tt.want {
			t.Errorf("a channel of %v uses %s: %t; want %t", tt.methods, tt.method, got, tt.want)
		}
	}
}
