package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

var idForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// validate tells of values that are well-formed and don't fit, each other or this version.
func (c *Config) validate(p *problems) {
	c.validateServer(p)
	c.validateStore(p)
	c.validateDispatch(p)
	for _, name := range c.modules.names() {
		if section, said := c.Channels[name]; said {
			c.validateSection(name, section, p)
		}
	}
	c.validateTenants(p)
	c.validatePolicies(p)
}

func (c *Config) validateServer(p *problems) {
	s := c.Server
	for _, l := range []struct{ key, address string }{
		{"server.listen", s.Listen}, {"server.admin_listen", s.AdminListen},
	} {
		if _, port, err := net.SplitHostPort(l.address); err != nil || !isPort(port) {
			p.add(l.key, "must be host:port or :port")
		}
	}
	if _, port, _ := net.SplitHostPort(s.Listen); s.Listen == s.AdminListen && port != "0" {
		p.add("server.admin_listen", "is the same as server.listen; vendors must not reach the admin API")
	}
	if s.PublicURL != "" && !isPublicURL(s.PublicURL) {
		p.add("server.public_url", errPublicURL)
	}
	if !s.AdminToken.Set() && !loopback(s.AdminListen) {
		p.missing("server.admin_token", "needed, since server.admin_listen is reached from other machines")
	}
}

func isPort(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= 0 && n <= 65535
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // told already
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

const errPublicURL = "must be an http:// or https:// URL of a host and, where a proxy takes one away, a path prefix, without user, query and fragment"

func isPublicURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && portOf(u) &&
		u.User == nil && u.RawQuery == "" && !u.ForceQuery && !strings.Contains(s, "#")
}

func isHTTP(a Address) bool {
	u, err := url.Parse(string(a))
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && portOf(u)
}

// portOf reports whether u has a port that can be called, or none.
func portOf(u *url.URL) bool {
	return u.Port() == "" && !strings.HasSuffix(u.Host, ":") || u.Port() != "" && isPort(u.Port())
}

// scheme returns what stands before :// in a. More is not looked at: lists of hosts, which
// stores know, are no URLs.
func scheme(a Address) string {
	s, _, ok := strings.Cut(string(a), "://")
	if !ok {
		return ""
	}
	return s
}

func (c *Config) validateStore(p *problems) {
	d := c.Store.Durable
	if d.DSN == "" {
		p.missing("store.durable.dsn", "must not be empty")
	}
	for _, a := range []struct {
		key string
		dsn Address
	}{{"store.durable.dsn", d.DSN}, {"store.durable.migrate_dsn", d.MigrateDSN}} {
		postgres := scheme(a.dsn) == "postgres" || scheme(a.dsn) == "postgresql"
		switch {
		case a.dsn == "":
		case d.Driver == Postgres && !postgres:
			p.add(a.key, "must be postgres://… for driver postgres")
		case d.Driver == SQLite && scheme(a.dsn) != "":
			p.add(a.key, "must be a file for driver sqlite")
		}
	}
	f := c.Store.Fast
	if f.Driver != Redis {
		return
	}
	switch scheme(f.URL) {
	case "redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel":
	default:
		p.add("store.fast.url", "must be redis://…, rediss://…, redis+cluster://… or redis+sentinel://… for driver redis")
	}
}

func (c *Config) validateDispatch(p *problems) {
	d := c.Dispatch
	if d.Target == TargetNATS || d.Target == TargetKafka {
		p.add("dispatch.target", "%s is not offered by this version; log and http are", d.Target)
	}
	if d.HTTP.URL == "" && d.Target != TargetHTTP {
		return
	}
	if !isHTTP(d.HTTP.URL) {
		p.add("dispatch.http.url", "must be an http:// or https:// URL")
	}
}

// timeout returns how long one dispatch may take; 0 if the target is not waited for.
func (d Dispatch) timeout() time.Duration {
	if d.Target == TargetHTTP {
		return d.HTTP.Timeout
	}
	return 0
}

func (c *Config) validateSection(name string, section Channel, p *problems) {
	at := "channels." + name
	module := c.modules[name]
	if module.AppWide && len(section.Secrets)+len(section.Settings) > 0 {
		needed(at, module, section.Secrets, p)
	}
	validateSettings(at+".settings", module, section.Settings, p)
}

// needed tells of secrets that module can't do without.
func needed(at string, module channels.Channel, have Secrets, p *problems) {
	for _, s := range module.Secrets {
		if _, ok := have[s.Name]; !ok && !s.Optional {
			p.missing(below(at, s.Name), "needed by channel %s", module.Name)
		}
	}
}

func validateSettings(at string, module channels.Channel, have Settings, p *problems) {
	known := settingNames(module)
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !slices.Contains(known, name) {
			p.add(below(at, name), "unknown setting of channel %s%s", module.Name, didYouMean(name, known))
			continue
		}
		if text, ok := have[name].(string); name == publicURL && (!ok || !isPublicURL(text)) {
			p.add(below(at, name), errPublicURL)
		}
	}
}

func (c *Config) validateTenants(p *problems) {
	tenants := map[string]string{}
	ids := map[string]string{}
	accounts := map[[2]string]string{}
	for t, tenant := range c.Tenants {
		at := fmt.Sprintf("tenants.%d", t)
		validateID(at+".id", tenant.ID, tenants, p)
		for i, in := range tenant.Installations {
			at := fmt.Sprintf("%s.installations.%d", at, i)
			validateID(at+".id", in.ID, ids, p)
			c.validateInstallation(at, in, p)
			account := [2]string{in.Channel, in.Account}
			if first, twice := accounts[account]; twice && in.Channel != "" && in.Account != "" {
				p.add(at+".account", "is that of %s already; an account belongs to one installation of a channel", first)
				continue
			}
			accounts[account] = at
		}
	}
}

// validateID tells of an id that is no id, or is in seen, which has the key of each.
func validateID(key, id string, seen map[string]string, p *problems) {
	switch first, twice := seen[id]; {
	case id == "":
		p.missing(key, "needed")
	case !idForm.MatchString(id):
		p.add(key, "must be of the form [a-z0-9][a-z0-9_-]{0,62}")
	case twice:
		p.add(key, "%s is taken by %s", id, first)
	default:
		seen[id] = key
	}
}

// CheckInstallation returns what is wrong with an installation that is kept elsewhere, such
// as in the database, by the rules that hold in the file. Keys are relative to it. That its
// id and its account are not taken is for whoever keeps it to see to.
func (c *Config) CheckInstallation(in Installation) error {
	p := newProblems()
	if !idForm.MatchString(in.Tenant) {
		p.add("tenant", "must be of the form [a-z0-9][a-z0-9_-]{0,62}")
	}
	validateID("id", in.ID, map[string]string{}, p)
	c.validateInstallation("", in, p)
	for _, name := range slices.Sorted(maps.Keys(in.Secrets)) {
		values := in.Secrets[name]
		if len(values) == 0 || slices.ContainsFunc(values, isBlank) {
			p.add("secrets."+name, errEmpty)
		}
	}
	c.hasWhatItNeeds("policy.", in.Policy, p)
	module, ok := c.modules[in.Channel]
	if !ok {
		return p.join()
	}
	policy := c.Policy.with(c.Channels[in.Channel].Policy).with(in.Policy).claim()
	for _, err := range split(policy.Validate(module.Vendor.RetryWindow, c.Dispatch.timeout())) {
		key, text, _ := strings.Cut(err.Error(), ": ")
		p.add("policy."+key, "%s", text)
	}
	return p.join()
}

func (c *Config) validateInstallation(at string, in Installation, p *problems) {
	if in.Account == "" {
		p.missing(below(at, "account"), "needed: the vendor's own name of the installation")
	} else if domain.StorableID(in.Account) != in.Account {
		p.add(below(at, "account"), "must be UTF-8 of at most %d bytes", domain.MaxID)
	}
	if in.Dispatch.URL != "" && !isHTTP(in.Dispatch.URL) {
		p.add(below(below(at, "dispatch"), "url"), "must be an http:// or https:// URL")
	}
	module, ok := c.modules[in.Channel]
	switch {
	case in.Channel == "":
		p.missing(below(at, "channel"), "needed")
		return
	case !ok:
		p.add(below(at, "channel"), "unknown channel%s", didYouMean(in.Channel, c.modules.names()))
		return
	}
	c.validateSecrets(below(at, "secrets"), module, in, p)
	validateSettings(below(at, "settings"), module, in.Settings, p)
}

func (c *Config) validateSecrets(at string, module channels.Channel, in Installation, p *problems) {
	known := secretNames(module)
	for _, name := range slices.Sorted(maps.Keys(in.Secrets)) {
		if !slices.Contains(known, name) {
			p.add(below(at, name), "unknown secret of channel %s%s", module.Name, didYouMean(name, known))
		}
	}
	appWide := module.AppWide && len(c.Channels[module.Name].Secrets) > 0
	if len(in.Secrets) == 0 && appWide {
		return
	}
	needed(at, module, in.Secrets, p)
}

// inUse returns the channels through which events can come as far as the configuration
// tells: they are on and have a section or an installation. Sorted by name.
func (c *Config) inUse() []string {
	used := map[string]bool{}
	for name := range c.Channels {
		used[name] = true
	}
	for in := range c.Installations() {
		used[in.Channel] = true
	}
	return slices.DeleteFunc(c.modules.names(), func(name string) bool { return !used[name] || !c.Enabled(name) })
}

// validatePolicies tells what is wrong at the level where it begins to be wrong, by the key
// that says so.
func (c *Config) validatePolicies(p *problems) {
	c.hasWhatItNeeds("policy.", c.Policy, p)
	timeout := c.Dispatch.timeout()
	general := split(c.Policy.claim().Validate(0, timeout))
	tellPolicy(p, general, nil, "", "policy.")
	for _, name := range c.inUse() {
		section, window := "channels."+name+".policy.", c.modules[name].Vendor.RetryWindow
		policy := c.Policy.with(c.Channels[name].Policy)
		c.hasWhatItNeeds(section, c.Channels[name].Policy, p)
		ofChannel := split(policy.claim().Validate(window, timeout))
		tellPolicy(p, ofChannel, general, " (channel "+name+")", section, "policy.")
		for t, tenant := range c.Tenants {
			for i, in := range tenant.Installations {
				if in.Channel != name {
					continue
				}
				own := fmt.Sprintf("tenants.%d.installations.%d.policy.", t, i)
				c.hasWhatItNeeds(own, in.Policy, p)
				errs := split(policy.with(in.Policy).claim().Validate(window, timeout))
				tellPolicy(p, errs, ofChannel, " (installation "+in.ID+")", own, section, "policy.")
			}
		}
	}
}

func (c *Config) hasWhatItNeeds(level string, said Policy, p *problems) {
	if said.Quarantine > 0 && !c.Store.Durable.SecretKey.Set() {
		p.add(level+"quarantine", "needs store.durable.secret_key, which is not set: what is kept is encrypted")
	}
	if said.OnStoreDown == domain.StoreDownJournal && c.Store.Journal.Path == "" {
		p.add(level+"on_store_down", "journal needs store.journal.path, which is empty")
	}
}

// tellPolicy tells those of errs that are not told, under the first of levels that says the
// key, or else the last, which is the default.
func tellPolicy(p *problems, errs, told []error, whose string, levels ...string) {
	for _, err := range errs {
		if slices.ContainsFunc(told, func(t error) bool { return t.Error() == err.Error() }) {
			continue
		}
		key, text, _ := strings.Cut(err.Error(), ": ")
		level := levels[len(levels)-1]
		for _, l := range levels {
			if p.said(l + key) {
				level = l
				break
			}
		}
		p.add(level+key, "%s%s", text, whose)
	}
}

// split returns the errors that err joins.
func split(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}
