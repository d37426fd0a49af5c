package email_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/admitone/admitone/channels/email"
	"github.com/admitone/admitone/domain"
)

// refold folds each field of the header of mail, which has LF line ends, at its blanks.
func refold(mail string) string {
	var out strings.Builder
	for mail != "" {
		line, rest, found := strings.Cut(mail, "\n")
		if line == "" {
			break
		}
		if name, value, ok := strings.Cut(line, ":"); ok && line[0] != ' ' && line[0] != '\t' {
			line = name + ":" + strings.ReplaceAll(value, " ", "\n ")
		}
		out.WriteString(line)
		if mail = rest; found {
			out.WriteString("\n")
		}
	}
	return out.String() + mail
}

func FuzzIdentify(f *testing.F) {
	for _, file := range []string{
		"01-baseline.eml", "02-missing-message-id.eml", "04-two-message-ids.eml", "12-leading-nested-comment.eml",
		"14-quoted-local-part.eml", "16-latin1-id.eml", "31-list-copy-same-id.eml", "57-long-references.eml",
		"58-bare-lf.eml", "61-no-blank-line.eml",
	} {
		f.Add(load(f, file))
	}
	f.Add([]byte("Message-ID: <\"\\\"\\\"\\\">\nFrom: (\\(\n \t\n\n \t x \t\n\n\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		first, err := email.Identify(raw, email.Source{})
		if err != nil {
			return
		}
		for _, id := range []string{first.Key, first.Conversation} {
			if id == "" || domain.StorableID(id) != id {
				t.Fatalf("%q can't be stored", id)
			}
		}
		same := map[string][]byte{
			"trace": append([]byte("Received: from a by b; now\r\nARC-Seal: i=1\r\n\tb=x\r\n"), raw...),
		}
		if lf := strings.ReplaceAll(string(raw), "\r\n", "\n"); !strings.Contains(lf, "\r") {
			same["LF"] = []byte(lf)
			same["CRLF"] = []byte(strings.ReplaceAll(lf, "\n", "\r\n"))
			same["folding"] = []byte(refold(lf))
		}
		for how, copied := range same {
			id, err := email.Identify(copied, email.Source{})
			if err != nil || id != first {
				t.Errorf("other %s: %+v, %v; want %+v", how, id, err, first)
			}
			if a, b := email.Fingerprint(copied), email.Fingerprint(raw); a != b {
				t.Errorf("other %s: fingerprint %s; want %s", how, a, b)
			}
		}
	})
}

func FuzzContent(f *testing.F) {
	for _, file := range []string{
		"41-quoted-printable.eml", "42-alternative.eml", "43-html-only.eml", "44-attachments.eml", "45-nested-rfc822.eml",
		"47-smime-signed.eml", "49-iso-2022-jp.eml", "53-unknown-charset-label.eml", "63-bounce.eml", "66-bad-base64.eml",
	} {
		f.Add(load(f, file))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := email.Content("x", raw)
		if !utf8.ValidString(c.Text) || strings.ContainsRune(c.Text, 0) {
			t.Errorf("Text = %q", c.Text)
		}
		var back struct{ EML []byte }
		if err := json.Unmarshal(c.Raw, &back); err != nil || !bytes.Equal(back.EML, raw) {
			t.Errorf("Raw does not hold the mail: %v", err)
		}
	})
}
