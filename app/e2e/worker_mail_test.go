package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/admitone/admitone/channels/email"
	"github.com/admitone/admitone/domain"
)

// A sample is a mail and what is to be made of it.
type sample struct {
	File         string `json:"file"`
	MessageID    string `json:"message_id"`
	MessageIDHex string `json:"message_id_hex"`
	Fingerprint  string `json:"fingerprint_v1"`
	KeyKind      string `json:"key_kind"`
	TextStart    string `json:"text_start"`

	mail []byte
}

func samples(t *testing.T) []sample {
	t.Helper()
	const folder = "../../channels/email/testdata"
	text, err := os.ReadFile(filepath.Join(folder, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var expected struct{ Cases []sample }
	if err := json.Unmarshal(text, &expected); err != nil || len(expected.Cases) == 0 {
		t.Fatalf("expected.json: %d cases, %v", len(expected.Cases), err)
	}
	for i, c := range expected.Cases {
		if expected.Cases[i].mail, err = os.ReadFile(filepath.Join(folder, c.File)); err != nil {
			t.Fatal(err)
		}
	}
	return expected.Cases
}

func (s sample) eventID(t *testing.T) string {
	t.Helper()
	switch {
	case s.KeyKind == "f":
		return "f:" + s.Fingerprint
	case s.MessageIDHex != "":
		id, err := hex.DecodeString(s.MessageIDHex)
		if err != nil {
			t.Fatal(err)
		}
		return domain.StorableID("m:" + string(id))
	}
	return domain.StorableID("m:" + s.MessageID)
}

// eml returns the mail that the application got.
func (d dispatch) eml(t *testing.T) []byte {
	t.Helper()
	var raw struct{ EML string }
	if err := json.Unmarshal(d.Data.Raw, &raw); err != nil {
		t.Fatal(err)
	}
	mail, err := base64.StdEncoding.DecodeString(raw.EML)
	if err != nil {
		t.Fatal(err)
	}
	return mail
}

func TestWorkerRelaysEverySampleByteForByteAndOnce(t *testing.T) {
	t.Parallel()
	d := embedded(t, nil)
	in := d.serve(nil)
	w := d.worker(in.public, nil)
	want := map[string]sample{}
	all := samples(t)
	for _, s := range all {
		w.receive(s.mail).want(t, "accepted")
		if _, known := want[s.eventID(t)]; !known { // the copy of a list is its mail
			want[s.eventID(t)] = s
		}
	}
	for _, s := range all {
		w.receive(s.mail).want(t, "accepted")
		w.receive(retried(s.mail, 1)).want(t, "accepted")
	}
	d.rest()
	for _, got := range d.app.dispatches() {
		s, ok := want[got.EventID]
		if !ok {
			t.Errorf("%s was dispatched, twice or unexpectedly", got.EventID)
			continue
		}
		delete(want, got.EventID)
		if !strings.HasPrefix(got.Data.Text, strings.TrimSpace(s.TextStart)) {
			t.Errorf("%s: text %q; want it to begin with %q", s.File, got.Data.Text, s.TextStart)
		}
		if !bytes.Equal(got.eml(t), s.mail) {
			t.Errorf("%s: the application got other bytes", s.File)
		}
	}
	for id, s := range want {
		t.Errorf("%s (%s) was not dispatched", s.File, id)
	}
	if got, want := in.states(), len(d.app.dispatches()); len(got) != 1 || got["handled"] != want {
		t.Errorf("receipts %v; want %d handled", got, want)
	}
}

// BR-102: while the server is away a mail stays with its sender, and is handled once in the end.
func TestMailOutlastsAnOutageOfTheServer(t *testing.T) {
	t.Parallel()
	d := embedded(t, nil)
	first := d.serve(nil)
	w := d.worker(first.public, nil)
	early, late := d.text(), d.text()
	w.receive(mail("early@example.org", "early", early)).want(t, "accepted")
	first.terminate()
	first.exits()
	m := mail("late@example.org", "late", late)
	for n := range 3 {
		w.receive(retried(m, n)).want(t, "temporary")
	}
	d.serve(settings{"server": settings{"listen": strings.TrimPrefix(first.public, "http://")}})
	w.receive(retried(m, 3)).want(t, "accepted")
	w.receive(retried(m, 4)).want(t, "accepted")
	w.receive(mail("early@example.org", "early", early)).want(t, "accepted")
	d.once(early, late)
}

func TestMailOutlastsAnOutageOfTheStore(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	w := d.worker(d.serve(nil).public, nil)
	d.pg.Refuse()
	text := d.text()
	m := mail("patient@example.org", "patience", text)
	refused := w.receive(m)
	refused.want(t, "temporary")
	if !strings.Contains(refused.Reason, "503") {
		t.Errorf("reason %q; want the server's 503", refused.Reason)
	}
	d.pg.Heal()
	await(t, "the sender's server gets rid of the mail", func() bool { return w.receive(m).Outcome == "accepted" })
	d.once(text)
}

// BR-98: the server has stored the mail, and nobody knows but it.
func TestMailWhoseAnswerIsLostComesAgainAsADuplicate(t *testing.T) {
	t.Parallel()
	d := embedded(t, nil)
	in := d.serve(nil)
	cut := newProxy(t, strings.TrimPrefix(in.public, "http://"), false)
	w := d.worker("http://"+cut.Address(), nil)
	cut.LoseAnswers()
	text := d.text()
	m := mail("unheard@example.org", "unheard", text)
	w.receive(m).want(t, "temporary")
	d.app.awaitDispatches(t, 1)
	cut.Heal()
	w.receive(retried(m, 1)).want(t, "accepted")
	d.once(text)
}

func TestWorkerDoesNotWaitForAHaltedServerForEver(t *testing.T) {
	t.Parallel()
	d := embedded(t, nil)
	in := d.serve(nil)
	w := d.worker(in.public, workerVars{"TIMEOUT_SECONDS": "1"})
	in.halt()
	text := d.text()
	m := mail("halted@example.org", "halted", text)
	w.receive(m).want(t, "temporary")
	in.resume()
	await(t, "the sender's server gets rid of the mail", func() bool { return w.receive(retried(m, 1)).Outcome == "accepted" })
	d.once(text)
}

func TestCopiesOfAMailAtTheSameMomentAreOne(t *testing.T) {
	t.Parallel()
	d := onServers(t, nil)
	a, b := d.two()
	workers := []*worker{d.worker(a.public, nil), d.worker(b.public, nil)}
	text := d.text()
	m := mail("copies@example.org", "copies", text)
	outcomes, errs := make([]outcome, 16), make([]error, 16)
	var all sync.WaitGroup
	for i := range outcomes {
		all.Go(func() {
			outcomes[i], errs[i] = workers[i%2].attempt(submission{from: "ida@example.org", to: "desk@example.com", mail: retried(m, i)})
		})
	}
	all.Wait()
	for i, o := range outcomes {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		o.want(t, "accepted")
	}
	d.once(text)
}

// BR-102: a key that was changed on one side only holds mail up and loses none.
func TestWrongKeyLosesNoMail(t *testing.T) {
	t.Parallel()
	d := embedded(t, nil)
	in := d.serve(nil)
	text := d.text()
	m := mail("rotated@example.org", "rotated", text)
	for name, vars := range map[string]workerVars{
		"another key":  {"SIGNING_KEY": "whsec_YW5vdGhlci1rZXktb2YtdGhlLWRlc2stb2YtZTJl"},
		"no key":       {"SIGNING_KEY": ""},
		"half a key":   {"SIGNING_KEY": "bWFpbC1rZXktb2YtYWNtZS1kZXNrLW9mLWUyZQ=="},
		"no address":   {"RELAY_URL": ""},
		"half of one":  {"RELAY_URL": "hooks.example.com/in/cfworker/acme-desk"},
		"another path": {"RELAY_URL": in.public + "/in/cfworker/acme-sales"},
		"the console":  {"RELAY_URL": in.admin},
	} {
		o := d.worker(in.public, vars).receive(m)
		if o.Outcome != "temporary" {
			t.Errorf("%s: the mail is %s (%s); want temporary", name, o.Outcome, o.Reason)
		}
	}
	if got := in.receipts(""); len(got) != 0 {
		t.Errorf("%d receipts of what was not proved", len(got))
	}
	d.worker(in.public, workerVars{"SIGNING_KEY": install("acme-desk").value + "\n"}).receive(m).want(t, "accepted")
	d.once(text)
}

func TestWorkerRejectsForGoodOnlyWhatNoRetryMends(t *testing.T) {
	t.Parallel()
	var answer atomic.Value
	asked := make(chan struct{}, 100)
	answer.Store(http.HandlerFunc(nil))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		answer.Load().(http.HandlerFunc)(w, r) //nolint:forcetypeassert // it holds nothing else
	}))
	t.Cleanup(server.Close)
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			_, _ = w.Write(bytes.Repeat([]byte("words of a proxy "), 10_000)) // who does not read it misses nothing
		}
	}
	w := embedded(t, nil).worker(server.URL, nil)
	check := func(name, want string, h http.HandlerFunc) {
		t.Helper()
		answer.Store(h)
		o := w.receive(mail("any@example.org", "any", "any"))
		if o.Outcome != want || len(asked) != 1 {
			t.Errorf("%s: the mail is %s (%s) after %d requests; want %s after one", name, o.Outcome, o.Reason, len(asked), want)
		}
		if strings.Contains(o.Reason, "proxy") {
			t.Errorf("%s: the reason repeats the answer: %s", name, o.Reason)
		}
		for len(asked) > 0 {
			<-asked
		}
	}
	for _, code := range []int{200, 201, 202} {
		check(fmt.Sprint(code), "accepted", status(code, "Admitone-Verdict", "admitted"))
	}
	check("404 of an unknown recipient", "rejected", status(404, "Admitone-Verdict", "refused"))
	check("413", "rejected", status(413))
	for _, code := range []int{300, 304, 400, 401, 403, 404, 405, 408, 409, 410, 415, 421, 422, 425, 429, 451, 500, 501, 502, 503, 504, 507, 520, 530} {
		check(fmt.Sprint(code), "temporary", status(code))
	}
	for _, code := range []int{301, 302, 303, 307, 308} {
		check(fmt.Sprint(code), "temporary", status(code, "Location", server.URL+"/elsewhere"))
	}
	check("no answer", "temporary", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })

	w.submit(submission{from: "a@example.org", to: "desk@example.com", mail: []byte("x"), size: 26<<20 + 1}).want(t, "rejected")
	if len(asked) > 0 {
		t.Error("the server was asked about a mail that is too large")
	}
}

func TestUnknownRecipientIsRejectedForGood(t *testing.T) {
	t.Parallel()
	d := embedded(t, nil)
	in := d.serve(nil)
	w := d.worker(in.public, workerVars{"FORWARD_TO": "archive@example.net"})
	for to, want := range map[string]string{
		"desk@example.com": "accepted", "Desk+Billing@Example.com": "accepted",
		"nobody@example.com": "rejected", "désk@example.com": "rejected",
	} {
		o := w.submit(submission{from: "ida@example.org", to: to, mail: mail("to-some@example.org", "to some", "to some")})
		if want == "accepted" {
			o.want(t, want, "archive@example.net")
		} else {
			o.want(t, want)
		}
	}
	d.once("to some")
}

// BR-73: Cloudflare takes 25 MiB.
func TestMailOfEverySizeIsRelayedOrRejected(t *testing.T) {
	t.Parallel()
	d := embedded(t, settings{"dispatch": settings{"target": "log"}}) // what becomes of 25 MiB later is not looked at
	in := d.serve(nil)
	w := d.worker(in.public, nil)
	sent := map[string]bool{}
	for _, size := range []int{1 << 10, 1 << 20, 25 << 20} {
		m := attachment(size)
		sent["f:"+email.Fingerprint(m)] = true // a hash of the whole body
		w.receive(m).want(t, "accepted")
	}
	huge := bytes.Repeat([]byte("x"), 26<<20+1)
	w.receive(huge).want(t, "rejected")
	w.submit(submission{from: "a@example.org", to: "desk@example.com", mail: huge, size: 1000}).want(t, "rejected") // by the server
	for _, r := range in.receipts("") {
		if !sent[r.EventID] {
			t.Errorf("receipt of %s, which nobody sent", r.EventID)
		}
		delete(sent, r.EventID)
	}
	if len(sent) > 0 {
		t.Errorf("%d mails did not arrive", len(sent))
	}
}

// attachment returns a mail of that many bytes, without Message-ID.
func attachment(size int) []byte {
	const end = "\r\n--b--\r\n"
	m := []byte("From: ida@example.org\r\nDate: Tue, 03 Feb 2026 09:15:00 +0100\r\nSubject: plan\r\n" +
		"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nsee the plan\r\n--b\r\n" +
		"Content-Disposition: attachment; filename=plan.pdf\r\nContent-Type: application/pdf\r\nContent-Transfer-Encoding: base64\r\n\r\n")
	line := []byte(strings.Repeat("QUJD", 19) + "\r\n")
	m = append(m, bytes.Repeat(line, (size-len(m)-len(end))/len(line))...)
	m = append(m, bytes.Repeat([]byte("A"), size-len(m)-len(end))...)
	return append(m, end...)
}

// Whatever a sender writes into mail and envelope, it is relayed as it is or parked.
func TestWorkerRelaysHostileMailAndEnvelopes(t *testing.T) {
	t.Parallel()
	d := embedded(t, nil)
	in := d.serve(nil)
	w := d.worker(in.public, nil)
	var each []byte
	for b := range 256 {
		each = append(each, byte(b))
	}
	mails := map[string][]byte{
		"nothing": nil, "one byte": {0}, "every byte": each,
		"every byte in a header": append(append([]byte("Message-ID: <all@x>\r\nX-All: "), each...), "\r\n\r\n"...),
		"a forged request":       []byte("Webhook-Signature: v1,AAAA\r\nAdmitone-Rcpt-To: boss@example.com\r\n\r\nx"),
		"a broken charset":       []byte("Content-Type: text/plain; charset=\"\x00\xff\"\r\nMessage-ID: <\xff@x>\r\n\r\n\xff"),
	}
	for name, m := range mails {
		for range 2 {
			if o := w.receive(m); o.Outcome != "accepted" {
				t.Errorf("%s: the mail is %s (%s); want accepted", name, o.Outcome, o.Reason)
			}
		}
	}
	for i, from := range []string{"", "<>", "<ida@example.org>", "ída@exämple.org", "a%00b%@x", "a\x00b@x", "a\r\nX-Evil: 1@x", `"a b"@x`, "\uFFFD\U0001F980@x", strings.Repeat("a", 2000) + "@x"} {
		for range 2 {
			s := submission{from: from, to: "desk+" + from + "@example.com", mail: mail(fmt.Sprintf("envelope%d@x", i), "x", "x")}
			if o := w.submit(s); o.Outcome != "accepted" {
				t.Errorf("from %q: the mail is %s (%s); want accepted", from, o.Outcome, o.Reason)
			}
		}
	}
	const envelopes = 10
	all := d.rest()
	for _, r := range all {
		if r.State != "handled" && !strings.HasPrefix(r.EventID, "unreadable:") {
			t.Errorf("receipt of %q is %s (%s)", r.EventID, r.State, r.LastError)
		}
	}
	if len(all) != len(mails)+envelopes {
		t.Errorf("%d receipts; want %d", len(all), len(mails)+envelopes)
	}
}

// While both paths are tried the Worker passes on what the server has, and nothing else.
func TestMailIsForwardedOnlyWhenItIsStored(t *testing.T) {
	t.Parallel()
	d := embedded(t, nil)
	in := d.serve(nil)
	text := d.text()
	m := mail("both@example.org", "both", text)
	d.worker("http://127.0.0.1:1", workerVars{"FORWARD_TO": "desk@example.net"}).receive(m).want(t, "temporary")
	d.worker(in.public, workerVars{"FORWARD_TO": "unverified@example.net"}).receive(m).want(t, "temporary")
	w := d.worker(in.public, workerVars{"FORWARD_TO": "desk@example.net"})
	w.receive(m).want(t, "accepted", "desk@example.net")
	w.submit(submission{from: "a@example.org", to: "desk@example.com", mail: m, fixed: true}).want(t, "accepted")
	d.once(text)
}

func TestRequestsOfTheWorkerAreToTheContractAndNewAtEachAttempt(t *testing.T) {
	t.Parallel()
	requests := make(chan http.Header, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.Header
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	w := embedded(t, nil).worker(server.URL, nil)
	m := mail("again@example.org", "again", "again")
	attempt := func() (id, timestamp string) {
		w.receive(m).want(t, "temporary")
		h := <-requests
		return h.Get("Webhook-Id"), h.Get("Webhook-Timestamp")
	}
	w.submit(submission{from: "<>", to: "désk+100%@example.com", mail: m}).want(t, "temporary")
	if h := <-requests; h.Get("Admitone-Mail-From") != "" || h.Get("Admitone-Rcpt-To") != "d%C3%A9sk%2B100%25%40example.com" {
		t.Errorf("envelope %q, %q; want the null sender and an encoded recipient", h.Get("Admitone-Mail-From"), h.Get("Admitone-Rcpt-To"))
	}
	firstID, firstTime := attempt()
	await(t, "a retry tells its own time", func() bool {
		id, timestamp := attempt()
		if id != firstID {
			t.Errorf("a retry has id %q; want %q", id, firstID)
		}
		return timestamp != firstTime
	})
}
