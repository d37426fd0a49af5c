package email

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/mail"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/inbucket/html2text"
	"github.com/jhillyerd/enmime/v2"
	"github.com/jhillyerd/enmime/v2/mediatype"
	"golang.org/x/text/encoding/charmap"

	"github.com/admitone/admitone/domain"
)

// What a mail may cost to read. Anybody can send one that is made of nothing but nested or
// empty parts, or of markup; reading stops there, and the whole mail is still in Raw.
const (
	// maxDelimiters is how many lines that may delimit parts are read: a part costs about a
	// kilobyte, and a delimiter six bytes.
	maxDelimiters = 5000
	// maxMultiparts is how many parts may hold parts: each level of nesting reads every
	// byte within it once more, at about a second for 25 MiB.
	maxMultiparts = 10
	// maxMarkup is how many bytes of HTML are turned into text.
	maxMarkup = 1 << 20
	// maxField is how many bytes of a field are decoded.
	maxField = 64 << 10
)

// A Mail is what a mail says, decoded: valid UTF-8 without NUL.
type Mail struct {
	Subject     string
	Sender      domain.Sender // the first address of From; ID as written, empty if there is none
	Text        string        // lines end in LF; made from the HTML if there is no plain text
	Attachments []domain.Attachment
	Date        time.Time // as the sender says; zero if it does not
}

// Read returns what raw, a whole mail as received, says. It makes the best of what is
// broken: of a mail that no parser understands there is at least what its header says.
func Read(raw []byte) Mail {
	h := readHeader(raw)
	m := Mail{Subject: Clean(enmime.DecodeRFC2047(field(h.subject))), Sender: sender(h.from), Date: date(h.date)}
	root, err := parse(raw)
	if err != nil {
		m.Text = text(h.body)
		return m
	}
	var plain, markup []string
	root.DepthMatchAll(func(p *enmime.Part) bool {
		holds := strings.HasPrefix(p.ContentType, "multipart/")
		switch {
		case holds && p.Boundary != "":
		case p.Disposition != "attachment" &&
			(p.ContentType == "text/plain" || p.ContentType == "" || holds && p == root):
			plain = append(plain, text(p.Content))
		case p.Disposition != "attachment" && p.ContentType == "text/html":
			markup = append(markup, legacy(p.Content))
		default:
			m.Attachments = append(m.Attachments, domain.Attachment{
				Type: Clean(p.ContentType), Name: Clean(p.FileName), Size: int64(len(p.Content)),
			})
		}
		return false
	})
	if m.Text = strings.Trim(strings.Join(plain, "\n"), "\n"); m.Text == "" && len(markup) > 0 {
		if t, err := html2text.FromString(markup[0][:min(len(markup[0]), maxMarkup)]); err == nil {
			m.Text = text([]byte(t))
		}
	}
	return m
}

// Content returns what the application is told of raw, which belongs to conversation.
func Content(conversation string, raw []byte) domain.Content {
	m := Read(raw)
	eml := make([]byte, 0, len(`{"eml":""}`)+base64.StdEncoding.EncodedLen(len(raw)))
	eml = append(eml, `{"eml":"`...)
	eml = base64.StdEncoding.AppendEncode(eml, raw)
	return domain.Content{
		Conversation: domain.Conversation{ExternalID: conversation},
		Sender:       m.Sender,
		Text:         m.Text,
		Attachments:  m.Attachments,
		Time:         m.Date,
		Raw:          append(eml, `"}`...),
	}
}

// parse returns the parts of raw. The bytes are a stranger's and the parser is large: one
// that panics costs this mail its text, not the process its life.
func parse(raw []byte) (root *enmime.Part, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("parser: %v", r)
		}
	}()
	seen := map[string]bool{}
	parser := enmime.NewParser(
		enmime.SkipMalformedParts(true),
		enmime.MultipartWOBoundaryAsSinglePart(true),
		enmime.SetReadPartErrorPolicy(func(*enmime.Part, error) bool { return true }),
		enmime.MaxStoredPartErrors(1),
		enmime.DisableCharacterDetection(true), // a guess is for mail that names no charset
		enmime.SetCustomParseMediaType(func(ctype string) (string, map[string]string, []string, error) {
			mtype, params, invalid, err := mediatype.Parse(ctype[:min(len(ctype), maxField)])
			if b := params["boundary"]; b != "" && !seen[b] {
				if len(seen) == maxMultiparts {
					delete(params, "boundary")
				} else {
					seen[b] = true
				}
			}
			return mtype, params, invalid, err
		}),
	)
	return parser.ReadParts(bytes.NewReader(bounded(raw)))
}

// bounded returns raw up to the line that would be one delimiter too many.
func bounded(raw []byte) []byte {
	for n, pos := 0, 0; ; n++ {
		i := bytes.Index(raw[pos:], []byte("\n--"))
		if i < 0 {
			return raw
		}
		if pos += i + 1; n == maxDelimiters {
			return raw[:pos]
		}
	}
}

func sender(from []byte) domain.Sender {
	value := field(from)
	if list, err := enmime.ParseAddressList(value); err == nil && len(list) > 0 {
		return domain.Sender{ID: Clean(list[0].Address), Name: Clean(list[0].Name)}
	}
	// Not an address by any rule, but often there is one in it.
	if name, rest, found := strings.Cut(value, "<"); found {
		address, _, _ := strings.Cut(rest, ">")
		return domain.Sender{
			ID:   Clean(strings.TrimSpace(address)),
			Name: Clean(enmime.DecodeRFC2047(strings.Trim(name, ` "`))),
		}
	}
	return domain.Sender{ID: Clean(value)}
}

// date returns the time in the value of a Date field in UTC; zero if it has none that JSON
// can hold.
func date(value []byte) time.Time {
	t, err := mail.ParseDate(field(value))
	if t = t.UTC(); err != nil || t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// field returns the value of a field, of which encoded words are still to be decoded.
func field(value []byte) string {
	s := legacy(flat(value))
	return s[:min(len(s), maxField)]
}

// legacy returns b as UTF-8. Bytes that are not come from a program that neither encodes nor
// says its charset: Windows-1252 is the likeliest.
func legacy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	if s, err := charmap.Windows1252.NewDecoder().Bytes(b); err == nil {
		return string(s)
	}
	return string(b)
}

// text returns b with LF line ends and no blank lines around it.
func text(b []byte) string {
	s := strings.ReplaceAll(Clean(legacy(b)), "\r\n", "\n")
	return strings.Trim(s, "\r\n")
}

// Clean returns s as every store and every JSON reader takes it: bytes that are not UTF-8
// and NUL become U+FFFD. A C1 control stands for what Windows-1252 has in its place: mail
// that says ISO-8859-1 and means Windows-1252 is common, and C1 controls in mail are not.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == 0:
			return utf8.RuneError
		case r >= 0x80 && r < 0xA0:
			return charmap.Windows1252.DecodeByte(byte(r))
		}
		return r
	}, s)
}
