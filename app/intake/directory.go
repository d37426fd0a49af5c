package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// Bounds of looking installations up in the database.
const (
	lookUpTimeout = 2 * time.Second // below the patience of the most impatient vendor
	lookUps       = 4               // at a time, so that who tries names out does not use up the database
	keptAtHand    = 10_000          // installations, and as many names that are none
)

// An Installation is one tenant's account on one channel, ready to be received.
type Installation struct {
	ID          string
	Tenant      string
	Channel     string
	Account     string
	Paused      bool   // deliveries are refused
	PublicURL   string // scheme, host and path prefix that the vendor calls
	DispatchURL string // empty: the default target
	Policy      domain.ClaimPolicy
	Endpoint    channels.Endpoint // nil if it is reached by the app-wide path alone, or polled
	Poll        channels.Poll     // of a polled channel; else zero

	limit *rate.Limiter // nil if there is none
}

// allows reports whether one more delivery is within the rate limit.
func (in *Installation) allows() bool { return in.limit == nil || in.limit.Allow() }

func (in *Installation) setLimit() {
	if n := in.Policy.RateLimit; n > 0 {
		in.limit = rate.NewLimiter(rate.Limit(n), n)
	}
}

// An AppWide is a channel's own address, which serves every installation of the channel.
type AppWide struct {
	PublicURL string
	Endpoint  channels.Endpoint
}

// A Directory finds installations: those of the configuration and, once Extend was called, those
// that are kept in the database. Of the latter it holds as many at hand as were asked for of
// late, so that neither the time of a look-up nor memory grows with their number. Safe for
// concurrent use, but for Extend.
type Directory struct {
	Default   domain.ClaimPolicy
	byID      map[string]*Installation
	byAccount map[account]*Installation
	appWide   map[string]AppWide

	first   string      // a tenant
	several atomic.Bool // there are other tenants

	kept ports.Installations // nil if there are none
	open Opener
	log  *slog.Logger

	loads  singleflight.Group
	asking chan struct{} // a place for each look-up under way

	mu        sync.Mutex
	changes   uint64 // heard of; what was read before one is not put at hand after it
	atHand    *otter.Cache[string, *Installation]
	accounts  *otter.Cache[account, string] // the ids of accounts
	strangers *otter.Cache[ports.InstallationRef, struct{}]
}

type account struct{ channel, account string }

// An Opener makes ready what is kept of an installation. It asks nobody.
type Opener func(ports.Installation) (Installation, error)

// NewDirectory returns a directory of installations and of the app-wide addresses of
// channels by name. Of two installations with one id or one account it returns an error.
func NewDirectory(defaults domain.ClaimPolicy, installations []Installation, appWide map[string]AppWide) (*Directory, error) {
	d := &Directory{
		Default:   defaults,
		byID:      make(map[string]*Installation, len(installations)),
		byAccount: make(map[account]*Installation, len(installations)),
		appWide:   appWide,
	}
	for _, in := range installations {
		if _, taken := d.byID[in.ID]; taken {
			return nil, fmt.Errorf("installation %s: the id is taken", in.ID)
		}
		a := account{in.Channel, in.Account}
		if other, taken := d.byAccount[a]; taken {
			return nil, fmt.Errorf("installation %s: account %s of %s is that of installation %s", in.ID, in.Account, in.Channel, other.ID)
		}
		in.setLimit()
		d.byID[in.ID], d.byAccount[a] = &in, &in
		d.notice(in.Tenant)
	}
	return d, nil
}

// Extend makes the directory find what is kept, too, after what the configuration has. It is
// called once, before anything is looked up.
func (d *Directory) Extend(kept ports.Installations, open Opener, log *slog.Logger) error {
	var errs [3]error
	d.atHand, errs[0] = otter.New(&otter.Options[string, *Installation]{MaximumSize: keptAtHand})
	d.accounts, errs[1] = otter.New(&otter.Options[account, string]{MaximumSize: keptAtHand})
	d.strangers, errs[2] = otter.New(&otter.Options[ports.InstallationRef, struct{}]{MaximumSize: keptAtHand})
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("directory of installations: %w", err)
	}
	d.kept, d.open, d.log = kept, open, log
	d.asking = make(chan struct{}, lookUps)
	return nil
}

// ByID returns the installation with that id. It returns domain.ErrNotInstalled if there is none,
// and an error that wraps domain.ErrUnavailable if that can't be told.
func (d *Directory) ByID(ctx context.Context, id string) (*Installation, error) {
	if in, ok := d.byID[id]; ok {
		return in, nil
	}
	if d.kept == nil || !domain.IsID(id) {
		return nil, domain.ErrNotInstalled
	}
	if in, ok := d.atHand.GetIfPresent(id); ok {
		return in, nil
	}
	return d.lookUp(ctx, ports.InstallationRef{ID: id})
}

// ByAccount returns the installation of the account on channel, or an error as ByID does.
func (d *Directory) ByAccount(ctx context.Context, channel, name string) (*Installation, error) {
	a := account{channel, name}
	if in, ok := d.byAccount[a]; ok {
		return in, nil
	}
	if d.kept == nil || name == "" || domain.StorableID(name) != name {
		return nil, domain.ErrNotInstalled
	}
	if id, ok := d.accounts.GetIfPresent(a); ok {
		in, err := d.ByID(ctx, id)
		if err == nil && (account{in.Channel, in.Account}) == a {
			return in, nil
		}
		if err != nil && !errors.Is(err, domain.ErrNotInstalled) {
			return nil, err
		}
		d.accounts.Invalidate(a) // the account has moved to another installation
	}
	return d.lookUp(ctx, ports.InstallationRef{Channel: channel, Account: name})
}

// lookUp asks the database, once for all who ask at the same time.
func (d *Directory) lookUp(ctx context.Context, ref ports.InstallationRef) (*Installation, error) {
	if _, ok := d.strangers.GetIfPresent(ref); ok {
		return nil, domain.ErrNotInstalled
	}
	v, err, _ := d.loads.Do(ref.ID+"\x00"+ref.Channel+"\x00"+ref.Account, func() (any, error) {
		// others may wait for it: it does not end with who asked first
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookUpTimeout)
		defer cancel()
		select {
		case d.asking <- struct{}{}:
			defer func() { <-d.asking }()
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: too many installations are looked up", domain.ErrUnavailable)
		}
		return d.load(ctx, ref)
	})
	if err != nil {
		return nil, err
	}
	return v.(*Installation), nil //nolint:forcetypeassert // it is what load returns
}

func (d *Directory) load(ctx context.Context, ref ports.InstallationRef) (*Installation, error) {
	d.mu.Lock()
	begun := d.changes
	d.mu.Unlock()
	row, err := d.kept.FindInstallation(ctx, ref)
	if errors.Is(err, domain.ErrNotInstalled) {
		d.put(begun, func() { d.strangers.Set(ref, struct{}{}) })
		return nil, domain.ErrNotInstalled
	}
	var in Installation
	if err == nil {
		in, err = d.open(row)
	}
	if err != nil {
		level := slog.LevelWarn
		if errors.Is(err, domain.ErrUnavailable) || errors.Is(err, domain.ErrUnknown) {
			level = slog.LevelDebug // the store is away, which is told where it matters
		}
		d.log.Log(ctx, level, "an installation could not be looked up", "installation", ref.ID, "channel", ref.Channel, "error", err)
		return nil, fmt.Errorf("look up an installation: %w: %w", domain.ErrUnavailable, err)
	}
	if _, taken := d.byID[in.ID]; taken {
		return nil, domain.ErrNotInstalled // the configuration goes before
	}
	in.setLimit()
	d.notice(in.Tenant)
	d.put(begun, func() {
		d.atHand.Set(in.ID, &in)
		d.accounts.Set(account{in.Channel, in.Account}, in.ID)
	})
	return &in, nil
}

// put keeps at hand what was read, unless there were changes since.
func (d *Directory) put(begun uint64, set func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changes == begun {
		set()
	}
}

// Changed makes the directory look the installation with that id up anew when it is asked for
// next; with an empty id, all.
func (d *Directory) Changed(id string) {
	if d.kept == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
	d.strangers.InvalidateAll()
	if id == "" {
		d.atHand.InvalidateAll()
		d.accounts.InvalidateAll()
		return
	}
	d.atHand.Invalidate(id)
}

// watch keeps what is at hand up to date until ctx ends.
func (d *Directory) watch(ctx context.Context) {
	if d.kept != nil {
		d.kept.WatchInstallations(ctx, d.Changed)
	}
}

// each calls visit with the policies of the installations of a tenant that may have one of their
// own, in no order: with nil if it can't be told here.
func (d *Directory) each(ctx context.Context, tenant string, visit func(id string, policy *domain.ClaimPolicy)) error {
	for _, in := range d.byID {
		if in.Tenant == tenant {
			visit(in.ID, &in.Policy)
		}
	}
	if d.kept == nil {
		return nil
	}
	for f := (ports.InstallationFilter{Tenant: tenant, OwnPolicy: true, Limit: 1000}); ; {
		page, err := d.kept.Installations(ctx, f)
		if err != nil {
			return fmt.Errorf("list installations: %w", err)
		}
		for _, row := range page.Installations {
			if _, taken := d.byID[row.ID]; taken {
				continue
			}
			in, err := d.open(row)
			if err != nil {
				visit(row.ID, nil)
				continue
			}
			visit(in.ID, &in.Policy)
		}
		if f.Cursor = page.Next; page.Next == "" {
			return nil
		}
	}
}

// resealLimit is how many installations are encrypted anew at a time.
const resealLimit = 1000

// reseal encrypts installations anew that are encrypted with an older key.
func (d *Directory) reseal(ctx context.Context) (int, error) {
	if d.kept == nil {
		return 0, nil
	}
	return d.kept.ResealInstallations(ctx, resealLimit)
}

// notice learns of tenants as far as it matters: whether there is more than one.
func (d *Directory) notice(tenant string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.first == "" {
		d.first = tenant
	}
	if tenant != d.first {
		d.several.Store(true)
	}
}

// Several reports whether there is more than one tenant, as far as their installations have
// been asked for.
func (d *Directory) Several() bool { return d.several.Load() }
