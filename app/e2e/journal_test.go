package e2e_test

import (
	"bytes"
	"net/http"
	"path/filepath"
	"testing"
)

// journalled are settings under which an instance keeps a journal of its own.
func journalled(d *deployment, name string) settings {
	return settings{"store": settings{"journal": settings{"path": filepath.Join(d.dir, "journal-"+name)}}}
}

// A vendor that would not come again is answered from the journal while PostgreSQL is away;
// one that would is refused. What was journalled is dispatched once when PostgreSQL is back.
func TestJournalTakesWhatTheVendorWouldNotSendAgain(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	in := d.serve(journalled(d, "a"))
	d.pg.Refuse()
	var texts []string
	for range 5 {
		m := d.write(install("acme-twilio"))
		texts = append(texts, m.text)
		m.send(t, in).want(t, http.StatusOK, "admitted")
		m.send(t, in).want(t, http.StatusOK, "admitted") // the fallback address of the vendor
	}
	d.write(install("acme-slack")).send(t, in).want(t, http.StatusServiceUnavailable, "refused")
	if got := in.probe("/readyz"); got != http.StatusOK {
		t.Errorf("/readyz answers %d while the journal takes events; want 200", got)
	}
	if got := in.metric("admitone_journal_events"); got != 10 {
		t.Errorf("admitone_journal_events = %v; want 10", got)
	}
	if n := len(d.app.dispatches()); n != 0 {
		t.Errorf("%d events were dispatched from the journal", n)
	}
	d.pg.Heal()
	d.once(texts...)
	await(t, "the journal is empty", func() bool { return in.metric("admitone_journal_events") == 0 })
}

// A killed instance finds its journal again and claims what is in it, in order.
func TestJournalOutlivesAKilledInstance(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	a := d.serve(journalled(d, "a"))
	d.pg.Refuse()
	first := d.write(install("acme-twilio"))
	texts := []string{first.text}
	first.send(t, a).want(t, http.StatusOK, "admitted")
	for range 4 {
		m := d.write(install("acme-twilio")).in(first.from)
		texts = append(texts, m.text)
		m.send(t, a).want(t, http.StatusOK, "admitted")
	}
	a.kill()
	d.pg.Heal()
	d.serve(journalled(d, "a"))
	d.once(texts...)
	for i, got := range d.app.dispatches() {
		if got.Data.Text != texts[i] {
			t.Errorf("place %d of the conversation is %q; want %q", i, got.Data.Text, texts[i])
		}
	}
}

// A full journal refuses; it never claims to keep what it does not.
func TestFullJournalRefuses(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	in := d.serve(merge(journalled(d, "a"), settings{"store": settings{"journal": settings{"max_bytes": "4kB"}}}))
	d.pg.Refuse()
	var kept []string
	refused := 0
	for range 20 {
		m := d.write(install("acme-twilio"))
		switch got := m.send(t, in); got.status {
		case http.StatusOK:
			kept = append(kept, m.text)
		case http.StatusServiceUnavailable:
			got.want(t, http.StatusServiceUnavailable, "refused")
			refused++
		default:
			t.Fatalf("a delivery to a full journal got %s", got)
		}
	}
	if len(kept) == 0 || refused == 0 {
		t.Fatalf("%d kept and %d refused; want some of each", len(kept), refused)
	}
	d.pg.Heal()
	d.once(kept...)
}

// The answer to a claim is lost, and the event goes to the journal although its receipt stands:
// it is dispatched once.
func TestJournalledEventWhoseReceiptStandsIsDispatchedOnce(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	in := d.serve(journalled(d, "a"))
	d.pg.LoseAnswers()
	m := d.write(install("acme-twilio"))
	m.send(t, in).want(t, http.StatusOK, "admitted")
	d.pg.Heal()
	d.once(m.text)
}

// A mail with the Message-ID of an earlier one and another sender is a mail of its own, by way
// of the journal too: it is told apart when it is claimed, and not taken for a copy.
func TestJournalledConflictIsAdmittedApart(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	in := d.serve(merge(journalled(d, "a"), settings{"policy": settings{"on_store_down": "journal"}}))
	first, second := d.text(), d.text()
	mine := mail("same@example.com", "first", first)
	deliver(signMail(t, in, mine)).want(t, http.StatusOK, "admitted")
	d.once(first)
	d.pg.Refuse()
	other := bytes.Replace(mail("same@example.com", "second", second), []byte("From: "), []byte("From: other-"), 1)
	deliver(signMail(t, in, other)).want(t, http.StatusOK, "admitted")
	d.pg.Heal()
	d.once(first, second)
}
