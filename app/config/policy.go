package config

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/admitone/admitone/domain"
)

// PolicyFor returns what holds for the events of an installation: what its own policy says,
// else what its channel's says, else the default. An id that the configuration does not
// have gets the policy of the channel.
func (c *Config) PolicyFor(channel, installation string) domain.ClaimPolicy {
	p := c.Policy.with(c.Channels[channel].Policy)
	if in, ok := c.Installation(installation); ok {
		p = p.with(in.Policy)
	}
	return p.claim()
}

// ParsePolicy reads a policy that is kept elsewhere, such as in the database, as a mapping of
// YAML or JSON, by the rules that hold in the file but for ${…}, which is text. An error is the
// join of everything that is wrong.
func ParsePolicy(text []byte) (Policy, error) {
	p := newProblems()
	r := reader{problems: p}
	root, err := r.read("policy", text)
	if err != nil {
		return Policy{}, fmt.Errorf("policy: %s", syntax(err))
	}
	var policy Policy
	d := decoder{problems: p}
	d.fields("policy", root, reflect.ValueOf(&policy).Elem(), nil)
	return policy, p.join()
}

// Over returns base with what p says in its place.
func (p Policy) Over(base domain.ClaimPolicy) domain.ClaimPolicy {
	return policyOf(base).with(p).claim()
}

// with returns p with what over says in its place.
func (p Policy) with(over Policy) Policy {
	return Policy{
		Guarantee:        cmp.Or(over.Guarantee, p.Guarantee),
		FastTTL:          cmp.Or(over.FastTTL, p.FastTTL),
		Retention:        cmp.Or(over.Retention, p.Retention),
		PayloadRetention: cmp.Or(over.PayloadRetention, p.PayloadRetention),
		Lease:            cmp.Or(over.Lease, p.Lease),
		MaxAttempts:      cmp.Or(over.MaxAttempts, p.MaxAttempts),
		Backoff: Backoff{
			Initial: cmp.Or(over.Backoff.Initial, p.Backoff.Initial),
			Max:     cmp.Or(over.Backoff.Max, p.Backoff.Max),
		},
		OnStoreDown: cmp.Or(over.OnStoreDown, p.OnStoreDown),
		OnConflict:  cmp.Or(over.OnConflict, p.OnConflict),
		RateLimit:   cmp.Or(over.RateLimit, p.RateLimit),
		Quarantine:  cmp.Or(over.Quarantine, p.Quarantine),
	}
}

func (p Policy) claim() domain.ClaimPolicy {
	return domain.ClaimPolicy{
		Guarantee:        p.Guarantee,
		FastTTL:          p.FastTTL,
		Retention:        p.Retention,
		PayloadRetention: p.PayloadRetention,
		Lease:            p.Lease,
		MaxAttempts:      p.MaxAttempts,
		Backoff:          domain.Backoff(p.Backoff),
		OnStoreDown:      p.OnStoreDown,
		OnConflict:       p.OnConflict,
		RateLimit:        p.RateLimit,
		Quarantine:       p.Quarantine,
	}
}

func policyOf(p domain.ClaimPolicy) Policy {
	return Policy{
		Guarantee:        p.Guarantee,
		FastTTL:          p.FastTTL,
		Retention:        p.Retention,
		PayloadRetention: p.PayloadRetention,
		Lease:            p.Lease,
		MaxAttempts:      p.MaxAttempts,
		Backoff:          Backoff(p.Backoff),
		OnStoreDown:      p.OnStoreDown,
		OnConflict:       p.OnConflict,
		RateLimit:        p.RateLimit,
		Quarantine:       p.Quarantine,
	}
}
