package email_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/admitone/admitone/channels/email"
	"github.com/admitone/admitone/domain"
)

type sample struct {
	File         string   `json:"file"`
	MessageID    *string  `json:"message_id"`
	MessageIDHex string   `json:"message_id_hex"`
	Fingerprint  string   `json:"fingerprint_v1"`
	KeyKind      string   `json:"key_kind"`
	SameAs       string   `json:"same_mail_as"`
	DifferentTo  string   `json:"different_mail_from"`
	Subject      string   `json:"subject"`
	TextStart    string   `json:"text_start"`
	Attachments  []string `json:"attachments"`
	From         struct{ Name, Address string }
}

func samples(t *testing.T) []sample {
	t.Helper()
	b, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Cases []sample }
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Cases) == 0 {
		t.Fatal("testdata/expected.json has no cases")
	}
	return all.Cases
}

func load(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func identify(t testing.TB, raw []byte, s email.Source) email.Identity {
	t.Helper()
	id, err := email.Identify(raw, s)
	if err != nil {
		t.Fatalf("Identify: %v", err)
	}
	return id
}

func TestSamplesHaveTheExpectedIdentity(t *testing.T) {
	t.Parallel()
	for _, c := range samples(t) {
		t.Run(c.File, func(t *testing.T) {
			t.Parallel()
			raw := load(t, c.File)
			want := ""
			switch {
			case c.MessageID != nil:
				want = *c.MessageID
			case c.MessageIDHex != "":
				b, err := hex.DecodeString(c.MessageIDHex)
				if err != nil {
					t.Fatal(err)
				}
				want = string(b)
			}
			id := identify(t, raw, email.Source{})
			if id.MessageID != want {
				t.Errorf("MessageID = %q; want %q", id.MessageID, want)
			}
			if got := email.Fingerprint(raw); got != c.Fingerprint {
				t.Errorf("Fingerprint = %s; want %s", got, c.Fingerprint)
			}
			key := domain.StorableID("m:" + want)
			if c.KeyKind == "f" {
				key = "f:" + c.Fingerprint
			}
			if id.Key != key {
				t.Errorf("Key = %q; want %q", id.Key, key)
			}
			if id.Digest.IsZero() {
				t.Error("Digest is zero")
			}
			if len(id.Key) > domain.MaxID || len(id.Conversation) > domain.MaxID || id.Conversation == "" {
				t.Errorf("Key %q or Conversation %q is not storable", id.Key, id.Conversation)
			}
		})
	}
}

func TestSamplesReadAsExpected(t *testing.T) {
	t.Parallel()
	for _, c := range samples(t) {
		t.Run(c.File, func(t *testing.T) {
			t.Parallel()
			m := email.Read(load(t, c.File))
			if m.Subject != c.Subject {
				t.Errorf("Subject = %q; want %q", m.Subject, c.Subject)
			}
			if m.Sender != (domain.Sender{ID: c.From.Address, Name: c.From.Name}) {
				t.Errorf("Sender = %+v; want %+v", m.Sender, c.From)
			}
			if !strings.HasPrefix(m.Text, c.TextStart) || (c.TextStart == "" && m.Text != "") {
				t.Errorf("Text = %q; want it to begin with %q", m.Text, c.TextStart)
			}
			if want := time.Date(2026, 2, 3, 8, 15, 0, 0, time.UTC); !m.Date.Equal(want) {
				t.Errorf("Date = %s; want %s", m.Date, want)
			}
			if c.Attachments == nil {
				return
			}
			var names []string
			for _, a := range m.Attachments {
				names = append(names, a.Name)
			}
			if strings.Join(names, "|") != strings.Join(c.Attachments, "|") {
				t.Errorf("Attachments = %q; want %q", names, c.Attachments)
			}
		})
	}
}

// A list changes subject and body of its copies: still the same mail.
func TestListCopyIsNoConflict(t *testing.T) {
	t.Parallel()
	direct := identify(t, load(t, "30-list-direct-copy.eml"), email.Source{})
	list := identify(t, load(t, "31-list-copy-same-id.eml"), email.Source{})
	if direct != list {
		t.Errorf("identities differ: %+v and %+v", direct, list)
	}
}

// BR-98.
func TestOtherMailUnderTheSameIDIsAConflict(t *testing.T) {
	t.Parallel()
	raw := load(t, "01-baseline.eml")
	first := identify(t, raw, email.Source{})
	noDate := bytes.Replace(raw, []byte("Date: "), []byte("X-Date: "), 1)
	for name, other := range map[string][2][]byte{
		"another sender": {raw, bytes.Replace(raw, []byte("ida.holm@"), []byte("eve@"), 1)},
		"another date":   {raw, bytes.Replace(raw, []byte("03 Feb"), []byte("11 Feb"), 1)},
		"no date, another body": {
			noDate, append(bytes.Clone(noDate), "and more"...),
		},
	} {
		a, b := identify(t, other[0], email.Source{}), identify(t, other[1], email.Source{})
		if a.Key != first.Key || b.Key != first.Key {
			t.Errorf("%s: keys %q and %q; want %q", name, a.Key, b.Key, first.Key)
		}
		if a.Digest == b.Digest {
			t.Errorf("%s: digests are equal", name)
		}
	}
}

func TestDifferentMailHasDifferentKeys(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, c := range samples(t) {
		if c.SameAs == "30-list-direct-copy.eml" {
			continue
		}
		key := identify(t, load(t, c.File), email.Source{}).Key
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have the key %q", c.File, other, key)
		}
		seen[key] = c.File
	}
}

func TestMessageIDRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ header, want string }{
		"plain":                   {"Message-ID: <a@b>", "a@b"},
		"name in other case":      {"MESSAGE-id: <a@b>", "a@b"},
		"blank before the colon":  {"Message-ID \t: <a@b>", "a@b"},
		"folded before the id":    {"Message-ID:\r\n <a@b>", "a@b"},
		"folded inside":           {"Message-ID: <a\n\t@b>", "a@b"},
		"empty field comes first": {"Message-ID:\nMessage-ID: <a@b>", ""},
		"empty brackets":          {"Message-ID: <>\nMessage-ID: <a@b>", ""},
		"blank brackets":          {"Message-ID: <  >", ""},
		"bare, then prose":        {"Message-ID: a@b by gateway", "a@b"},
		"bare after a comment":    {"Message-ID: (x <y@z>) a@b(c)", "a@b"},
		"comment alone":           {"Message-ID: (x)", ""},
		"comment never closes":    {"Message-ID: (x <a@b>", ""},
		"prose before brackets":   {"Message-ID: id is <a@b>", "a@b"},
		"quoted decoy":            {`Message-ID: "<x@y>" <a@b>`, "a@b"},
		"quote never closes":      {`Message-ID: <"a@b>`, `"a@b`},
		"bracket never closes":    {"Message-ID: <a@b", "a@b"},
		"two ids in one field":    {"Message-ID: <a@b> <c@d>", "a@b"},
		"NUL":                     {"Message-ID: <a\x00@b>", "a\x00@b"},
		"parenthesis inside":      {"Message-ID: <a(x)@b>", "a(x)@b"},
		// BR-101: a look-alike is not the id.
		"X-Original-Message-ID": {"X-Original-Message-ID: <a@b>", ""},
		"Resent-Message-ID":     {"Resent-Message-ID: <a@b>", ""},
		"Content-ID":            {"Content-ID: <a@b>", ""},
		"continuation of another field": {
			"X-Note: see\n Message-ID: <a@b>", "",
		},
		"Google's for a missing one": {"Message-ID: <1.2.SMTPIN_ADDED_MISSING@mx.google.com>", ""},
		"Google's for a broken one":  {"Message-ID: <1.2.SMTPIN_ADDED_BROKEN@mx.google.com>", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := "From: a@example.com\n" + c.header + "\nSubject: s\n\nbody\n"
			if got := identify(t, []byte(raw), email.Source{}).MessageID; got != c.want {
				t.Errorf("MessageID = %q; want %q", got, c.want)
			}
		})
	}
}

func TestGoogleOriginalCountsOnTheGmailPathAlone(t *testing.T) {
	t.Parallel()
	const original = "X-Google-Original-Message-ID: toner-77@printer3.example.net\n"
	broken := []byte("Message-ID: <1.SMTPIN_ADDED_BROKEN@mx.google.com>\n" + original + "From: p@example.net\n\nx\n")
	if got := identify(t, broken, email.Source{Gmail: true}).MessageID; got != "toner-77@printer3.example.net" {
		t.Errorf("Gmail path: MessageID = %q; want the original", got)
	}
	if got := identify(t, broken, email.Source{}).MessageID; got != "" {
		t.Errorf("relay path: MessageID = %q; want none", got)
	}
	genuine := []byte("Message-ID: <a@b>\n" + original + "From: p@example.net\n\nx\n")
	if got := identify(t, genuine, email.Source{Gmail: true}).MessageID; got != "a@b" {
		t.Errorf("genuine id: MessageID = %q; want a@b", got)
	}
}

// BR-96: no id, by both paths.
func TestMailWithoutIDHasOneKeyOnBothPaths(t *testing.T) {
	t.Parallel()
	relay := load(t, "02-missing-message-id.eml")
	gmail := append([]byte("Received: by mx.google.com; Tue, 03 Feb 2026 08:15:09 +0000\r\n"+
		"Message-ID: <69.SMTPIN_ADDED_MISSING@mx.google.com>\r\n"), relay...)
	a := identify(t, relay, email.Source{Received: time.Now()})
	b := identify(t, gmail, email.Source{Gmail: true})
	if a != b {
		t.Errorf("identities differ: %+v and %+v", a, b)
	}
}

// A sensor that says the same every hour, without id and date.
func TestMailWithoutIDAndDateIsTheSameForAnHourOnly(t *testing.T) {
	t.Parallel()
	raw := []byte("From: monitor@example.net\r\nSubject: ping\r\n\r\nping\r\n")
	at := time.Date(2026, 2, 3, 8, 15, 0, 0, time.FixedZone("", 3600))
	key := func(s email.Source) string { return identify(t, raw, s).Key }
	if key(email.Source{Received: at}) != key(email.Source{Received: at.Add(30 * time.Minute).UTC()}) {
		t.Error("keys within the hour differ")
	}
	if key(email.Source{Received: at}) == key(email.Source{Received: at.Add(time.Hour)}) {
		t.Error("keys of different hours are equal")
	}
	if got, want := key(email.Source{}), "f:"+email.Fingerprint(raw); got != want {
		t.Errorf("unbounded key = %q; want %q", got, want)
	}
}

// BR-100.
func TestLongIDsStayDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, n := range []int{255, 998, 3000, 9000} {
		for _, end := range []string{"a", "b"} {
			raw := "Message-ID: <" + strings.Repeat("x", n-1) + end + ">\n\n"
			key := identify(t, []byte(raw), email.Source{}).Key
			if len(key) > domain.MaxID || seen[key] {
				t.Errorf("%d bytes: key %q is too long or not its own", n, key)
			}
			seen[key] = true
		}
	}
}

func TestConversation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ header, want string }{
		"first of References":     {"References: <root@x> <mid@x>\nIn-Reply-To: <mid@x>\nMessage-ID: <own@x>", "root@x"},
		"folded References":       {"References:\r\n\t<root@x>\r\n\t<mid@x>\nMessage-ID: <own@x>", "root@x"},
		"In-Reply-To":             {"In-Reply-To: (mail) <parent@x>\nMessage-ID: <own@x>", "parent@x"},
		"empty References":        {"References:\nIn-Reply-To: <parent@x>\nMessage-ID: <own@x>", "parent@x"},
		"prose is no id":          {"In-Reply-To: Your message of Tuesday\nMessage-ID: <own@x>", "own@x"},
		"own id":                  {"Message-ID: <own@x>", "own@x"},
		"Google's id is a parent": {"References: <1.SMTPIN_ADDED_MISSING@mx.google.com>\nMessage-ID: <own@x>", "1.SMTPIN_ADDED_MISSING@mx.google.com"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := identify(t, []byte(c.header+"\n\nx"), email.Source{}).Conversation; got != c.want {
				t.Errorf("Conversation = %q; want %q", got, c.want)
			}
		})
	}
	raw := []byte("From: a@b\nDate: x\n\nhello")
	if id := identify(t, raw, email.Source{}); id.Conversation != id.Key {
		t.Errorf("without ids: Conversation = %q; want the key %q", id.Conversation, id.Key)
	}
	long := load(t, "57-long-references.eml")
	if got := identify(t, long, email.Source{}).Conversation; got != "ref-000.zzzzzzzzzzzzzzzzzzzz@example.org" {
		t.Errorf("long References: Conversation = %q", got)
	}
}

func TestWhatHasNoHeaderIsUnreadable(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "\n", "\r\nFrom: a@b\r\n", "no colon here", `{"from":"a@b"}`, "\x00\x01: x", " Subject: x"} {
		if id, err := email.Identify([]byte(raw), email.Source{}); err == nil {
			t.Errorf("Identify(%q) = %+v; want an error", raw, id)
		}
	}
}

// BR-81.
func TestHostileTextIsValidUTF8WithoutNUL(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"NUL in the body":        "Subject: a\n\nx\x00y",
		"NUL in the subject":     "Subject: a\x00b\n\nx",
		"quoted-printable NUL":   "Subject: =?utf-8?q?a=00b?=\nContent-Type: text/plain\nContent-Transfer-Encoding: quoted-printable\n\nx=00y",
		"latin-1 labelled utf-8": "Subject: Gr\xfc\xdfe\nContent-Type: text/plain; charset=utf-8\n\nGr\xfc\xdfe",
		"file name": "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: image/png\n" +
			"Content-Disposition: attachment; filename=\"a\x00\xff.png\"\n\nx\n--b--\n",
		"sender": "From: \"a\x00\xff\" <a\x00@b>\n\nx",
	} {
		c := email.Content("c", []byte(raw))
		all := []string{c.Text, c.Sender.ID, c.Sender.Name, email.Read([]byte(raw)).Subject}
		for _, a := range c.Attachments {
			all = append(all, a.Name, a.Type)
		}
		for _, s := range all {
			if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				t.Errorf("%s: %q", name, s)
			}
		}
		var back struct{ EML []byte }
		if err := json.Unmarshal(c.Raw, &back); err != nil || string(back.EML) != raw {
			t.Errorf("%s: raw does not hold the mail: %v", name, err)
		}
	}
	if got := email.Read([]byte("Subject: Gr\xfc\xdfe\n\n")).Subject; got != "Grüße" {
		t.Errorf("Subject = %q; want Grüße", got)
	}
}

func TestRawIsTheWholeMail(t *testing.T) {
	t.Parallel()
	raw := load(t, "16-latin1-id.eml")
	want := `{"eml":"` + base64.StdEncoding.EncodeToString(raw) + `"}`
	if got := string(email.Content("c", raw).Raw); got != want {
		t.Errorf("Raw = %s; want %s", got, want)
	}
}

func TestDateIsOneThatJSONCanHold(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Time{
		"Tue, 03 Feb 2026 09:15:00 +0100 (CET)": time.Date(2026, 2, 3, 8, 15, 0, 0, time.UTC),
		"Tue, 03 Feb 2026 09:15:00 +2400":       time.Date(2026, 2, 2, 9, 15, 0, 0, time.UTC),
		"1 Jan 0000 00:00 +0100":                {},
		"yesterday":                             {},
		"":                                      {},
	} {
		c := email.Content("c", []byte("Date: "+value+"\n\n"))
		if !c.Time.Equal(want) {
			t.Errorf("Date: %s: Time = %s; want %s", value, c.Time, want)
		}
		if _, err := json.Marshal(c); err != nil {
			t.Errorf("Date: %s: %v", value, err)
		}
	}
}

func TestReadStopsAtAMailMadeToBeExpensive(t *testing.T) {
	t.Parallel()
	parts := "Content-Type: multipart/mixed; boundary=b\n\nhead\n" +
		strings.Repeat("--b\nContent-Type: image/png\n\nx\n", 20000)
	if n := len(email.Read([]byte(parts)).Attachments); n == 0 || n > 5000 {
		t.Errorf("20000 parts: %d attachments; want at most 5000", n)
	}
	var nested strings.Builder
	nested.WriteString("Subject: deep\nContent-Type: multipart/mixed; boundary=b0\n\n")
	for i := range 3000 {
		fmt.Fprintf(&nested, "--b%d\nContent-Type: multipart/mixed; boundary=b%d\n\n", i, i+1)
	}
	if got := email.Read([]byte(nested.String())).Subject; got != "deep" {
		t.Errorf("3000 levels: Subject = %q; want deep", got)
	}
	markup := "Content-Type: text/html; charset=utf-8\n\n<p>grün</p>" + strings.Repeat("<p>ü</p>", 150_000)
	if got := email.Read([]byte(markup)).Text; !strings.HasPrefix(got, "grün") || len(got) > 1<<20 {
		t.Errorf("a megabyte of HTML: %d bytes, %.20q", len(got), got)
	}
	deepest := "Content-Type: multipart/mixed; boundary=a\n\n--a\nContent-Type: multipart/related; boundary=b\n\n" +
		"--b\nContent-Type: multipart/alternative; boundary=c\n\n--c\n\nhello\n--c--\n--b--\n--a--\n"
	if got := email.Read([]byte(deepest)).Text; got != "hello" {
		t.Errorf("three levels: Text = %q; want hello", got)
	}
}

func TestTextOfOddMail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ raw, want string }{
		"no MIME at all":           {"Subject: a\r\n\r\nline\r\nline\r\n", "line\nline"},
		"multipart, no boundary":   {"Content-Type: multipart/mixed\n\nhello\n", "hello"},
		"boundary never stands":    {"Content-Type: multipart/mixed; boundary=q\n\nhello\n", ""},
		"cut in the middle":        {"Content-Type: multipart/mixed; boundary=q\n\n--q\nContent-Type: text/plain\n\nhello\n", "hello"},
		"latin-1 that is cp1252":   {"Content-Type: text/plain; charset=iso-8859-1\n\n\x80 5", "€ 5"},
		"no charset, not UTF-8":    {"Subject: a\n\ngr\xfcn", "grün"},
		"text attachment is none":  {"Content-Type: multipart/mixed; boundary=q\n\n--q\n\nhi\n--q\nContent-Disposition: attachment; filename=a.txt\nContent-Type: text/plain\n\nno\n--q--\n", "hi"},
		"two plain parts":          {"Content-Type: multipart/mixed; boundary=q\n\n--q\n\none\n--q\n\ntwo\n--q--\n", "one\ntwo"},
		"HTML beside an empty one": {"Content-Type: multipart/alternative; boundary=q\n\n--q\n\n\n--q\nContent-Type: text/html\n\n<p>hi</p>\n--q--\n", "hi"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := email.Read([]byte(c.raw)).Text; got != c.want {
				t.Errorf("Text = %q; want %q", got, c.want)
			}
		})
	}
}
