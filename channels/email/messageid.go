package email

import "strings"

// What Google puts in place of a Message-ID that is missing or that it thinks malformed, by
// its end, and the field in which it keeps a malformed one.
const (
	googleOriginal = "X-Google-Original-Message-ID"
	googleMissing  = "SMTPIN_ADDED_MISSING@mx.google.com"
	googleBroken   = "SMTPIN_ADDED_BROKEN@mx.google.com"
)

// id returns the id of a mail, or "" if its sender gave it none. An id that Google
// made up is none; the one it kept counts only in place of it, and only if the mail came from
// Gmail, since anybody can write that field.
func (h *header) id(gmail bool) string {
	id := parseID(h.messageID)
	if gmail && strings.HasSuffix(id, googleBroken) {
		id = parseID(h.googleID)
	}
	if strings.HasSuffix(id, googleMissing) || strings.HasSuffix(id, googleBroken) {
		return ""
	}
	return id
}

// root returns the id of the mail that began the conversation, as far as h tells: the first
// of References, else of In-Reply-To; "" if it answers none. Only what stands in angle
// brackets is an id there: older mail has prose beside it.
func (h *header) root() string {
	for _, v := range [][]byte{h.references, h.inReplyTo} {
		if at := bracket(v); at >= 0 {
			if id := within(v[at+1:]); id != "" {
				return id
			}
		}
	}
	return ""
}

// parseID returns the id in the value of a Message-ID field: what stands between the first
// < and its >, or the first token if there is no <; white space removed, letter case and
// bytes kept. Comments are skipped, quoted strings honoured (RFC 5322 3.6.4, 4.5.4).
func parseID(value []byte) string {
	if at := bracket(value); at >= 0 {
		return within(value[at+1:])
	}
	return token(value)
}

// bracket returns the place of the first < that stands in no comment and no quoted string,
// or -1.
func bracket(v []byte) int {
	quotes := true
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case '<':
			return i
		case '(':
			i = closing(v, i)
		case '"':
			i, quotes = skip(v, i, quotes)
		}
	}
	return -1
}

// closing returns the place of what closes the comment or quoted string that begins at v[i],
// or len(v) if nothing does.
func closing(v []byte, i int) int {
	quoted, depth := v[i] == '"', 1
	for i++; i < len(v); i++ {
		switch c := v[i]; {
		case c == '\\':
			i++
		case quoted && c == '"':
			return i
		case !quoted && c == '(':
			depth++
		case !quoted && c == ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(v)
}

// skip returns the end of the quoted string that begins at v[i]. Where one never closes, no
// later one does: then it stays at i and says not to look again, which keeps the scan of a
// value made of quotes linear.
func skip(v []byte, i int, quotes bool) (at int, more bool) {
	if !quotes {
		return i, false
	}
	if end := closing(v, i); end < len(v) {
		return end, true
	}
	return i, false
}

// within returns the id that begins after a <. Of a quoted string that never closes the
// quote is a letter like any other; an id that never closes ends with the value.
func within(v []byte) string {
	quotes := true
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case '>':
			return squeeze(v[:i])
		case '"':
			i, quotes = skip(v, i, quotes)
		}
	}
	return squeeze(v)
}

// token returns the first run of letters that are neither blank nor comment.
func token(v []byte) string {
	i := 0
	for i < len(v) && (isBlank(v[i]) || v[i] == '(') {
		if v[i] == '(' {
			i = closing(v, i)
		}
		i++
	}
	start, quotes := min(i, len(v)), true
	for i = start; i < len(v) && !isBlank(v[i]) && v[i] != '('; i++ {
		if v[i] == '"' {
			i, quotes = skip(v, i, quotes)
		}
	}
	return squeeze(v[start:i])
}

// squeeze returns v without white space.
func squeeze(v []byte) string {
	n := 0
	for _, c := range v {
		if isBlank(c) {
			n++
		}
	}
	if n == 0 {
		return string(v)
	}
	out := make([]byte, 0, len(v)-n)
	for _, c := range v {
		if !isBlank(c) {
			out = append(out, c)
		}
	}
	return string(out)
}
