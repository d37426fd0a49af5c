package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A module is the one that the working directory belongs to.
type module struct{ dir, root, path string }

func workingModule(ctx context.Context) (module, error) {
	dir, err := os.Getwd()
	if err != nil {
		return module{}, fmt.Errorf("the working directory: %w", err)
	}
	file, err := goTool(ctx, "env", "GOMOD")
	if err != nil {
		return module{}, err
	}
	if file == "" || file == os.DevNull {
		return module{}, errors.New("the working directory belongs to no Go module; go mod init makes one")
	}
	text, err := goTool(ctx, "mod", "edit", "-json", file)
	if err != nil {
		return module{}, err
	}
	var mod struct{ Module struct{ Path string } }
	if err := json.Unmarshal([]byte(text), &mod); err != nil {
		return module{}, fmt.Errorf("%s: %w", file, err)
	}
	return module{dir: dir, root: filepath.Dir(file), path: mod.Module.Path}, nil
}

func goTool(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// register adds the channel to source, the file whose function Channels returns the list of all.
func register(source []byte, importPath, name string) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var list *ast.CompositeLit
	ast.Inspect(file, func(n ast.Node) bool {
		if c, ok := n.(*ast.CompositeLit); ok && list == nil {
			list = c
		}
		return list == nil
	})
	if list == nil || len(file.Imports) == 0 {
		return nil, errors.New("there is no list of channels")
	}
	at := func(p token.Pos) int { return fset.Position(p).Offset }
	last := file.Imports[len(file.Imports)-1]
	// From the end, so that what comes before keeps its place.
	source = slices.Insert(bytes.Clone(source), at(list.Rbrace), []byte(name+".New(),\n")...)
	source = slices.Insert(source, at(last.End()), []byte("\n"+strconv.Quote(importPath))...)
	return format.Source(source)
}
