package e2e_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// bomb is small and unpacks to 64 MB.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // it fails for levels that there are not
	zeros := make([]byte, 1<<20)
	for range 64 {
		_, _ = w.Write(zeros) // a buffer takes all
	}
	_ = w.Close()
	return b.Bytes()
})

// hostile are bodies that a parser, a store or a text may break on. id is told by the test, so
// that those which can be read are events of their own.
func hostile() map[string]func(id int) []byte {
	fixed := func(s string) func(int) []byte { return func(int) []byte { return []byte(s) } }
	slack := func(event string) func(int) []byte {
		return func(id int) []byte {
			return fmt.Appendf(nil, `{"type":"event_callback","api_app_id":"A0APP","team_id":"T0ACME001","event_id":"Ev0H%d","update_id":%[1]d,"event":%s}`, id, event)
		}
	}
	text := func(text string) func(int) []byte {
		return slack(`{"type":"message","channel":"C0H","user":"U0H","ts":"1790000000.000100","text":` + text + `}`)
	}
	long := strings.Repeat("x", 300_000)
	return map[string]func(int) []byte{
		"nothing":              fixed(""),
		"a space":              fixed(" "),
		"a brace":              fixed("{"),
		"null":                 fixed("null"),
		"a number":             fixed("1e999999"),
		"an empty object":      fixed("{}"),
		"an empty array":       fixed("[]"),
		"NUL bytes":            fixed("\x00\x00\x00"),
		"not UTF-8":            fixed("\xff\xfe{\xe9}"),
		"a byte order mark":    fixed("\ufeff{}"),
		"a gzip bomb":          func(int) []byte { return bomb() },
		"half a gzip":          func(int) []byte { return bomb()[:40] },
		"deep arrays":          fixed(strings.Repeat("[", 100_000)),
		"deep objects":         fixed(strings.Repeat(`{"a":`, 30_000) + "1" + strings.Repeat("}", 30_000)),
		"a form of nothing":    fixed("&&&&===%%%"),
		"a broken escape":      fixed("payload=%7B%22type%22:%zz&Body=%E9%00"),
		"a NUL in a text":      text(`"a\u0000b"`),
		"a lone surrogate":     text(`"\ud83d and \ude00"`),
		"bytes in a text":      text("\"caf\xe9\""),
		"a huge number":        slack(`{"type":"message","channel":"C0H","ts":1e131073,"n":` + strings.Repeat("9", 150_000) + `}`),
		"small and minus zero": slack(`{"type":"message","channel":"C0H","ts":-0,"n":[1E400,-0.0,1e-999999]}`),
		"a long id": func(id int) []byte {
			return fmt.Appendf(nil, `{"type":"event_callback","api_app_id":"A0APP","team_id":"T0ACME001","event_id":"Ev%d%s","update_id":%[1]d%[3]s,"event":{"type":"x"}}`, id, long, strings.Repeat("7", 900))
		},
		"a long account":          fixed(`{"type":"event_callback","team_id":"` + long + `","event_id":"Ev1","event":{}}`),
		"types that do not fit":   slack(`{"type":{},"channel":[],"user":7,"text":{"a":[]},"ts":[],"message":"no","item":[[]],"edited":1}`),
		"an event that is null":   slack(`null`),
		"an event that is text":   slack(`"event"`),
		"names twice":             fixed(`{"type":"event_callback","type":"url_verification","team_id":"T0ACME001","event_id":"A","event_id":"B","Event_ID":"C","update_id":5,"update_id":6,"event":{"type":"x","type":"message"}}`),
		"a message of nothing":    fixed(`{"update_id":91,"message":{}}`),
		"a message of null":       fixed(`{"update_id":92,"message":null,"edited_message":[],"callback_query":7}`),
		"an id of the wrong type": fixed(`{"update_id":"93","message":{"message_id":"x","chat":"y"}}`),
		"an id beyond 64 bits":    fixed(`{"update_id":92233720368547758070,"message":{"message_id":1,"chat":{"id":-92233720368547758070}}}`),
		"a mail of header only":   fixed("From: a@example.org"),
		"a mail without header":   fixed("\r\n\r\nwords"),
		"a mail of parts":         fixed("Content-Type: multipart/mixed; boundary=x\r\nMessage-ID: <\x00\xff>\r\n\r\n" + strings.Repeat("--x\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n", 2000)),
		"a mail of a broken set":  fixed("Content-Type: text/plain; charset=\x00\xff\r\nContent-Transfer-Encoding: base64\r\nSubject: =?utf-8?B?////?= =?x?Q?=00?=\r\n\r\n====\x00"),
		"a megabyte of header":    fixed("Message-ID: <" + long + "@example.org>\r\nReferences: " + strings.Repeat("<a@b> ", 10_000) + "\r\n\r\nx"),
	}
}

// BR-45, BR-66, BR-77, BR-79, BR-81, BR-100: whatever an authentic body holds, it is answered
// with 200, ends nothing, comes to an end, and its repeat is a duplicate.
func TestHostileBodiesEndNothingAndAreParkedOrHandled(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		senders := map[string]func(body []byte) *http.Request{
			"slack": func(body []byte) *http.Request {
				return signSlack(t, in, "/acme-slack", install("acme-slack").value, body)
			},
			"telegram": func(body []byte) *http.Request { return signTelegram(t, in, install("bot-a"), body) },
			"cfworker": func(body []byte) *http.Request { return signMail(t, in, body) },
			"twilio": func(body []byte) *http.Request {
				sum := sha256.Sum256(body)
				r := signTwilio(t, in, "?bodySHA256="+hex.EncodeToString(sum[:]), nil)
				r.Header.Set("Content-Type", "application/json")
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
				return r
			},
			"twilio form": func(body []byte) *http.Request {
				form, err := url.ParseQuery(string(body))
				if err != nil {
					form = url.Values{"Body": {string(body)}, string(body[:min(len(body), 20)]): {"\x00\xff"}}
				}
				return signTwilio(t, in, "", form)
			},
		}
		n := 0
		for kind, body := range hostile() {
			for channel, request := range senders {
				n++
				b := body(n)
				first := deliver(request(b))
				if first.status != http.StatusOK || first.verdict == "refused" {
					t.Errorf("%s to %s: %v; want 200", kind, channel, first)
				}
				again := deliver(request(b))
				if again.status != http.StatusOK || again.verdict == "admitted" || first.verdict == "ignored" != (again.verdict == "ignored") {
					t.Errorf("%s to %s came again: %v after %v", kind, channel, again, first)
				}
			}
		}
		for _, r := range d.rest() {
			if r.State != "handled" && r.State != "failed" || r.State == "failed" && r.LastError == "" {
				t.Errorf("receipt %s of %s is %s (%s)", r.EventID, r.Channel, r.State, r.LastError)
			}
			if len(r.EventID) > 255 || len(r.MessageKey) > 255 || r.EventID == "" {
				t.Errorf("receipt of %s has an event id of %d bytes", r.Channel, len(r.EventID))
			}
		}
		m := d.write(install("globex-slack"))
		m.send(t, in).want(t, http.StatusOK, "admitted")
		await(t, "an ordinary event is handled", func() bool { return len(d.app.of(m.text)) == 1 })
		if got := in.probe("/healthz"); got != http.StatusOK {
			t.Errorf("/healthz answers %d", got)
		}
	})
}

// What the vendor sent and nobody can read is kept for a person, with its bytes, as no retry can mend it.
func TestUnreadableBodiesAreParked(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		slack := install("acme-slack")
		body := []byte(`{"type":"event_callback",` + d.text())
		sum := sha256.Sum256(body)
		deliver(signSlack(t, in, "/acme-slack", slack.value, body)).want(t, http.StatusOK, "admitted")
		deliver(signSlack(t, in, "/acme-slack", slack.value, body)).want(t, http.StatusOK, "duplicate")
		deliver(signTelegram(t, in, install("bot-a"), body)).want(t, http.StatusOK, "admitted")
		deliver(signSlack(t, in, "", appWideSecret, body)).want(t, http.StatusOK, "ignored")
		receipts := in.receipts("")
		if len(receipts) != 2 {
			t.Fatalf("%d receipts; want one of each installation that can be told", len(receipts))
		}
		for _, r := range receipts {
			if r.State != "failed" || r.EventID != "unreadable:"+hex.EncodeToString(sum[:]) || r.LastError == "" || r.Attempt != 0 {
				t.Errorf("receipt %+v; want it failed, with the digest of its bytes and the reason", r)
			}
		}
		if n := len(d.app.dispatches()); n != 0 {
			t.Errorf("%d dispatches of what can't be read", n)
		}
		// a replay can't read it either, and says so
		in.ask(http.MethodPost, "/api/v1/receipts/"+receipts[0].ID+"/replay", nil, nil)
		for _, r := range d.rest() {
			if r.State != "failed" || r.LastError == "" {
				t.Errorf("after a replay the receipt is %s (%s); want failed with a reason", r.State, r.LastError)
			}
		}
	})
}

// BR-74: no redirect, and either form of a path.
func TestPathsAreNeverRedirected(t *testing.T) {
	t.Parallel()
	d := embedded(t, nil)
	in := d.serve(nil)
	slack := install("acme-slack")
	for path, want := range map[string]int{
		"/in/slack/acme-slack": 200, "/in/slack/acme-slack/": 200, "/in/slack/acme-slack/events": 200, "/in/slack": 200, "/in/slack/": 200,
		"//in/slack/acme-slack": 404, "/IN/slack/acme-slack": 404, "/in/SLACK/acme-slack": 404,
		"/in/slack/Acme-Slack": 404, "/in/slack/nobody": 404, "/in/nothing": 404, "/in": 404, "/in/": 404, "/": 404, "/in/telegram/acme-slack": 404,
	} {
		body := slackEvent(t, slack.account, "Ev0PATH"+hex.EncodeToString([]byte(path)), slackMessage("C0GENERAL", "1790000000."+fmt.Sprint(100000+len(path)*7+int(path[len(path)-1])), d.text()))
		secret := slack.value
		if strings.Trim(path, "/") == "in/slack" {
			secret = appWideSecret
		}
		r := signSlack(t, in, "", secret, body)
		at, err := url.Parse(in.public)
		if err != nil {
			t.Fatal(err)
		}
		r.URL = &url.URL{Scheme: at.Scheme, Host: at.Host, Path: path}
		got := deliver(r)
		if got.status != want {
			t.Errorf("POST %s answers %d; want %d", path, got.status, want)
		}
		if want != http.StatusOK && got.body != "" {
			t.Errorf("POST %s answers with the body %q; want none", path, got.body)
		}
	}
	// Twilio signs the path as it calls it
	for _, path := range []string{"", "/", "/sms/"} {
		deliver(signTwilio(t, in, path, twilioMessage("SM0000000000000000000000000000000"+fmt.Sprint(len(path)), d.text()))).want(t, http.StatusOK, "admitted")
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodHead} {
		r := signSlack(t, in, "/acme-slack", slack.value, nil)
		r.Method, r.Body, r.ContentLength = method, http.NoBody, 0
		if got := deliver(r); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != http.MethodPost {
			t.Errorf("%s answers %d, Allow %q; want 405 and POST", method, got.status, got.header.Get("Allow"))
		}
	}
}

// BR-76: Twilio sends the person what it is answered with.
func TestTwilioIsNeverAnsweredWithWords(t *testing.T) {
	t.Parallel()
	d := embedded(t, nil)
	in := d.serve(nil)
	empty := func(got answer) {
		t.Helper()
		if got.status == http.StatusOK {
			if !strings.Contains(got.header.Get("Content-Type"), "xml") || !strings.HasSuffix(got.body, "<Response/>") {
				t.Errorf("answer %v of type %s; want empty TwiML", got, got.header.Get("Content-Type"))
			}
		} else if got.body != "" {
			t.Errorf("answer %v; want no body", got)
		}
	}
	message := func(text string) url.Values { return twilioMessage("SM000000000000000000000000000000b1", text) }
	text := d.text()
	first := deliver(signTwilio(t, in, "", message(text)))
	first.want(t, http.StatusOK, "admitted")
	empty(first)
	again := deliver(signTwilio(t, in, "", message(text)))
	again.want(t, http.StatusOK, "duplicate")
	empty(again)
	stranger := twilioMessage("SM000000000000000000000000000000b2", d.text())
	stranger.Set("AccountSid", "AC0000000000000000000000000000ffff")
	ignored := deliver(signTwilio(t, in, "", stranger))
	ignored.want(t, http.StatusOK, "ignored")
	empty(ignored)
	status := deliver(signTwilio(t, in, "", url.Values{"MessageSid": {"SM000000000000000000000000000000b3"}, "MessageStatus": {"sent"}, "AccountSid": {install("acme-twilio").account}}))
	status.want(t, http.StatusOK, "admitted")
	if status.body != "" {
		t.Errorf("a status is answered with %q", status.body)
	}
	forged := signTwilio(t, in, "", message(text))
	forged.Header.Set("X-Twilio-Signature", "AAAA")
	unproved := deliver(forged)
	unproved.want(t, http.StatusUnauthorized, "")
	empty(unproved)
	large := deliver(signTwilio(t, in, "", message(strings.Repeat("x", 2<<20))))
	large.want(t, http.StatusRequestEntityTooLarge, "")
	empty(large)
	d.rest()
	release := d.holding()
	deliver(signTwilio(t, in, "", twilioMessage("SM000000000000000000000000000000b4", d.text()))).want(t, http.StatusOK, "admitted")
	d.app.awaitDispatches(t, 3)
	in.terminate()
	await(t, "the instance drains", func() bool { return in.probe("/readyz") == http.StatusServiceUnavailable })
	refused := deliver(signTwilio(t, in, "", twilioMessage("SM000000000000000000000000000000b5", d.text())))
	refused.want(t, http.StatusServiceUnavailable, "refused")
	empty(refused)
	release()
	in.exits()
}

// BR-41, BR-48: what the client does while its request runs decides nothing but whether it
// hears the answer.
func TestClientsThatHangUpLoseNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		var texts []string
		for _, to := range eachChannel {
			for range 5 {
				m := d.write(to)
				texts = append(texts, m.text)
				raw, err := httputil.DumpRequestOut(m.request(t, in), true)
				if err != nil {
					t.Fatal(err)
				}
				// a part of the body only: it counts as nothing, even if it could be read
				half := bytes.Index(raw, []byte("\r\n\r\n")) + 4 + (len(raw)-bytes.Index(raw, []byte("\r\n\r\n")))/2
				sendAndHangUp(t, in, raw[:half])
				// the whole, and away before the answer
				sendAndHangUp(t, in, raw)
				got := m.again(1).send(t, in)
				if got.status != http.StatusOK || got.verdict != "admitted" && got.verdict != "duplicate" {
					t.Errorf("%s: the retry got %v; want 200", to.channel, got)
				}
			}
		}
		d.once(texts...)
	})
}

func TestHalfABodyClaimsNothing(t *testing.T) {
	t.Parallel()
	d := embedded(t, nil)
	in := d.serve(nil)
	for _, to := range eachChannel {
		raw, err := httputil.DumpRequestOut(d.write(to).request(t, in), true)
		if err != nil {
			t.Fatal(err)
		}
		sendAndHangUp(t, in, raw[:len(raw)-10])
	}
	await(t, "the broken requests are counted", func() bool {
		n := 0.0
		for _, to := range eachChannel {
			n += in.metric(`admitone_refusals_total{channel="` + to.channel + `",reason="broken_body"}`)
		}
		return n == float64(len(eachChannel))
	})
	if got := in.receipts(""); len(got) != 0 {
		t.Errorf("half a body left receipts: %v", got)
	}
}

func sendAndHangUp(t *testing.T, in *instance, raw []byte) {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(in.public, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// BR-126: each way to be dropped has a counter of its own.
func TestWhatBecomesOfDeliveriesIsCounted(t *testing.T) {
	t.Parallel()
	// the counts are of a Redis that answers, however busy the machine is
	d := onServers(t, settings{"store": settings{"fast": settings{"timeout": "5s"}}})
	a, b := d.two()
	m := d.write(install("acme-slack"))
	m.send(t, a).want(t, http.StatusOK, "admitted")
	d.rest()
	await(t, "Redis knows the event", func() bool { return d.keys() == 1 })
	m.again(1).send(t, b).want(t, http.StatusOK, "duplicate") // Redis knows
	d.redis.Do("FLUSHALL")
	m.again(2).send(t, b).want(t, http.StatusOK, "duplicate") // PostgreSQL knows
	body := slackEvent(t, "T0NOBODY99", "Ev0X", slackMessage("C0X", "1790000000.000100", d.text()))
	deliver(signSlack(t, b, "", appWideSecret, body)).want(t, http.StatusOK, "ignored")
	deliver(signSlack(t, b, "/acme-slack", "guessed", body)).want(t, http.StatusUnauthorized, "")
	for sample, want := range map[string]float64{
		`admitone_deliveries_total{channel="slack",verdict="duplicate"}`:    2,
		`admitone_deliveries_total{channel="slack",verdict="ignored"}`:      1,
		`admitone_refusals_total{channel="slack",reason="unauthenticated"}`: 1,
		`admitone_vendor_retries_total{channel="slack"}`:                    2,
		`admitone_store_disagreements_total`:                                1,
		`admitone_duplicates_of_unhandled_total{platform="slack"}`:          0,
	} {
		if got := b.metric(sample); got != want {
			t.Errorf("%s is %v; want %v", sample, got, want)
		}
	}
	await(t, "the receipt tells of three deliveries and the highest retry", func() bool {
		r := b.receipts("")[0]
		return r.Deliveries == 3 && r.VendorAttempt == 2
	})
	var stats struct {
		Verdicts map[string]int64
	}
	if got := b.ask(http.MethodGet, "/api/v1/stats", nil, &stats); got != http.StatusOK || stats.Verdicts["duplicate"] != 2 || stats.Verdicts["ignored"] != 1 {
		t.Errorf("stats answer %d, %+v; want 2 duplicates and 1 ignored", got, stats)
	}
}
