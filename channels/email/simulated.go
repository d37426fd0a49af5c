package email

import (
	"fmt"
	"net/mail"
	"net/url"
	"strings"
	"time"
)

// simulatedDate is that of every simulated mail: it stands in the mail, so a retry has the
// same one whatever the clock says.
const simulatedDate = "Tue, 03 Feb 2026 09:15:00 +0100"

// Simulated returns a plain mail for simulators of channels. Its Message-ID is made of event and
// message, its conversation of from, which may be a name. Copy number retry is the same mail with
// one more trace field if retry is above 0, as a sender's server makes it at now.
func Simulated(from, to, event, message, text string, retry int, now time.Time) []byte {
	from = SimulatedSender(from)
	var b strings.Builder
	line := func(name, value string) {
		fmt.Fprintf(&b, "%s: %s\r\n", name, strings.NewReplacer("\r", " ", "\n", " ").Replace(value))
	}
	line("From", (&mail.Address{Address: from}).String())
	line("To", (&mail.Address{Address: to}).String())
	line("Subject", "Simulated mail")
	line("Date", simulatedDate)
	line("Message-ID", "<"+url.QueryEscape(event)+"."+url.QueryEscape(message)+"@example.org>")
	line("References", "<"+url.QueryEscape(from)+".conversation@example.org>")
	line("MIME-Version", "1.0")
	line("Content-Type", "text/plain; charset=utf-8")
	line("Content-Transfer-Encoding", "8bit")
	b.WriteString("\r\n" + text + "\r\n")
	return Retried([]byte(b.String()), retry, now)
}

// Retried returns mail as a sender's server delivers it the retry-th time after the first, at
// now: with one more trace field. It does not change mail.
func Retried(mail []byte, retry int, now time.Time) []byte {
	if retry == 0 {
		return mail
	}
	trace := fmt.Sprintf("Received: from mx.example.org by relay.example id %d; %s\r\n", retry, now.UTC().Format(time.RFC1123Z))
	return append([]byte(trace), mail...)
}

// SimulatedSender returns the address of the sender that a simulator calls name.
func SimulatedSender(name string) string {
	if name == "" {
		name = "sender"
	}
	if !strings.Contains(name, "@") {
		name += "@example.org"
	}
	return name
}
