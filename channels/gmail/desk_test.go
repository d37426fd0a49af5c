package gmail_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/gmail"
	"github.com/admitone/admitone/channels/gmail/gmailfake"
	"github.com/admitone/admitone/domain"
)

var begun = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// A desk is a mailbox that is polled, with what a server around the channel would keep: a
// checkpoint that never goes back, and who was admitted.
type desk struct {
	*testing.T
	box    *gmailfake.Mailbox
	url    string
	poll   channels.Poll
	saved  domain.Checkpoint
	refuse func(channels.Item) error // what Accept returns; nil takes everything

	mu       sync.Mutex
	now      time.Time
	admitted map[string]int // deliveries by event id
	order    []string       // event ids in the order of their admission
	items    []channels.Item
}

// credentials for the fake at url.
func credentials(url string, settings channels.Settings) channels.Credentials {
	_, c, err := gmail.New().SimulateVendor(url)
	if err != nil {
		panic(err)
	}
	maps.Copy(c.Settings, settings)
	return c
}

func newDesk(t *testing.T, settings channels.Settings) *desk {
	t.Helper()
	d := &desk{T: t, box: gmailfake.New(), now: begun, admitted: map[string]int{}}
	d.box.Clock(d.time)
	s := httptest.NewServer(d.box)
	t.Cleanup(s.Close)
	d.url = s.URL
	var err error
	if d.poll, err = gmail.New().OpenPoll(credentials(s.URL, settings)); err != nil {
		t.Fatalf("OpenPoll: %v", err)
	}
	return d
}

// opened is a desk whose mailbox has had its first round.
func opened(t *testing.T) *desk {
	t.Helper()
	d := newDesk(t, nil)
	d.mustRound()
	return d
}

func (d *desk) time() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

func (d *desk) wait(w time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = d.now.Add(w)
}

// round polls once.
func (d *desk) round() (caughtUp bool, err error) {
	d.Helper()
	return d.poll.Round(d.Context(), channels.Round{
		Now: d.time(), Checkpoint: d.saved,
		Accept: func(_ context.Context, items []channels.Item) error {
			for _, i := range items {
				if d.refuse != nil {
					if err := d.refuse(i); err != nil {
						return err
					}
				}
				if d.admitted[i.Event.ID]++; d.admitted[i.Event.ID] == 1 {
					d.order = append(d.order, i.Event.ID)
				}
				d.items = append(d.items, i)
			}
			return nil
		},
		Save: func(_ context.Context, c domain.Checkpoint) error {
			if c.Before(d.saved) {
				d.Errorf("checkpoint %d/%d is saved after %d/%d", c.Generation, c.Position, d.saved.Generation, d.saved.Position)
			}
			d.saved = c
			return nil
		},
	})
}

func (d *desk) mustRound() {
	d.Helper()
	if caughtUp, err := d.round(); err != nil || !caughtUp {
		d.Fatalf("a round = caught up %t, %v; want true, nil", caughtUp, err)
	}
}

// rounds polls every 30 s until that long has passed.
func (d *desk) rounds(long time.Duration) {
	d.Helper()
	for end := d.time().Add(long); d.time().Before(end); d.wait(30 * time.Second) {
		d.mustRound()
	}
}

// mail returns one that is told from others by its name.
func mail(name string) []byte {
	return fmt.Appendf(nil, "From: Ida <ida@example.org>\r\nTo: desk@example.com\r\nSubject: %s\r\n"+
		"Date: Mon, 30 Nov 2026 12:00:00 +0000\r\nMessage-ID: <%s@example.org>\r\n\r\n%s\r\n", name, name, name)
}

func idOf(name string) string { return "m:" + name + "@example.org" }

func (d *desk) put(names ...string) (ids []string) {
	for _, name := range names {
		ids = append(ids, d.box.Put(mail(name)))
	}
	return ids
}

// wants fails the test unless the mails of these names, and no others, were admitted.
func (d *desk) wants(names ...string) {
	d.Helper()
	var want, got []string
	for _, name := range names {
		want = append(want, idOf(name))
	}
	for id := range d.admitted {
		got = append(got, id)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		d.Errorf("admitted are %s; want %s", strings.Join(got, " "), strings.Join(want, " "))
	}
}

// fetchedOnce fails the test unless every message was fetched at most once.
func (d *desk) fetchedOnce() {
	d.Helper()
	for id, n := range d.box.Fetches() {
		if n > 1 {
			d.Errorf("message %s was fetched %d times; want once", id, n)
		}
	}
}

// failOn makes calls for path fail, of those of the message id alone if that is not empty.
func (d *desk) failOn(path, id string, f gmailfake.Failure, times int) {
	var mu sync.Mutex
	d.box.Fail(func(r *http.Request) *gmailfake.Failure {
		mu.Lock()
		defer mu.Unlock()
		if !strings.HasPrefix(r.URL.Path, "/gmail/v1/users/me/"+path) || !strings.HasSuffix(r.URL.Path, id) || times == 0 {
			return nil
		}
		times--
		return &f
	})
}

var errStoreDown = errors.New("the store is out of reach")
