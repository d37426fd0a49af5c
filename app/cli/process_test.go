package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/admitone/admitone/app"
)

// patience is how long a test waits for what must come: long, since machines that run tests
// are small and busy. Nothing waits for it where all is well.
const patience = 30 * time.Second

// A process is the built program.
type process struct {
	*exec.Cmd
	lines  chan string // of its standard output
	stderr bytes.Buffer
	ended  chan struct{}
}

// start runs the program in a folder of its own until it ends or the test does.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startProgram(t, program, env, args...)
}

func startProgram(t *testing.T, program string, env []string, args ...string) *process {
	t.Helper()
	p := &process{
		Cmd:   exec.Command(program, args...), //nolint:noctx // it lives until the clean-up
		lines: make(chan string, 1000), ended: make(chan struct{}),
	}
	p.Dir = t.TempDir()
	p.Env = append(os.Environ(), env...)
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stderr = &p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		in := bufio.NewScanner(stdout)
		for in.Scan() {
			p.lines <- in.Text()
		}
		close(p.lines)
		_ = p.Wait() // the exit code tells
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // it has ended, as it should
		<-p.ended
	})
	return p
}

// await reads the program's output up to the line that want matches, and returns all of it.
func (p *process) await(t *testing.T, want string) string {
	t.Helper()
	var read strings.Builder
	form := regexp.MustCompile(want)
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			read.WriteString(line + "\n")
			if form.MatchString(line) {
				return read.String()
			}
			if !ok {
				<-p.ended
				t.Fatalf("it ended without a line like %q:\n%s%s", want, read.String(), p.stderr.String())
			}
		case <-deadline:
			t.Fatalf("no line like %q within %s:\n%s", want, patience, read.String())
		}
	}
}

// code waits for the program's end and returns its exit code.
func (p *process) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("it has not ended within %s", patience)
		return -1
	}
}

func (p *process) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// eventually fails unless done reports true within patience.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// listening reports whether somebody listens at address.
func listening(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second) //nolint:noctx // it has its own deadline
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was written
	return true
}

// empty fails unless dir holds nothing.
func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

var addresses = regexp.MustCompile(`server at http://([0-9.:]+), an application at http://([0-9.:]+)/`)

func TestDemoHandlesEachEventOnceAndLeavesNothing(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	// What is set for another server must not reach that of the demo.
	p := start(t, []string{"TMPDIR=" + tmp, "ADMITONE_SERVER_LISTEN=nowhere"}, "demo")
	text := p.await(t, "^(PASSED|FAILED)")
	if code := p.code(t); code != 0 || !regexp.MustCompile(`PASSED: \d+ deliveries of \d+ events, each handled exactly once, none lost`).MatchString(text) {
		t.Errorf("demo ends with code %d:\n%s", code, text)
	}
	for _, c := range app.Channels() {
		if !regexp.MustCompile(`(?m)^  ` + c.Name + ` +\d+ +\d+ +\d+ +\d+ +\d+ +\d+ +0 `).MatchString(text) {
			t.Errorf("the table has no row of %s with nothing lost:\n%s", c.Name, text)
		}
	}
	if strings.ContainsAny(text, "\x1b\r") {
		t.Errorf("what is no terminal gets control characters: %q", text)
	}
	empty(t, tmp)
	for _, a := range addresses.FindStringSubmatch(text)[1:] {
		if listening(a) {
			t.Errorf("something still listens at %s", a)
		}
	}
}

func TestInterruptedDemoCleansUp(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	p := start(t, []string{"TMPDIR=" + tmp}, "demo")
	text := p.await(t, "✓ start")
	p.signal(t, os.Interrupt)
	if code := p.code(t); code != 1 {
		t.Errorf("demo ends with code %d; want 1", code)
	}
	empty(t, tmp)
	if a := addresses.FindStringSubmatch(text)[1]; listening(a) {
		t.Errorf("the server still listens at %s", a)
	}
}

func TestServerDiesWithAKilledDemo(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"TMPDIR=" + t.TempDir()}, "demo")
	text := p.await(t, "✓ start")
	p.signal(t, os.Kill)
	p.code(t)
	eventually(t, "the server is gone", func() bool { return !listening(addresses.FindStringSubmatch(text)[1]) })
}

func TestDemoWhoseServerDiesFailsAndShowsItsLog(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	p := start(t, []string{"TMPDIR=" + tmp}, "demo")
	text := p.await(t, "✓ start")
	children, err := exec.Command("pgrep", "-f", "serve --config "+tmp).Output() //nolint:noctx // it ends at once
	if err != nil {
		t.Fatalf("find the server: %v", err)
	}
	if err := exec.Command("kill", "-KILL", strings.TrimSpace(string(children))).Run(); err != nil { //nolint:noctx // it ends at once
		t.Fatalf("kill the server %q: %v", children, err)
	}
	text += p.await(t, "last lines")
	if code := p.code(t); code != 1 || !strings.Contains(text, "\nFAILED: ") {
		t.Errorf("demo ends with code %d:\n%s", code, text)
	}
	empty(t, tmp)
}

func TestKeptDemoRunsUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	p := start(t, []string{"TMPDIR=" + tmp}, "demo", "--keep")
	text := p.await(t, "What the application gets")
	// The commands that it tells are run as they stand.
	commands := regexp.MustCompile(`(?m)^  admitone (.+)$`).FindAllStringSubmatch(text, -1)
	if len(commands) != 3 {
		t.Fatalf("it tells %d commands; want 3:\n%s", len(commands), text)
	}
	for _, c := range commands {
		if got := admitone(strings.Fields(c[1])...); got.code != 0 || got.stdout == "" {
			t.Errorf("admitone %s = %+v; want code 0", c[1], got)
		}
	}
	p.await(t, "slack +message.created +Hello from a simulated vendor")
	p.signal(t, os.Interrupt)
	if code := p.code(t); code != 0 {
		t.Errorf("demo ends with code %d; want 0", code)
	}
	empty(t, tmp)
}

// freeAddress returns one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it is a listener of nobody
	return l.Addr().String()
}

// get returns the body of a page, or nothing if nobody answers.
func get(address string) string {
	resp, err := http.Get(address) //nolint:noctx // the test's own server
	if err != nil {
		return ""
	}
	defer resp.Body.Close() //nolint:errcheck // it was read only
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

func TestQuickstartServesSimulatedVendorsAndItsLedgerIsRead(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs(quickstart)
	if err != nil {
		t.Fatal(err)
	}
	listen, admin := freeAddress(t), "http://"+freeAddress(t)
	server := start(t, []string{
		"ADMITONE_SERVER_LISTEN=" + listen, "ADMITONE_SERVER_PUBLIC_URL=http://" + listen,
		"ADMITONE_SERVER_ADMIN_LISTEN=" + strings.TrimPrefix(admin, "http://"),
	}, "serve", "--config", file)
	eventually(t, "the server is ready", func() bool { return strings.Contains(get(admin+"/readyz"), `"ready":true`) })

	for _, c := range callers() { // the others are simulated where the server looks for them
		got := admitone("simulate", c.Name, "--url", "http://"+listen, "--retries", "3", "--race", "10")
		if got.code != 0 || !strings.Contains(got.stdout, "13 sent: 1 admitted, 12 duplicates, 0 refused") {
			t.Errorf("simulate %s = %+v", c.Name, got)
		}
	}
	if got := admitone("simulate", "slack", "--url", "http://"+listen, "--secret", "wrong"); got.code != 1 || !strings.Contains(got.stdout, "401") {
		t.Errorf("simulate with a wrong secret = %+v", got)
	}

	receipts := func(args ...string) result {
		return admitone(append([]string{"receipts", args[0], "--admin", admin}, args[1:]...)...)
	}
	eventually(t, "all are handled", func() bool {
		return strings.Count(receipts("list", "--state", "handled").stdout, " handled ") == len(callers())
	})
	var page struct {
		Receipts []struct{ ID string } `json:"receipts"`
	}
	if err := json.Unmarshal([]byte(receipts("list", "--platform", "email", "--json").stdout), &page); err != nil || len(page.Receipts) != 1 {
		t.Fatalf("the ledger has %+v of platform email, %v; want one", page, err)
	}
	id := page.Receipts[0].ID
	if got := receipts("replay", id); got.code != 0 || got.stdout != "replayed "+id+"\n" {
		t.Errorf("replay = %+v", got)
	}
	eventually(t, "it is handled again", func() bool {
		return regexp.MustCompile(`(?s)state +handled.*attempts +2\n.*history\n.*replay`).MatchString(receipts("show", id).stdout)
	})
	if got := receipts("discard", id); got.code != 1 || !strings.Contains(got.stderr, "not allowed in this state") {
		t.Errorf("discard of what is handled = %+v; want code 1", got)
	}
	if got := receipts("stats"); !regexp.MustCompile(`(?m)^demo +email +1 `).MatchString(got.stdout) {
		t.Errorf("stats = %+v; want one receipt of email", got)
	}

	server.signal(t, syscall.SIGTERM)
	if code := server.code(t); code != 0 {
		t.Errorf("a server that is asked to stop ends with code %d:\n%s", code, server.stderr.String())
	}
}
