package torture

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// publicURL is what the vendors believe to call.
const publicURL = "https://hooks.example.com"

// conversations is how many people write to each installation. Events of one conversation are
// begun one after another, so few of them would make the storm a queue.
const conversations = 64

// burst is how many events in a row may come of one conversation: people write several messages
// in one breath, and their order is to be kept while each comes to another instance.
const burst = 4

// What a delivery is of its event.
const (
	genuine = iota
	phantom // the same message under another event id
	forged  // signed by somebody who does not know the secret
	late    // a copy after the storm
)

// A plan says what is sent: each event follows from the seed and its number alone.
type plan struct {
	seed          uint64
	installations []*installation
}

// An installation is one account at a vendor, with the guarantee that its events have.
type installation struct {
	id        string
	tenant    string
	guarantee domain.Guarantee
	channel   channels.Channel
	cred      channels.Credentials
	endpoint  channels.Endpoint
	// phantoms says that the vendor can send one message under two event ids.
	phantoms bool
}

// An event is what a vendor sends, once or often.
type event struct {
	n       uint32
	in      *installation
	from    string
	copies  int  // first deliveries at the same moment
	one     bool // all of them to one instance
	phantom bool
	forged  bool
	again   bool // sent again although it was answered 2xx
	late    bool // and after the storm
}

// Salts keep apart what the dice are thrown for.
const (
	diceEvent = iota + 1
	diceSend
	diceApplication
	diceFaults
	diceBurst
)

// dice returns those of one thing: equal seeds throw equal numbers.
func dice(seed uint64, salt, n, m uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, salt<<56|m<<40|n)) //nolint:gosec // repeatable, not secret
}

// newPlan makes two installations of each channel whose vendor sends, one for each guarantee, in
// tenants of their own.
func newPlan(seed uint64, run string, chs []channels.Channel) (*plan, error) {
	p := &plan{seed: seed}
	for _, c := range chs {
		if c.Polled() {
			continue // nobody sends its events
		}
		for _, g := range []struct {
			short string
			domain.Guarantee
		}{{"once", domain.AtMostOnce}, {"least", domain.AtLeastOnce}} {
			in := &installation{
				id: "torture-" + c.Name + "-" + g.short, tenant: tenantPrefix + run + "-" + g.short,
				guarantee: g.Guarantee, channel: c, cred: c.Example,
			}
			if g.Guarantee == domain.AtLeastOnce {
				in.cred = second(c.Example)
			}
			numbered, err := in.open()
			if err != nil {
				return nil, fmt.Errorf("channel %s: %w", c.Name, err)
			}
			if numbered {
				p.installations = append(p.installations, in)
			}
		}
	}
	if len(p.installations) == 0 {
		return nil, fmt.Errorf("no channel has events to send")
	}
	return p, nil
}

// second returns credentials like c for another account.
func second(c channels.Credentials) channels.Credentials {
	account := another(c.Account)
	settings := channels.Settings{}
	for k, v := range c.Settings {
		if list, ok := v.([]any); ok {
			v = slices.Clone(list)
			for i, e := range list {
				if e == c.Account {
					v.([]any)[i] = account
				}
			}
		}
		settings[k] = v
	}
	return channels.Credentials{Account: account, Secrets: c.Secrets, Settings: settings}
}

// another returns an account of the same form: with another last digit, or of mail another name.
func another(account string) string {
	if strings.Contains(account, "@") {
		return "second-" + account
	}
	at := strings.LastIndexAny(account, "0123456789")
	if at < 0 {
		return account + "2"
	}
	return account[:at] + string('0'+(account[at]-'0'+1)%10) + account[at+1:]
}

// open makes the endpoint, and tries what the vendor can do. It reports whether what the
// channel simulates has an event id.
func (in *installation) open() (numbered bool, err error) {
	if in.endpoint, err = in.channel.Open(in.cred); err != nil {
		return false, err
	}
	first, err := in.extract(event{in: in, from: "15550100"}, genuine)
	if err != nil {
		return false, err
	}
	if first.ID == "" {
		return false, nil
	}
	twin, err := in.extract(event{in: in, from: "15550100"}, phantom)
	if err != nil {
		return false, err
	}
	in.phantoms = twin.ID != first.ID && twin.MessageKey != "" && twin.MessageKey == first.MessageKey
	return true, nil
}

// extract returns the event that the server is to see.
func (in *installation) extract(e event, what int) (domain.Event, error) {
	now := time.Now()
	r, err := e.request("http://127.0.0.1", what, 0, now)
	if err != nil {
		return domain.Event{}, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return domain.Event{}, err
	}
	b, err := in.endpoint.Extract(&channels.Request{
		Method: r.Method, URL: publicURL + r.URL.RequestURI(), Header: r.Header, Body: body, Now: now,
	})
	if err != nil {
		return domain.Event{}, err
	}
	if len(b.Events) != 1 {
		return domain.Event{}, fmt.Errorf("a simulated request has %d events; want 1", len(b.Events))
	}
	return b.Events[0], nil
}

// key returns the identity of e in stores.
func (e event) key(what int) (domain.Digest, error) {
	ev, err := e.in.extract(e, what)
	if err != nil {
		return domain.Digest{}, err
	}
	return domain.Key{
		Tenant: e.in.tenant, Platform: e.in.channel.Platform, Account: e.in.cred.Account, EventID: domain.StorableID(ev.ID),
	}.Digest(), nil
}

// event returns event number n.
func (p *plan) event(n uint32) event {
	d := dice(p.seed, diceEvent, uint64(n), 0)
	who := d
	if together := dice(p.seed, diceBurst, uint64(n/burst), 0); together.IntN(3) == 0 {
		who = together
	}
	e := event{n: n, in: p.installations[who.IntN(len(p.installations))], copies: 1}
	e.from = strconv.Itoa(15550100 + who.IntN(conversations))
	if d.IntN(8) == 0 {
		e.copies = 2 + d.IntN(3)
	}
	e.one = d.IntN(3) == 0
	e.phantom = d.IntN(12) == 0 && e.in.phantoms
	e.forged = d.IntN(20) == 0 && len(e.in.cred.Secrets) > 0
	e.again = d.IntN(10) == 0
	e.late = d.IntN(20) == 0
	return e
}

// text is by what the application tells events apart: it need not believe the server.
func (e event) text(what int) string {
	if what == forged {
		return fmt.Sprintf("forged %d", e.n)
	}
	return fmt.Sprintf("torture %d", e.n)
}

// eventOf returns the number in a text of a genuine event.
func eventOf(text string) (uint32, bool) {
	digits, ok := strings.CutPrefix(strings.TrimSpace(text), "torture ")
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), ok && err == nil
}

// request returns delivery number retry of e to the server at base.
func (e event) request(base string, what, retry int, now time.Time) (*http.Request, error) {
	in := e.in
	cred := in.cred
	// The ids are of 14 digits, as no vendor's example has them.
	id := strconv.FormatUint(20_000_000_000_000+uint64(e.n), 10)
	switch what {
	case phantom:
		id = strconv.FormatUint(30_000_000_000_000+uint64(e.n), 10)
	case forged:
		cred.Secrets = map[string][]string{}
		for name, list := range in.cred.Secrets {
			cred.Secrets[name] = []string{wrong(list[0])}
		}
	}
	r, err := in.channel.Simulate(cred, channels.Simulation{
		URL: base + "/in/" + in.channel.Name + "/" + in.id, PublicURL: publicURL, Account: cred.Account,
		EventID: id, Message: strconv.Itoa(100_000 + int(e.n)), From: e.from, Text: e.text(what), Retry: retry, Now: now,
	})
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", in.channel.Name, err)
	}
	return r, nil
}

// wrong returns a secret of the same form as secret.
func wrong(secret string) string {
	b := []byte(secret)
	if middle := len(b) / 2; b[middle] == 'x' {
		b[middle] = 'y'
	} else {
		b[middle] = 'x'
	}
	return string(b)
}
