package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/admitone/admitone/channels"
)

// Load returns the configuration that the file at path, the variables of environ (as
// os.Environ returns them) and the defaults make for a build with these channels. Without a
// path there is no file. Variables win over the file, the file over the defaults.
//
// An error is the join of everything that is wrong, a *KeyError each wherever a key can be
// named. It holds no secret. The file, and those that its secrets name, are read once.
func Load(path string, environ []string, chs []channels.Channel) (*Config, error) {
	p := newProblems()
	root := &node{}
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		r := reader{problems: p}
		if root, err = r.read("", text); err != nil {
			return nil, fmt.Errorf("configuration %s: %s", path, syntax(err))
		}
		if root.kind != mapping && root.kind != null {
			return nil, fmt.Errorf("configuration %s: must be a mapping of keys, is a %s", path, root.kind)
		}
	}

	env := environment(environ)
	m := modulesOf(chs)
	overlay(root, env, m.shape(reflect.TypeFor[Config]()), p)
	expand(root, "", env, p)

	c := Default()
	d := decoder{modules: m, folder: filepath.Dir(path), problems: p}
	d.fields("", root, reflect.ValueOf(&c).Elem(), nil)
	c.modules = m
	c.finish()
	c.validate(p)
	if err := p.join(); err != nil {
		return nil, err
	}
	return &c, nil
}

// finish fills in what follows from what was decoded.
func (c *Config) finish() {
	c.index = map[string]position{}
	for t := range c.Tenants {
		for i := range c.Tenants[t].Installations {
			in := &c.Tenants[t].Installations[i]
			in.Tenant = c.Tenants[t].ID
			if _, twice := c.index[in.ID]; !twice {
				c.index[in.ID] = position{t, i}
			}
		}
	}
}
