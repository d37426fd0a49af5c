package torture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/admitone/admitone/app/child"
	"github.com/admitone/admitone/app/flaky"
)

// What the instances are told. Times are short, so that a storm of a minute sees leases end.
const (
	dispatchTimeout = time.Second
	lease           = 5 * time.Second
	drainTimeout    = 3 * time.Second
	backoffInitial  = 100 * time.Millisecond
	backoffMax      = time.Second
	maxAttempts     = 30
	workers         = 32

	// startPatience is how long an instance may take to become ready once all faults have ended.
	startPatience = 30 * time.Second
	// lookPatience is how long one may take to say whether it is.
	lookPatience = 500 * time.Millisecond
)

// A fleet is the instances under test.
type fleet struct {
	instances []*instance
	accuse    func(format string, a ...any)

	mu        sync.Mutex
	incidents []incident
}

// An incident is something that was done to an instance, or to all if instance is nil.
type incident struct {
	kind     string
	instance *instance
	from, to time.Time // to is zero while it lasts
}

// begin notes that a fault begins, and returns what notes its end.
func (f *fleet) begin(kind string, in *instance) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := len(f.incidents)
	f.incidents = append(f.incidents, incident{kind: kind, instance: in, from: time.Now()})
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.incidents[at].to = time.Now()
	}
}

// An instance is one server, in one process after another.
type instance struct {
	name    string
	dir     string
	config  string
	public  string // base URLs
	admin   string
	durable *flaky.Proxy // before the durable store; nil with embedded stores
	fast    *flaky.Proxy

	// harm is locked by who wants to be the only one that harms the instance, read-locked by all others.
	harm    sync.RWMutex
	busy    sync.Mutex // held by who looks, kills, halts or restarts
	process *child.Process
	ready   bool // the process at hand has been
}

// stores say where receipts are: with both empty, in a file that the instances share.
type stores struct {
	sqlite   string
	postgres string
	redis    string
}

func newFleet(ctx context.Context, dir string, n int, st stores, p *plan, application string, accuse func(string, ...any)) (*fleet, error) {
	f := &fleet{accuse: accuse}
	for i := range n {
		in, err := newInstance(ctx, filepath.Join(dir, "instance"+strconv.Itoa(i+1)), st, p, application)
		if err != nil {
			f.close()
			return nil, err
		}
		f.instances = append(f.instances, in)
	}
	return f, nil
}

func newInstance(ctx context.Context, dir string, st stores, p *plan, application string) (*instance, error) {
	in := &instance{name: filepath.Base(dir), dir: dir, config: filepath.Join(dir, "admitone.yaml")}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for an instance: %w", err)
	}
	public, err := child.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	admin, err := child.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	in.public, in.admin = "http://"+public, "http://"+admin
	type section = map[string]any
	store := section{
		"durable": section{"driver": "sqlite", "dsn": st.sqlite},
		"fast":    section{"driver": "memory"},
		"journal": section{"path": filepath.Join(dir, "journal")},
	}
	if st.postgres != "" {
		dsn, durable, err := behind(ctx, st.postgres, "5432", true)
		if err != nil {
			return nil, fmt.Errorf("--postgres: %w", err)
		}
		in.durable = durable
		store["durable"] = section{"driver": "postgres", "dsn": dsn, "migrate": false}
	}
	if st.redis != "" {
		address, fast, err := behind(ctx, st.redis, "6379", false)
		if err != nil {
			return nil, fmt.Errorf("--redis: %w", err)
		}
		in.fast = fast
		store["fast"] = section{"driver": "redis", "url": address}
	}
	text, err := yaml.Marshal(section{
		"server": section{"listen": public, "admin_listen": admin, "public_url": publicURL, "drain_timeout": drainTimeout.String()},
		"store":  store,
		"dispatch": section{
			"target": "http", "workers": workers,
			"http": section{"url": application, "secret": applicationSecret, "timeout": dispatchTimeout.String()},
		},
		"policy": section{
			"lease": lease.String(), "max_attempts": maxAttempts,
			"backoff": section{"initial": backoffInitial.String(), "max": backoffMax.String()},
		},
		"tenants": tenants(p),
	})
	if err != nil {
		return nil, fmt.Errorf("write a configuration: %w", err)
	}
	if err := os.WriteFile(in.config, text, 0o600); err != nil {
		return nil, fmt.Errorf("write a configuration: %w", err)
	}
	return in, nil
}

func tenants(p *plan) []map[string]any {
	var ids []string
	of := map[string][]map[string]any{}
	for _, in := range p.installations {
		if of[in.tenant] == nil {
			ids = append(ids, in.tenant)
		}
		secrets := map[string]string{}
		for name, list := range in.cred.Secrets {
			secrets[name] = list[0]
		}
		of[in.tenant] = append(of[in.tenant], map[string]any{
			"id": in.id, "channel": in.channel.Name, "account": in.cred.Account, "secrets": secrets, "settings": in.cred.Settings,
			"policy": map[string]any{"guarantee": string(in.guarantee)},
		})
	}
	list := make([]map[string]any, len(ids))
	for i, id := range ids {
		list[i] = map[string]any{"id": id, "installations": of[id]}
	}
	return list
}

// behind puts a proxy before the server of address, and returns the address through it.
func behind(ctx context.Context, address, port string, postgres bool) (string, *flaky.Proxy, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || strings.Contains(u.Host, ",") {
		return "", nil, errors.New("must be a URL of one server")
	}
	target := u.Host
	if u.Port() == "" {
		target += ":" + port
	}
	p, err := flaky.NewProxy(ctx, target, postgres)
	if err != nil {
		return "", nil, err
	}
	u.Host = p.Address()
	return u.String(), p, nil
}

// start begins a process and does not wait until it is ready. The caller holds busy.
func (in *instance) start() error {
	p, err := child.Start(in.dir, in.config)
	if err != nil {
		return err
	}
	in.process, in.ready = p, false
	return nil
}

// look notes whether the process at hand is ready, and reports whether it runs. The caller holds busy.
func (in *instance) look(ctx context.Context, client *http.Client) (runs bool) {
	if !in.process.Runs() {
		return false
	}
	if in.ready {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, in.admin+"/readyz", http.NoBody)
	if err != nil {
		return true
	}
	if resp, err := client.Do(r); err == nil {
		_ = resp.Body.Close() // the status says enough
		in.ready = resp.StatusCode == http.StatusOK
	}
	return true
}

// watch restarts instances that end by themselves, until ctx ends. One may do so while it starts,
// if a store is out of reach; later it is a violation.
func (f *fleet) watch(ctx context.Context, client *http.Client) {
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		for _, in := range f.instances {
			if !in.busy.TryLock() {
				continue // somebody is at it
			}
			if !in.look(ctx, client) && ctx.Err() == nil {
				if in.ready {
					f.accuse("%s ended by itself:\n%s", in.name, in.process.LogTail(12))
				}
				if err := in.start(); err != nil {
					f.accuse("%s can't be started: %v", in.name, err)
				}
			}
			in.busy.Unlock()
		}
	}
}

// ready waits until every instance admits.
func (f *fleet) ready(ctx context.Context, client *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for _, in := range f.instances {
		if err := poll(ctx, 20*time.Millisecond, func() (bool, error) {
			in.busy.Lock()
			defer in.busy.Unlock()
			in.look(ctx, client)
			return in.ready, nil
		}); err != nil {
			return fmt.Errorf("%s is not ready: %w\n%s", in.name, err, in.process.LogTail(8))
		}
	}
	return nil
}

// names reads from the logs how receipts name the processes of each instance, and whether one
// of them has broken.
func (f *fleet) names() (map[string]*instance, error) {
	of := map[string]*instance{}
	for _, in := range f.instances {
		if err := f.readLog(in, of); err != nil {
			return nil, fmt.Errorf("read the log of %s: %w", in.name, err)
		}
	}
	return of, nil
}

func (f *fleet) readLog(in *instance, of map[string]*instance) error {
	log, err := os.Open(filepath.Join(in.dir, "server.log"))
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // it is only read
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var said struct{ Msg, Instance string }
		switch line := lines.Bytes(); {
		case bytes.HasPrefix(line, []byte("panic:")), bytes.HasPrefix(line, []byte("fatal error:")), bytes.HasPrefix(line, []byte("WARNING: DATA RACE")):
			f.accuse("%s says %s", in.name, line)
		case bytes.Contains(line, []byte(`"admitting"`)) && json.Unmarshal(line, &said) == nil && said.Msg == "admitting":
			of[said.Instance] = in
		}
	}
	return lines.Err()
}

// journalled returns how many events lie in the journals of all instances.
func (f *fleet) journalled(ctx context.Context, client *http.Client) (int, error) {
	sum := 0
	for _, in := range f.instances {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, in.admin+"/metrics", http.NoBody)
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		found := false
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if n, ok := strings.CutPrefix(lines.Text(), "admitone_journal_events "); ok {
				v, err := strconv.ParseFloat(n, 64)
				found = err == nil
				sum += int(v)
			}
		}
		_ = resp.Body.Close() // it was read only
		if !found {
			return 0, fmt.Errorf("%s does not tell the length of its journal", in.name)
		}
	}
	return sum, nil
}

// stop drains every instance at once.
func (f *fleet) stop() {
	var all sync.WaitGroup
	for _, in := range f.instances {
		all.Go(func() {
			in.busy.Lock()
			defer in.busy.Unlock()
			if !in.process.Runs() {
				return
			}
			if !in.process.Stop(drainTimeout + 20*time.Second) {
				f.accuse("%s did not end after SIGTERM:\n%s", in.name, in.process.LogTail(8))
			} else if code := in.process.ExitCode(); code != 0 {
				f.accuse("%s exits with %d after SIGTERM:\n%s", in.name, code, in.process.LogTail(8))
			}
		})
	}
	all.Wait()
}

// close ends what still runs.
func (f *fleet) close() {
	for _, in := range f.instances {
		if in.process.Runs() {
			_ = in.process.Kill() // it fails only if the server has ended
		}
		for _, p := range []*flaky.Proxy{in.durable, in.fast} {
			if p != nil {
				p.Close()
			}
		}
	}
}

// poll calls done every period until it returns true or an error, or ctx ends.
func poll(ctx context.Context, period time.Duration, done func() (bool, error)) error {
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
