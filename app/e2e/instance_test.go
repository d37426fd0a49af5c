package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// client has as many connections as a test wants, and follows no redirect.
var client = &http.Client{
	Timeout:       patience,
	Transport:     &http.Transport{MaxIdleConnsPerHost: 128},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// An instance is one process of the server.
type instance struct {
	t             *testing.T
	name          string
	cmd           *exec.Cmd
	log           *logText
	public, admin string        // base URLs
	ended         chan struct{} // closed when the process has ended
	halted        bool          // by SIGSTOP
}

// A logText keeps what a process writes. Safe for concurrent use.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// serve starts an instance and waits until it admits. own overrides keys of its configuration.
func (d *deployment) serve(own settings) *instance {
	d.t.Helper()
	in := d.launch(own)
	in.awaitAdmitting()
	return in
}

// launch starts an instance and does not wait.
func (d *deployment) launch(own settings) *instance {
	d.t.Helper()
	return d.start(own, func(config string) *exec.Cmd {
		return exec.Command(program, "serve", "--config", config) //nolint:noctx // it lives until the clean-up
	})
}

// start starts an instance by a command that is made for its configuration.
func (d *deployment) start(own settings, command func(config string) *exec.Cmd) *instance {
	d.t.Helper()
	d.mu.Lock()
	name := "instance" + strconv.Itoa(len(d.instances)+1)
	d.mu.Unlock()
	in := &instance{t: d.t, name: name, log: new(logText), ended: make(chan struct{})}
	in.cmd = command(d.configure(name, own))
	in.cmd.Dir = d.dir
	in.cmd.Env = append(in.cmd.Env, "PATH="+os.Getenv("PATH"), "HOME="+d.dir)
	in.cmd.Stdout, in.cmd.Stderr = in.log, in.log
	// so that it does not outlive a test binary that is killed
	in.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := in.cmd.Start(); err != nil {
		d.t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = in.cmd.Wait() // how it ended is kept by the command
		close(in.ended)
	}()
	d.mu.Lock()
	d.instances = append(d.instances, in)
	d.mu.Unlock()
	d.t.Cleanup(func() {
		in.kill()
		d.clean(in)
	})
	return in
}

// awaitAdmitting waits until the instance admits.
func (in *instance) awaitAdmitting() {
	in.t.Helper()
	await(in.t, in.name+" admits", func() bool {
		if !in.runs() {
			in.t.Fatalf("%s ended at its start: %s", in.name, in.log)
		}
		return in.addresses()
	})
}

// addresses reads from the log where the instance listens, and reports whether it admits.
func (in *instance) addresses() bool {
	for line := range strings.Lines(in.log.String()) {
		var said struct{ Msg, Listen, Admin string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "admitting" {
			in.public, in.admin = "http://"+said.Listen, "http://"+said.Admin
			return true
		}
	}
	return false
}

func (in *instance) runs() bool {
	select {
	case <-in.ended:
		return false
	default:
		return true
	}
}

// kill ends the process as a crash does, and waits for its end.
func (in *instance) kill() {
	_ = in.cmd.Process.Kill() // that it has ended already is no news
	<-in.ended
}

// terminate asks the process to end.
func (in *instance) terminate() {
	in.t.Helper()
	in.signal(syscall.SIGTERM)
}

// exits waits for the end of the process and fails the test unless it is done with code 0.
func (in *instance) exits() {
	in.t.Helper()
	await(in.t, in.name+" ends", func() bool { return !in.runs() })
	if code := in.cmd.ProcessState.ExitCode(); code != 0 {
		in.t.Errorf("%s exits with %d; want 0: %s", in.name, code, in.log)
	}
}

// halt makes the process stand still; resume ends that.
// halt makes the instance stand still and waits until it does: a thread may go on for a moment
// after the signal was sent.
func (in *instance) halt() {
	in.t.Helper()
	in.signal(syscall.SIGSTOP)
	in.halted = true
	await(in.t, "the instance stands still", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", in.cmd.Process.Pid))
		if err != nil {
			return false
		}
		for _, path := range threads {
			stat, err := os.ReadFile(path)
			// the name before the state is in brackets and may hold anything
			if _, state, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " "); err == nil && !strings.HasPrefix(state, "T") {
				return false
			}
		}
		return true
	})
}

func (in *instance) resume() {
	in.t.Helper()
	in.signal(syscall.SIGCONT)
	in.halted = false
}

func (in *instance) signal(s os.Signal) {
	in.t.Helper()
	if err := in.cmd.Process.Signal(s); err != nil {
		in.t.Fatalf("%v to %s: %v", s, in.name, err)
	}
}

// A receipt is one as the admin API shows it.
type receipt struct {
	ID            string     `json:"id"`
	Tenant        string     `json:"tenant"`
	Platform      string     `json:"platform"`
	Channel       string     `json:"channel"`
	Account       string     `json:"account"`
	EventID       string     `json:"event_id"`
	MessageKey    string     `json:"message_key"`
	Kind          string     `json:"kind"`
	State         string     `json:"state"`
	Attempt       int        `json:"attempt"`
	Deliveries    int        `json:"deliveries"`
	VendorAttempt int        `json:"vendor_attempt"`
	ClaimedAt     time.Time  `json:"claimed_at"`
	HandledAt     *time.Time `json:"handled_at"`
	Holder        string     `json:"holder"`
	LastError     string     `json:"last_error"`
	History       []struct {
		What    string `json:"what"`
		Attempt int    `json:"attempt"`
		State   string `json:"state"`
		Reason  string `json:"reason"`
		By      string `json:"by"`
	} `json:"history"`
}

func (r receipt) open() bool {
	return slices.Contains([]string{"claimed", "dispatching", "retrying"}, r.State)
}

// ask sends a request to the admin API and reads the answer into into, unless that is nil.
// It returns the status, or 0 if there was no answer.
func (in *instance) ask(method, path string, body, into any) int {
	in.t.Helper()
	var text io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			in.t.Fatalf("%s %s: %v", method, path, err)
		}
		text = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(in.t.Context(), method, in.admin+path, text)
	if err != nil {
		in.t.Fatalf("%s %s: %v", method, path, err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Header.Set("Content-Type", "application/json")
	a, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer a.Body.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(a.Body)
	if err != nil {
		return 0
	}
	if into != nil && a.StatusCode/100 == 2 {
		if err := json.Unmarshal(b, into); err != nil {
			in.t.Fatalf("%s %s: %v: %s", method, path, err, b)
		}
	}
	return a.StatusCode
}

// receipts returns what the ledger holds, oldest first. query may filter, as in "state=lost".
func (in *instance) receipts(query string) []receipt {
	in.t.Helper()
	var all []receipt
	for cursor := ""; ; {
		var page struct {
			Receipts []receipt
			Next     string
		}
		if status := in.ask(http.MethodGet, "/api/v1/receipts?limit=1000&cursor="+cursor+"&"+query, nil, &page); status != http.StatusOK {
			in.t.Fatalf("receipts: status %d", status)
		}
		all = append(all, page.Receipts...)
		if cursor = page.Next; cursor == "" {
			slices.Reverse(all)
			return all
		}
	}
}

// receipt returns one with its history.
func (in *instance) receipt(id string) (r receipt) {
	in.t.Helper()
	if status := in.ask(http.MethodGet, "/api/v1/receipts/"+id, nil, &r); status != http.StatusOK {
		in.t.Fatalf("receipt %s: status %d", id, status)
	}
	return r
}

// states counts the receipts by state.
func (in *instance) states() map[string]int {
	in.t.Helper()
	n := map[string]int{}
	for _, r := range in.receipts("") {
		n[r.State]++
	}
	return n
}

// awaitStates waits until the ledger holds exactly want.
func (in *instance) awaitStates(want map[string]int) {
	in.t.Helper()
	await(in.t, fmt.Sprintf("the ledger holds %v", want), func() bool {
		got := in.states()
		if len(got) != len(want) {
			return false
		}
		for state, n := range want {
			if got[state] != n {
				return false
			}
		}
		return true
	})
}

// probe asks one of the addresses of monitoring and returns the status.
func (in *instance) probe(path string) int {
	in.t.Helper()
	return in.ask(http.MethodGet, path, nil, nil)
}

// metric returns the value of a sample such as `admitone_deliveries_total{channel="slack",verdict="admitted"}`.
func (in *instance) metric(sample string) float64 {
	in.t.Helper()
	for line := range strings.Lines(in.metrics()) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), sample+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				in.t.Fatalf("metrics: %v", err)
			}
			return v
		}
	}
	return 0
}

func (in *instance) metrics() string {
	in.t.Helper()
	r, err := http.NewRequestWithContext(in.t.Context(), http.MethodGet, in.admin+"/metrics", http.NoBody)
	if err != nil {
		in.t.Fatalf("metrics: %v", err)
	}
	a, err := client.Do(r)
	if err != nil {
		in.t.Fatalf("metrics: %v", err)
	}
	defer a.Body.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(a.Body)
	if err != nil {
		in.t.Fatalf("metrics: %v", err)
	}
	return string(b)
}
