package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/admitone/admitone/app/bench/load"
	"github.com/admitone/admitone/app/bench/rig"
)

// queued is how many events wait when the memory is looked at. It is more than the default
// of dispatch.queue, so that what the process takes anyhow weighs little.
const queued = 16_000

const stopped = `
dispatch:
  target: http
  queue: 20000
  http: {url: "http://%s/events", timeout: 9m}
policy: {lease: 10m}
`

// memory measures what an event takes that waits for an application which has stopped.
func (b *bench) memory(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer l.Close() //nolint:errcheck // nothing was answered on it
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close() //nolint:errcheck,gocritic // connections stay open until the listener ends, and are never answered
		}
	}()
	dsn, err := b.postgres.Database(ctx, "queued")
	if err != nil {
		return err
	}
	server, err := b.startServer(ctx, dsn, b.redis.URL(3), fmt.Sprintf(stopped, l.Addr()))
	if err != nil {
		return err
	}
	defer server.Stop(os.Kill) // it would wait for the application
	s, err := b.startSender()
	if err != nil {
		return err
	}
	defer s.Stop(syscall.SIGTERM)

	a := &arena{bench: b}
	send := func(first, events int) error {
		r, err := s.do(a.job(server, 64, load.Job{Duration: 2 * time.Minute, First: first, Events: events}), nil)
		if err == nil && r.OK() != events {
			err = fmt.Errorf("%d events were sent and answered with %v", events, r.Answers)
		}
		return err
	}
	if err := send(0, queued/8); err != nil {
		return err
	}
	// until the heap has grown by what it may however little waits
	if _, err := s.do(a.job(server, 64, load.Job{Duration: 3 * time.Second, Events: queued / 8, Again: true}), nil); err != nil {
		return err
	}
	before, err := rig.RSS(server.PID())
	if err != nil {
		return err
	}
	if err := send(queued/8, queued); err != nil {
		return err
	}
	after, err := rig.RSS(server.PID())
	if err != nil {
		return err
	}
	_, body, _ := bytes.Cut(load.Requests(load.Job{Account: account, Events: 1}, time.Now())[0], []byte("\r\n\r\n"))
	b.tellMemory(float64(after-before)/queued, len(body))
	return nil
}
