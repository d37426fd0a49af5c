package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/admitone/admitone/channels"
)

// How long a server may take to ask a simulated vendor for the first time, which it may have
// found away for a while and so leaves alone, and then to fetch everything.
const (
	firstRound  = 90 * time.Second
	fetchRounds = 30 * time.Second
)

// endpointOf returns where the vendor of a polled channel is looked for.
func endpointOf(c channels.Credentials) string {
	endpoint, _ := c.Settings["endpoint"].(string)
	return endpoint
}

// A stage is a simulated vendor that listens.
type stage struct {
	channels.Simulator
	cred   channels.Credentials
	server *http.Server
}

// serveVendor makes the vendor of a polled channel listen at address, such as http://127.0.0.1:8090.
func serveVendor(ctx context.Context, c channels.Channel, address string) (*stage, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" {
		return nil, usageError{fmt.Errorf("--url %q: must be like http://127.0.0.1:8090", address)}
	}
	sim, cred, err := c.SimulateVendor(address)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", c.Name, err)
	}
	s := &stage{Simulator: sim, cred: cred, server: &http.Server{Handler: sim, ReadHeaderTimeout: vendorTimeout}}
	go func() { _ = s.server.Serve(l) }() // it ends by close
	return s, nil
}

func (s *stage) close() { _ = s.server.Close() } // its connections are of no more use

// polled waits until somebody has asked what there is.
func (s *stage) polled(ctx context.Context, patience time.Duration) error {
	before := s.Rounds()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("nobody polls"))
	defer cancel()
	return poll(ctx, func() (bool, error) { return s.Rounds() > before, nil })
}

// runPolled is run for a channel whose vendor has to be asked.
func (s simulation) runPolled(ctx context.Context, w io.Writer, c channels.Channel) error {
	switch {
	case s.retries < 0, s.race < 1, s.interval < 0:
		return usageError{errors.New("--retries and --interval can't be negative, and one copy is the least")}
	case len(s.secrets) > 0 || s.publicURL != "" || s.account != "":
		return usageError{fmt.Errorf("--secret, --account, --public-url: the vendor of %s is asked, and proves nothing", c.Name)}
	}
	m, err := s.message(c)
	if err != nil {
		return err
	}
	v, err := serveVendor(ctx, c, s.url)
	if err != nil {
		return err
	}
	defer v.close()
	fmt.Fprintf(w, "%s event %s, in the account of a vendor at %s\n\nwaiting for a server to poll it; one that found it away comes within a minute\n", c.Name, m.eventID, s.url)
	if err := v.polled(ctx, firstRound); err != nil {
		return fmt.Errorf("%w %s: is there a server with this installation?\n\n%s", err, s.url, wanted(vendor{channel: c, cred: v.cred}))
	}
	copies := 0
	for retry := range s.retries + 1 {
		n := 1
		if retry == 0 {
			n = s.race
		} else if err := pause(ctx, s.interval); err != nil {
			return err
		}
		for range n {
			copies++
			// to the vendor each is an event of its own
			err := v.Put(channels.Simulation{
				Account: v.cred.Account, EventID: m.eventID, Message: m.number, From: m.from, Text: m.text, Mail: m.mail, Retry: retry, Now: time.Now(),
			})
			if err != nil {
				return fmt.Errorf("simulate %s: %w", c.Name, err)
			}
		}
	}
	limited, cancel := context.WithTimeoutCause(ctx, fetchRounds, fmt.Errorf("the server has not fetched everything within %s", fetchRounds))
	defer cancel()
	if err := poll(limited, func() (bool, error) { return v.Fetched() >= copies, nil }); err != nil {
		return err
	}
	// what a server has fetched it has taken in when it asks again
	if err := v.polled(ctx, fetchRounds); err != nil {
		return err
	}
	fmt.Fprintf(w, "%d sent, all fetched. One of them has a receipt; the others are its duplicates:\n\n  admitone receipts list --platform %s\n",
		copies, c.Platform)
	return nil
}
