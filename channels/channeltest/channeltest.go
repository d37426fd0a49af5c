// Package channeltest is the kit that every channel which the vendor calls must pass. A
// channel's test describes it once, in a Spec, and calls Run: each promise of the channel
// contract is a subtest of its own whose failure says which promise is broken.
//
// Fixtures are raw HTTP requests in testdata/*.http, as the vendor sends them. What the
// channel makes of each is written beside it, in testdata/<fixture>.golden.json, by
//
//	go test ./channels/<name> -update
//
// and is to be read before it is committed. Run the kit with -race: some promises are about
// concurrency. It reports no false failures, but cannot find every broken channel.
package channeltest

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
)

var update = flag.Bool("update", false, "write the golden files of channels anew")

// A Spec tells the kit how to drive a push channel. Channel, Credentials, Now and Sign are
// always needed.
type Spec struct {
	Channel     channels.Channel
	Credentials channels.Credentials // that the genuine fixtures are signed with
	PublicURL   string               // scheme, host and port before a fixture's request target; empty if no URL is signed
	Now         time.Time            // when the fixtures were signed, within Tolerance
	Tolerance   time.Duration        // how old, and how far ahead, a genuine request may be; 0 if the vendor signs no time

	// Refused, Unreadable and UnknownRecipient list the fixtures, by file name without
	// .http, that Verify must refuse, and those that Verify must accept but whose Extract
	// must wrap domain.ErrUnreadable or domain.ErrUnknownRecipient.
	Refused          []string
	Unreadable       []string
	UnknownRecipient []string
	// Handshakes lists the fixtures that prove the vendor in another way than its events do,
	// as a challenge by GET does. Verify must accept them; beyond their golden files nothing
	// is asked of them.
	Handshakes []string
	// Conflicts lists the fixtures that bear the id of another one with other content on purpose.
	Conflicts []string
	// ByContent lists the fixtures whose events the vendor gives no id, so that the channel
	// makes one of their content: it may follow from every key in them, and must follow from
	// all that the digest follows from.
	ByContent []string

	// SignedHeaders are those without each of which Verify must refuse. Where there are none,
	// the signature is taken to stand in the query.
	SignedHeaders []string
	BodySigned    bool        // a changed body must be refused, and a changed URL if there is a PublicURL
	RetryHeaders  http.Header // headers that a retry may add or change
	// Sign makes r genuine again, at r.Now, after the kit has changed its body, headers or
	// clock. It changes r.Header and, where the signature stands there, the query of r.URL;
	// it leaves r.Body as it is. It is called by many goroutines at once.
	Sign func(r *channels.Request)
}

// Run checks s.Channel, whose folder is the working directory, with one parallel subtest for
// each promise.
func Run(t *testing.T, s Spec) {
	t.Helper()
	if *update {
		if err := writeGolden(".", s); err != nil {
			t.Fatalf("golden files: %v", err)
		}
	}
	for _, c := range checks() {
		if !c.applies(s) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := c.on(".", s); err != nil {
				t.Error(err)
			}
		})
	}
}

// Check returns what the subtest of Run called name would report of the channel whose folder
// is dir; nil if the promise is kept. It is for tests of the kit itself.
func Check(dir, name string, s Spec) error {
	for _, c := range checks() {
		if c.name == name && c.applies(s) {
			return c.on(dir, s)
		}
	}
	return fmt.Errorf("there is no check %s of this channel", name)
}

// Names returns the names of all checks, in the order of Run. It is for tests of the kit itself.
func Names() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// A check looks at one promise.
type check struct {
	name    string
	promise string
	applies func(Spec) bool
	run     func(*subject) error
}

// on runs the check on a fresh subject, so that no check sees what another has done.
func (c check) on(dir string, s Spec) error {
	k, err := newSubject(dir, s)
	if err != nil {
		return err
	}
	if err := guard(func() error { return c.run(k) }); err != nil {
		return fmt.Errorf("broken promise: %s\n%w", c.promise, err)
	}
	return nil
}

// errPanic marks what guard caught.
var errPanic = errors.New("panic")

// guard turns a panic of f into an error, so that one broken promise does not hide the others.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	return f()
}

// Load returns the request in file, a path such as "testdata/message.http", as received at
// now by the server with publicURL (scheme, host and port; the fixture's request target
// follows it). The file holds an HTTP/1.1 request with LF line ends and, after the first
// empty line, the body, to which nothing is added.
func Load(t *testing.T, file, publicURL string, now time.Time) *channels.Request {
	t.Helper()
	f, err := readFixture(filepath.Clean(file))
	if err != nil {
		t.Fatal(err)
	}
	return f.request(publicURL, now)
}
