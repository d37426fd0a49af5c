package channeltest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/channeltest"
	"github.com/admitone/admitone/domain"
)

// pollMutants are the feeds that break one promise each, and the check that must tell. A bug
// that the kit has missed is added here first.
var pollMutants = map[string]string{
	"named otherwise than its folder":        "Complete",
	"sample with a secret that is none":      "SampleDecodes",
	"opened without a secret":                "UnfitIsRefused",
	"unknown setting accepted":               "UnfitIsRefused",
	"asks when it is opened":                 "OpenAsksNobody",
	"takes what is old":                      "FirstRoundIsTheBeginning",
	"saves no beginning":                     "FirstRoundIsTheBeginning",
	"newest first":                           "OffersWhatIsNew",
	"first page alone":                       "OffersWhatIsNew",
	"no id":                                  "EventsAreSound",
	"payload dropped":                        "EventsAreSound",
	"id from the vendor's number":            "SameEventSameID",
	"id random":                              "SameEventSameID",
	"saves nothing":                          "AcceptedIsNotFetchedAgain",
	"passes over what was refused":           "RefusedIsOfferedAgain",
	"swallows what Accept says":              "RefusedIsOfferedAgain",
	"saves before it accepts":                "SavedIsAccepted",
	"saves at the end alone":                 "ProgressIsKept",
	"goes back":                              "CheckpointNeverGoesBack",
	"goes on without a save":                 "LostSaveEndsTheRound",
	"jumps to now when forgotten":            "ForgottenLeavesNoGap",
	"fails for ever when forgotten":          "ForgottenLeavesNoGap",
	"reads all anew for ever when forgotten": "ForgottenLeavesNoGap",
	"poison dropped":                         "PoisonIsParkedAndPassed",
	"poison holds all up":                    "PoisonIsParkedAndPassed",
	"poison without its bytes":               "PoisonIsParkedAndPassed",
	"failure passed over":                    "FailureIsTold",
	"panics when the vendor fails":           "FailureIsTold",
	"failure told as revoked":                "FailureIsTold",
	"busy not told":                          "BusyIsTold",
	"hammers a busy vendor":                  "BusyIsTold",
	"revoked not told":                       "RevokedIsTold",
	"hammers with revoked credentials":       "RevokedIsTold",
	"deaf to its context":                    "CancelEndsTheRound",
	"secret in errors":                       "NoSecretInErrors",
	"simulated vendor shows nothing":         "SimulatedVendorIsPolled",
	"simulated repeats are other events":     "SimulatedVendorIsPolled",
}

func TestFeedKeepsEveryPromise(t *testing.T) {
	t.Chdir("testdata/feed")
	channeltest.RunPoll(t, feedSpec(""))
}

func TestEveryPollMutantIsFound(t *testing.T) {
	var found atomic.Int32
	t.Cleanup(func() { t.Logf("mutation score: %d of %d", found.Load(), len(pollMutants)) })
	for _, bug := range slices.Sorted(maps.Keys(pollMutants)) {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			if err := channeltest.CheckPoll(t.Context(), "testdata/feed", pollMutants[bug], feedSpec("")); err != nil {
				t.Fatalf("%s fails without the bug: %v", pollMutants[bug], err)
			}
			if channeltest.CheckPoll(t.Context(), "testdata/feed", pollMutants[bug], feedSpec(bug)) == nil {
				t.Fatalf("%s did not fail", pollMutants[bug])
			}
			found.Add(1)
		})
	}
}

const feedSecret = "feed-secret-of-nobody"

func feedSpec(bug string) channeltest.PollSpec {
	f := &feed{bug: bug, vendors: map[string]*feedVendor{}}
	return channeltest.PollSpec{Channel: f.channel(), Start: f.start}
}

// A feed is a polled channel of an invented vendor, whose events are entries of a list.
type feed struct {
	bug    string
	random atomic.Int64

	mu      sync.Mutex
	vendors map[string]*feedVendor // by endpoint
}

func (f *feed) is(bug string) bool { return f.bug == bug }

// A feedVendor holds the list. oldest is the first place that it knows as a checkpoint.
type feedVendor struct {
	mu      sync.Mutex
	entries []string
	oldest  int
	mode    string // "", "down", "busy", "revoked" or "hangs"
	calls   int
	fetched int
	rounds  int
}

func (v *feedVendor) change(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
}

func (v *feedVendor) put(name string) { v.change(func() { v.entries = append(v.entries, name) }) }

var (
	errFeedDown      = errors.New("the feed is down")
	errFeedForgotten = errors.New("the feed does not know this place")
)

// read returns at most 10 entries behind a place, and how many there are.
func (v *feedVendor) read(ctx context.Context, from int) (entries []string, all int, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.calls++
	switch v.mode {
	case "down":
		return nil, 0, errFeedDown
	case "busy":
		return nil, 0, &channels.BusyError{After: time.Minute, Err: errors.New("the feed is busy")}
	case "revoked":
		return nil, 0, channels.ErrRevoked
	case "hangs":
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}
	v.rounds++
	if from >= 0 && from < v.oldest {
		return nil, len(v.entries), errFeedForgotten
	}
	if from < 0 {
		return nil, len(v.entries), nil
	}
	entries = slices.Clone(v.entries[from:min(len(v.entries), from+10)])
	v.fetched += len(entries)
	return entries, len(v.entries), nil
}

func (v *feedVendor) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

func (v *feedVendor) Rounds() (n int) {
	v.change(func() { n = v.rounds })
	return n
}

func (v *feedVendor) Fetched() (n int) {
	v.change(func() { n = v.fetched })
	return n
}

// newVendor returns a vendor and the credentials by which it is found.
func (f *feed) newVendor() (*feedVendor, channels.Credentials) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, endpoint := &feedVendor{}, fmt.Sprint("feed-", len(f.vendors))
	f.vendors[endpoint] = v
	return v, channels.Credentials{
		Account: "A1", Secrets: map[string][]string{"key": {feedSecret}}, Settings: channels.Settings{"endpoint": endpoint},
	}
}

func (f *feed) start() channeltest.PollVendor {
	v, credentials := f.newVendor()
	mode := func(m string) func() { return func() { v.change(func() { v.mode = m }) } }
	return channeltest.PollVendor{
		Credentials: credentials,
		Put:         v.put,
		Poison:      func() { v.put("poison") },
		Forget:      func() { v.change(func() { v.oldest = len(v.entries) }) },
		Revoke:      mode("revoked"),
		Fail: func(busy bool) {
			if busy {
				mode("busy")()
			} else {
				mode("down")()
			}
		},
		Heal: mode(""),
		Hang: mode("hangs"),
		Calls: func() (n int) {
			v.change(func() { n = v.calls })
			return n
		},
		Fetched: v.Fetched,
	}
}

func (f *feed) channel() channels.Channel {
	c := channels.Channel{
		Name: "feed", Platform: "feed", Secrets: []channels.Secret{{Name: "key"}}, Settings: []string{"endpoint"},
		Vendor: channels.Vendor{
			EventID: "name", Scope: "account", Fallback: "none", MessageKey: "none", Unnumbered: "none",
			RetryWindow: time.Hour, ComesAgain: true, Behaviour: "is polled", Source: "invented",
		},
		OpenPoll: f.open,
		Decode: func(e domain.Event) (domain.Content, error) {
			if len(e.Payload.Body) == 0 {
				return domain.Content{}, domain.ErrUnreadable
			}
			return domain.Content{Text: string(e.Payload.Body), Raw: []byte(strconv.Quote("x"))}, nil
		},
		SimulateVendor: func(string) (channels.Simulator, channels.Credentials, error) {
			v, credentials := f.newVendor()
			return simulatedFeed{v, f}, credentials, nil
		},
		Example: channels.Credentials{Account: "A1", Secrets: map[string][]string{"key": {feedSecret}}},
	}
	switch f.bug {
	case "named otherwise than its folder":
		c.Name = "feeds"
	case "sample with a secret that is none":
		c.Secrets[0].Name = "token"
	}
	return c
}

type simulatedFeed struct {
	*feedVendor
	feed *feed
}

func (s simulatedFeed) Put(m channels.Simulation) error {
	text := m.Text
	if s.feed.is("simulated repeats are other events") {
		text += strconv.Itoa(m.Retry)
	}
	if !s.feed.is("simulated vendor shows nothing") {
		s.put(text)
	}
	return nil
}

func (f *feed) open(c channels.Credentials) (channels.Poll, error) {
	keys := c.Secrets["key"]
	if (len(keys) == 0 || keys[0] == "") && !f.is("opened without a secret") {
		return channels.Poll{}, errors.New("key: missing")
	}
	var settings struct {
		Endpoint string `yaml:"endpoint"`
	}
	if err := c.Settings.Decode(&settings); err != nil && !f.is("unknown setting accepted") {
		return channels.Poll{}, err
	}
	f.mu.Lock()
	v := f.vendors[settings.Endpoint]
	f.mu.Unlock()
	if f.is("asks when it is opened") && v != nil {
		_, _, _ = v.read(context.Background(), -1)
	}
	return channels.Poll{Every: time.Second, Round: func(ctx context.Context, r channels.Round) (bool, error) {
		return f.round(ctx, v, r)
	}}, nil
}

func (f *feed) round(ctx context.Context, v *feedVendor, r channels.Round) (caughtUp bool, err error) {
	defer func() { caughtUp, err = f.spoil(caughtUp, err) }()
	c := r.Checkpoint
	if c.Generation == 0 {
		_, all, err := f.read(ctx, v, -1)
		if err != nil {
			return false, err
		}
		c = domain.Checkpoint{Generation: 1, Position: uint64(all)}
		switch f.bug {
		case "takes what is old":
			c.Position = 0
		case "saves no beginning":
			return true, nil
		}
		return true, r.Save(ctx, c)
	}
	from := int(c.Position)
	floor := 0
	_, all, err := f.read(ctx, v, from)
	if errors.Is(err, errFeedForgotten) {
		switch f.bug {
		case "fails for ever when forgotten":
			return false, err
		case "jumps to now when forgotten":
			c.Generation, c.Position = c.Generation+1, uint64(all)
			return true, r.Save(ctx, c)
		}
		v.change(func() { floor, v.oldest = v.oldest, 0 }) // a listing is another call
		if f.is("reads all anew for ever when forgotten") {
			from, c.Position = 0, 0
			defer v.change(func() { v.oldest = floor + 1<<20 })
		}
		c.Generation++
	} else if err != nil {
		return false, err
	} else {
		v.change(func() { v.fetched -= min(10, all-from) }) // the look ahead handed nothing out
	}
	var batches [][]string
	for at := from; at < all; at += 10 {
		entries, _, err := v.read(ctx, at)
		if err != nil {
			return false, err
		}
		batches = append(batches, entries)
		if f.is("first page alone") {
			break
		}
	}
	if f.is("newest first") {
		for _, b := range batches {
			slices.Reverse(b)
		}
	}
	for _, entries := range batches {
		next := c
		next.Position += uint64(len(entries))
		if f.is("saves before it accepts") {
			if err := r.Save(ctx, next); err != nil {
				return false, err
			}
		}
		items := f.items(entries)
		if err := r.Accept(ctx, items); err != nil && !f.is("passes over what was refused") {
			return false, err
		}
		if f.is("poison holds all up") && slices.Contains(entries, "poison") {
			return false, errFeedDown
		}
		c = next
		switch f.bug {
		case "saves nothing", "saves at the end alone":
		case "goes on without a save":
			_ = r.Save(ctx, c)
		case "goes back":
			back := c
			back.Position -= 2
			if err := errors.Join(r.Save(ctx, c), r.Save(ctx, back)); err != nil {
				return false, err
			}
		default:
			if err := r.Save(ctx, c); err != nil {
				return false, err
			}
		}
	}
	if f.is("saves nothing") {
		return true, nil
	}
	return true, r.Save(ctx, c)
}

// read is read with the bugs of a caller.
func (f *feed) read(ctx context.Context, v *feedVendor, from int) ([]string, int, error) {
	if f.is("deaf to its context") {
		ctx = context.WithoutCancel(ctx)
		v.change(func() {
			if v.mode == "hangs" {
				v.mode = ""
			}
		})
	}
	entries, all, err := v.read(ctx, from)
	var busy *channels.BusyError
	if errors.As(err, &busy) && f.is("hammers a busy vendor") || errors.Is(err, channels.ErrRevoked) && f.is("hammers with revoked credentials") {
		for range 5 {
			_, _, _ = v.read(ctx, from)
		}
	}
	return entries, all, err
}

// spoil is what a caller with a bug makes of the end of a round.
func (f *feed) spoil(caughtUp bool, err error) (bool, error) {
	var busy *channels.BusyError
	switch {
	case err == nil:
	case f.is("swallows what Accept says") && !errors.Is(err, errFeedDown), f.is("failure passed over") && errors.Is(err, errFeedDown):
		return true, nil
	case f.is("panics when the vendor fails") && errors.Is(err, errFeedDown):
		panic("a bug")
	case f.is("failure told as revoked") && errors.Is(err, errFeedDown):
		return false, channels.ErrRevoked
	case f.is("busy not told") && errors.As(err, &busy), f.is("revoked not told") && errors.Is(err, channels.ErrRevoked):
		return false, errors.New("failed")
	case f.is("secret in errors"):
		return false, fmt.Errorf("key %s: %w", feedSecret, err)
	}
	return caughtUp, err
}

func (f *feed) items(entries []string) []channels.Item {
	var items []channels.Item
	for _, text := range entries {
		n := f.random.Add(1)
		ev := domain.Event{
			ID: "name:" + text, Kind: domain.Other, Digest: domain.DigestOf(text),
			Payload: domain.Payload{MediaType: "text/plain", Body: []byte(text)},
		}
		var fault error
		switch {
		case text == "poison" && f.is("poison dropped"):
			continue
		case text == "poison":
			fault = fmt.Errorf("%w: poison", domain.ErrUnreadable)
			if f.is("poison without its bytes") {
				ev.Payload.Body = nil
			}
		case f.is("no id"):
			ev.ID = ""
		case f.is("payload dropped"):
			ev.Payload.Body = nil
		case f.is("id from the vendor's number"), f.is("id random"):
			ev.ID = "number:" + strconv.FormatInt(n, 10)
		}
		if strings.Contains(text, "\x00") {
			fault = domain.ErrUnreadable
		}
		items = append(items, channels.Item{Event: ev, Fault: fault})
	}
	return items
}
