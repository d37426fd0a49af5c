package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	reference    = regexp.MustCompile(`\$?\$\{[^}]*\}?`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// expand replaces each ${NAME} in the values below n by the variable; $${ stands for ${.
func expand(n *node, path string, env map[string]string, p *problems) {
	for _, e := range n.entries {
		expand(e.value, below(path, e.key), env, p)
	}
	for i, item := range n.items {
		expand(item, fmt.Sprintf("%s.%d", path, i), env, p)
	}
	if n.kind != scalar || n.literal || !strings.Contains(n.text, "${") {
		return
	}
	n.text = reference.ReplaceAllStringFunc(n.text, func(ref string) string {
		if strings.HasPrefix(ref, "$$") {
			return ref[1:]
		}
		name, closed := strings.CutSuffix(ref[2:], "}")
		// What is between the braces is shown only if it is surely a name and no part of a secret.
		if !closed || !variableName.MatchString(name) {
			p.addAt(path, n.from, "${ must be followed by the name of an environment variable and }; write $${ for the characters themselves")
			return ""
		}
		value, set := env[name]
		if !set {
			p.addAt(path, n.from, "the environment variable %s is not set", name)
		}
		return value
	})
	n.tag = "!!str"
}

// file returns what stands in the file of a secret, without one newline at its end. A
// relative path is taken from folder.
func file(folder, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(string(b), "\n")
	return strings.TrimSuffix(text, "\r"), nil
}
