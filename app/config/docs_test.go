package config_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/admitone/admitone/app/config"
)

var update = flag.Bool("update", false, "write the table of keys in docs/configuration.md")

const (
	configs = "../../configs"
	manual  = "../../docs/configuration.md"
)

// A row is one key as the manual tells of it.
type row struct {
	key, meaning, def string
	oneOf             string
}

// comments returns the comment of each field of each struct in config.go, by "Struct.Field".
func comments(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				for _, name := range f.Names {
					found[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
				}
			}
		}
		return true
	})
	return found
}

// whole are the types whose keys the manual does not tell one by one.
var whole = []reflect.Type{
	reflect.TypeFor[config.Settings](), reflect.TypeFor[config.Secrets](), reflect.TypeFor[config.Secret](),
}

// rows returns the keys below v, the value that they have by default.
func rows(path string, v reflect.Value, comments map[string]string) []row {
	var all []row
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		r := row{key: name, meaning: comments[v.Type().Name()+"."+f.Name], oneOf: f.Tag.Get("oneof")}
		if path != "" {
			r.key = path + "." + name
		}
		value := v.Field(i)
		switch {
		case slices.Contains(whole, value.Type()) || value.Type() == reflect.TypeFor[config.Policy]() && path != "":
			all = append(all, r)
		case value.Kind() == reflect.Struct:
			if r.meaning != "" {
				all = append(all, r)
			}
			all = append(all, rows(r.key, value, comments)...)
		case value.Kind() == reflect.Map:
			section := config.Channel{Enabled: true}
			all = append(append(all, r), rows(r.key+".<channel>", reflect.ValueOf(section), comments)...)
		case value.Kind() == reflect.Slice:
			all = append(append(all, r), rows(r.key+".<n>", reflect.Zero(value.Type().Elem()), comments)...)
		default:
			r.def = text(value)
			all = append(all, r)
		}
	}
	return all
}

// text returns a default as the file would say it.
func text(v reflect.Value) string {
	if d, ok := reflect.TypeAssert[time.Duration](v); ok && d != 0 {
		s := strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
		if regexp.MustCompile(`[a-z]$`).MatchString(s) {
			return s
		}
		return d.String()
	}
	if v.IsZero() && v.Kind() != reflect.Bool {
		return ""
	}
	return fmt.Sprint(v.Interface())
}

func everyKey(t *testing.T) []row {
	t.Helper()
	all := rows("", reflect.ValueOf(config.Default()), comments(t))
	for _, r := range all {
		if r.meaning == "" {
			t.Errorf("%s has no comment in config.go", r.key)
		}
	}
	return all
}

func TestManualHasEveryKey(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| key | environment variable | default | meaning |\n|---|---|---|---|\n")
	for _, r := range everyKey(t) {
		variable := "ADMITONE_" + strings.ToUpper(strings.ReplaceAll(r.key, ".", "_"))
		def, oneOf := "", ""
		if r.def != "" {
			def = "`" + r.def + "`"
		}
		if r.oneOf != "" {
			oneOf = "`" + strings.ReplaceAll(r.oneOf, " ", "`, `") + "`. "
		}
		fmt.Fprintf(&table, "| `%s` | `%s` | %s | %s%s |\n", r.key, variable, def, oneOf, r.meaning)
	}

	b, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- keys: begin -->\n", "<!-- keys: end -->"
	before, rest, ok := strings.Cut(string(b), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks of its table", manual)
	}
	want := before + begin + table.String() + end + after
	if want == string(b) {
		return
	}
	if !*update {
		t.Fatalf("%s is stale; run go test ./app/config -update", manual)
	}
	if err := os.WriteFile(manual, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
}

// uncommented returns configs/admitone.yaml with every key in force.
func uncommented(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(configs, "admitone.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^# `).ReplaceAllString(string(b), "")
}

func TestSampleHasEveryKey(t *testing.T) {
	t.Parallel()
	var sample map[string]any
	if err := yaml.Unmarshal([]byte(uncommented(t)), &sample); err != nil {
		t.Fatal(err)
	}
	for _, r := range everyKey(t) {
		words := strings.Split(strings.NewReplacer("<channel>", "slack", "<secret>", "signing_secret").Replace(r.key), ".")
		at, found := any(sample), true
		for _, w := range words {
			if items, ok := at.([]any); ok && w == "<n>" && len(items) > 0 {
				at = items[0]
				continue
			}
			section, _ := at.(map[string]any)
			if at, found = section[w]; !found {
				t.Errorf("configs/admitone.yaml lacks %s", r.key)
				break
			}
		}
		if found && r.def != "" && r.def != fmt.Sprint(at) {
			t.Errorf("configs/admitone.yaml says %s: %v; the default is %s", r.key, at, r.def)
		}
	}
}

func TestSampleIsTheDefaultWithAndWithoutItsComments(t *testing.T) {
	t.Parallel()
	want := config.Default()
	c, err := config.Load(filepath.Join(configs, "admitone.yaml"), nil, toys)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c.Server, want.Server) || !reflect.DeepEqual(c.Store, want.Store) || !reflect.DeepEqual(c.Dispatch, want.Dispatch) ||
		c.Policy != want.Policy || c.Channels != nil || c.Tenants != nil {
		t.Errorf("as it stands it changes defaults: %+v", c)
	}

	c = mustLoad(t, uncommented(t), "ADMIN_TOKEN=a", "DISPATCH_SECRET=b", "SLACK_SIGNING_SECRET=c", "ACME_SLACK_SIGNING_SECRET=d", "SECRET_KEY=e")
	want.Server.PublicURL, want.Server.AdminToken = "https://hooks.example.com", config.Secret{"a"}
	want.Dispatch.HTTP.Secret, want.Policy.OnConflict = config.Secret{"b"}, "suppress"
	want.Store.Durable.SecretKey, want.Policy.RateLimit, want.Policy.Quarantine = config.Secret{"e"}, 100, 15*time.Minute
	if !reflect.DeepEqual(c.Server, want.Server) || !reflect.DeepEqual(c.Store, want.Store) || !reflect.DeepEqual(c.Dispatch, want.Dispatch) || c.Policy != want.Policy {
		t.Errorf("with every key in force it changes defaults: %+v", c)
	}
	if in, ok := c.Installation("acme-slack"); !ok || in.Secrets["signing_secret"][0] != "d" {
		t.Errorf("its installation is %+v", in)
	}
	if _, ok := c.AppWide("slack"); !ok {
		t.Error("its section opens no app-wide address")
	}
}

func TestReadyMadeFilesLoad(t *testing.T) {
	t.Parallel()
	environ := []string{
		"PUBLIC_URL=https://hooks.example.com", "ADMIN_TOKEN=a", "DISPATCH_SECRET=b", "SLACK_SIGNING_SECRET=c",
		"DATABASE_URL=postgres://admitone@db/admitone", "MIGRATION_DATABASE_URL=postgres://owner@db/admitone",
		"REDIS_URL=redis://redis:6379/0", "APPLICATION_URL=http://app:9000/events",
	}
	files, err := filepath.Glob(filepath.Join(configs, "*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("configs holds %v, %v", files, err)
	}
	for _, file := range files {
		if filepath.Base(file) == "quickstart.yaml" {
			continue // made, and looked at by app/cli, with every channel of the build
		}
		c, err := config.Load(file, environ, toys)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for _, f := range c.Findings() {
			if f.Severity == config.SeverityWarning {
				t.Errorf("%s: %s: %s", file, f.Key, f.Text)
			}
		}
	}
}

// A channel's own settings struct is decoded from Settings, so what the file says must
// arrive there as the channel would have read it itself.
func TestSettingsReachTheChannelAsWritten(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, installations(`{id: a, channel: gmail, account: x, secrets: {credentials: x}, settings: {endpoint: 007, poll_interval: 30s, query: {deep: [1, 1.5, true, 1.10, 1e3]}}}`))
	in, _ := c.Installation("a")
	var got struct {
		Endpoint     string        `yaml:"endpoint"`
		PollInterval time.Duration `yaml:"poll_interval"`
		Query        struct {
			Deep []any `yaml:"deep"`
		} `yaml:"query"`
	}
	if err := in.Settings.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Endpoint != "007" || got.PollInterval != 30*time.Second || fmt.Sprintf("%#v", got.Query.Deep) != `[]interface {}{1, 1.5, true, "1.10", "1e3"}` {
		t.Errorf("settings are decoded as %#v", got)
	}
}
