package sqlstore_test

import (
	"bytes"
	"encoding/binary"
	"os"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports/storetest"
)

// A tenantMistake is what a store could do wrong about tenants, made on its way to the server.
type tenantMistake struct {
	make   func(message) []byte
	caught string // a promise that must not hold: of the kit, or batchOfSeveral
}

const (
	parse, bind, query = 'P', 'B', 'Q'

	batchOfSeveral = "BatchOfSeveralTenantsIsKeptApart"
)

const (
	fourTenants  = `{"tenant-0":1,"tenant-1":1,"tenant-2":1,"tenant-3":1}`
	threeTenants = `{"tenant-0":1,"tenant-1":1,"tenant-2":1}`
)

// tenantMistakes are those of statements and of parameters. The kit's tenants are acme and umbrella.
var tenantMistakes = map[string]tenantMistake{
	"forgets to say for whom it speaks":      {inText("'admitone.tenants'", "'admitone.nobodys'"), "FirstClaimWins"},
	"speaks for nobody":                      {inParameter("admitone_speak", `{"acme":1}`, `{}`), "FirstClaimWins"},
	"speaks for nobody when it reads":        {inParameter("stmtcache_", `{"acme":1}`, `{}`), "ReceiptUnchanged"},
	"speaks for another tenant":              {inParameter("", `{"acme":1}`, `{"umbrella":1}`), "FirstClaimWins"},
	"leaves tenants out of a batch":          {inParameter("admitone_speak", fourTenants, threeTenants), batchOfSeveral},
	"leaves tenants out of a count":          {inParameter("stmtcache_", `{"acme":1,"umbrella":1}`, `{"acme":1}`), "DeliveriesAreCounted"},
	"writes another tenant's rows":           {inParameter("admitone_claim", "acme", "acmf"), "FirstClaimWins"},
	"leaves tenants out of everyone":         {inText("FROM tenants)", "FROM tenants WHERE tenant <> 'acme')"), "TakeUpOfGoneHolder"},
	"attributes a batch to another tenant":   {attributes, "BeginIsCommittedWhenItReturns"},
	"speaks for whom it speaks (no mistake)": {func(m message) []byte { return m.body }, ""},
}

// inText replaces a part of statements.
func inText(old, with string) func(message) []byte {
	return func(m message) []byte {
		if m.kind != parse && m.kind != query {
			return m.body
		}
		return bytes.ReplaceAll(m.body, []byte(old), []byte(with))
	}
}

// inParameter replaces parameters, and elements of those that are arrays, of prepared statements
// whose names begin so.
func inParameter(statement, old, with string) func(message) []byte {
	return func(m message) []byte {
		_, rest, _ := bytes.Cut(m.body, []byte{0})
		if m.kind != bind || !bytes.HasPrefix(rest, []byte(statement)) {
			return m.body
		}
		return bytes.ReplaceAll(m.body, sized(old), sized(with))
	}
}

// attributes claims for another tenant, for which the transaction speaks too.
func attributes(m message) []byte {
	m.body = inParameter("admitone_speak", `{"acme":1}`, `{"acme":1,"acmf":1}`)(m)
	m.body = inParameter("admitone_claim", "acme", "acmf")(m)
	return inParameter("admitone_contents", "acme", "acmf")(m)
}

// sized is a text as the protocol has it in parameters.
func sized(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}

// The test runs itself once for each mistake, in a process that must fail by the named promise.
func TestKitCatchesMistakesAboutTenants(t *testing.T) {
	const bug, dsn = "ADMITONE_TENANT_MISTAKE", "ADMITONE_TENANT_MISTAKE_DSN"
	if made := os.Getenv(bug); made != "" {
		mistaken := func(t *testing.T) sqlstore.Config {
			t.Helper()
			p := newProxy(t, os.Getenv(dsn))
			p.rewrite = tenantMistakes[made].make
			return sqlstore.Config{Dialect: migrations.Postgres, DSN: p.DSN}
		}
		storetest.Durable(t, func(t *testing.T) storetest.Subject { return subject(t, mistaken(t)) })
		t.Run(batchOfSeveral, func(t *testing.T) { wantBatchKeptApart(t, mistaken(t)) })
		return
	}
	t.Parallel()
	for made, mistake := range tenantMistakes {
		t.Run(made, func(t *testing.T) {
			t.Parallel()
			db := servertest.Postgres(t).Database(t)
			if err := mustOpen(t, sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true}).Close(); err != nil {
				t.Fatal(err)
			}
			promise := mistake.caught
			if promise == "" {
				promise = "BeginIsCommittedWhenItReturns"
			}
			cmd := osexec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestKitCatchesMistakesAboutTenants$/^"+promise+"$")
			cmd.Env = append(os.Environ(), bug+"="+made, dsn+"="+db.DSN, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			ended := "--- FAIL: "
			if mistake.caught == "" {
				ended = "--- PASS: "
			}
			if !strings.Contains(string(out), ended+"TestKitCatchesMistakesAboutTenants/"+promise+" ") {
				t.Fatalf("a store that %s: the output does not have %q of %s (%v)\n%s", made, ended, promise, err, out)
			}
		})
	}
}
