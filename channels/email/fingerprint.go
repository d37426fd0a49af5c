package email

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// Fingerprint returns what a mail is recognised by where its sender gave it no id: the
// SHA-256, in hex, of its sender, date, subject and body, in a form that is the same by
// whatever path the mail came. No trace, list or authentication field goes in, and neither
// folding, line ends, runs of blanks nor blank lines at the end make a difference (the
// relaxed body canonicalisation of RFC 6376 3.4.4 is the model). The input is "v1", the
// flat values of the first From, Date and Subject and the SHA-256 of the body in hex, each
// on a line of its own, the last without a line end.
func Fingerprint(mail []byte) string {
	h := readHeader(mail)
	return h.fingerprint()
}

func (h *header) fingerprint() string {
	body := bodyHash(h.body)
	sum := sha256.Sum256(bytes.Join([][]byte{
		[]byte("v1"), flat(h.from), flat(h.date), flat(h.subject), hex.AppendEncode(nil, body[:]),
	}, []byte("\n")))
	return hex.EncodeToString(sum[:])
}

// bodyHash hashes body in pieces: a mail may have 25 MiB, and a canonical copy of it would
// be as large.
func bodyHash(body []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	// Line ends and blanks are written only once something follows them, so that those at
	// the end are dropped.
	newlines, blank := 0, false
	buf := make([]byte, 0, piece+2)
	for i, c := range body {
		switch c {
		case '\r', '\n':
			if c == '\n' || i+1 == len(body) || body[i+1] != '\n' {
				newlines, blank = newlines+1, false
			}
			continue
		case ' ', '\t':
			blank = true
			continue
		}
		for ; newlines > 0; newlines-- {
			buf = flush(h, append(buf, '\n'))
		}
		if blank {
			buf, blank = append(buf, ' '), false
		}
		buf = flush(h, append(buf, c))
	}
	h.Write(buf)
	h.Sum(sum[:0])
	return sum
}

const piece = 8 << 10

// flush returns buf, or an empty one once it has hashed a piece.
func flush(h hash.Hash, buf []byte) []byte {
	if len(buf) < piece {
		return buf
	}
	h.Write(buf)
	return buf[:0]
}
