// Command bench measures the server on this machine, beside a server that does less than it
// must and one that does it in the ordinary way. All take turns in one run, with stores that
// are started for it, so that what else the machine does falls on all of them: only ratios are
// judged, never times.
//
// It needs Linux, PostgreSQL and Redis.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) > 1 && os.Args[1] == child {
		err = runChild(ctx, os.Args[2:])
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		stop()
		os.Exit(2) //nolint:forbidigo,gocritic // main ends the process, and stop was called
	case err != nil:
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		stop()
		os.Exit(1) //nolint:forbidigo // as above
	}
}

// options are what the command line says.
type options struct {
	server        string
	profiles      string
	rounds        int
	round         time.Duration
	connections   []int
	fill          int
	conversations int
	uniqueness    int
	parts         []string
}

// The parts of a run.
const (
	partHTTP   = "http"
	partClaims = "claims"
	partRedis  = "redis"
	partMemory = "memory"
)

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.server, "server", "bin/admitone", "the built `program`")
	f.StringVar(&o.profiles, "cpuprofile", "", "keep CPU profiles of the server in this `folder`; it then runs inside of this program")
	f.IntVar(&o.rounds, "rounds", 3, "turns of each contestant; medians are told")
	f.DurationVar(&o.round, "round", 800*time.Millisecond, "length of one turn")
	connections := f.String("connections", "1,16,64,256", "connections, one `list` of numbers")
	f.IntVar(&o.fill, "fill", 1_000_000, "`receipts` that are stored before HTTP is measured a second time; 0 leaves that out")
	f.IntVar(&o.conversations, "conversations", 1000, "over how many conversations events are spread")
	f.IntVar(&o.uniqueness, "rows", 0, "compare unique digests with unique columns, at that many `rows`, such as 5000000")
	parts := f.String("only", "", "only these parts: http, claims, redis, memory")
	quick := f.Bool("quick", false, "some 40 s: -rounds 2 -round 500ms -connections 1,64 -fill 0")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if *quick {
		o.rounds, o.round, o.fill, *connections = 2, 500*time.Millisecond, 0, "1,64"
		if err := f.Parse(args); err != nil { // what is said beside -quick wins
			return o, err
		}
	}
	for c := range strings.SplitSeq(*connections, ",") {
		n, err := strconv.Atoi(c)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-connections: %q is not a number of connections", c)
		}
		o.connections = append(o.connections, n)
	}
	o.parts = []string{partHTTP, partClaims, partRedis, partMemory}
	if *parts != "" {
		o.parts = strings.Split(*parts, ",")
	}
	if f.NArg() > 0 || o.rounds < 1 || o.round <= 0 || o.conversations < 1 {
		return o, errors.New("nothing is called so; -help lists the flags")
	}
	return o, nil
}
