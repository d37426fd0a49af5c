package sqlstore_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

// key returns a key of which each byte is b.
func key(b byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), 32)))
}

// onEach runs test on each dialect, with a first key.
func onEach(t *testing.T, test func(t *testing.T, c sqlstore.Config)) {
	t.Helper()
	for name, config := range map[string]func(*testing.T) sqlstore.Config{
		"sqlite": liteConfig, "postgres": pgConfig,
		"proxy": func(t *testing.T) sqlstore.Config {
			t.Helper()
			return behind(t, servertest.PgBouncer(t, servertest.Postgres(t)), pgConfig(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(t)
			c.SecretKeys = []string{key('a')}
			test(t, c)
		})
	}
}

const (
	plainSecret = "plain-secret-of-acme"
	plainURL    = "https://user:plain-password@app.example.com/acme"
)

func acmeSlack() ports.Installation {
	return ports.Installation{
		ID: "acme-slack", Tenant: "acme", Channel: "slack", Account: "T0ACME001",
		Secrets:     map[string][]string{"signing_secret": {plainSecret, "older"}},
		Settings:    map[string]any{"number": json.Number("12345678901234567890"), "list": []any{"a"}},
		Policy:      json.RawMessage(`{"fast_ttl":"30h"}`),
		DispatchURL: plainURL,
	}
}

func add(t *testing.T, s *sqlstore.Store, in ports.Installation) ports.Installation {
	t.Helper()
	got, err := s.AddInstallation(t.Context(), in)
	if err != nil {
		t.Fatalf("AddInstallation(%s) = %v", in.ID, err)
	}
	return got
}

func find(t *testing.T, s *sqlstore.Store, id string) ports.Installation {
	t.Helper()
	in, err := s.FindInstallation(t.Context(), ports.InstallationRef{ID: id})
	if err != nil {
		t.Fatalf("FindInstallation(%s) = %v", id, err)
	}
	return in
}

func TestInstallationIsFoundByIDAndByAccount(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c sqlstore.Config) {
		s := open(t, c)
		want := acmeSlack()
		added := add(t, s, want)
		if added.CreatedAt.IsZero() || added.ChangedAt.IsZero() {
			t.Errorf("created at %s, changed at %s; want both told", added.CreatedAt, added.ChangedAt)
		}
		for _, ref := range []ports.InstallationRef{{ID: "acme-slack"}, {Channel: "slack", Account: "T0ACME001"}} {
			got, err := s.FindInstallation(t.Context(), ref)
			got.CreatedAt, got.ChangedAt = time.Time{}, time.Time{}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("FindInstallation(%+v) = %+v, %v; want what was added", ref, got, err)
			}
		}
		for _, ref := range []ports.InstallationRef{{ID: "acme"}, {Channel: "telegram", Account: "T0ACME001"}, {Channel: "slack", Account: "T0ACME00"}} {
			if got, err := s.FindInstallation(t.Context(), ref); !errors.Is(err, domain.ErrNotInstalled) {
				t.Errorf("FindInstallation(%+v) = %s, %v; want ErrNotInstalled", ref, got.ID, err)
			}
		}
	})
}

func TestIDsAndAccountsAreTakenOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c sqlstore.Config) {
		s := open(t, c)
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				in := acmeSlack()
				in.Tenant = fmt.Sprintf("tenant%d", i)
				if i%2 == 0 {
					in.ID = in.Tenant // then it is the account that is taken
				}
				_, errs[i] = s.AddInstallation(t.Context(), in)
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if !errors.Is(err, domain.ErrTaken) {
				t.Errorf("AddInstallation = %v; want ErrTaken", err)
			}
		}
		if won != 1 {
			t.Errorf("%d of %d were added; want 1", won, len(errs))
		}
	})
}

func TestChangeIsWholeOrNot(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c sqlstore.Config) {
		s := open(t, c)
		add(t, s, acmeSlack())
		refused := errors.New("not like this")
		_, err := s.ChangeInstallation(t.Context(), "acme-slack", func(in *ports.Installation) error {
			in.Paused = true
			return refused
		})
		if !errors.Is(err, refused) || find(t, s, "acme-slack").Paused {
			t.Errorf("a refused change = %v; want it returned and nothing changed", err)
		}
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				_, err := s.ChangeInstallation(t.Context(), "acme-slack", func(in *ports.Installation) error {
					in.ID, in.Tenant, in.Account = "x", "y", "z"
					in.Secrets["signing_secret"] = append(in.Secrets["signing_secret"], fmt.Sprint(i))
					return nil
				})
				if err != nil {
					t.Errorf("ChangeInstallation = %v", err)
				}
			})
		}
		wg.Wait()
		got := find(t, s, "acme-slack")
		if n := len(got.Secrets["signing_secret"]); n != 12 || got.Tenant != "acme" || got.Account != "T0ACME001" {
			t.Errorf("%d secrets of %s, %s; want 12 of acme, as no change may undo another", n, got.Tenant, got.Account)
		}
		if _, err := s.ChangeInstallation(t.Context(), "none", func(*ports.Installation) error { return nil }); !errors.Is(err, domain.ErrNotInstalled) {
			t.Errorf("change of none = %v; want ErrNotInstalled", err)
		}
	})
}

func TestListIsPagedAndFiltered(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c sqlstore.Config) {
		s := open(t, c)
		for i := range 7 {
			in := ports.Installation{ID: fmt.Sprintf("in-%d", i), Tenant: "acme", Channel: "slack", Account: fmt.Sprint(i)}
			if i == 3 {
				in.Tenant, in.Policy = "globex", json.RawMessage(`{"retention":"900h"}`)
			}
			add(t, s, in)
		}
		list := func(f ports.InstallationFilter) (ids []string) {
			for {
				p, err := s.Installations(t.Context(), f)
				if err != nil {
					t.Fatalf("Installations(%+v) = %v", f, err)
				}
				for _, in := range p.Installations {
					ids = append(ids, in.ID)
				}
				if f.Cursor = p.Next; p.Next == "" {
					return ids
				}
			}
		}
		for _, tt := range []struct {
			f    ports.InstallationFilter
			want []string
		}{
			{ports.InstallationFilter{Limit: 3}, []string{"in-0", "in-1", "in-2", "in-3", "in-4", "in-5", "in-6"}},
			{ports.InstallationFilter{Tenant: "acme", Limit: 2}, []string{"in-0", "in-1", "in-2", "in-4", "in-5", "in-6"}},
			{ports.InstallationFilter{OwnPolicy: true}, []string{"in-3"}},
			{ports.InstallationFilter{Channel: "telegram"}, nil},
		} {
			if got := list(tt.f); !slices.Equal(got, tt.want) {
				t.Errorf("list of %+v = %v; want %v", tt.f, got, tt.want)
			}
		}
	})
}

func TestEveryInstanceLearnsOfChangesInTheirOrder(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c sqlstore.Config) {
		s, other := open(t, c), open(t, c)
		told := make(chan string, 100)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { other.WatchInstallations(ctx, func(id string) { told <- id }) })
		t.Cleanup(func() { cancel(); wg.Wait() })
		next := func(want string) {
			t.Helper()
			select {
			case id := <-told:
				if id != want {
					t.Fatalf("told of %q; want %q", id, want)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("not told of %q", want)
			}
		}
		next("")
		begun := time.Now()
		add(t, s, acmeSlack())
		next("acme-slack")
		if took := time.Since(begun); took > time.Second {
			t.Errorf("told after %s; want it within a second", took)
		}
		if _, err := s.ChangeInstallation(t.Context(), "acme-slack", func(in *ports.Installation) error { in.Paused = true; return nil }); err != nil {
			t.Fatal(err)
		}
		add(t, s, ports.Installation{ID: "second", Tenant: "acme", Channel: "slack", Account: "2"})
		next("acme-slack")
		next("second")
		if err := s.RemoveInstallation(t.Context(), "acme-slack"); err != nil {
			t.Fatal(err)
		}
		next("acme-slack")
		if _, err := s.FindInstallation(t.Context(), ports.InstallationRef{ID: "acme-slack"}); !errors.Is(err, domain.ErrNotInstalled) {
			t.Errorf("a removed one = %v; want ErrNotInstalled", err)
		}
		if err := s.RemoveInstallation(t.Context(), "acme-slack"); !errors.Is(err, domain.ErrNotInstalled) {
			t.Errorf("removed twice = %v; want ErrNotInstalled", err)
		}
	})
}

func TestKeysCanBeChanged(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c sqlstore.Config) {
		with := func(keys ...string) *sqlstore.Store {
			c.SecretKeys = keys
			return open(t, c)
		}
		old := with(key('a'))
		add(t, old, acmeSlack())
		add(t, old, ports.Installation{ID: "bare", Tenant: "acme", Channel: "slack", Account: "bare"})
		stranger := with(key('x'))
		if _, err := stranger.FindInstallation(t.Context(), ports.InstallationRef{ID: "acme-slack"}); err == nil || errors.Is(err, domain.ErrNotInstalled) {
			t.Errorf("an installation that can't be decrypted = %v; want an error of its own", err)
		}
		p, err := stranger.Installations(t.Context(), ports.InstallationFilter{})
		if err != nil || len(p.Installations) != 2 || !p.Installations[0].Unreadable || p.Installations[1].Unreadable {
			t.Errorf("list under a strange key = %+v, %v; want the first told to be unreadable", p, err)
		}
		both := with(key('b'), key('a'))
		if n, err := both.ResealInstallations(t.Context(), 10); err != nil || n != 1 {
			t.Errorf("ResealInstallations = %d, %v; want 1", n, err)
		}
		if n, err := both.ResealInstallations(t.Context(), 10); err != nil || n != 0 {
			t.Errorf("ResealInstallations again = %d, %v; want 0", n, err)
		}
		if got := find(t, with(key('b')), "acme-slack").Secrets["signing_secret"]; !slices.Equal(got, []string{plainSecret, "older"}) {
			t.Error("the new key alone does not show the secrets")
		}
		none := with()
		in := acmeSlack()
		in.ID, in.Account = "new", "new"
		if _, err := none.AddInstallation(t.Context(), in); !errors.Is(err, ports.ErrNoKey) {
			t.Errorf("secrets without a key = %v; want ErrNoKey", err)
		}
		add(t, none, ports.Installation{ID: "second", Tenant: "acme", Channel: "teams", Account: "2"})
	})
}

func TestUnfitKeyIsRefusedAndNotShown(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"short", "dG9vIHNob3J0", strings.Repeat("*", 44)} {
		c := liteConfig(t)
		c.SecretKeys = []string{key('a'), bad}
		for _, check := range []func() error{
			func() error { _, err := sqlstore.Open(t.Context(), c); return err },
			func() error { return sqlstore.Check(t.Context(), c) },
		} {
			if err := check(); err == nil || !strings.Contains(err.Error(), "secret_key") || strings.Contains(err.Error(), bad) {
				t.Errorf("key %q = %v; want an error that names the setting and not the key", bad, err)
			}
		}
	}
}

// A row's secrets must not open in another row: who can write to the database can't make one
// tenant's secret that of another.
// Who can write to the database and has no key must not get secrets into a row that is shown to
// somebody else: one that differs in any part of what says whose it is.
func TestSealedSecretsOpenInTheirOwnRowOnly(t *testing.T) {
	t.Parallel()
	c := pgConfig(t)
	c.SecretKeys = []string{key('a')}
	s := open(t, c)
	add(t, s, ports.Installation{ID: "globex-slack", Tenant: "globex", Channel: "slack", Account: "T0GLOBEX02"})
	for part, to := range map[string]string{"tenant": "globex", "id": "other", "channel": "teams", "account": "T0OTHER03"} {
		in := acmeSlack()
		in.ID, in.Account = part, "of "+part
		add(t, s, in)
		find(t, s, in.ID)
		exec(t, c.DSN, fmt.Sprintf(`UPDATE installations SET %s = '%s' WHERE id = '%s'`, part, to, in.ID))
		if part == "id" {
			in.ID = to
		}
		if in, err := s.FindInstallation(t.Context(), ports.InstallationRef{ID: in.ID}); err == nil {
			t.Errorf("with another %s it is found with %d secrets; want an error", part, len(in.Secrets))
		}
	}
	for part, to := range map[string]string{"tenant": "globex", "id": "00000000-0000-7000-8000-000000000001", "installation": "globex-slack"} {
		q := confined(t, "body")
		if kept, err := s.Confine(t.Context(), q, 10); err != nil || !kept {
			t.Fatalf("Confine = %t, %v; want it kept", kept, err)
		}
		tenant, installation := q.Tenant, q.Delivery.Installation
		if page, err := s.Confined(t.Context(), tenant, installation, "", 10); err != nil || len(page) != 1 {
			t.Fatalf("Confined = %d, %v; want 1", len(page), err)
		}
		exec(t, c.DSN, fmt.Sprintf(`UPDATE quarantine SET %s = '%s' WHERE id = '%s'`, part, to, q.ID))
		switch part {
		case "tenant":
			tenant = to
		case "installation":
			installation = to
		}
		if n, err := s.CountConfined(t.Context(), tenant, installation); err != nil || n != 1 {
			t.Fatalf("CountConfined = %d, %v; want 1", n, err)
		}
		if page, err := s.Confined(t.Context(), tenant, installation, "", 10); err != nil || len(page) != 0 {
			t.Errorf("with another %s %d quarantined requests are opened, %v; want none", part, len(page), err)
		}
		exec(t, c.DSN, `DELETE FROM quarantine`)
	}
}

func exec(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for _, text := range []string{speaksForAll, sql} {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

func confined(t *testing.T, body string) ports.Confined {
	t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	return ports.Confined{
		ID: id.String(), Tenant: "acme", Until: time.Now().Add(time.Hour),
		Delivery: ports.Delivery{
			Channel: "slack", Installation: "acme-slack", Method: http.MethodPost, Target: "/in/slack/acme-slack",
			Header: http.Header{"X-Slack-Signature": {plainSecret}}, Body: []byte(body), ReceivedAt: time.Now().UTC().Truncate(time.Microsecond),
		},
	}
}

func TestQuarantineIsBoundedAndShortLived(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c sqlstore.Config) {
		s := open(t, c)
		add(t, s, acmeSlack())
		var want []ports.Confined
		for i := range 4 {
			q := confined(t, fmt.Sprintf("body %d", i))
			kept, err := s.Confine(t.Context(), q, 3)
			if err != nil || kept != (i < 3) {
				t.Fatalf("Confine number %d = %t, %v; want it up to the limit", i, kept, err)
			}
			want = append(want, q)
		}
		got, err := s.Confined(t.Context(), "acme", "acme-slack", "", 2)
		if err != nil || len(got) != 2 || !reflect.DeepEqual(got[0].Delivery, want[0].Delivery) {
			t.Fatalf("Confined = %+v, %v; want the two oldest, as they came", got, err)
		}
		rest, err := s.Confined(t.Context(), "acme", "acme-slack", got[1].ID, 10)
		if err != nil || len(rest) != 1 || rest[0].ID != want[2].ID {
			t.Errorf("the next = %+v, %v; want the third", rest, err)
		}
		if got, err := s.Confined(t.Context(), "globex", "acme-slack", "", 10); err != nil || len(got) != 0 {
			t.Errorf("another tenant sees %d, %v; want none", len(got), err)
		}
		if err := s.Release(t.Context(), "acme", want[0].ID); err != nil {
			t.Error(err)
		}
		old := confined(t, "old")
		old.Until = time.Now().Add(-time.Second)
		if kept, err := s.Confine(t.Context(), old, 10); err != nil || !kept {
			t.Errorf("Confine = %t, %v", kept, err)
		}
		if n, err := s.PruneConfined(t.Context()); err != nil || n != 1 {
			t.Errorf("PruneConfined = %d, %v; want 1", n, err)
		}
		if n, err := s.CountConfined(t.Context(), "acme", "acme-slack"); err != nil || n != 2 {
			t.Errorf("CountConfined = %d, %v; want 2", n, err)
		}
		if err := s.RemoveInstallation(t.Context(), "acme-slack"); err != nil {
			t.Error(err)
		}
		if n, err := s.CountConfined(t.Context(), "acme", "acme-slack"); err != nil || n != 0 {
			t.Errorf("after the removal %d are confined, %v; want 0", n, err)
		}
	})
}

// Whoever reads the database, its files or a dump finds neither secrets nor what was confined.
func TestWhatALostKeySealedHidesNothingInQuarantine(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c sqlstore.Config) {
		old := open(t, c)
		add(t, old, ports.Installation{ID: "acme-slack", Tenant: "acme", Channel: "slack", Account: "T0ACME001"})
		c.SecretKeys = []string{key('b')}
		s := open(t, c)
		var want []string
		for _, in := range []*sqlstore.Store{s, old, old, old, old, old, s, old, s} {
			q := confined(t, "body")
			if kept, err := in.Confine(t.Context(), q, 10); err != nil || !kept {
				t.Fatalf("Confine = %t, %v; want it kept", kept, err)
			}
			if in == s {
				want = append(want, q.ID)
			}
		}
		for after, rest := "", want; ; {
			page, err := s.Confined(t.Context(), "acme", "acme-slack", after, 2)
			if err != nil || len(page) != min(2, len(rest)) {
				t.Fatalf("Confined(after %q) = %d, %v; want %d", after, len(page), err, min(2, len(rest)))
			}
			if len(page) == 0 {
				return
			}
			for i, q := range page {
				if q.ID != rest[i] {
					t.Errorf("Confined(after %q) has %s at %d; want %s", after, q.ID, i, rest[i])
				}
			}
			after, rest = page[len(page)-1].ID, rest[len(page):]
		}
	})
}

func TestNoSecretStandsInTheDatabase(t *testing.T) {
	t.Parallel()
	const body = "words that a customer wrote"
	onEach(t, func(t *testing.T, c sqlstore.Config) {
		s := open(t, c)
		add(t, s, acmeSlack())
		if _, err := s.Confine(t.Context(), confined(t, body), 10); err != nil {
			t.Fatal(err)
		}
		text := everything(t, c)
		if !strings.Contains(text, "T0ACME001") {
			t.Error("what was read does not hold the installation at all")
		}
		for _, word := range []string{plainSecret, "plain-password", body, key('a')} {
			if strings.Contains(text, word) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(word))) {
				t.Errorf("%q stands in the database", word)
			}
		}
	})
}

// everything returns all that the database holds of installations: the files of SQLite, or all
// columns of Postgres as text.
func everything(t *testing.T, c sqlstore.Config) string {
	t.Helper()
	if c.Dialect == migrations.SQLite {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(c.DSN), "*"))
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(b)
		}
		return all.String()
	}
	conn, err := pgx.Connect(t.Context(), c.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	// in one transaction, which stays with one connection whatever stands in between
	if _, err := conn.Exec(t.Context(), "BEGIN; "+speaksForAll); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, query := range []string{
		`SELECT concat_ws(' ', i::text, encode(i.sealed, 'escape')) FROM installations i`,
		`SELECT concat_ws(' ', q::text, encode(q.sealed, 'escape')) FROM quarantine q`,
	} {
		rows, err := conn.Query(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			all.WriteString(text)
		}
	}
	return all.String()
}

// A look-up reads one row by an index, however many there are.
func TestLookUpAmongManyReadsOneRow(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	c := sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true, SecretKeys: []string{key('a')}}
	s := open(t, c)
	exec(t, db.SuperDSN, `
		INSERT INTO installations
		SELECT 'tenant' || i % 1000, 'in-' || i, 'slack', 'T' || i, false, '{}', '', '', '', now(), now() FROM generate_series(1, 100000) i`)
	exec(t, db.SuperDSN, `ANALYZE installations`)
	for _, ref := range []ports.InstallationRef{{ID: "in-99999"}, {Channel: "slack", Account: "T5"}} {
		begun := time.Now()
		for range 200 {
			if _, err := s.FindInstallation(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
		}
		// a scan of the table takes 20 ms and more, a look at the index well below one
		if each := time.Since(begun) / 200; each > 10*time.Millisecond {
			t.Errorf("a look-up of %+v takes %s", ref, each)
		}
	}
}
