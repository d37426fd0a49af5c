package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A KeyError is one thing that is wrong. It shows names of keys, channels and variables,
// never a value that may be a secret.
type KeyError struct {
	Key string // dotted, such as "store.durable.dsn" or "tenants.0.installations.2.account"
	At  string // "line 4" of the file, or the environment variable; empty if the key is said nowhere
	Err error
}

// Error returns the key, where it is said, and what is wrong.
func (e *KeyError) Error() string {
	if e.At == "" {
		return fmt.Sprintf("%s: %v", e.Key, e.Err)
	}
	return fmt.Sprintf("%s (%s): %v", e.Key, e.At, e.Err)
}

// Unwrap returns what is wrong without the key.
func (e *KeyError) Unwrap() error { return e.Err }

// problems collects what is wrong, and knows where each key is said.
type problems struct {
	errs  []error
	where map[string]string
	keys  map[string]bool
}

func newProblems() *problems {
	return &problems{where: map[string]string{}, keys: map[string]bool{}}
}

// add tells what is wrong with key.
func (p *problems) add(key, format string, a ...any) {
	p.addAt(key, p.at(key), format, a...)
}

// addAt is add for a key whose place is known better.
func (p *problems) addAt(key, at, format string, a ...any) {
	p.keys[key] = true
	p.errs = append(p.errs, &KeyError{Key: key, At: at, Err: fmt.Errorf(format, a...)})
}

// missing tells that a needed key has no value, unless the reason is told already.
func (p *problems) missing(key, format string, a ...any) {
	if !p.keys[key] {
		p.add(key, format, a...)
	}
}

// said reports whether the file or a variable has key.
func (p *problems) said(key string) bool { return p.where[key] != "" }

// at returns where key is said, or the nearest key that it would stand under.
func (p *problems) at(key string) string {
	for {
		if at := p.where[key]; at != "" {
			return at
		}
		cut := strings.LastIndexByte(key, '.')
		if cut < 0 {
			return ""
		}
		key = key[:cut]
	}
}

func (p *problems) join() error { return errors.Join(p.errs...) }

var leadingWord = regexp.MustCompile(`^[A-Za-z0-9_-]*`)

// below returns the path of key under path. Of a key that is no word only the beginning is
// shown: where a space or a colon was forgotten, the rest is a value.
func below(path, key string) string {
	if word := leadingWord.FindString(key); word != key {
		key = word + "…"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}
