package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const workerFolder = "../../channels/cfworker/worker"

// workerd returns the program that runs Workers at Cloudflare, as the Worker's package.json
// pins it. npm installs it if it is not there; without npm the tests of the Worker fail.
var workerd = sync.OnceValues(func() (string, error) {
	wanted, err := pinnedWorkerd(filepath.Join(workerFolder, "package.json"))
	if err != nil {
		return "", err
	}
	if present, err := pinnedWorkerd(filepath.Join(workerFolder, "node_modules", ".package-lock.json")); err != nil || present != wanted {
		install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		install.Dir = workerFolder
		if out, err := install.CombinedOutput(); err != nil {
			return "", fmt.Errorf("npm ci in %s (task deps installs npm): %w: %s", workerFolder, err, out)
		}
	}
	found, err := filepath.Glob(filepath.Join(workerFolder, "node_modules", "@cloudflare", "workerd-*", "bin", "workerd"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%d workerd in %s, %w", len(found), workerFolder, err)
	}
	return filepath.Abs(found[0])
})

// pinnedWorkerd returns the version of workerd that a package.json wants, or of which a lock
// tells that it is installed.
func pinnedWorkerd(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var said struct {
		DevDependencies map[string]string
		Packages        map[string]struct{ Version string }
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	if v := said.DevDependencies["workerd"]; v != "" {
		return v, nil
	}
	return said.Packages["node_modules/workerd"].Version, nil
}

// A worker is the Email Worker in the runtime of Cloudflare, behind what stands for its mail
// server.
type worker struct {
	t       *testing.T
	address string
	log     *logText
}

// workerVars are variables and secrets of the Worker.
type workerVars map[string]string

// worker starts the Worker for the desk. vars override its variables; an empty one is left out.
func (d *deployment) worker(relay string, vars workerVars) *worker {
	d.t.Helper()
	desk := install("acme-desk")
	all := workerVars{"RELAY_URL": relay + "/in/cfworker/" + desk.id, "SIGNING_KEY": desk.value}
	maps.Copy(all, vars)
	w := startWorker(d.t, all)
	d.t.Cleanup(func() {
		for _, word := range append(d.confidential(), all["SIGNING_KEY"]) {
			if word != "" && strings.Contains(w.log.String(), word) {
				d.t.Errorf("the log of the Worker repeats %q", word)
			}
		}
	})
	return w
}

func startWorker(t *testing.T, vars workerVars) *worker {
	t.Helper()
	program, err := workerd()
	if err != nil {
		t.Fatalf("the runtime of the Worker: %v", err)
	}
	dir := t.TempDir()
	config := workerConfig(t, dir, vars)
	ports, tell, err := os.Pipe()
	if err != nil {
		t.Fatalf("start the Worker: %v", err)
	}
	defer ports.Close() //nolint:errcheck // it is only read
	w := &worker{t: t, log: new(logText)}
	cmd := exec.Command(program, "serve", "--control-fd=3", config) //nolint:noctx // it lives until the clean-up
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = dir, w.log, w.log, []*os.File{tell}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	_ = tell.Close() // the Worker has its own
	if err != nil {
		t.Fatalf("start the Worker: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // that it has ended already is no news
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of the Worker:\n%s", w.log)
		}
	})
	var listens struct{ Port int }
	if err := json.NewDecoder(ports).Decode(&listens); err != nil {
		t.Fatalf("the Worker does not start: %v: %s", err, w.log)
	}
	w.address = "http://127.0.0.1:" + strconv.Itoa(listens.Port)
	return w
}

// workerConfig writes a configuration of the runtime that is to wrangler.jsonc what Cloudflare
// makes of it, and returns its file.
func workerConfig(t *testing.T, dir string, vars workerVars) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(workerFolder, "wrangler.jsonc"))
	if err != nil {
		t.Fatal(err)
	}
	var wrangler struct {
		Main  string
		Date  string   `json:"compatibility_date"`
		Flags []string `json:"compatibility_flags"`
	}
	comments := regexp.MustCompile(`(?m)(^|\s)//.*$`)
	if err := json.Unmarshal(comments.ReplaceAll(text, nil), &wrangler); err != nil {
		t.Fatalf("wrangler.jsonc: %v", err)
	}
	for from, to := range map[string]string{
		filepath.Join(workerFolder, wrangler.Main): "worker.js", "testdata/email-routing.js": "email-routing.js",
	} {
		code, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), code, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var bindings, flags []string
	for name, value := range vars {
		if value != "" {
			bindings = append(bindings, fmt.Sprintf("(name = %q, text = %q)", name, value))
		}
	}
	for _, flag := range wrangler.Flags {
		flags = append(flags, strconv.Quote(flag))
	}
	config := fmt.Sprintf(`using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "worker", worker = (
      modules = [
        (name = "email-routing.js", esModule = embed "email-routing.js"),
        (name = "worker.js", esModule = embed "worker.js")],
      compatibilityDate = %q, compatibilityFlags = [%s], bindings = [%s])),
    (name = "internet", network = (allow = ["public", "private"])),
  ],
  sockets = [(name = "mail", address = "127.0.0.1:0", http = (), service = "worker")]
);
`, wrangler.Date, strings.Join(flags, ", "), strings.Join(bindings, ", "))
	file := filepath.Join(dir, "workerd.capnp")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// An outcome is what the sender's mail server is told of a mail.
type outcome struct {
	Outcome   string // "accepted", "rejected" for good or "temporary"
	Reason    string
	Forwarded []string
}

// A submission is one attempt of the sender's mail server.
type submission struct {
	from, to string
	mail     []byte
	size     int // announced, if not 0
	fixed    bool
}

// receive gives the Worker a mail for the desk.
func (w *worker) receive(mail []byte) outcome {
	w.t.Helper()
	return w.submit(submission{from: "bounces+ida=example.org@mail.example.org", to: "desk@example.com", mail: mail})
}

func (w *worker) submit(s submission) outcome {
	w.t.Helper()
	o, err := w.attempt(s)
	if err != nil {
		w.t.Fatalf("the Worker's runtime: %v: %s", err, w.log)
	}
	return o
}

// attempt does what submit does, on any goroutine.
func (w *worker) attempt(s submission) (o outcome, err error) {
	query := url.Values{"from": {s.from}, "to": {s.to}}
	if s.size != 0 {
		query.Set("size", strconv.Itoa(s.size))
	}
	if s.fixed {
		query.Set("unforwardable", "")
	}
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.address+"/?"+query.Encode(), bytes.NewReader(s.mail))
	if err != nil {
		return o, err
	}
	a, err := client.Do(r)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, a.Body.Close()) }()
	return o, json.NewDecoder(a.Body).Decode(&o)
}

// want fails the test unless the sender's server is told that.
func (o outcome) want(t testing.TB, what string, forwarded ...string) {
	t.Helper()
	if o.Outcome != what || !slices.Equal(o.Forwarded, forwarded) {
		t.Errorf("the mail is %s (%s), forwarded to %v; want %s, %v", o.Outcome, o.Reason, o.Forwarded, what, forwarded)
	}
}

// retried returns a mail as the sender's server submits it again: with another trace field.
func retried(mail []byte, n int) []byte {
	return append(fmt.Appendf(nil, "Received: from relay.example.org by mx.example.org id %d; Tue, 03 Feb 2026 09:%02d:00 +0100\r\n", n, n), mail...)
}
