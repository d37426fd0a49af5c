package intake_test

import (
	"context"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/admitone/admitone/app/intake"
	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// A kept is a database of installations and of quarantined requests, in memory. away, if set,
// is what look-ups return; held, if set, makes them wait after they have read.
type kept struct {
	mu       sync.Mutex
	m        map[string]ports.Installation
	asked    []ports.InstallationRef
	away     error
	held     chan struct{}
	confined []ports.Confined
	told     chan string
}

func newKept(ins ...ports.Installation) *kept {
	k := &kept{m: map[string]ports.Installation{}, told: make(chan string, 100)}
	for _, in := range ins {
		k.m[in.ID] = in
	}
	return k
}

// change makes in what is kept, or forgets it, and tells everybody.
func (k *kept) change(in ports.Installation, remove bool) {
	k.mu.Lock()
	k.m[in.ID] = in
	if remove {
		delete(k.m, in.ID)
	}
	k.mu.Unlock()
	k.told <- in.ID
	synctest.Wait()
}

func (k *kept) lookUps() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.asked)
}

func (k *kept) fails(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = err
}

func (k *kept) FindInstallation(_ context.Context, ref ports.InstallationRef) (ports.Installation, error) {
	k.mu.Lock()
	k.asked = append(k.asked, ref)
	in, ok := k.m[ref.ID]
	for _, other := range k.m {
		if ref.ID == "" && other.Channel == ref.Channel && other.Account == ref.Account {
			in, ok = other, true
		}
	}
	away, held := k.away, k.held
	k.mu.Unlock()
	if held != nil {
		<-held
	}
	switch {
	case away != nil:
		return in, away
	case !ok:
		return in, domain.ErrNotInstalled
	}
	return in, nil
}

func (k *kept) WatchInstallations(ctx context.Context, changed func(string)) {
	for {
		select {
		case id := <-k.told:
			changed(id)
		case <-ctx.Done():
			return
		}
	}
}

func (k *kept) Installations(_ context.Context, f ports.InstallationFilter) (page ports.InstallationPage, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, in := range k.m {
		if in.Channel == f.Channel {
			page.Installations = append(page.Installations, in)
		}
	}
	return page, nil
}

func (*kept) AddInstallation(_ context.Context, in ports.Installation) (ports.Installation, error) {
	return in, nil
}

func (*kept) ChangeInstallation(context.Context, string, func(*ports.Installation) error) (ports.Installation, error) {
	return ports.Installation{}, nil
}
func (*kept) RemoveInstallation(context.Context, string) error           { return nil }
func (*kept) ResealInstallations(context.Context, int) (int, error)      { return 0, nil }
func (*kept) CountConfined(context.Context, string, string) (int, error) { return 0, nil }

func (k *kept) Confine(_ context.Context, c ports.Confined, limit int) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.confined) >= limit {
		return false, nil
	}
	c.Delivery.Body = slices.Clone(c.Delivery.Body)
	k.confined = append(k.confined, c)
	return true, nil
}

func (k *kept) Confined(_ context.Context, tenant, installation, after string, limit int) (page []ports.Confined, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.confined {
		if c.Tenant == tenant && c.Delivery.Installation == installation && c.ID > after && len(page) < limit {
			page = append(page, c)
		}
	}
	return page, nil
}

func (k *kept) Release(_ context.Context, _, id string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.confined = slices.DeleteFunc(k.confined, func(c ports.Confined) bool { return c.ID == id })
	return nil
}

func (k *kept) PruneConfined(context.Context) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := len(k.confined)
	k.confined = slices.DeleteFunc(k.confined, func(c ports.Confined) bool { return !c.Until.After(time.Now()) })
	return before - len(k.confined), nil
}

func (k *kept) inQuarantine() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.confined)
}

// A keyed endpoint is that of a toy whose proof is its secret, "yes" if it has none.
type keyed struct {
	toyEndpoint
	secrets []string
}

func (e keyed) Verify(r *channels.Request) error {
	sent, err := time.Parse(time.RFC3339, r.Header.Get("Sent")) // signed by vendors that sign it
	old := err == nil && r.Now.Sub(sent) > 5*time.Minute
	if old || !slices.Contains(e.secrets, r.Header.Get("Proof")) {
		return domain.ErrUnauthenticated
	}
	return nil
}

// opens makes toys ready, with the policy that edit makes of the default.
func opens(edit func(*domain.ClaimPolicy)) intake.Opener {
	return func(in ports.Installation) (intake.Installation, error) {
		policy := domain.DefaultPolicy()
		if edit != nil {
			edit(&policy)
		}
		secrets := in.Secrets["key"]
		if secrets == nil {
			secrets = []string{"yes"}
		}
		return intake.Installation{
			ID: in.ID, Tenant: in.Tenant, Channel: in.Channel, Account: in.Account, Paused: in.Paused, Policy: policy,
			DispatchURL: in.DispatchURL, Endpoint: keyed{secrets: secrets},
		}, nil
	}
}

func three() ports.Installation {
	return ports.Installation{ID: "three", Tenant: "initech", Channel: "toy", Account: "a9", DispatchURL: "http://three/"}
}
