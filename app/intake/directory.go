package intake

import (
	"fmt"
	"slices"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// An Installation is one tenant's account on one channel, ready to be received.
type Installation struct {
	ID          string
	Tenant      string
	Channel     string
	Account     string
	PublicURL   string // scheme, host and path prefix that the vendor calls
	DispatchURL string // empty: the default target
	Policy      domain.ClaimPolicy
	Endpoint    channels.Endpoint // nil if it is reached by the app-wide path alone
}

// An AppWide is a channel's own address, which serves every installation of the channel.
type AppWide struct {
	PublicURL string
	Endpoint  channels.Endpoint
}

// A Directory finds installations. It is not changed after it was made.
type Directory struct {
	Default   domain.ClaimPolicy
	byID      map[string]*Installation
	byAccount map[[2]string]*Installation
	appWide   map[string]AppWide
}

// NewDirectory returns a directory of installations and of the app-wide addresses of
// channels by name. Of two installations with one id or one account it returns an error.
func NewDirectory(defaults domain.ClaimPolicy, installations []Installation, appWide map[string]AppWide) (*Directory, error) {
	d := &Directory{
		Default:   defaults,
		byID:      make(map[string]*Installation, len(installations)),
		byAccount: make(map[[2]string]*Installation, len(installations)),
		appWide:   appWide,
	}
	for _, in := range installations {
		if _, taken := d.byID[in.ID]; taken {
			return nil, fmt.Errorf("installation %s: the id is taken", in.ID)
		}
		account := [2]string{in.Channel, in.Account}
		if other, taken := d.byAccount[account]; taken {
			return nil, fmt.Errorf("installation %s: account %s of %s is that of installation %s", in.ID, in.Account, in.Channel, other.ID)
		}
		d.byID[in.ID], d.byAccount[account] = &in, &in
	}
	return d, nil
}

// ByID returns the installation with that id.
func (d *Directory) ByID(id string) (*Installation, bool) {
	in, ok := d.byID[id]
	return in, ok
}

// ByAccount returns the installation of the account on channel.
func (d *Directory) ByAccount(channel, account string) (*Installation, bool) {
	in, ok := d.byAccount[[2]string{channel, account}]
	return in, ok
}

// share returns how many of the workers one tenant may use: three quarters if there are others.
func (d *Directory) share(workers int) int {
	var tenants []string
	for _, in := range d.byID {
		if !slices.Contains(tenants, in.Tenant) {
			tenants = append(tenants, in.Tenant)
		}
		if len(tenants) > 1 {
			return max(1, workers*3/4)
		}
	}
	return workers
}
