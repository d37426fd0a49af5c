package twilio

import (
	"slices"
	"strings"
	"sync"

	"github.com/admitone/admitone/domain"
)

// A param is one parameter of a form or of a query, decoded.
type param struct{ name, value string }

// params are in the order received until they are sorted.
type params []param

// parse appends to ps the parameters in text. It differs from url.ParseQuery in that it drops
// nothing, since all of it is signed: a semicolon is part of a value, and a percent sign that
// begins no escape stands for itself.
func parse[T string | []byte](ps params, text T) params {
	// Decoding never lengthens, so the builder's memory never moves and one allocation
	// holds every name and value.
	var b strings.Builder
	b.Grow(len(text))
	decoded := func(from, to int) string {
		start := b.Len()
		for i := from; i < to; i++ {
			switch c := text[i]; {
			case c == '+':
				b.WriteByte(' ')
			case c == '%' && i+2 < to && isHex(text[i+1]) && isHex(text[i+2]):
				b.WriteByte(unhex(text[i+1])<<4 | unhex(text[i+2]))
				i += 2
			default:
				b.WriteByte(c)
			}
		}
		return b.String()[start:]
	}
	for start := 0; start < len(text); {
		end, equals := start, -1
		for ; end < len(text) && text[end] != '&'; end++ {
			if text[end] == '=' && equals < 0 {
				equals = end
			}
		}
		switch {
		case start == end: // nothing between two ampersands
		case equals < 0:
			ps = append(ps, param{name: decoded(start, end)})
		default:
			ps = append(ps, param{decoded(start, equals), decoded(equals+1, end)})
		}
		start = end + 1
	}
	return ps
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	default:
		return c - 'a' + 10
	}
}

// canonical sorts ps by name and value, in byte order, and drops repeated pairs: the form in
// which Twilio signs them.
func (ps params) canonical() params {
	slices.SortFunc(ps, func(a, b param) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return strings.Compare(a.value, b.value)
	})
	return slices.Compact(ps)
}

// appendTo appends the names and values of ps to text, as they are signed.
func (ps params) appendTo(text []byte) []byte {
	for _, p := range ps {
		text = append(text, p.name...)
		text = append(text, p.value...)
	}
	return text
}

// scratch is memory that is used again from request to request. The params of one refer to
// the request they were read from, so done forgets them.
type scratch struct {
	params params
	url    []byte
	signed []byte
	parts  []string
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func newScratch() *scratch {
	return scratches.Get().(*scratch)
}

// done gives s back, unless a request of unusual size has made it large.
func (s *scratch) done() {
	if cap(s.params) > 256 || cap(s.signed) > 64<<10 || cap(s.url) > 64<<10 {
		return
	}
	clear(s.params[:cap(s.params)])
	clear(s.parts[:cap(s.parts)])
	s.params, s.url, s.signed, s.parts = s.params[:0], s.url[:0], s.signed[:0], s.parts[:0]
	scratches.Put(s)
}

// digest returns the digest of the params of s, which are in canonical order, but for those
// that skip names.
func (s *scratch) digest(skip func(name string) bool) domain.Digest {
	s.parts = s.parts[:0]
	for _, p := range s.params {
		if !skip(p.name) {
			s.parts = append(s.parts, p.name, p.value)
		}
	}
	return domain.DigestOf(s.parts...)
}
