package gmail

import (
	"fmt"
	"strings"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/email"
	"github.com/admitone/admitone/channels/gmail/gmailfake"
)

// A simulator is a Gmail for people without one.
type simulator struct {
	*gmailfake.Mailbox
	mailbox string
}

func simulated(address string) (channels.Simulator, channels.Credentials, error) {
	if err := checkAddress(address); err != nil {
		return nil, channels.Credentials{}, fmt.Errorf("simulate gmail: address: %w", err)
	}
	c := exampleAt(strings.TrimRight(address, "/"))
	return &simulator{Mailbox: gmailfake.New(), mailbox: c.Account}, c, nil
}

// Put implements channels.Simulator. A repeated mail is a message of its own to Gmail, with one
// more trace field, as a server makes it that delivers a mail twice.
func (s *simulator) Put(m channels.Simulation) error {
	if m.Mail != nil {
		s.Mailbox.Put(email.Retried(m.Mail, m.Retry, m.Now))
		return nil
	}
	s.Mailbox.Put(email.Simulated(m.From, s.mailbox, m.EventID, m.Message, m.Text, m.Retry, m.Now))
	return nil
}

// Rounds implements channels.Simulator.
func (s *simulator) Rounds() int { return s.Told() }

// Fetched implements channels.Simulator.
func (s *simulator) Fetched() int {
	n := 0
	for _, times := range s.Fetches() {
		n += times
	}
	return n
}
