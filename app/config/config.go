// Package config reads what an operator decided: one YAML file, environment variables that
// win over it, and defaults for what neither says. It is strict, because a key that is
// misspelt and passed over is a policy that does not hold: whatever it can't place is an
// error that names the key, and all errors are told at once.
//
// It knows channels by their values only, opens no connection and starts nothing.
package config

import (
	"iter"
	"strings"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// A Config is the whole configuration. It is made by Load or Default and not changed
// afterwards, so it is safe for concurrent use. Printing or encoding it in whatever way
// shows no secret and no password.
//
// The comments of the fields of this file are the text of docs/configuration.md.
type Config struct {
	Server   Server   `yaml:"server"`
	Store    Store    `yaml:"store"`
	Dispatch Dispatch `yaml:"dispatch"`
	// What holds for every event. A channel or an installation may override any key.
	Policy Policy `yaml:"policy"`
	// By the channel's name. A channel is on with or without an entry here.
	Channels map[string]Channel `yaml:"channels"`
	// The customers of the deployment. Installations may be kept in the database as well.
	Tenants []Tenant `yaml:"tenants"`

	modules modules
	index   map[string]position
}

type position struct{ tenant, installation int }

// Server is what listens.
type Server struct {
	// Address that vendors reach.
	Listen string `yaml:"listen"`
	// Address that people and monitoring reach.
	AdminListen string `yaml:"admin_listen"`
	// What vendors call: scheme, host, the port unless it is the scheme's own, and a path prefix if a proxy in front takes one away. Twilio signs it. `settings.public_url` of an installation overrides it. `Host` and `X-Forwarded-*` are never used.
	PublicURL string `yaml:"public_url"`
	// Longest request body. A channel whose vendor sends more has its own limit (cfworker: 26MiB).
	MaxBody Size `yaml:"max_body"`
	// How long a server that is told to stop finishes what is running.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	// Secret. What the admin API asks for. Needed unless `admin_listen` is loopback.
	AdminToken Secret `yaml:"admin_token"`
}

// Store is where receipts are kept.
type Store struct {
	Durable Durable `yaml:"durable"`
	Fast    Fast    `yaml:"fast"`
	Journal Journal `yaml:"journal"`
}

// The drivers of stores.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
	Memory   = "memory"
	Redis    = "redis"
	None     = "none"
)

// Durable is the store that decides.
type Durable struct {
	// The database. `sqlite` is for one instance.
	Driver string `yaml:"driver" oneof:"sqlite postgres"`
	// A file for sqlite, made with its folder if it is not there; `postgres://…` for postgres. The role must not be one that bypasses row-level security.
	DSN Address `yaml:"dsn"`
	// Whether `serve` applies schema migrations itself.
	Migrate bool `yaml:"migrate"`
	// Another role for migrations. Empty: the same as `dsn`.
	MigrateDSN Address `yaml:"migrate_dsn"`
	// Secret. Encrypts the secrets of installations that are kept in the database: 32 bytes in Base64. Of a list the first encrypts and each decrypts. Needed only for such installations, and for `policy.quarantine`.
	SecretKey Secret `yaml:"secret_key"`
}

// Fast is the store that saves work and decides nothing.
type Fast struct {
	// What remembers handled events. `memory` is each instance's own.
	Driver string `yaml:"driver" oneof:"memory redis none"`
	// Of redis; also `rediss://`, `redis+cluster://` and `redis+sentinel://`.
	URL Address `yaml:"url"`
	// A slower fast store is passed by, never waited for.
	Timeout time.Duration `yaml:"timeout"`
}

// Journal is the local one that takes events while the durable store is out of reach.
type Journal struct {
	// Folder of the local journal, each instance its own. Empty: what would be journalled is refused with 503.
	Path string `yaml:"path"`
	// Largest size of the local journal. Beyond it events are refused with 503.
	MaxBytes Size `yaml:"max_bytes"`
}

// The targets of dispatch.
const (
	TargetLog   = "log"
	TargetHTTP  = "http"
	TargetNATS  = "nats"
	TargetKafka = "kafka"
)

// Dispatch is how events reach the application.
type Dispatch struct {
	// Where events go. `nats` and `kafka` are not offered by this version.
	Target string `yaml:"target" oneof:"log http nats kafka"`
	// How many events one instance dispatches at the same time.
	Workers int `yaml:"workers"`
	// How many admitted events may wait on one instance; when it is full, vendors get 503 before any claim.
	Queue int      `yaml:"queue"`
	HTTP  HTTPSink `yaml:"http"`
}

// HTTPSink is the application's address.
type HTTPSink struct {
	// Where events are posted. `dispatch.url` of an installation overrides it.
	URL Address `yaml:"url"`
	// Secret. Standard Webhooks secret, `whsec_…`. Requests are unsigned if it is left out.
	Secret Secret `yaml:"secret"`
	// How long the application may take to answer.
	Timeout time.Duration `yaml:"timeout"`
}

// A Policy is what one level of the configuration says of events. A field that is zero is
// not said there; no key can be set to the zero value.
type Policy struct {
	// What becomes of an event whose holder died while dispatching it: `at-most-once` shows it as lost, `at-least-once` dispatches it again.
	Guarantee domain.Guarantee `yaml:"guarantee" oneof:"at-most-once at-least-once"`
	// How long the fast store remembers a handled event.
	FastTTL time.Duration `yaml:"fast_ttl"`
	// How long receipts are kept, and so how long a duplicate is recognised. At least `fast_ttl` and the vendor's retry window.
	Retention time.Duration `yaml:"retention"`
	// How long what receipts carried is kept.
	PayloadRetention time.Duration `yaml:"payload_retention"`
	// How long one dispatch may take before its holder counts as gone. Longer than `dispatch.http.timeout`.
	Lease time.Duration `yaml:"lease"`
	// How many times an event may be dispatched before it is given up.
	MaxAttempts int     `yaml:"max_attempts"`
	Backoff     Backoff `yaml:"backoff"`
	// What to do with events while the durable store is out of reach. `refuse` them with 503, take them into the local `journal`, or, with `auto`, journal those whose vendor would not come again.
	OnStoreDown domain.StoreDown `yaml:"on_store_down" oneof:"auto refuse journal"`
	// Same event key, other content: `suppress` it as a duplicate or `admit` it as a separate event. Left out, platform email admits and all others suppress.
	OnConflict domain.OnConflict `yaml:"on_conflict" oneof:"suppress admit"`
	// How many authentic deliveries of an installation one instance takes in a second, and at once; more are refused in the way that makes the vendor come again. Left out: any number. What a vendor does not send again is lost.
	RateLimit int `yaml:"rate_limit"`
	// How long requests to an installation whose signature is wrong are kept, encrypted, so that they can be checked again after a secret was changed by mistake. Left out: they are not kept. At most 24h. Needs `store.durable.secret_key`.
	Quarantine time.Duration `yaml:"quarantine"`
}

// Backoff spaces the attempts of one event.
type Backoff struct {
	// Wait after the first attempt; it doubles with each.
	Initial time.Duration `yaml:"initial"`
	// Longest wait.
	Max time.Duration `yaml:"max"`
}

// A Channel is the section of one channel. Beside the keys below it has one for each of the
// channel's secrets.
type Channel struct {
	// Whether the channel's addresses answer.
	Enabled bool `yaml:"enabled"`
	// Secret. App-wide credentials by the channel's own names, such as `signing_secret`, for the address that serves every installation.
	Secrets Secrets `yaml:"<secret>"`
	// Settings of the app-wide address, by the channel's own names.
	Settings Settings `yaml:"settings"`
	// Overrides keys of `policy` for the channel.
	Policy Policy `yaml:"policy"`
}

// Settings are a channel's own, by name.
type Settings = channels.Settings

// A Tenant is a customer of the deployment.
type Tenant struct {
	// `[a-z0-9][a-z0-9_-]{0,62}`
	ID string `yaml:"id"`
	// The customer's accounts at vendors.
	Installations []Installation `yaml:"installations"`
}

// An Installation is one account of a tenant at a vendor, with its credentials.
type Installation struct {
	// Tenant is the id of the tenant it belongs to.
	Tenant string `yaml:"-"`
	// `[a-z0-9][a-z0-9_-]{0,62}`, unique in the deployment. The path that the vendor calls ends in it.
	ID string `yaml:"id"`
	// Name of the channel it comes through.
	Channel string `yaml:"channel"`
	// The vendor's own name of it: Slack workspace, Twilio AccountSid, bot, mailbox. One account belongs to one installation of a channel.
	Account string `yaml:"account"`
	// Secret. By the channel's own names. May be left out where the channel's section has app-wide credentials.
	Secrets Secrets `yaml:"secrets"`
	// By the channel's own names, and `public_url`.
	Settings Settings `yaml:"settings"`
	// Overrides keys of `policy` for the installation.
	Policy   Policy   `yaml:"policy"`
	Dispatch Override `yaml:"dispatch"`
}

// Override is where the events of one installation go.
type Override struct {
	// Overrides `dispatch.http.url`.
	URL Address `yaml:"url"`
}

// Default returns the configuration of an operator who says nothing: embedded stores under
// ./data, dispatch to the log, no installations.
func Default() Config {
	return Config{
		Server: Server{
			Listen:       ":8080",
			AdminListen:  "127.0.0.1:8081",
			MaxBody:      1 << 20,
			DrainTimeout: 25 * time.Second, // orchestrators kill 30 s after they asked
		},
		Store: Store{
			Durable: Durable{Driver: SQLite, DSN: "data/admitone.db", Migrate: true},
			Fast:    Fast{Driver: Memory, URL: "redis://127.0.0.1:6379/0", Timeout: 50 * time.Millisecond},
			Journal: Journal{Path: "data/journal", MaxBytes: 1 << 30},
		},
		Dispatch: Dispatch{
			Target:  TargetLog,
			Workers: 64,
			Queue:   4096,
			HTTP:    HTTPSink{URL: "http://127.0.0.1:9000/events", Timeout: 10 * time.Second},
		},
		Policy: policyOf(domain.DefaultPolicy()),
	}
}

// Enabled reports whether channel is on: it is, unless its section says otherwise.
func (c *Config) Enabled(channel string) bool {
	section, said := c.Channels[channel]
	return !said || section.Enabled
}

// AppWide returns what the address of channel that serves every installation is opened
// with. It reports false where there is none: the channel is off or has no such address, or its
// section has neither secrets nor settings.
func (c *Config) AppWide(channel string) (channels.Credentials, bool) {
	section := c.Channels[channel]
	if !c.modules[channel].AppWide || !section.Enabled || len(section.Secrets)+len(section.Settings) == 0 {
		return channels.Credentials{}, false
	}
	return channels.Credentials{Secrets: section.Secrets, Settings: section.Settings}, true
}

// Installations yields the installations of every tenant, in the order of the file.
func (c *Config) Installations() iter.Seq[Installation] {
	return func(yield func(Installation) bool) {
		for _, t := range c.Tenants {
			for _, in := range t.Installations {
				if !yield(in) {
					return
				}
			}
		}
	}
}

// Installation returns the one with that id, if the configuration has it.
func (c *Config) Installation(id string) (Installation, bool) {
	at, ok := c.index[id]
	if !ok {
		return Installation{}, false
	}
	return c.Tenants[at.tenant].Installations[at.installation], true
}

// PublicURL returns what the vendor of an installation or an app-wide address with those
// settings calls, without the path of the request and without a slash at its end; empty if
// neither they nor the server say.
func (c *Config) PublicURL(s Settings) string {
	url := c.Server.PublicURL
	if own, ok := s[publicURL].(string); ok {
		url = own
	}
	return strings.TrimRight(url, "/")
}

// Credentials returns what the endpoint of in is opened with.
func (in Installation) Credentials() channels.Credentials {
	return channels.Credentials{Account: in.Account, Secrets: in.Secrets, Settings: in.Settings}
}
