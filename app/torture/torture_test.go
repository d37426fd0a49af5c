package torture_test

import (
	"bytes"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/app/torture"
)

// more is the environment variable for longer and other runs: TORTURE_ARGS="--seed 3 --events 5000 --duration 60s".
const more = "TORTURE_ARGS"

func TestNoPromiseIsBrokenOnEmbeddedStores(t *testing.T) {
	args := []string{"--seed", "7", "--events", "500", "--duration", "7s"}
	code, text := command(t, program, slices.Concat(args, extra(more))...)
	if code != 0 || !strings.Contains(text, "PASSED") {
		t.Errorf("exit code %d; want 0:\n%s", code, text)
	}
	t.Log(text)
}

// The command leaves the servers running that it is given. Here they are the test's, and are killed too.
func TestNoPromiseIsBrokenOnServersThatCrash(t *testing.T) {
	postgres, redis := servertest.NewPostgres(t), servertest.Redis(t)
	var screen bytes.Buffer
	o := torture.Options{
		Postgres: postgres.Database(t).DSN, CrashPostgres: postgres.Crash,
		Redis: redis.URL(), CrashRedis: redis.Crash,
		Instances: 3, TimeScale: 20, Channels: app.Channels(), Out: &screen,
	}
	f := flag.NewFlagSet(more, flag.ContinueOnError)
	f.Uint64Var(&o.Seed, "seed", 7, "")
	f.IntVar(&o.Events, "events", 2000, "")
	f.DurationVar(&o.Duration, "duration", 30*time.Second, "")
	if err := f.Parse(extra(more)); err != nil {
		t.Fatalf("%s: %v", more, err)
	}
	report, err := torture.Run(t.Context(), o)
	if err != nil || report.Total > 0 {
		t.Errorf("%d violations, %v; want none:\n%s", report.Total, err, screen.String())
	}
	_, faults, _ := strings.Cut(screen.String(), "faults:\n")
	for _, name := range []string{"durable store killed", "fast store killed"} {
		if !strings.Contains(faults, "  "+name+"\n") {
			t.Errorf("%s: not done in a whole storm", name)
		}
	}
	t.Log(screen.String())
}
