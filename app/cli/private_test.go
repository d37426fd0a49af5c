package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/app/cli"
)

// private is a configuration with an installation of the skeleton's channel.
const private = `
server: {listen: "LISTEN", admin_listen: "ADMIN", public_url: "http://LISTEN"}
store:
  durable: {driver: sqlite, dsn: admitone.db}
dispatch: {target: http, http: {url: "APPLICATION"}}
tenants:
  - id: acme
    installations:
      - {id: acme-pigeon, channel: pigeon, account: account-7, secrets: {signing_key: pigeon-key-of-acme}}
`

// A team is another module, with a channel that nobody else has.
type team struct {
	dir     string
	program string // its server
}

// newTeam makes the module as docs/add-a-channel.md says, with this checkout as the version
// that it requires.
func newTeam(t *testing.T) team {
	t.Helper()
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	m := team{dir: t.TempDir()}
	m.program = filepath.Join(m.dir, "server")
	m.run(t, "mod", "init", "example.com/team/bots")
	m.run(t, "mod", "edit", "-require=github.com/admitone/admitone@v0.0.0", "-replace=github.com/admitone/admitone="+checkout)
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, "go.sum", sums)
	told := m.run(t, "run", "github.com/admitone/admitone/app/cmd/newchannel", "pigeon")
	// The program is the one that it tells.
	_, code, _ := strings.Cut(told, "\n\n")
	code, _, ok := strings.Cut(code, "\nNow")
	if !ok {
		t.Fatalf("newchannel tells no program:\n%s", told)
	}
	m.write(t, "main.go", []byte(regexp.MustCompile("(?m)^  ").ReplaceAllString(code, "")))
	m.run(t, "build", "-o", m.program, ".")
	return m
}

func (m team) write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, file), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs the go command in the module and returns what it says.
func (m team) run(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", args...)
	c.Dir = m.dir
	c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -buildvcs=false")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// admitone runs a command of the module's server to its end.
func (m team) admitone(t *testing.T, args ...string) result {
	t.Helper()
	p := startProgram(t, m.program, nil, args...)
	var out strings.Builder
	for line := range p.lines {
		out.WriteString(line + "\n")
	}
	return result{p.code(t), out.String(), p.stderr.String()}
}

func TestChannelOfAnotherModulePassesTheKitAndIsServed(t *testing.T) {
	t.Parallel()
	m := newTeam(t)
	m.run(t, "test", "./pigeon")

	texts := make(chan string, 100)
	application := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var got struct {
			Channel, Account string
			Data             struct{ Text string }
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &got)
		}
		if err != nil || got.Channel != "pigeon" || got.Account != "account-7" {
			t.Errorf("the application got %s, %v; want an event of pigeon", body, err)
		}
		texts <- got.Data.Text
	}))
	t.Cleanup(application.Close)

	listen, admin := freeAddress(t), freeAddress(t)
	file := filepath.Join(m.dir, "admitone.yaml")
	m.write(t, "admitone.yaml", []byte(strings.NewReplacer("LISTEN", listen, "ADMIN", admin, "APPLICATION", application.URL).Replace(private)))
	if got := m.admitone(t, "check", "--config", file); got.code != 0 {
		t.Errorf("check = %+v", got)
	}
	server := startProgram(t, m.program, nil, "serve", "--config", file)
	eventually(t, "the server is ready", func() bool { return strings.Contains(get("http://"+admin+"/readyz"), `"ready":true`) })

	simulate := func(more ...string) result {
		return m.admitone(t, slices.Concat([]string{
			"simulate", "pigeon", "--url", "http://" + listen + "/in/pigeon/acme-pigeon", "--account", "account-7",
		}, more)...)
	}
	got := simulate("--secret", "pigeon-key-of-acme", "--text", "How far?", "--event-id", "ev-7", "--race", "8", "--retries", "2")
	if got.code != 0 || !strings.Contains(got.stdout, "10 sent: 1 admitted, 9 duplicates, 0 refused") {
		t.Errorf("simulate = %+v; want one of ten admitted", got)
	}
	if got := simulate("--secret", "another-key"); got.code != 1 || !strings.Contains(got.stdout, "401") {
		t.Errorf("simulate with another key = %+v; want 401", got)
	}
	eventually(t, "it is handled", func() bool {
		return strings.Count(m.admitone(t, "receipts", "list", "--admin", "http://"+admin).stdout, " handled ") == 1
	})
	if text := <-texts; text != "How far?" || len(texts) > 0 {
		t.Errorf("the application got %q and %d more; want one event", text, len(texts))
	}
	server.signal(t, os.Interrupt)
	if code := server.code(t); code != 0 {
		t.Errorf("the server ends with code %d:\n%s", code, server.stderr.String())
	}

	var rows []struct{ Channel string }
	if err := json.Unmarshal([]byte(m.admitone(t, "channels", "--json").stdout), &rows); err != nil || len(rows) != len(app.Channels())+1 {
		t.Errorf("the key table has %d rows (%v); want one more than %d", len(rows), err, len(app.Channels()))
	}
	if got := m.admitone(t, "version"); !strings.HasPrefix(got.stdout, "admitone v0.0.0 in example.com/team/bots\n") {
		t.Errorf("version = %+v; want that of Admitone and the module", got)
	}
}

func TestChannelWithTheNameOfAnotherIsRefused(t *testing.T) {
	t.Parallel()
	var stdout, stderr strings.Builder
	if code := cli.Main([]string{"version"}, &stdout, &stderr, app.Channels()[0]); code != 1 || !strings.Contains(stderr.String(), "two of this name") {
		t.Errorf("Main with a second slack = %d, %q; want an error that names it", code, stderr.String())
	}
}
