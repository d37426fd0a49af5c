package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A node is a value before its key says of what type it must be: YAML without anchors,
// aliases and merge keys, and with the place that each value comes from.
type node struct {
	kind    kind
	text    string  // of a scalar, as written
	tag     string  // of a scalar: !!str, !!int, !!bool …
	from    string  // "line 4", or the name of the variable
	literal bool    // ${…} in it is text
	entries []entry // of a mapping
	items   []*node // of a list
}

type entry struct {
	key   string
	value *node
}

type kind int

const (
	null kind = iota
	scalar
	mapping
	list
)

// String returns what a reader of the file calls it.
func (k kind) String() string {
	return [...]string{null: "nothing", scalar: "single value", mapping: "mapping", list: "list"}[k]
}

func (n *node) entry(key string) *node {
	for _, e := range n.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// A reader turns YAML into nodes.
type reader struct {
	problems *problems
	variable string              // where the text comes from, if not from the file
	within   map[*yaml.Node]bool // anchors being read, so that one that holds itself ends
}

var errDocuments = errors.New("holds more than one document")

// read returns the tree of text, which may be empty. path is the key that text is the value of.
func (r *reader) read(path string, text []byte) (*node, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return &node{}, nil
	case err != nil:
		return nil, err
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errDocuments
		}
		return nil, err
	}
	if len(doc.Content) == 0 {
		return &node{}, nil
	}
	r.within = map[*yaml.Node]bool{}
	return r.convert(path, doc.Content[0]), nil
}

func (r *reader) from(line int) string {
	if r.variable != "" {
		return r.variable
	}
	return fmt.Sprintf("line %d", line)
}

func (r *reader) convert(path string, y *yaml.Node) *node {
	n := &node{from: r.from(y.Line), literal: r.variable != ""}
	switch y.Kind {
	case yaml.AliasNode:
		if r.within[y.Alias] {
			r.problems.addAt(path, n.from, "the anchor %s holds itself", y.Value)
			return n
		}
		return r.convert(path, y.Alias)
	case yaml.ScalarNode:
		n.text, n.tag = y.Value, y.ShortTag()
		switch n.tag {
		case "!!null":
		case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
			n.kind = scalar
		default:
			r.problems.addAt(path, n.from, "a tag that is not understood; a value that begins with ! must be in quotes")
		}
	case yaml.SequenceNode:
		r.within[y] = true
		defer delete(r.within, y)
		n.kind = list
		for i, item := range y.Content {
			n.items = append(n.items, r.convert(fmt.Sprintf("%s.%d", path, i), item))
		}
	case yaml.MappingNode:
		r.within[y] = true
		defer delete(r.within, y)
		n.kind = mapping
		r.mapping(path, y, n)
	case yaml.DocumentNode:
	}
	return n
}

// mapping fills n with the entries of y. What y says itself goes before what it merges.
func (r *reader) mapping(path string, y *yaml.Node, n *node) {
	lines := map[string]int{}
	var merged []*node
	for i := 0; i+1 < len(y.Content); i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		if k.ShortTag() == "!!merge" {
			merged = append(merged, r.merged(path, v)...)
			continue
		}
		if k.Kind != yaml.ScalarNode {
			r.problems.addAt(path, r.from(k.Line), "a key must be a word")
			continue
		}
		key := below(path, k.Value)
		if first, twice := lines[k.Value]; twice {
			r.problems.addAt(key, r.from(k.Line), "duplicate key; it is in line %d already", first)
			continue
		}
		lines[k.Value] = k.Line
		value := r.convert(key, v)
		value.from = r.from(k.Line)
		n.entries = append(n.entries, entry{key: k.Value, value: value})
	}
	for _, m := range merged {
		for _, e := range m.entries {
			if n.entry(e.key) == nil {
				n.entries = append(n.entries, e)
			}
		}
	}
}

func (r *reader) merged(path string, y *yaml.Node) []*node {
	n := r.convert(path, y)
	switch n.kind {
	case mapping:
		return []*node{n}
	case list:
		return n.items
	case null, scalar:
	}
	r.problems.addAt(path, n.from, "<< needs a mapping to merge")
	return nil
}

// syntax returns what the parser says, without the name of the library and without what it
// quotes: an unknown alias is most likely a secret that begins with *.
func syntax(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.HasPrefix(text, "unknown anchor") {
		return "an alias that no anchor defines; a value that begins with * must be in quotes"
	}
	return text
}
