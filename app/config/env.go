package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// prefix begins the name of each variable that sets a key.
const prefix = "ADMITONE_"

// foreign are variables that a cluster sets in each container of a namespace for its
// services, so for one called admitone too (Kubernetes documentation, "Discovering
// services"). No key is spelt like them.
var foreign = regexp.MustCompile(`^ADMITONE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// environment returns the variables by name. Of several with one name the first counts, as
// for os.Getenv.
func environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if _, twice := env[name]; ok && !twice {
			env[name] = value
		}
	}
	return env
}

// An override is a variable and the key that it names.
type override struct {
	variable string
	path     []string
	typ      reflect.Type
}

// overlay puts the values of the variables that name keys into the tree, over those of the file.
func overlay(root *node, env map[string]string, s *shape, p *problems) {
	var found []override
	var unknown []string
	for name := range env {
		rest, ours := strings.CutPrefix(name, prefix)
		if !ours || foreign.MatchString(name) {
			continue
		}
		if path, typ := s.resolve(rest); len(path) > 0 && typ != nil {
			found = append(found, override{name, path, typ})
		} else {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		p.add(name, "the variable names no key%s", didYouMean(name, s.near(prefix, strings.TrimPrefix(name, prefix))))
	}
	// A key goes before those under it, and an item of a list before the next.
	slices.SortFunc(found, func(a, b override) int { return slices.CompareFunc(a.path, b.path, compareWords) })
	for _, o := range found {
		path := strings.Join(o.path, ".")
		value, err := o.value(path, env[o.variable], p)
		if err == nil {
			err = root.set(o.path, value)
		}
		if err != nil {
			p.addAt(path, o.variable, "%w", err)
		}
	}
}

func isNumber(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && strconv.Itoa(n) == s && n >= 0
}

func compareWords(a, b string) int {
	i, errA := strconv.Atoi(a)
	j, errB := strconv.Atoi(b)
	if errA == nil && errB == nil {
		return i - j
	}
	return strings.Compare(a, b)
}

// resolve returns the key below s that rest spells in capitals with underscores, and its
// type; nil if there is none.
func (s *shape) resolve(rest string) (path []string, typ reflect.Type) {
	if rest == "" {
		return nil, s.typ
	}
	try := func(word, name string, below *shape) {
		left, ok := strings.CutPrefix(rest, word)
		if !ok || typ != nil {
			return
		}
		if left != "" {
			if left, ok = strings.CutPrefix(left, "_"); !ok || left == "" {
				return
			}
		}
		if found, t := below.resolve(left); t != nil {
			path, typ = append([]string{name}, found...), t
		}
	}
	for _, k := range s.keys {
		try(strings.ToUpper(k.name), k.name, k.shape)
	}
	if s.item != nil {
		if digits, _, _ := strings.Cut(rest, "_"); isNumber(digits) {
			try(digits, digits, s.item)
		}
	}
	return path, typ
}

// near returns the names of the variables of all keys below the deepest one that rest spells
// rightly; before is what stands before rest.
func (s *shape) near(before, rest string) []string {
	for _, k := range s.keys {
		if word := strings.ToUpper(k.name) + "_"; strings.HasPrefix(rest, word) && !k.isLeaf() {
			return k.near(before+word, rest[len(word):])
		}
	}
	if digits, left, ok := strings.Cut(rest, "_"); ok && s.item != nil && isNumber(digits) {
		return s.item.near(before+digits+"_", left)
	}
	return s.variables(before)
}

func (s *shape) isLeaf() bool { return s.keys == nil && s.item == nil }

// variables returns the name of the variable of each key below s; items of a list count as 0.
func (s *shape) variables(before string) []string {
	var names []string
	add := func(word string, below *shape) {
		names = append(names, before+word)
		names = append(names, below.variables(before+word+"_")...)
	}
	for _, k := range s.keys {
		add(strings.ToUpper(k.name), k.shape)
	}
	if s.item != nil {
		add("0", s.item)
	}
	return names
}

var errNoYAML = errors.New("is not well-formed YAML")

// value returns the node for the variable's text: YAML where the key holds more than one
// value, and where a secret or a setting is given as [a, list]; the text as it is otherwise.
func (o override) value(path, text string, p *problems) (*node, error) {
	n := &node{kind: scalar, text: text, tag: "!!str", from: o.variable, literal: true}
	asYAML := false
	switch kind := o.typ.Kind(); {
	case o.typ == reflect.TypeFor[Secret]():
		asYAML = strings.HasPrefix(text, "[") // one that begins with { is a JSON credential
	case kind == reflect.Interface:
		asYAML = strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{")
		n.tag = (&yaml.Node{Kind: yaml.ScalarNode, Value: text}).ShortTag()
	default:
		asYAML = kind == reflect.Struct || kind == reflect.Map || kind == reflect.Slice
	}
	if !asYAML {
		return n, nil
	}
	r := reader{problems: p, variable: o.variable}
	read, err := r.read(path, []byte(text))
	if err != nil {
		return nil, errNoYAML // the parser's own words may quote a secret
	}
	return read, nil
}

// set puts value at path, and makes the mappings and the last item of a list that lead to it.
func (n *node) set(path []string, value *node) error {
	if len(path) == 0 {
		*n = *value
		return nil
	}
	i, err := strconv.Atoi(path[0])
	isItem := err == nil && n.kind != mapping
	if n.kind == null {
		n.kind, n.from = mapping, value.from
		if isItem {
			n.kind = list
		}
	}
	switch {
	case n.kind == list && isItem:
		if i > len(n.items) {
			return fmt.Errorf("there are %d before it, so the next is number %d", len(n.items), len(n.items))
		}
		if i == len(n.items) {
			n.items = append(n.items, &node{from: value.from})
		}
		return n.items[i].set(path[1:], value)
	case n.kind == mapping && !isItem:
		e := n.entry(path[0])
		if e == nil {
			e = &node{from: value.from}
			n.entries = append(n.entries, entry{key: path[0], value: e})
		}
		return e.set(path[1:], value)
	}
	return errors.New("stands under a key that holds something else in the file")
}
