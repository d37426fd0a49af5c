package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A decoder fills a Config from a tree. It accepts what it knows and tells of all else.
type decoder struct {
	modules  modules
	folder   string // of the file, for secrets in files
	problems *problems
}

// value decodes n, the value of key path, into v. What is wrong leaves v as it was.
func (d *decoder) value(path string, n *node, v reflect.Value, oneOf []string) {
	d.problems.where[path] = n.from
	wrong := func(format string, a ...any) { d.problems.addAt(path, n.from, format, a...) }
	switch into := v.Addr().Interface().(type) {
	case *map[string]Channel:
		d.sections(path, n, into)
		return
	case *Secrets:
		d.secrets(path, n, into)
		return
	case *Secret:
		*into = d.secret(path, n)
		return
	case *Settings:
		d.settings(path, n, into)
		return
	}
	switch v.Kind() { //nolint:exhaustive // the configuration has no others, which a test makes sure of
	case reflect.Struct:
		d.fields(path, n, v, nil)
		return
	case reflect.Slice:
		d.list(path, n, v)
		return
	}

	switch {
	case n.kind == null:
		wrong("has no value; leave the key out to have the default")
		return
	case n.kind != scalar:
		wrong("must be one value, is a %s", n.kind)
		return
	}
	switch into := v.Addr().Interface().(type) {
	case *time.Duration:
		t, err := time.ParseDuration(n.text)
		if err != nil || t <= 0 {
			wrong("must be a duration above 0, such as 50ms, 90s, 15m or 25h")
			return
		}
		*into = t
		return
	case *Size:
		size, err := parseSize(n.text)
		if err != nil {
			wrong("%w", err)
			return
		}
		*into = size
		return
	}
	switch v.Kind() { //nolint:exhaustive // as above
	case reflect.Int:
		i, err := strconv.Atoi(n.text)
		if err != nil || i < 1 {
			wrong("must be a whole number above 0")
			return
		}
		v.SetInt(int64(i))
	case reflect.Bool:
		switch strings.ToLower(n.text) {
		case "true":
			v.SetBool(true)
		case "false":
			v.SetBool(false)
		default:
			wrong("must be true or false")
		}
	case reflect.String:
		if n.tag == "!!bool" {
			wrong("must be text; put it in quotes if it is")
			return
		}
		if len(oneOf) > 0 && !slices.Contains(oneOf, n.text) {
			wrong("must be one of %s", strings.Join(oneOf, ", "))
			return
		}
		v.SetString(n.text)
	}
}

// fields decodes n into the struct v. other takes a key that is no field of it, and tells
// which keys it would take; nil takes none.
func (d *decoder) fields(path string, n *node, v reflect.Value, other *others) {
	if !d.is(path, n, mapping) {
		return
	}
	fields := fieldsOf(v.Type())
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.key
	}
entries:
	for _, e := range n.entries {
		path := below(path, e.key)
		for _, f := range fields {
			if f.key == e.key {
				d.value(path, e.value, v.Field(f.index), f.oneOf)
				continue entries
			}
		}
		if other != nil {
			if slices.Contains(other.keys, e.key) {
				other.take(path, e)
				continue
			}
			known = append(known, other.keys...)
		}
		d.problems.addAt(path, e.value.from, "unknown key%s", didYouMean(e.key, known))
	}
}

// others are keys that a mapping has beside those of its struct.
type others struct {
	keys []string
	take func(path string, e entry)
}

func (d *decoder) list(path string, n *node, v reflect.Value) {
	if !d.is(path, n, list) {
		return
	}
	items := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		d.value(fmt.Sprintf("%s.%d", path, i), item, items.Index(i), nil)
	}
	v.Set(items)
}

func (d *decoder) sections(path string, n *node, into *map[string]Channel) {
	if !d.is(path, n, mapping) {
		return
	}
	*into = make(map[string]Channel, len(n.entries))
	for _, e := range n.entries {
		path := below(path, e.key)
		d.problems.where[path] = e.value.from
		module, ok := d.modules[e.key]
		if !ok {
			d.problems.addAt(path, e.value.from, "unknown channel%s", didYouMean(e.key, d.modules.names()))
			continue
		}
		section := Channel{Enabled: true}
		d.fields(path, e.value, reflect.ValueOf(&section).Elem(), &others{
			keys: secretNames(module),
			take: func(path string, e entry) {
				if section.Secrets == nil {
					section.Secrets = Secrets{}
				}
				section.Secrets[e.key] = d.secret(path, e.value)
			},
		})
		(*into)[e.key] = section
	}
}

func (d *decoder) secrets(path string, n *node, into *Secrets) {
	if !d.is(path, n, mapping) {
		return
	}
	*into = make(Secrets, len(n.entries))
	for _, e := range n.entries {
		(*into)[e.key] = d.secret(below(path, e.key), e.value)
	}
}

// secret returns the values of one secret, or nil if any of them is unfit.
func (d *decoder) secret(path string, n *node) []string {
	d.problems.where[path] = n.from
	switch n.kind {
	case list:
		var values []string
		for i, item := range n.items {
			path := fmt.Sprintf("%s.%d", path, i)
			if item.kind == list || item.kind == mapping {
				d.problems.addAt(path, item.from, "must be one value, is a %s", item.kind)
				continue
			}
			values = append(values, d.secret(path, item)...)
		}
		if len(n.items) == 0 {
			d.problems.addAt(path, n.from, errEmpty)
		}
		if len(values) < len(n.items) {
			return nil
		}
		return values
	case mapping:
		d.problems.addAt(path, n.from, "must be text or a list of texts; put JSON in quotes")
		return nil
	case null, scalar:
	}
	text := n.text
	if n.kind == null {
		text = ""
	}
	if name, ok := strings.CutPrefix(text, "file:"); ok {
		read, err := file(d.folder, name)
		if err != nil {
			d.problems.addAt(path, n.from, "%w", err)
			return nil
		}
		text = read
	}
	if isBlank(text) {
		// A reference that failed to expand is told already.
		if !d.problems.keys[path] {
			d.problems.addAt(path, n.from, errEmpty)
		}
		return nil
	}
	return []string{text}
}

const errEmpty = "must not be empty"

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

func (d *decoder) settings(path string, n *node, into *Settings) {
	if !d.is(path, n, mapping) {
		return
	}
	*into = make(Settings, len(n.entries))
	for _, e := range n.entries {
		path := below(path, e.key)
		d.problems.where[path] = e.value.from
		if e.value.kind == null {
			d.problems.addAt(path, e.value.from, "has no value; leave the key out to have the default")
			continue
		}
		(*into)[e.key] = plain(e.value)
	}
}

// plain returns n as a value of a setting. A number that would be written otherwise than it
// was, such as 007 or 1e3, stays text: it is an id.
func plain(n *node) any {
	switch n.kind {
	case mapping:
		m := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			m[e.key] = plain(e.value)
		}
		return m
	case list:
		l := make([]any, len(n.items))
		for i, item := range n.items {
			l[i] = plain(item)
		}
		return l
	case null:
		return nil
	case scalar:
	}
	switch n.tag {
	case "!!bool":
		return strings.EqualFold(n.text, "true")
	case "!!int":
		if i, err := strconv.Atoi(n.text); err == nil && strconv.Itoa(i) == n.text {
			return i
		}
	case "!!float":
		if f, err := strconv.ParseFloat(n.text, 64); err == nil && strconv.FormatFloat(f, 'f', -1, 64) == n.text {
			return f
		}
	}
	return n.text
}

// is reports whether n is of that kind, and tells if it is another. A key without value
// holds nothing of whatever it could hold.
func (d *decoder) is(path string, n *node, k kind) bool {
	if n.kind != k && n.kind != null {
		d.problems.addAt(path, n.from, "must be a %s, is a %s", k, n.kind)
	}
	return n.kind == k
}
