package cfworker_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/cfworker"
	"github.com/admitone/admitone/channels/channeltest"
	"github.com/admitone/admitone/domain"
)

const (
	key      = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	otherKey = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
	target   = "/in/cfworker/acme-desk"
	sender   = "bounces+ida=example.org@mail.example.org"
)

var signedAt = time.Unix(1790000000, 0)

func credentials(keys ...string) channels.Credentials {
	return channels.Credentials{
		Account:  "desk@example.com",
		Secrets:  map[string][]string{"signing_key": keys},
		Settings: channels.Settings{"addresses": []any{"help@example.com", "@support.example.com"}},
	}
}

func open(t testing.TB, c channels.Credentials) channels.Endpoint {
	t.Helper()
	e, err := cfworker.New().Open(c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return e
}

// request returns what a relay that knows key posts, signed by the reference library.
func request(t testing.TB, key, from, to string, mail []byte) *channels.Request {
	t.Helper()
	r := &channels.Request{
		Method: http.MethodPost, URL: "https://hooks.example.com" + target, Now: signedAt, Body: mail,
		Header: http.Header{
			"Content-Type":       {"message/rfc822"},
			"Admitone-Mail-From": {url.PathEscape(from)},
			"Admitone-Rcpt-To":   {url.PathEscape(to)},
		},
	}
	sign(r, key)
	return r
}

// sign signs r at its time, for the envelope in its headers.
func sign(r *channels.Request, key string) {
	from, _ := url.PathUnescape(r.Header.Get("Admitone-Mail-From"))
	to, _ := url.PathUnescape(r.Header.Get("Admitone-Rcpt-To"))
	sum := sha256.Sum256([]byte(from + "\x00" + to + "\x00" + string(r.Body)))
	signAs(r, key, "msg_"+hex.EncodeToString(sum[:]))
}

func signAs(r *channels.Request, key, id string) {
	w, err := standardwebhooks.NewWebhook(key)
	if err != nil {
		panic(err)
	}
	signature, err := w.Sign(id, r.Now, r.Body)
	if err != nil {
		panic(err)
	}
	r.Header.Set("webhook-id", id)
	r.Header.Set("webhook-timestamp", strconv.FormatInt(r.Now.Unix(), 10))
	r.Header.Set("webhook-signature", signature)
}

func sample(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "email", "testdata", name+".eml"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// receive returns the one event that a relay's mail makes.
func receive(t testing.TB, from, to string, mail []byte) domain.Event {
	t.Helper()
	e, r := open(t, credentials(key)), request(t, key, from, to, mail)
	if err := e.Verify(r); err != nil {
		t.Fatalf("Verify: %v", err)
	}
	b, err := e.Extract(r)
	if err != nil {
		t.Fatalf("Extract: %v", err)
	}
	if len(b.Events) != 1 {
		t.Fatalf("%d events, want 1", len(b.Events))
	}
	return b.Events[0]
}

// writeFixtures writes testdata/*.http anew when the kit's -update is given.
func writeFixtures(t *testing.T) {
	t.Helper()
	if f := flag.Lookup("update"); f == nil || f.Value.String() != "true" {
		return
	}
	write := func(name string, r *channels.Request) {
		var b bytes.Buffer
		fmt.Fprintf(&b, "POST %s HTTP/1.1\nHost: hooks.example.com\n", target)
		for _, h := range []string{
			"Content-Type", "Admitone-Mail-From", "Admitone-Rcpt-To", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature",
		} {
			fmt.Fprintf(&b, "%s: %s\n", h, r.Header.Get(h))
		}
		fmt.Fprintf(&b, "Content-Length: %d\n\n", len(r.Body))
		b.Write(r.Body)
		if err := os.WriteFile(filepath.Join("testdata", name+".http"), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"01-baseline", "02-missing-message-id", "04-two-message-ids", "16-latin1-id", "18-oversize-id",
		"30-list-direct-copy", "31-list-copy-same-id", "44-attachments", "49-iso-2022-jp", "57-long-references", "66-bad-base64",
	} {
		write(name, request(t, key, sender, "desk@example.com", sample(t, name)))
	}
	write("plus-address", request(t, key, sender, "Desk+Billing@Example.com", sample(t, "32-two-mailboxes-desk")))
	write("catch-all", request(t, key, sender, "anyone@support.example.com", sample(t, "42-alternative")))

	reused := bytes.Replace(sample(t, "01-baseline"), []byte("ida.holm@"), []byte("eve@"), 1)
	write("reused-id", request(t, key, sender, "desk@example.com", reused))
	write("unknown-recipient", request(t, key, sender, "nobody@example.com", sample(t, "01-baseline")))
	write("not-a-mail", request(t, key, sender, "desk@example.com", []byte(`{"from":"ida@example.org"}`)))
	write("other-key", request(t, otherKey, sender, "desk@example.com", sample(t, "01-baseline")))

	redirected := request(t, key, sender, "desk@example.com", sample(t, "01-baseline"))
	redirected.Header.Set("Admitone-Rcpt-To", "help%40example.com")
	write("envelope-changed", redirected)
	mailAlone := request(t, key, sender, "desk@example.com", sample(t, "01-baseline"))
	sum := sha256.Sum256(mailAlone.Body)
	signAs(mailAlone, key, "msg_"+hex.EncodeToString(sum[:]))
	write("id-without-envelope", mailAlone)
}

func TestChannelKeepsItsPromises(t *testing.T) {
	writeFixtures(t)
	channeltest.Run(t, channeltest.Spec{
		Channel:          cfworker.New(),
		Credentials:      credentials(key),
		Now:              signedAt,
		Tolerance:        5 * time.Minute,
		Refused:          []string{"other-key", "envelope-changed", "id-without-envelope"},
		Unreadable:       []string{"not-a-mail"},
		UnknownRecipient: []string{"unknown-recipient"},
		Conflicts:        []string{"reused-id"},
		SignedHeaders: []string{
			"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "Admitone-Mail-From", "Admitone-Rcpt-To",
		},
		BodySigned: true,
		Sign:       func(r *channels.Request) { sign(r, key) },
	})
}

func TestEverySampleIsOneMessage(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "email", "testdata", "*.eml"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".eml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mail := sample(t, name)
			ev := receive(t, sender, "desk@example.com", mail)
			if ev.Kind != domain.MessageCreated || ev.MessageKey != domain.StorableID("message:"+ev.ID) {
				t.Errorf("kind %s, id %q, message key %q", ev.Kind, ev.ID, ev.MessageKey)
			}
			// BR-98: the sender's server tries again, and its trace makes other bytes of the mail.
			again := append([]byte("Received: from a by b; Tue, 03 Feb 2026 10:15:00 +0100\r\n"), mail...)
			retry := receive(t, sender, "desk@example.com", again)
			if retry.ID != ev.ID || retry.MessageKey != ev.MessageKey || retry.Conversation != ev.Conversation || retry.Digest != ev.Digest {
				t.Errorf("a retry is another event: %+v; want %+v", retry, ev)
			}
		})
	}
}

// BR-98: a stranger's mail under the id of another is told from it, and so is not lost.
func TestReusedIDIsAConflict(t *testing.T) {
	t.Parallel()
	mail := sample(t, "01-baseline")
	first := receive(t, sender, "desk@example.com", mail)
	other := receive(t, sender, "desk@example.com", bytes.Replace(mail, []byte("ida.holm@"), []byte("eve@"), 1))
	if other.ID != first.ID || other.Digest == first.Digest {
		t.Errorf("got %+v after %+v; want the same id and another digest", other, first)
	}
}

// The null sender of bounces is an empty header, which some proxies drop.
func TestNullSender(t *testing.T) {
	t.Parallel()
	mail := sample(t, "63-bounce")
	if got := receive(t, "", "desk@example.com", mail).ID; got != "m:dsn-1@mx.example.net" {
		t.Errorf("ID = %q", got)
	}
	r := request(t, key, "", "desk@example.com", mail)
	r.Header.Del("Admitone-Mail-From")
	if err := open(t, credentials(key)).Verify(r); err != nil {
		t.Errorf("without the empty header: %v", err)
	}
}

func TestSenderOfAMailWithoutFromIsTheEnvelopes(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{"röt\x00@example.org": "röt\uFFFD@example.org", "": "", `a;b="c%@x`: `a;b="c%@x`} {
		ev := receive(t, from, "desk@example.com", []byte("Subject: hello\n\nhello\n"))
		c, err := cfworker.New().Decode(ev)
		if err != nil || c.Sender.ID != want {
			t.Errorf("sender %q: got %q, %v; want %q", from, c.Sender.ID, err, want)
		}
	}
}

func TestRecipients(t *testing.T) {
	t.Parallel()
	e := open(t, credentials(key))
	for to, known := range map[string]bool{
		"desk@example.com":             true,
		"<desk@example.com>":           true,
		"DESK+a+b@EXAMPLE.COM":         true,
		"help@example.com":             true,
		"anyone@support.example.com":   true,
		"de+sk@example.com":            false,
		"desk@example.org":             false,
		"desk@sub.support.example.com": false,
		"desk":                         false,
		"@example.com":                 false,
		"":                             false,
		`"x@support.example.com"@b.c`:  false,
	} {
		r := request(t, key, sender, to, sample(t, "01-baseline"))
		if to != "" {
			if err := e.Verify(r); err != nil {
				t.Errorf("%s: Verify: %v", to, err)
			}
		}
		_, err := e.Extract(r)
		if known && err != nil || !known && to != "" && !errors.Is(err, domain.ErrUnknownRecipient) || !known && err == nil {
			t.Errorf("%q: %v; want known %t", to, err, known)
		}
	}
}

func TestSeveralSignatures(t *testing.T) {
	t.Parallel()
	e := open(t, credentials(otherKey, key))
	r := request(t, key, sender, "desk@example.com", sample(t, "01-baseline"))
	good := r.Header.Get("webhook-signature")
	for list, accepted := range map[string]bool{
		"v1,AAAA " + good:                       true,
		good + " v1a,AAAA":                      true,
		"v2" + strings.TrimPrefix(good, "v1"):   false,
		strings.TrimPrefix(good, "v1,"):         false,
		strings.ReplaceAll(good, "v1,", "v1, "): false,
		good + "," + good:                       false,
		" ":                                     false,
	} {
		r.Header.Set("webhook-signature", list)
		if err := e.Verify(r); (err == nil) != accepted {
			t.Errorf("%q: %v; want accepted %t", list, err, accepted)
		}
	}
}

func TestUnfitCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]channels.Credentials{
		"key without whsec_":    credentials("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="),
		"key that is short":     credentials("whsec_MDEyMzQ1Njc4OQ=="),
		"key that is no Base64": credentials(key, "whsec_***"),
		"no address at all":     {Account: "desk", Secrets: map[string][]string{"signing_key": {key}}},
		"address without @": {
			Account: "desk@example.com", Secrets: map[string][]string{"signing_key": {key}},
			Settings: channels.Settings{"addresses": []any{"desk"}},
		},
	} {
		if _, err := cfworker.New().Open(c); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	onlyDomain := channels.Credentials{
		Account: "acme mail", Secrets: map[string][]string{"signing_key": {key}},
		Settings: channels.Settings{"addresses": []any{"*@example.com"}},
	}
	r, err := cfworker.New().Simulate(onlyDomain, channels.Simulation{URL: "http://127.0.0.1/x", Now: signedAt})
	if err != nil || r.Header.Get("Admitone-Rcpt-To") != "anyone@example.com" {
		t.Errorf("catch-all alone: %v, %v", r, err)
	}
}

// BR-73: a mail of the greatest size passes every stage here.
func TestLargestMail(t *testing.T) {
	t.Parallel()
	if got := cfworker.New().MaxBody; got < 25<<20 {
		t.Fatalf("MaxBody = %d; want room for 25 MiB", got)
	}
	var mail bytes.Buffer
	mail.WriteString("From: ida@example.org\r\nDate: Tue, 03 Feb 2026 09:15:00 +0100\r\nMessage-ID: <big@x>\r\n" +
		"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nsee the plan\r\n--b\r\n" +
		"Content-Disposition: attachment; filename=plan.pdf\r\nContent-Type: application/pdf\r\nContent-Transfer-Encoding: base64\r\n\r\n")
	line := strings.Repeat("QUJD", 19) + "\r\n"
	mail.WriteString(strings.Repeat(line, (25<<20-mail.Len()-10)/len(line)))
	mail.WriteString("--b--\r\n")
	ev := receive(t, sender, "desk@example.com", mail.Bytes())
	c, err := cfworker.New().Decode(ev)
	if err != nil {
		t.Fatal(err)
	}
	if c.Text != "see the plan" || len(c.Attachments) != 1 || c.Attachments[0].Size < 18<<20 {
		t.Errorf("text %q, attachments %+v", c.Text, c.Attachments)
	}
}

func FuzzExtract(f *testing.F) {
	for _, name := range []string{"01-baseline", "02-missing-message-id", "16-latin1-id", "44-attachments", "61-no-blank-line"} {
		f.Add("a@example.org", "desk@example.com", sample(f, name))
	}
	f.Add("", "x+y@support.example.com", []byte("a: b"))
	e := open(f, credentials(key))
	f.Fuzz(func(t *testing.T, from, to string, mail []byte) {
		if to == "" {
			return
		}
		r := request(t, key, from, to, mail)
		if err := e.Verify(r); err != nil {
			t.Fatalf("Verify: %v", err)
		}
		b, err := e.Extract(r)
		if err != nil {
			if !errors.Is(err, domain.ErrUnreadable) && !errors.Is(err, domain.ErrUnknownRecipient) {
				t.Fatalf("Extract: %v", err)
			}
			return
		}
		if _, err := cfworker.New().Decode(b.Events[0]); err != nil {
			t.Fatalf("Decode: %v", err)
		}
	})
}

func BenchmarkVerifyAndExtract(b *testing.B) {
	e := open(b, credentials(key))
	for name, mail := range map[string][]byte{
		"short":      sample(b, "01-baseline"),
		"without id": sample(b, "02-missing-message-id"),
		"1 MiB":      append(sample(b, "01-baseline"), bytes.Repeat([]byte("a line of text\r\n"), 1<<16)...),
	} {
		b.Run(name, func(b *testing.B) {
			r := request(b, key, sender, "desk@example.com", mail)
			b.SetBytes(int64(len(mail)))
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Verify(r); err != nil {
					b.Fatal(err)
				}
				if _, err := e.Extract(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
