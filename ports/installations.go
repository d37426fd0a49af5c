package ports

import (
	"context"
	"encoding/json"
	"time"
)

// Installations are those that are kept in the database, beside those of the configuration.
// Their secrets and their dispatch address are encrypted there. Safe for concurrent use. Errors
// are told apart as those of DurableStore are.
type Installations interface {
	// FindInstallation returns the one that ref names, or domain.ErrNotInstalled. It is the one
	// question that is asked before the tenant is known. An installation whose secrets can't be
	// decrypted is an error, never one without secrets.
	FindInstallation(ctx context.Context, ref InstallationRef) (Installation, error)
	// Installations returns a page in the order of their ids.
	Installations(ctx context.Context, f InstallationFilter) (InstallationPage, error)
	// AddInstallation commits a new one and returns it as it stands. It returns domain.ErrTaken
	// if its id, or its account on the channel, is that of another, and ErrNoKey if it has what
	// must be encrypted and there is no key.
	AddInstallation(ctx context.Context, in Installation) (Installation, error)
	// ChangeInstallation commits what change makes of the installation, all at once: nobody else
	// changes it meanwhile. Id, tenant, channel and account stay. An error of change changes
	// nothing and is returned as it is. It returns domain.ErrNotInstalled, and ErrNoKey as
	// AddInstallation does.
	ChangeInstallation(ctx context.Context, id string, change func(*Installation) error) (Installation, error)
	// RemoveInstallation deletes one with what is quarantined of it. Its receipts stay. It
	// returns domain.ErrNotInstalled.
	RemoveInstallation(ctx context.Context, id string) error
	// WatchInstallations calls changed with the id of each installation that any instance adds,
	// changes or removes, within half a second of the commit while the store is in reach, and
	// with an empty id when any may have changed, as at the beginning. Calls do not overlap. It
	// blocks until ctx ends.
	WatchInstallations(ctx context.Context, changed func(id string))
	// ResealInstallations encrypts anew, with the first key, at most limit installations that
	// are encrypted with another, and returns how many.
	ResealInstallations(ctx context.Context, limit int) (int, error)
}

// An Installation is one as the database keeps it. Secrets are shown to nobody.
type Installation struct {
	ID      string
	Tenant  string
	Channel string
	Account string
	Paused  bool // deliveries are refused, so that the vendor sends them again

	Secrets     map[string][]string // by name; any of a list is accepted, the first one signs
	Settings    map[string]any      // as JSON has them, numbers as json.Number
	Policy      json.RawMessage     // an object of policy keys, as the configuration has them
	DispatchURL string              // empty: the default target

	// Unreadable says, in a list, that it is encrypted with a key that this instance does not
	// have: Secrets and DispatchURL are not known.
	Unreadable bool
	CreatedAt  time.Time
	ChangedAt  time.Time
}

// An InstallationRef names an installation: by its id, or by channel and account if ID is empty.
type InstallationRef struct {
	ID      string
	Channel string
	Account string
}

// An InstallationFilter selects installations. Zero fields select all.
type InstallationFilter struct {
	ID        string
	Tenant    string
	Channel   string
	OwnPolicy bool   // only those that have a policy of their own
	Limit     int    // at most 1000; 0 means 100
	Cursor    string // Next of the page before
}

// An InstallationPage is part of a list. Next is empty on the last.
type InstallationPage struct {
	Installations []Installation
	Next          string
}

// ErrNoKey is returned for an installation with secrets where there is no key to encrypt them.
var ErrNoKey error = noKeyError{}

type noKeyError struct{}

func (noKeyError) Error() string {
	return "store.durable.secret_key is not set: the secrets could not be encrypted"
}

// A Quarantine keeps requests that were refused for a wrong signature, encrypted, for a short
// while: if a secret was changed by mistake they can be checked again. Safe for concurrent use.
type Quarantine interface {
	// Confine commits a request of a tenant's installation until then, unless limit of the
	// installation are confined already; it reports whether it did. It returns ErrNoKey if there
	// is no key to encrypt it with.
	Confine(ctx context.Context, c Confined, limit int) (bool, error)
	// Confined returns at most limit of the installation's, oldest first, beginning behind the
	// one with the id after.
	Confined(ctx context.Context, tenant, installation, after string, limit int) ([]Confined, error)
	// CountConfined returns how many there are of an installation.
	CountConfined(ctx context.Context, tenant, installation string) (int, error)
	// Release forgets a confined request.
	Release(ctx context.Context, tenant, id string) error
	// PruneConfined deletes what is older than its time and returns how many.
	PruneConfined(ctx context.Context) (int, error)
}

// A Confined is one request in quarantine.
type Confined struct {
	ID       string // UUIDv7: the order of ids is that of time
	Tenant   string
	Until    time.Time
	Delivery Delivery // Installation is set
}

// A Recheck is what became of the quarantined requests of an installation.
type Recheck struct {
	Requests int // that were checked
	Accepted int // authentic, each of their events has its verdict; they have left the quarantine
	Refused  int // not authentic by the present secrets either, or not to be stored now; they stay
}
