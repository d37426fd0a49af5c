package app

import (
	"errors"
	"fmt"

	"github.com/admitone/admitone/app/config"
	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A kept reads installations that the database keeps by the rules of the configuration.
type kept struct {
	config  *config.Config
	enabled map[string]channels.Channel
}

func newKept(cfg *config.Config, chs []channels.Channel) kept {
	k := kept{config: cfg, enabled: map[string]channels.Channel{}}
	for _, c := range chs {
		if cfg.Enabled(c.Name) {
			k.enabled[c.Name] = c
		}
	}
	return k
}

// read returns in as the configuration would have it.
func (k kept) read(in ports.Installation) (config.Installation, error) {
	policy, err := config.ParsePolicy(in.Policy)
	return config.Installation{
		Tenant: in.Tenant, ID: in.ID, Channel: in.Channel, Account: in.Account,
		Secrets: in.Secrets, Settings: in.Settings, Policy: policy, Dispatch: config.Override{URL: config.Address(in.DispatchURL)},
	}, err
}

// open makes an installation ready. One of a channel that is switched off has no endpoint: what
// it admitted before is worked on all the same.
func (k kept) open(in ports.Installation) (intake.Installation, error) {
	c, err := k.read(in)
	if err != nil {
		return intake.Installation{}, fmt.Errorf("installation %s: %w", in.ID, err)
	}
	i, err := ready(k.config, k.enabled[in.Channel], c)
	if err != nil {
		return intake.Installation{}, fmt.Errorf("installation %s: %w", in.ID, err)
	}
	i.Paused = in.Paused
	i.Policy = c.Policy.Over(k.config.PolicyFor(in.Channel, ""))
	return i, nil
}

// check returns what is wrong with an installation that is to be kept: domain.ErrTaken if the
// configuration has its id or its account, else the join of everything else. It holds no secret.
func (k kept) check(in ports.Installation) error {
	for other := range k.config.Installations() {
		if other.ID == in.ID || other.Channel == in.Channel && other.Account == in.Account {
			return fmt.Errorf("installation %s of the configuration: %w", other.ID, domain.ErrTaken)
		}
	}
	c, err := k.read(in)
	if err := errors.Join(err, k.config.CheckInstallation(c)); err != nil {
		return err
	}
	if !k.config.Enabled(in.Channel) {
		return fmt.Errorf("channel: %s is switched off", in.Channel)
	}
	if _, err := ready(k.config, k.enabled[in.Channel], c); err != nil {
		return err
	}
	return nil
}

// ready opens the endpoint of an installation, if it has one of its own, or its poll.
func ready(cfg *config.Config, c channels.Channel, in config.Installation) (intake.Installation, error) {
	i := intake.Installation{
		ID: in.ID, Tenant: in.Tenant, Channel: in.Channel, Account: in.Account,
		PublicURL: cfg.PublicURL(in.Settings), DispatchURL: string(in.Dispatch.URL), Policy: cfg.PolicyFor(in.Channel, in.ID),
	}
	if c.Polled() {
		var err error
		i.Poll, err = c.OpenPoll(in.Credentials())
		return i, err
	}
	if c.Open == nil || len(in.Secrets) == 0 && (len(in.Settings) == 0 || c.NeedsSecrets()) {
		return i, nil
	}
	var err error
	i.Endpoint, err = c.Open(in.Credentials())
	return i, err
}
