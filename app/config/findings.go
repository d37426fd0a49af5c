package config

import (
	"errors"
	"fmt"

	"github.com/admitone/admitone/domain"
)

// A Severity says what a finding means for the server.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // it does not start
	SeverityWarning Severity = "warning" // it starts, and something that was probably meant does not hold
	SeverityNote    Severity = "note"    // good to know
)

// A Finding is something to tell about a key.
type Finding struct {
	Key      string // dotted
	Severity Severity
	Text     string // holds no secret
}

// Errors returns an error of Load as findings. One that is about no key has an empty Key.
func Errors(err error) []Finding {
	var found []Finding
	for _, e := range split(err) {
		f := Finding{Severity: SeverityError, Text: e.Error()}
		if k, ok := errors.AsType[*KeyError](e); ok {
			f.Key, f.Text = k.Key, k.Err.Error()
			if k.At != "" {
				f.Text += " (" + k.At + ")"
			}
		}
		found = append(found, f)
	}
	return found
}

// Findings returns what is valid and yet worth a look, in the order of the keys.
func (c *Config) Findings() []Finding {
	var found []Finding
	tell := func(s Severity, key, format string, a ...any) {
		found = append(found, Finding{Key: key, Severity: s, Text: fmt.Sprintf(format, a...)})
	}
	c.findServer(tell)
	c.findStore(tell)
	c.findDispatch(tell)
	c.findPolicy(tell)
	c.findChannels(tell)
	c.findInstallations(tell)
	return found
}

type teller func(s Severity, key, format string, a ...any)

func (c *Config) findServer(tell teller) {
	for in := range c.Installations() {
		// Of the vendors only Twilio signs the URL that it calls.
		if c.modules[in.Channel].Platform == "twilio" && c.PublicURL(in.Settings) == "" {
			tell(SeverityWarning, "server.public_url", "empty, and Twilio signs the URL that it calls: every request to installation %s will be refused", in.ID)
		}
	}
	if !c.Server.AdminToken.Set() {
		tell(SeverityNote, "server.admin_token", "not set: everybody on this machine may use the admin API")
	}
	if t := c.Dispatch.timeout(); c.Server.DrainTimeout < t {
		tell(SeverityWarning, "server.drain_timeout", "shorter than dispatch.http.timeout (%s): a stop may cut a dispatch off, whose outcome is then unknown", t)
	}
}

func (c *Config) findStore(tell teller) {
	if c.Store.Durable.Driver == Postgres && c.Store.Fast.Driver == Memory {
		tell(SeverityNote, "store.fast.driver", "memory is each instance's own: several instances save more work with redis")
	}
}

func (c *Config) findDispatch(tell teller) {
	switch c.Dispatch.Target {
	case TargetLog:
		for range c.Installations() {
			tell(SeverityWarning, "dispatch.target", "log: events are written to the log and reach no application")
			break
		}
	case TargetHTTP:
		if !c.Dispatch.HTTP.Secret.Set() {
			tell(SeverityWarning, "dispatch.http.secret", "not set: requests are unsigned, so the application can't tell them from forged ones")
		}
	}
}

func (c *Config) findPolicy(tell teller) {
	if c.Policy.Guarantee == domain.AtLeastOnce {
		tell(SeverityNote, "policy.guarantee", "%s", atLeastOnce)
	}
	if c.Policy.PayloadRetention > c.Policy.Retention {
		tell(SeverityNote, "policy.payload_retention", "longer than policy.retention, with which payloads go")
	}
	for _, name := range c.inUse() {
		journals := c.Store.Journal.Path != "" && c.PolicyFor(name, "").Journals(false)
		if !c.modules[name].Vendor.ComesAgain && !journals {
			tell(SeverityWarning, "policy.on_store_down", "an event of channel %s that arrives while the durable store is out of reach is lost: its vendor does not send it again", name)
		}
	}
}

const atLeastOnce = "at-least-once: the application may get an event twice, and tells it by the webhook-id"

func (c *Config) findChannels(tell teller) {
	for _, name := range c.modules.names() {
		section, at := c.Channels[name], "channels."+name
		if len(section.Secrets) > 0 && !c.modules[name].AppWide {
			tell(SeverityWarning, at, "its secrets are not used: the channel has no app-wide address, so each installation has its own")
		}
		if section.Policy.Guarantee == domain.AtLeastOnce {
			tell(SeverityNote, at+".policy.guarantee", "%s", atLeastOnce)
		}
	}
}

func (c *Config) findInstallations(tell teller) {
	for t, tenant := range c.Tenants {
		for i, in := range tenant.Installations {
			at := fmt.Sprintf("tenants.%d.installations.%d", t, i)
			if !c.Enabled(in.Channel) {
				tell(SeverityWarning, at+".channel", "channel %s is switched off, so installation %s gets nothing", in.Channel, in.ID)
			}
			if in.Dispatch.URL != "" && c.Dispatch.Target != TargetHTTP {
				tell(SeverityWarning, at+".dispatch.url", "not used: dispatch.target is %s", c.Dispatch.Target)
			}
			if in.Policy.Guarantee == domain.AtLeastOnce {
				tell(SeverityNote, at+".policy.guarantee", "%s", atLeastOnce)
			}
		}
	}
}
