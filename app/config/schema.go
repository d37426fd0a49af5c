package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/admitone/admitone/channels"
)

// publicURL is the one setting that every installation may have.
const publicURL = "public_url"

// A field is one key of a mapping that is decoded into a struct.
type field struct {
	key   string
	index int
	typ   reflect.Type
	oneOf []string
}

// fieldsOf returns the keys of struct type t, without those that a channel names.
func fieldsOf(t reflect.Type) []field {
	var fs []field
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("yaml")
		if key == "" || key == "-" || strings.HasPrefix(key, "<") {
			continue
		}
		fs = append(fs, field{key: key, index: i, typ: f.Type, oneOf: strings.Fields(f.Tag.Get("oneof"))})
	}
	return fs
}

// modules are the channels of this build by name.
type modules map[string]channels.Channel

func modulesOf(chs []channels.Channel) modules {
	m := make(modules, len(chs))
	for _, c := range chs {
		m[c.Name] = c
	}
	return m
}

func (m modules) names() []string { return slices.Sorted(maps.Keys(m)) }

func secretNames(c channels.Channel) []string {
	names := make([]string, 0, len(c.Secrets))
	for _, s := range c.Secrets {
		names = append(names, s.Name)
	}
	return names
}

func settingNames(c channels.Channel) []string {
	return append([]string{publicURL}, c.Settings...)
}

// union returns what names tells of all channels, each once, sorted.
func (m modules) union(names func(channels.Channel) []string) []string {
	all := map[string]bool{}
	for _, c := range m {
		for _, n := range names(c) {
			all[n] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// A shape is what may stand under a key: keys of its own, items, or neither. The keys of a
// shape are what environment variables are named after.
type shape struct {
	typ  reflect.Type // any for a setting
	keys []key
	item *shape
}

type key struct {
	name string
	*shape
}

// shape returns that of type t for these channels.
func (m modules) shape(t reflect.Type) *shape {
	s := &shape{typ: t}
	names := func(typ reflect.Type, names []string) {
		for _, n := range names {
			s.keys = append(s.keys, key{n, &shape{typ: typ}})
		}
	}
	switch t {
	case reflect.TypeFor[Secret]():
		return s
	case reflect.TypeFor[Secrets]():
		names(reflect.TypeFor[Secret](), m.union(secretNames))
		return s
	case reflect.TypeFor[Settings]():
		names(reflect.TypeFor[any](), m.union(settingNames))
		return s
	case reflect.TypeFor[map[string]Channel]():
		for _, n := range m.names() {
			own := modules{n: m[n]}
			section := own.shape(reflect.TypeFor[Channel]())
			for _, secret := range secretNames(m[n]) {
				section.keys = append(section.keys, key{secret, &shape{typ: reflect.TypeFor[Secret]()}})
			}
			s.keys = append(s.keys, key{n, section})
		}
		return s
	}
	switch t.Kind() { //nolint:exhaustive // the rest holds neither keys nor items
	case reflect.Struct:
		for _, f := range fieldsOf(t) {
			s.keys = append(s.keys, key{f.key, m.shape(f.typ)})
		}
	case reflect.Slice:
		s.item = m.shape(t.Elem())
	}
	return s
}
