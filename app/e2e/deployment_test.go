package e2e_test

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/app/flaky"
	"github.com/admitone/admitone/channels"
)

// adminToken opens the admin API of every instance.
const adminToken = "admin-token-of-e2e-tests"

// publicURL is what vendors believe to call.
const publicURL = "https://hooks.example.com"

// settings is a part of a configuration, by key.
type settings = map[string]any

// An installation is one of those that every deployment has.
type installation struct {
	id, tenant, channel, account string
	secret                       string // name of its secret
	value                        string
	addresses                    []string
}

var installations = []installation{
	{id: "acme-slack", tenant: "acme", channel: "slack", account: "T0ACME001", secret: "signing_secret", value: "slack-secret-of-acme-0001"},
	{id: "acme-kestrel", tenant: "acme", channel: "slack", account: "T0KESTREL9", secret: "signing_secret", value: "slack-secret-of-kestrel-02"},
	{id: "acme-twilio", tenant: "acme", channel: "twilio", account: "AC0000000000000000000000000000a001", secret: "auth_token", value: "twilio-token-of-acme-00003"},
	{id: "bot-a", tenant: "acme", channel: "telegram", account: "7000000001", secret: "secret_token", value: "telegram-token-of-bot-a-04"},
	{id: "bot-b", tenant: "acme", channel: "telegram", account: "7000000002", secret: "secret_token", value: "telegram-token-of-bot-b-05"},
	{id: "acme-desk", tenant: "acme", channel: "cfworker", account: "desk@example.com", secret: "signing_key", value: "whsec_bWFpbC1rZXktb2YtYWNtZS1kZXNrLW9mLWUyZQ==", addresses: []string{"desk@example.com"}},
	{id: "globex-slack", tenant: "globex", channel: "slack", account: "T0GLOBEX02", secret: "signing_secret", value: "slack-secret-of-globex-006"},
	{id: "globex-bot", tenant: "globex", channel: "telegram", account: "7000000003", secret: "secret_token", value: "telegram-token-of-globex-7"},
}

// appWideSecret is that of Slack's app-wide address.
const appWideSecret = "slack-secret-of-the-app-08"

// install returns the installation with that id.
func install(id string) installation {
	return installations[slices.IndexFunc(installations, func(in installation) bool { return in.id == id })]
}

func (in installation) credentials() channels.Credentials {
	c := channels.Credentials{Account: in.account, Secrets: map[string][]string{in.secret: {in.value}}}
	if in.addresses != nil {
		c.Settings = channels.Settings{"addresses": any(in.addresses)}
	}
	return c
}

// eachChannel are installations of which each stands for its channel.
var eachChannel = []installation{install("acme-slack"), install("acme-twilio"), install("bot-a"), install("acme-desk")}

// A deployment is what one test has for itself. Its instances end with the test; then their
// logs are searched for secrets, message texts, panics and data races.
type deployment struct {
	t     *testing.T
	dir   string
	app   *application
	pg    *flaky.Proxy            // before PostgreSQL; nil with embedded stores
	rd    *flaky.Proxy            // before Redis; nil with embedded stores
	redis *servertest.RedisServer // nil with embedded stores
	db    servertest.PostgresDatabase
	extra settings

	mu        sync.Mutex
	instances []*instance
	texts     []string // what customers wrote
	number    int
}

// newProxy returns a way to a server that can be broken.
func newProxy(t testing.TB, target string, postgres bool) *flaky.Proxy {
	t.Helper()
	p, err := flaky.NewProxy(t.Context(), target, postgres)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// onServers returns a deployment on PostgreSQL and Redis. extra overrides keys of the configuration.
func onServers(t *testing.T, extra settings) *deployment {
	t.Helper()
	d := embedded(t, nil)
	d.db = servertest.Postgres(t).Database(t)
	dsn, err := url.Parse(d.db.DSN)
	if err != nil {
		t.Fatalf("DSN: %v", err)
	}
	d.redis = servertest.Redis(t)
	d.pg, d.rd = newProxy(t, dsn.Host, true), newProxy(t, d.redis.Addr(), false)
	dsn.Host = d.pg.Address()
	d.extra = merge(settings{"store": settings{
		"durable": settings{"driver": "postgres", "dsn": dsn.String()},
		"fast":    settings{"driver": "redis", "url": "redis://" + d.rd.Address() + "/0"},
	}}, extra)
	return d
}

// embedded returns a deployment of one instance's own stores.
func embedded(t *testing.T, extra settings) *deployment {
	t.Helper()
	return &deployment{t: t, dir: t.TempDir(), app: newApplication(t), extra: extra}
}

// onBoth runs test on either kind of stores.
func onBoth(t *testing.T, extra settings, test func(t *testing.T, d *deployment)) {
	t.Helper()
	t.Run("servers", func(t *testing.T) { t.Parallel(); test(t, onServers(t, extra)) })
	t.Run("embedded", func(t *testing.T) { t.Parallel(); test(t, embedded(t, extra)) })
}

// merge returns base with what over says in its place, mapping by mapping.
func merge(base, over settings) settings {
	out := maps.Clone(base)
	if out == nil {
		out = settings{}
	}
	for k, v := range over {
		b, ok1 := out[k].(settings)
		o, ok2 := v.(settings)
		if ok1 && ok2 {
			v = merge(b, o)
		}
		out[k] = v
	}
	return out
}

// configure writes the configuration of the instance called name and returns its file.
func (d *deployment) configure(name string, own settings) string {
	d.t.Helper()
	tenants := map[string][]settings{}
	for _, in := range installations {
		s := settings{"id": in.id, "channel": in.channel, "account": in.account, "secrets": settings{in.secret: in.value}}
		if in.addresses != nil {
			s["settings"] = settings{"addresses": in.addresses}
		}
		tenants[in.tenant] = append(tenants[in.tenant], s)
	}
	base := settings{
		"server": settings{
			"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "public_url": publicURL,
			"admin_token": adminToken, "drain_timeout": "10s",
		},
		"store": settings{
			"durable": settings{"driver": "sqlite", "dsn": filepath.Join(d.dir, "admitone.db")},
			"journal": settings{"path": ""},
		},
		"dispatch": settings{"target": "http", "http": settings{"url": d.app.server.URL, "secret": applicationSecret, "timeout": "5s"}},
		"policy":   settings{"lease": "8s", "backoff": settings{"initial": "100ms", "max": "400ms"}},
		"channels": settings{"slack": settings{"signing_secret": appWideSecret}},
		"tenants": []settings{
			{"id": "acme", "installations": tenants["acme"]}, {"id": "globex", "installations": tenants["globex"]},
		},
	}
	text, err := yaml.Marshal(merge(merge(base, d.extra), own))
	if err != nil {
		d.t.Fatalf("configuration: %v", err)
	}
	file := filepath.Join(d.dir, name+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		d.t.Fatalf("configuration: %v", err)
	}
	return file
}

// two starts two instances that share the deployment's stores.
func (d *deployment) two() (a, b *instance) {
	d.t.Helper()
	return d.serve(nil), d.serve(nil)
}

// text returns words that a customer writes, which no log may repeat.
func (d *deployment) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.number++
	text := fmt.Sprintf("words of a customer %04d", d.number)
	d.texts = append(d.texts, text)
	return text
}

// confidential returns what must never stand in a log.
func (d *deployment) confidential() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	words := append(slices.Clone(d.texts), adminToken, applicationSecret, appWideSecret)
	for _, in := range installations {
		words = append(words, in.value)
	}
	if dsn, err := url.Parse(dsnOf(d.extra)); err == nil && dsn.User != nil {
		if password, ok := dsn.User.Password(); ok {
			words = append(words, password)
		}
	}
	return words
}

func dsnOf(s settings) string {
	store, _ := s["store"].(settings)
	durable, _ := store["durable"].(settings)
	dsn, _ := durable["dsn"].(string)
	return dsn
}

// rest waits until nothing is on its way any more: no journal holds an event, no receipt is
// open, and the application works on none. It returns the receipts, oldest first. Events
// without a receipt are not seen.
func (d *deployment) rest() []receipt {
	d.t.Helper()
	living := d.living()
	var all []receipt
	await(d.t, "nothing is journalled and no receipt is open", func() bool {
		for _, in := range living {
			if in.metric("admitone_journal_events") > 0 {
				return false
			}
		}
		all = living[0].receipts("")
		return d.app.working() == 0 && !slices.ContainsFunc(all, receipt.open)
	})
	return all
}

// living returns the instances that run.
func (d *deployment) living() []*instance {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	living := slices.DeleteFunc(slices.Clone(d.instances), func(in *instance) bool { return !in.runs() || in.halted })
	if len(living) == 0 {
		d.t.Fatal("no instance runs")
	}
	return living
}

// once waits until all is at rest, and fails the test unless the application got each of
// texts once and nothing else, and the ledger holds as many receipts, all handled.
func (d *deployment) once(texts ...string) {
	d.t.Helper()
	all := d.rest()
	d.dispatchedOnce(texts...)
	if len(all) != len(texts) {
		d.t.Errorf("%d receipts; want %d", len(all), len(texts))
	}
	for _, r := range all {
		if r.State != "handled" || r.Attempt != 1 {
			d.t.Errorf("receipt of %s is %s at attempt %d (%s); want handled at 1", r.EventID, r.State, r.Attempt, r.LastError)
		}
	}
}

// dispatchedOnce fails the test unless the application got each of texts once and nothing else.
func (d *deployment) dispatchedOnce(texts ...string) {
	d.t.Helper()
	count := map[string]int{}
	for _, got := range d.app.dispatches() {
		count[got.Data.Text]++
	}
	for _, text := range texts {
		if count[text] != 1 {
			d.t.Errorf("%q was dispatched %d times; want once", text, count[text])
		}
		delete(count, text)
	}
	for text, n := range count {
		d.t.Errorf("%q was dispatched %d times; want never", text, n)
	}
}

// keys returns the keys that Redis holds.
func (d *deployment) keys() int {
	d.t.Helper()
	var n int
	if _, err := fmt.Sscanf(d.redis.Do("DBSIZE"), ":%d", &n); err != nil {
		d.t.Fatalf("DBSIZE: %v", err)
	}
	return n
}

// clean fails the test if the log of an instance tells what it must not.
func (d *deployment) clean(in *instance) {
	log := in.log.String()
	for _, word := range d.confidential() {
		if strings.Contains(log, word) {
			d.t.Errorf("the log of %s repeats %q", in.name, word)
		}
	}
	for _, sign := range []string{"WARNING: DATA RACE", "panic:", "fatal error:"} {
		if at := strings.Index(log, sign); at >= 0 {
			d.t.Errorf("%s of %s: %s", sign, in.name, log[at:min(len(log), at+3000)])
		}
	}
	if d.t.Failed() {
		d.t.Logf("end of the log of %s:\n%s", in.name, log[max(0, len(log)-4000):])
	}
}

// soon is for what must not wait for anything: on a busy machine even that takes a while, and
// what waits for an application or a store that does not answer takes longer, or for ever.
const soon = 10 * time.Second
