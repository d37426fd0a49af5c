package channeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// garbage are bodies that no vendor means.
var garbage = []string{
	"", " ", "null", "true", "0", `""`, "[]", "{}", "[{}]", "{", "[[", "\"", "\x00", "\xff\xfe\x00", "\xef\xbb\xbf{}",
	"{} {}", `{"":""}`, "=&=&%zz=%", "a=%00&a=%ff", "<xml></xml>", "<xml>", "<!DOCTYPE x [<!ENTITY a \"b\">]><xml>&a;</xml>",
	"\r\n\r\n", "Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\n--a\r\n",
	strings.Repeat("[", 20000), strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000),
	strings.Repeat("[", 20000) + strings.Repeat("]", 20000), strings.Repeat("9", 20000),
}

// Values of JSON that stand where the vendor sends another: unstorable ones take the place
// of each value, unfit ones of one after the other.
var (
	unstorable = []string{`"a\u0000b"`, "\"\xff\xc0\"", `"` + strings.Repeat("é", 400) + `"`, strings.Repeat("9", 400)}
	unfit      = []string{
		"null", `""`, `"x"`, "0", "-1", "1.5", "1e999999", "9007199254740993", "true",
		"{}", "[]", "[null]", `{"id":{}}`, `"\ud800"`,
	}
)

// hostile returns bodies like that of f, each broken in one place, and some that are unlike it.
func hostile(f fixture) [][]byte {
	n := len(f.body)
	var bodies [][]byte
	for _, end := range []int{1, n / 4, n / 2, 3 * n / 4, n - 1} {
		if end > 0 && end < n {
			bodies = append(bodies, f.body[:end])
		}
	}
	for _, g := range garbage {
		bodies = append(bodies, []byte(g))
	}
	if strings.HasPrefix(f.header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		return append(bodies, hostileForms(string(f.body))...)
	}
	for i, v := range values(f.body) {
		for _, other := range append([]string{unfit[i%len(unfit)], unfit[(i+5)%len(unfit)], unfit[(i+10)%len(unfit)]}, unstorable...) {
			bodies = append(bodies, slices.Concat(f.body[:v.start], []byte(other), f.body[v.end:]))
		}
	}
	return append(bodies,
		bytes.ReplaceAll(f.body, []byte("e"), []byte("\xe9")),
		bytes.ReplaceAll(f.body, []byte(" "), []byte("\x00")),
	)
}

func hostileForms(body string) [][]byte {
	var bodies [][]byte
	fields := strings.Split(body, "&")
	for i, field := range fields {
		name, _, _ := strings.Cut(field, "=")
		for _, value := range []string{"", "%00", "%ff%E9", "%", "%7B%7D", url.QueryEscape(strings.Repeat("é", 400))} {
			changed := slices.Clone(fields)
			changed[i] = name + "=" + value
			bodies = append(bodies, []byte(strings.Join(changed, "&")))
		}
		bodies = append(bodies,
			[]byte(strings.Join(slices.Delete(slices.Clone(fields), i, i+1), "&")),
			[]byte(body+"&"+name+"=admitone"))
	}
	return bodies
}

// A span is where a value of JSON stands.
type span struct{ start, end int64 }

// values returns where the values of body stand, the outermost last, as far as it is JSON.
func values(body []byte) []span {
	type frame struct {
		start  int64
		object bool
		key    bool // the next token is a key
	}
	var (
		spans []span
		stack []frame
		d     = json.NewDecoder(bytes.NewReader(body))
	)
	d.UseNumber()
	for {
		start := d.InputOffset()
		tok, err := d.Token()
		if err != nil {
			return spans
		}
		end := d.InputOffset()
		for start < end && strings.IndexByte(" \t\r\n,:", body[start]) >= 0 {
			start++
		}
		delim, isDelim := tok.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			spans = append(spans, span{stack[len(stack)-1].start, end})
			stack = stack[:len(stack)-1]
			continue
		}
		if len(stack) > 0 && stack[len(stack)-1].object {
			top := &stack[len(stack)-1]
			wasKey := top.key
			top.key = !top.key
			if wasKey {
				continue
			}
		}
		if isDelim {
			stack = append(stack, frame{start, delim == '{', true})
			continue
		}
		spans = append(spans, span{start, end})
	}
}

// repeated returns body with the keys of each of its objects standing in it once more, last,
// as rename writes them and with other values. It returns nil if body is no JSON object.
func repeated(body []byte, rename func(string) string) []byte {
	if !json.Valid(body) || !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return nil
	}
	type frame struct {
		object bool
		key    bool
		keys   []string
	}
	var (
		out   bytes.Buffer
		done  int64
		stack []*frame
		d     = json.NewDecoder(bytes.NewReader(body))
	)
	d.UseNumber()
	for {
		tok, err := d.Token()
		if err != nil {
			out.Write(body[done:])
			return out.Bytes()
		}
		delim, isDelim := tok.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			top := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			at := d.InputOffset() - 1
			out.Write(body[done:at])
			done = at
			for _, key := range top.keys {
				if again := rename(key); again != "" {
					fmt.Fprintf(&out, `,%q:"admitone"`, again)
				}
			}
			continue
		}
		if len(stack) > 0 && stack[len(stack)-1].object {
			top := stack[len(stack)-1]
			wasKey := top.key
			top.key = !top.key
			if wasKey {
				top.keys = append(top.keys, tok.(string)) //nolint:forcetypeassert // a key is a string
				continue
			}
		}
		if isDelim {
			stack = append(stack, &frame{object: delim == '{', key: true})
		}
	}
}

func firstOfDuplicateKeysCounts(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range k.events {
		want, err := k.receive(e, k.request(f))
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		wantContent, err := k.contents(want)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		for what, rename := range map[string]func(string) string{
			"each key twice": func(key string) string { return key },
			"each key in capitals too": func(key string) string {
				if upper := strings.ToUpper(key); upper != key {
					return upper
				}
				return ""
			},
		} {
			body := repeated(f.body, rename)
			if body == nil {
				continue // no JSON
			}
			got, err := k.receive(e, k.withBody(f, body))
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, %s: %w", f.name, what, err))
				continue
			}
			content, err := k.contents(got)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, %s: %w", f.name, what, err))
				continue
			}
			for i := range got { // the bytes differ, and so may what is made of all of them
				got[i].Digest = domain.Digest{}
				content[i].Raw = nil
			}
			plain, plainContent := slices.Clone(want), slices.Clone(wantContent)
			for i := range plain {
				plain[i].Digest = domain.Digest{}
				plainContent[i].Raw = nil
			}
			if slices.Contains(k.ByContent, f.name) && len(got) == len(plain) {
				for i := range got {
					got[i].ID, plain[i].ID = "", ""
				}
			}
			if err := different(f.name+", "+what, got, plain); err != nil {
				errs = append(errs, err)
			} else if !reflect.DeepEqual(content, plainContent) {
				errs = append(errs, fmt.Errorf("%s, %s: got content %+v, want %+v", f.name, what, content, plainContent))
			}
		}
	}
	return errors.Join(errs...)
}

// survive returns what is wrong with what becomes of r, an authentic request of any body.
func (k *subject) survive(e channels.Endpoint, r *channels.Request) error {
	switch err := k.verify(e, r); {
	case errors.Is(err, domain.ErrUnauthenticated):
		return nil // a vendor's signature may presuppose that a body can be read
	case err != nil:
		return fmt.Errorf("verify: the error does not wrap domain.ErrUnauthenticated: %w", err)
	}
	b, err := k.extract(e, r)
	switch {
	case errors.Is(err, errPanic):
		return fmt.Errorf("extract: %w", err)
	case errors.Is(err, domain.ErrUnreadable), errors.Is(err, domain.ErrUnknownRecipient):
		return nil
	case err != nil:
		return fmt.Errorf("extract: the error wraps neither domain.ErrUnreadable nor domain.ErrUnknownRecipient: %w", err)
	}
	var errs []error
	for _, ev := range b.Events {
		errs = append(errs, k.sound(ev))
	}
	return errors.Join(errs...)
}

func brokenBodyIsUnreadable(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	for _, f := range k.genuine {
		for _, body := range hostile(f) {
			if err := k.survive(e, k.withBody(f, body)); err != nil {
				return fmt.Errorf("%s with the body %.400q: %w", f.name, body, err)
			}
		}
	}
	return nil
}

func fuzzSeeds(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	const rounds = 100
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range k.genuine {
		for range rounds {
			body := mutated(rng, f.body)
			if err := k.survive(e, k.withBody(f, body)); err != nil {
				return fmt.Errorf("%s with the body %.400q: %w", f.name, body, err)
			}
		}
	}
	return nil
}

// mutated returns a copy of body with a few bytes changed, dropped or repeated.
func mutated(rng *rand.Rand, body []byte) []byte {
	out := bytes.Clone(body)
	for range 1 + rng.IntN(4) {
		if len(out) == 0 {
			return []byte(garbage[rng.IntN(len(garbage))])
		}
		at := rng.IntN(len(out))
		end := min(len(out), at+1+rng.IntN(16))
		switch rng.IntN(4) {
		case 0:
			out[at] = byte(rng.IntN(256))
		case 1:
			out = slices.Delete(out, at, end)
		case 2:
			out = slices.Insert(out, at, bytes.Clone(out[at:end])...)
		case 3:
			out = slices.Insert(out, at, []byte(unfit[rng.IntN(len(unfit))])...)
		}
	}
	return out
}
