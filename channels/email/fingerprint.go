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
func bodyHash(body []byte) [sha256.Size]byte {
	w := chunks{hash: sha256.New()}
	newlines, blank := 0, false
	for i, c := range body {
		switch c {
		case '\r':
			if i+1 < len(body) && body[i+1] == '\n' {
				continue
			}
			newlines, blank = newlines+1, false
		case '\n':
			newlines, blank = newlines+1, false
		case ' ', '\t':
			blank = true
		default:
			// Line ends and blanks are written only once something follows them, so that
			// those at the end are dropped.
			for ; newlines > 0; newlines-- {
				w.put('\n')
			}
			if blank {
				w.put(' ')
				blank = false
			}
			w.put(c)
		}
	}
	return w.sum()
}

// chunks gathers single bytes for a hash.
type chunks struct {
	hash hash.Hash
	buf  [4096]byte
	n    int
}

func (w *chunks) put(c byte) {
	if w.n == len(w.buf) {
		w.hash.Write(w.buf[:])
		w.n = 0
	}
	w.buf[w.n] = c
	w.n++
}

func (w *chunks) sum() (sum [sha256.Size]byte) {
	w.hash.Write(w.buf[:w.n])
	w.hash.Sum(sum[:0])
	return sum
}
