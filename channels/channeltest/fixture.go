package channeltest

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/admitone/admitone/channels"
)

// A fixture is one request as recorded.
type fixture struct {
	name   string // of the file, without .http
	method string
	target string
	header http.Header
	body   []byte
}

// request returns the fixture as received at now. Requests share no memory.
func (f fixture) request(publicURL string, now time.Time) *channels.Request {
	return &channels.Request{
		Method: f.method,
		URL:    publicURL + f.target,
		Header: f.header.Clone(),
		Body:   bytes.Clone(f.body),
		Now:    now,
	}
}

func readFixture(file string) (fixture, error) {
	f := fixture{name: strings.TrimSuffix(filepath.Base(file), ".http"), header: http.Header{}}
	raw, err := os.ReadFile(file)
	if err != nil {
		return f, fmt.Errorf("fixture: %w", err)
	}
	head, body, _ := bytes.Cut(raw, []byte("\n\n"))
	f.body = body
	lines := strings.Split(strings.TrimRight(string(head), "\n"), "\n")
	words := strings.Fields(lines[0])
	if len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/") {
		return f, fmt.Errorf("fixture %s: %q is no request line", f.name, lines[0])
	}
	f.method, f.target = words[0], words[1]
	for _, line := range lines[1:] {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			return f, fmt.Errorf("fixture %s: %q is no header", f.name, line)
		}
		f.header.Add(key, strings.TrimSpace(value))
	}
	// An editor that adds a line end to the body would break signatures in ways that are
	// tedious to find.
	if n := f.header.Get("Content-Length"); n != "" && n != strconv.Itoa(len(body)) {
		return f, fmt.Errorf("fixture %s: Content-Length is %s, the body has %d bytes", f.name, n, len(body))
	}
	f.header.Del("Host") // a Go server keeps it apart
	return f, nil
}

func readFixtures(dir string) ([]fixture, error) {
	files, err := filepath.Glob(filepath.Join(dir, "testdata", "*.http"))
	if err != nil {
		return nil, fmt.Errorf("fixtures: %w", err)
	}
	var fs []fixture
	for _, file := range files {
		f, err := readFixture(file)
		if err != nil {
			return nil, err
		}
		fs = append(fs, f)
	}
	return fs, nil
}
