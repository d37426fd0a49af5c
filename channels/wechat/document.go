package wechat

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

// maxDepth is how deep a body may be nested. WeChat's deepest have four levels.
const maxDepth = 100

// A document is a body as parsed: XML, unless the account is set to JSON.
type document struct {
	json gjson.Result
	xml  *element // nil if it is JSON
}

// parse reads body as what its first byte says. It returns an error that wraps
// domain.ErrUnreadable if it is neither, or has nothing in it.
func parse(body []byte) (document, error) {
	body = bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\ufeff")), " \t\r\n")
	if len(body) == 0 || body[0] != '{' {
		root, err := parseXML(body)
		if err != nil {
			return document{}, fmt.Errorf("%w: %w", domain.ErrUnreadable, err)
		}
		return document{xml: root}, nil
	}
	if !json.Valid(body) || tooDeep(body) {
		return document{}, fmt.Errorf("%w: not JSON, or nested too deep", domain.ErrUnreadable)
	}
	root := gjson.ParseBytes(body)
	empty := true
	root.ForEach(func(_, _ gjson.Result) bool {
		empty = false
		return false
	})
	if empty {
		return document{}, fmt.Errorf("%w: an empty object", domain.ErrUnreadable)
	}
	return document{json: root}, nil
}

// tooDeep reports whether body, which is JSON, is nested deeper than maxDepth.
func tooDeep(body []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// get returns the text at the end of names, each within the one before. Names count in their
// exact case, and of two equal ones the first. A number is returned digit for digit: a MsgId
// has more of them than a float can hold.
func (d document) get(names ...string) string {
	if d.xml != nil {
		e := d.xml
		for _, name := range names {
			if e = e.child(name); e == nil {
				return ""
			}
		}
		return e.text
	}
	return payload.TextAt(d.json, names...)
}

// An element is one of XML. It has a text or children; WeChat mixes the two nowhere.
type element struct {
	name     string
	text     string
	children []*element
}

func (e *element) child(name string) *element {
	for _, c := range e.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

var errXML = errors.New("neither JSON nor XML")

// parseXML returns the root of body. People have written characters in messages that XML
// forbids, and WeChat passes them on; so they are replaced and not refused. There is no
// document type, so there are no entities but XML's own.
func parseXML(body []byte) (*element, error) {
	if !bytes.HasPrefix(body, []byte("<")) {
		return nil, errXML
	}
	d := xml.NewDecoder(bytes.NewReader(bytes.Map(character, body)))
	var (
		root *element
		open []*element
		text strings.Builder
	)
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && root != nil {
			break
		}
		if err != nil {
			return nil, errXML // what it says holds what was sent
		}
		switch t := token.(type) {
		case xml.Directive:
			return nil, errors.New("XML with a document type")
		case xml.StartElement:
			e := &element{name: t.Name.Local}
			switch {
			case len(open) > 0:
				parent := open[len(open)-1]
				parent.children = append(parent.children, e)
			case root != nil:
				return nil, errors.New("XML with two roots")
			default:
				root = e
			}
			if open = append(open, e); len(open) > maxDepth {
				return nil, errors.New("XML nested too deep")
			}
			text.Reset()
		case xml.CharData:
			if len(open) == 0 && len(bytes.TrimSpace(t)) > 0 {
				return nil, errors.New("XML with text beside its root")
			}
			text.Write(t)
		case xml.EndElement:
			if e := open[len(open)-1]; len(e.children) == 0 {
				e.text = text.String()
			}
			open = open[:len(open)-1]
			text.Reset()
		}
	}
	if root.name != "xml" || len(root.children) == 0 {
		return nil, errors.New("XML that is no message")
	}
	return root, nil
}

// character returns r, or what stands for it if XML forbids it.
func character(r rune) rune {
	switch {
	case r == '\t', r == '\n', r == '\r', r >= 0x20 && r < 0xFFFE, r > 0xFFFF && r <= utf8.MaxRune:
		return r
	}
	return utf8.RuneError
}

// raw returns the whole of d, read from body, as JSON: an element of XML as an object, one
// without children as a string, and elements of one name as a list.
func (d document) raw(body []byte) (json.RawMessage, error) {
	if d.xml == nil {
		body = bytes.TrimPrefix(body, []byte("\ufeff"))
		// What is JSON but for its bytes has the bad ones inside of strings.
		return bytes.ToValidUTF8(body, []byte(string(utf8.RuneError))), nil
	}
	raw, err := json.Marshal(d.xml.value())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", domain.ErrUnreadable, err)
	}
	return raw, nil
}

func (e *element) value() any {
	if len(e.children) == 0 {
		return e.text
	}
	object := make(map[string]any, len(e.children))
	for _, c := range e.children {
		switch before := object[c.name].(type) {
		case nil:
			object[c.name] = c.value()
		case list:
			object[c.name] = append(before, c.value())
		default:
			object[c.name] = list{before, c.value()}
		}
	}
	return object
}

// A list holds the values of elements that have one name.
type list []any
