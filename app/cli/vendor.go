package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/admitone/admitone/adapters/web"
	"github.com/admitone/admitone/channels"
)

// vendorTimeout is how long a simulated vendor waits for an answer. Real ones wait less; one
// that looks at a server on trial wants to see how long it took.
const vendorTimeout = 30 * time.Second

// A vendor sends to one installation what the vendor of its channel would.
type vendor struct {
	channel   channels.Channel
	cred      channels.Credentials
	url       string
	publicURL string
	client    *http.Client
}

// newVendorClient returns a client that keeps as many connections open as copies are sent at
// the same moment.
func newVendorClient(copies int) *http.Client {
	return &http.Client{
		Timeout:       vendorTimeout,
		Transport:     &http.Transport{MaxIdleConnsPerHost: copies, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// An answer is what a server said to one delivery.
type answer struct {
	status  int
	verdict string // empty if the server did not believe the delivery
	took    time.Duration
}

// A message is one event of a vendor's.
type message struct {
	eventID string
	number  string // tells messages apart
	from    string
	text    string
	mail    []byte // sent as it is, instead of the text; or nil
}

// request returns delivery number retry of m, the first being 0. Each is signed at its own time.
func (v vendor) request(ctx context.Context, m message, retry int) (*http.Request, error) {
	r, err := v.channel.Simulate(v.cred, channels.Simulation{
		URL: v.url, PublicURL: v.publicURL, Account: v.cred.Account,
		EventID: m.eventID, Message: m.number, From: m.from, Text: m.text, Mail: m.mail,
		Retry: retry, Now: time.Now(),
	})
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", v.channel.Name, err)
	}
	return r.WithContext(ctx), nil
}

// send sends r. The answer's body is read only so that the connection can be used again.
func (v vendor) send(r *http.Request) (answer, error) {
	start := time.Now()
	resp, err := v.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read only
	took := time.Since(start)
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	return answer{status: resp.StatusCode, verdict: resp.Header.Get(web.HeaderVerdict), took: took}, nil
}

// deliver sends delivery number retry of m.
func (v vendor) deliver(ctx context.Context, m message, retry int) (answer, error) {
	r, err := v.request(ctx, m, retry)
	if err != nil {
		return answer{}, err
	}
	return v.send(r)
}

// newEventID returns one that nobody has used before.
func newEventID() string { return rand.Text()[:12] }

// messageNumber returns the number that always belongs to the event with that id.
func messageNumber(eventID string) string {
	const most = 1_000_000_000_000_000 // all vendors' numbers hold that many
	sum := sha256.Sum256([]byte("message of " + eventID))
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:8])%most, 10)
}

// why returns err without the method and the addresses that net and net/http put before it.
func why(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return strings.TrimPrefix(err.Error(), "connect: ")
}
