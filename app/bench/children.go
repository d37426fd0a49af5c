package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" //nolint:gosec // on an address of its own, in a benchmark
	"os"

	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/app/bench/baseline"
	"github.com/admitone/admitone/app/bench/load"
	"github.com/admitone/admitone/app/cli"
)

// child as the first argument makes this program one of the processes of a run; the next names which.
const child = "child"

const (
	childLoad     = "load"
	childLimit    = "limit"
	childOrdinary = "ordinary"
	childServer   = "server" // Admitone, with an address for profiles
)

// What children are told by the environment.
const (
	envAddr  = "BENCH_ADDR"
	envDSN   = "BENCH_DSN"
	envRedis = "BENCH_REDIS"
	envTuned = "BENCH_TUNED"
)

// Who sends.
const (
	secret       = "0123456789abcdef0123456789abcdef"
	account      = "T0BENCH01"
	tenant       = "bench"
	installation = "bench-slack"
	path         = "/in/slack/" + installation
)

func runChild(ctx context.Context, args []string) error {
	addr := os.Getenv(envAddr)
	switch args[0] {
	case childLoad:
		return load.Serve(os.Stdin, os.Stdout)
	case childLimit:
		h, err := baseline.Limit(secret, account) //nolint:contextcheck // the handler takes that of each request
		if err != nil {
			return err
		}
		defer app.KeepHeadroom()() // as the server does that it is a part of
		return baseline.Serve(ctx, addr, h)
	case childOrdinary:
		h, err := baseline.Ordinary(ctx, secret, os.Getenv(envDSN), os.Getenv(envRedis), os.Getenv(envTuned) != "")
		if err != nil {
			return err
		}
		return baseline.Serve(ctx, addr, h)
	case childServer:
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if err != nil {
			return fmt.Errorf("listen for profiles: %w", err)
		}
		go func() { _ = http.Serve(l, nil) }()                           //nolint:gosec // it ends with the process
		if code := cli.Main(args[1:], os.Stdout, os.Stderr); code != 0 { //nolint:contextcheck // a program of its own, as main runs it
			return errors.New("the server failed")
		}
		return nil
	}
	return fmt.Errorf("no child is called %q", args[0])
}
