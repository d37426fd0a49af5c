package cli_test

import (
	"bytes"
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/app/config"
)

const quickstart = "../../configs/quickstart.yaml"

const quickstartHead = `## To see it work: no account at a vendor, no other program, nothing but this machine.
##
##   admitone serve --config configs/quickstart.yaml
##   admitone simulate slack --retries 3
##   admitone receipts list
##
## Every secret below is invented and known to everybody: replace them before a vendor calls.

server:
  listen: "127.0.0.1:8080"
  admin_listen: "127.0.0.1:8081"
  public_url: "http://127.0.0.1:8080"

store:
  durable: {driver: sqlite, dsn: "data/admitone.db"}
  fast: {driver: memory}

## Events are written to the log. To have them posted to an application: target: http, and its
## address under http.url.
dispatch:
  target: log

`

type installation struct {
	ID       string            `yaml:"id"`
	Channel  string            `yaml:"channel"`
	Account  string            `yaml:"account"`
	Secrets  map[string]string `yaml:"secrets,omitempty"`
	Settings map[string]any    `yaml:"settings,omitempty"`
}

func TestQuickstartHasTheExampleOfEveryChannel(t *testing.T) {
	t.Parallel()
	var all []installation
	for _, c := range app.Channels() {
		in := installation{
			ID: "demo-" + c.Name, Channel: c.Name, Account: c.Example.Account,
			Secrets: map[string]string{}, Settings: c.Example.Settings,
		}
		for name, list := range c.Example.Secrets {
			in.Secrets[name] = list[0]
		}
		all = append(all, in)
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	tenants := []map[string]any{{"id": "demo", "installations": all}}
	if err := e.Encode(map[string]any{"tenants": tenants}); err != nil {
		t.Fatal(err)
	}
	same(t, quickstart, quickstartHead+b.String())

	cfg, err := config.Load(quickstart, nil, app.Channels())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range app.Channels() {
		in, ok := cfg.Installation("demo-" + c.Name)
		if got := in.Credentials(); !ok || !reflect.DeepEqual(got, c.Example) {
			t.Errorf("demo-%s is loaded as %+v; want the example of %s", c.Name, got, c.Name)
		}
	}
}
