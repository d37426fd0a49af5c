package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/admitone/admitone/domain"
)

//go:embed skeleton
var files embed.FS

// templates have delimiters that mean nothing in Go and Markdown.
var templates = template.Must(template.New("").Delims("<<", ">>").ParseFS(files, "skeleton/*.tmpl"))

// A skeleton is what the templates of a channel are filled with.
type skeleton struct {
	Name  string // pigeon
	Title string // Pigeon
	Upper string // PIGEON
	Path  string // the folder's import path
}

// signedAt is when the fixtures were signed, in seconds since 1970. The test says the same.
const signedAt = "1790000000"

// A fixture is one request of the invented vendor, and what becomes of it.
type fixture struct {
	skeleton
	File                          string
	Body                          string
	Event, Kind, MessageKey, Text string // Event is empty where there is none to expect
	Retry                         int
	forged                        bool
}

func (s skeleton) fixtures() []fixture {
	const (
		created = `{"event":"ev-1","type":"message.created","account":"account-7","message":"m-1","thread":"th-1","from":"ada","from_name":"Ada","text":"What does it cost?"}`
		edited  = `{"event":"ev-2","type":"message.edited","account":"account-7","message":"m-1","thread":"th-1","from":"ada","from_name":"Ada","text":"What does it cost today?"}`
		noEvent = `{"type":"message.created","account":"account-7","message":"m-2","thread":"th-1","from":"ada","text":"Hello?"}`
	)
	return []fixture{
		{
			skeleton: s, File: "created", Body: created,
			Event: "ev-1", Kind: string(domain.MessageCreated), MessageKey: "message:m-1", Text: "What does it cost?",
		},
		{
			skeleton: s, File: "created-retry", Body: created, Retry: 1,
			Event: "ev-1", Kind: string(domain.MessageCreated), MessageKey: "message:m-1", Text: "What does it cost?",
		},
		{
			skeleton: s, File: "edited", Body: edited,
			Event: "ev-2", Kind: string(domain.MessageEdited), Text: "What does it cost today?",
		},
		{skeleton: s, File: "no-event", Body: noEvent},
		{skeleton: s, File: "forged", Body: created, forged: true},
	}
}

// At returns when the request was signed.
func (fixture) At() string { return signedAt }

// Signature returns the one that the vendor, or somebody else, has made.
func (f fixture) Signature() string {
	key := f.Name + "-key-of-acme"
	if f.forged {
		key = "another-key"
	}
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(signedAt + "." + f.Body))
	return hex.EncodeToString(mac.Sum(nil))
}

// Digest returns that of the event.
func (f fixture) Digest() string { return domain.DigestOf(f.Body).String() }

// Raw returns the body as a golden file shows it.
func (f fixture) Raw() (string, error) {
	var b bytes.Buffer
	err := json.Indent(&b, []byte(f.Body), "        ", "  ")
	return b.String(), err
}

// make returns the text of each file, by its path in the folder.
func (s skeleton) make() (map[string][]byte, error) {
	texts := make(map[string][]byte)
	var errs []error
	fill := func(file, tmpl string, data any) {
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, tmpl+".tmpl", data); err != nil {
			errs = append(errs, err)
			return
		}
		text := b.Bytes()
		if filepath.Ext(file) == ".go" {
			var err error
			if text, err = format.Source(text); err != nil { // the order of imports depends on the module
				errs = append(errs, fmt.Errorf("%s: %w", file, err))
			}
		}
		texts[file] = text
	}
	fill(s.Name+".go", "channel.go", s)
	fill(s.Name+"_test.go", "channel_test.go", s)
	fill("README.md", "README.md", s)
	fill("sample.yaml", "sample.yaml", s)
	for _, f := range s.fixtures() {
		fill(filepath.Join("testdata", f.File+".http"), "request.http", f)
		if f.Event != "" {
			fill(filepath.Join("testdata", f.File+".golden.json"), "golden.json", f)
		}
	}
	return texts, errors.Join(errs...)
}

// write makes the folder dir, which must not be there yet, and the channel in it.
func write(dir, importPath, name string) error {
	s := skeleton{Name: name, Title: strings.ToUpper(name[:1]) + name[1:], Upper: strings.ToUpper(name), Path: importPath}
	texts, err := s.make()
	if err != nil {
		return fmt.Errorf("make the channel: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // source code is for everybody
		return fmt.Errorf("make the folder: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "testdata"), 0o755); err != nil { //nolint:gosec // as above
		return fmt.Errorf("make the folder: %w", err)
	}
	for file, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil { //nolint:gosec // as above
			return fmt.Errorf("write the channel: %w", err)
		}
	}
	return nil
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// taken are the names that stand for something else: in Go, or in the files in which a
// channel's package is imported.
var taken = []string{
	"init", "internal", "main", "testdata", "vendor",
	"app", "channels", "channeltest", "hex", "hmac", "http", "key", "payload", "sha256", "sign", "strconv", "testing", "time",
}

// fit returns why name can't be that of a channel, its folder and its package.
func fit(name string) error {
	switch {
	case !nameForm.MatchString(name):
		return fmt.Errorf("name %q: one word of a-z and 0-9 is needed, with a letter before any digit", name)
	case token.IsKeyword(name), types.Universe.Lookup(name) != nil, slices.Contains(taken, name):
		return fmt.Errorf("name %q: it means something else in the code around it", name)
	}
	return nil
}
