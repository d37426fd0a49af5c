package cfworker

import (
	"fmt"
	"strings"

	"github.com/admitone/admitone/channels"
)

// recipients are the addresses of a mailbox. Letter case makes no difference: no server in
// use tells Desk@example.com from desk@example.com.
type recipients struct {
	addresses map[string]bool
	domains   map[string]bool // of which every address belongs to the mailbox
	first     string          // one of them, to simulate mail for
}

func newRecipients(c channels.Credentials) (recipients, error) {
	var settings struct {
		Addresses []string `yaml:"addresses"`
	}
	if err := c.Settings.Decode(&settings); err != nil {
		return recipients{}, err
	}
	r := recipients{addresses: map[string]bool{}, domains: map[string]bool{}}
	if strings.Contains(c.Account, "@") {
		r.addresses[bare(c.Account)] = true
		r.first = bare(c.Account)
	}
	for _, address := range settings.Addresses {
		local, domain, ok := split(bare(address))
		switch {
		case !ok || domain == "":
			return recipients{}, fmt.Errorf("addresses: %q is neither an address nor @domain", address)
		case local == "" || local == "*":
			r.domains[domain] = true
			local = "anyone"
		default:
			r.addresses[local+"@"+domain] = true
		}
		if r.first == "" {
			r.first = local + "@" + domain
		}
	}
	if len(r.addresses)+len(r.domains) == 0 {
		return recipients{}, fmt.Errorf("addresses: none, and the account %q is no address", c.Account)
	}
	return r, nil
}

// include reports whether mail for address belongs to the mailbox. What follows a + in the
// local part is the owner's note to himself (RFC 5233).
func (r recipients) include(address string) bool {
	address = bare(address)
	if r.addresses[address] {
		return true
	}
	local, domain, ok := split(address)
	if !ok {
		return false
	}
	local, _, _ = strings.Cut(local, "+")
	return r.domains[domain] || r.addresses[local+"@"+domain]
}

// split cuts address at its last @: a quoted local part may hold others.
func split(address string) (local, domain string, ok bool) {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return "", "", false
	}
	return address[:at], address[at+1:], true
}

// bare returns address in lower case and without the angle brackets of SMTP, in which some
// relays leave it; "<>", the null sender, becomes "".
func bare(address string) string {
	address = strings.TrimSpace(address)
	if strings.HasPrefix(address, "<") && strings.HasSuffix(address, ">") {
		address = address[1 : len(address)-1]
	}
	return strings.ToLower(address)
}
