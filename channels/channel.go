// Package channels says what a channel is: a value that names one source of events, tells
// as data what its vendor does, and reads the vendor's requests. A channel keeps no state
// between requests, starts nothing and touches no store; loops, servers, retries and stores
// belong to the application around it.
//
// A new channel is a folder beside this file with a func New() channels.Channel, and one
// line in app/channels.go. Its tests call channeltest.Run.
package channels

import (
	"net/http"
	"time"

	"github.com/admitone/admitone/domain"
)

// A Channel is one source of events. All of its functions are pure and safe for concurrent use.
type Channel struct {
	Name     string // the folder, the configuration section and the route: [a-z0-9]+
	Platform string // vendor namespace of ids; two channels may serve one

	// Secrets lists what an installation, or the app-wide section, proves senders with.
	Secrets []Secret
	// AppWide says that a verified payload names its account, so that one address can
	// serve every installation with the secrets of the channel's configuration section.
	AppWide bool
	// Settings lists the names that an installation's settings may have, beside public_url.
	Settings []string
	// Proof is the header in which the vendor's signature or token stands; empty if it stands
	// elsewhere. A request without it is not taken for the vendor's at all.
	Proof string
	// Methods the vendor uses; nil means POST alone.
	Methods []string
	// MaxBody in bytes; 0 means what the server's configuration says.
	MaxBody int64
	// Acknowledge is the answer to a delivery whose batch brings none of its own.
	Acknowledge Reply
	Vendor      Vendor

	// Open returns the endpoint for one set of credentials. It is called once per
	// installation, so what can be prepared is prepared here. An error says which secret or
	// setting is unfit, and holds no secret. A channel has either Open, if the vendor calls, or
	// OpenPoll, if it has to be asked.
	Open func(Credentials) (Endpoint, error)
	// OpenPoll returns how the account of a set of credentials is polled. It asks nobody, and
	// is otherwise as Open.
	OpenPoll func(Credentials) (Poll, error)
	// Decode reads the content of an admitted event from the payload that Extract made for
	// it. It is called when the event is dispatched, by any instance, at any later time.
	// An error wraps domain.ErrUnreadable.
	Decode func(e domain.Event) (domain.Content, error)
	// Simulate returns the genuine request that the vendor would send for s, so that a
	// newcomer can see the channel work. The request's URL is s.URL. Of a channel with Open.
	Simulate func(c Credentials, s Simulation) (*http.Request, error)
	// SimulateVendor returns the vendor of a channel with OpenPoll, as it would be reached at
	// address (scheme, host and port), and the credentials with which it is polled there.
	SimulateVendor func(address string) (Simulator, Credentials, error)
	// Example is an invented account with invented secrets, with which the demo and
	// simulators work unless told otherwise. Nothing real is opened by it.
	Example Credentials
}

// An Endpoint reads the requests for one set of credentials. Safe for concurrent use; it
// keeps nothing of a request, neither body nor header, beyond the call, but that events of
// Extract may refer to the body: the caller copies what it keeps.
type Endpoint interface {
	// Verify returns nil if the vendor sent r, and an error that wraps
	// domain.ErrUnauthenticated otherwise, or domain.ErrUnavailable if that can't be told for
	// now: then the vendor is asked to come again. It looks at the exact bytes received and
	// runs before anything decodes them. The error holds no secret.
	Verify(r *Request) error
	// Extract returns the events in a verified request. The same bytes give the same ids,
	// whatever the headers say. It wraps domain.ErrUnreadable if the bytes can't be
	// understood, domain.ErrUnknownRecipient if they are for nobody here.
	Extract(r *Request) (Batch, error)
}

// A Request is one request as received. Body is read once, whole, before anything else.
type Request struct {
	Method string
	// URL is what the vendor called, as the configured public address says: scheme, host
	// and the path and query as received. Host and forwarding headers are never used.
	URL    string
	Header http.Header
	Body   []byte
	Now    time.Time
}

// A Batch is what one request held. Without events there is nothing to dispatch: a
// handshake, a kind switched off.
type Batch struct {
	Events []domain.Event
	// Reply is the answer to give once each event has its verdict; nil means the channel's Acknowledge.
	Reply *Reply
}

// A Reply is the body of an answer with status 200. A vendor may show it to a user, send it
// as a message or execute it, so it is empty unless the vendor's rules ask for one.
type Reply struct {
	ContentType string // empty if there is no body
	Body        []byte
}

// Credentials are what one installation, or an app-wide section, is opened with.
type Credentials struct {
	Account  string              // empty if app-wide
	Secrets  map[string][]string // by name; any of a list is accepted, the first one signs
	Settings Settings
}

// A Secret is the name of a secret and whether an endpoint can do without.
type Secret struct {
	Name     string
	Optional bool
}

// Vendor is what a channel's vendor does, as data: the key table, the policy for a store out
// of reach, the check of retention and the simulators of vendors are made from it.
type Vendor struct {
	EventID    string // what the event id is made of, for the key table
	Scope      string // within what it is unique
	Fallback   string // what stands in for it where a numbered kind lacks it
	MessageKey string // what the message key is made of
	Unnumbered string // kinds that have no id and are never repeated

	Deadline    time.Duration // how long the vendor waits for an answer; 0 if it is polled
	RetryWindow time.Duration // how long it may send an event again, by any of its ways
	// ComesAgain says that the vendor sends an event again after a 503, so that refusing
	// loses nothing.
	ComesAgain bool
	// Busy is the status by which the vendor is told that an installation sends more than its
	// rate limit: 429 where it is known to come again after that; 0 means 503.
	Busy int
	// RetryAfter is the header's value where it helps the vendor; 0 where it does not.
	RetryAfter time.Duration
	Retries    []time.Duration // waits between attempts after an error, as far as known
	Behaviour  string          // what it does after an error, in a sentence
	Source     string          // where that stands
}

// A Simulation is one event that a simulated vendor sends.
type Simulation struct {
	URL       string // where to
	PublicURL string // what the vendor believes to call: scheme and host, for signatures that cover it
	Account   string
	EventID   string // the vendor's number of the event; the channel makes one of its own form from it
	Message   string // a number that tells messages apart
	From      string // who writes, and so which conversation; if empty, somebody of the channel's own choice
	Text      string
	Mail      []byte // of platform email: a mail to send as it is, instead of one made of the above; or nil
	Retry     int    // 0 at the first delivery
	Now       time.Time
}
