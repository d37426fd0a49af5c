package email

import (
	"bytes"
	"strings"
)

// A header holds what is read from the top header of a mail. Values are as received, folds
// included, and refer to the mail; of fields that stand several times the first one counts.
type header struct {
	from, date, subject   []byte
	messageID, googleID   []byte // nil if there is no such field
	references, inReplyTo []byte
	fields                int    // lines that begin a field
	body                  []byte // everything after the first empty line
}

// value returns where the value of the field goes, nil if nobody asks for it. The lengths
// come first: most fields of a header are others, and this runs before the acknowledgement.
func (h *header) value(name []byte) *[]byte {
	var v *[]byte
	var want string
	switch len(name) {
	case len("From"):
		if v, want = &h.from, "From"; name[0]|0x20 == 'd' {
			v, want = &h.date, "Date"
		}
	case len("Subject"):
		v, want = &h.subject, "Subject"
	case len("Message-ID"):
		if v, want = &h.messageID, "Message-ID"; name[0]|0x20 == 'r' {
			v, want = &h.references, "References"
		}
	case len("In-Reply-To"):
		v, want = &h.inReplyTo, "In-Reply-To"
	case len(googleOriginal):
		v, want = &h.googleID, googleOriginal
	}
	if v == nil || !strings.EqualFold(string(name), want) {
		return nil
	}
	return v
}

// readHeader is a scanner of its own because the identity of a mail may not depend on the
// version or the tolerance of a library. Lines end in LF, with or without CR before it.
func readHeader(mail []byte) header {
	var h header
	var open *[]byte // value of the field that a folded line would continue
	var start int
	for pos := 0; pos < len(mail); {
		next := len(mail)
		if i := bytes.IndexByte(mail[pos:], '\n'); i >= 0 {
			next = pos + i + 1
		}
		line := bytes.TrimRight(mail[pos:next], "\r\n")
		if len(line) == 0 {
			h.body = mail[next:]
			return h
		}
		end := pos + len(line)
		if line[0] == ' ' || line[0] == '\t' {
			if open != nil {
				*open = mail[start:end]
			}
			pos = next
			continue
		}
		open = nil
		if colon := bytes.IndexByte(line, ':'); colon > 0 {
			// Blanks before the colon are obsolete syntax (RFC 5322 4.5) that is still sent.
			name := bytes.TrimRight(line[:colon], " \t")
			if isFieldName(name) {
				h.fields++
			}
			if v := h.value(name); v != nil && *v == nil {
				open, start = v, pos+colon+1
				*v = mail[start:end]
			}
		}
		pos = next
	}
	return h
}

// isFieldName reports whether name could name a field. RFC 5322 2.2 allows every printable
// character; fields in use are made of these, and JSON or prose is not.
func isFieldName(name []byte) bool {
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return len(name) > 0
}

// flat returns the value of a field on one line: unfolded, runs of blanks made one space,
// none at the ends.
func flat(value []byte) []byte {
	out := make([]byte, 0, len(value))
	for _, c := range value {
		if !isBlank(c) {
			out = append(out, c)
		} else if len(out) > 0 && out[len(out)-1] != ' ' {
			out = append(out, ' ')
		}
	}
	return bytes.TrimRight(out, " ")
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
