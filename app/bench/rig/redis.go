package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	goredis "github.com/redis/go-redis/v9"
)

// Redis is a server that keeps nothing on disk.
type Redis struct {
	*Process
	Addr string // host:port
}

// StartRedis starts one that works in dir and returns when it answers.
func StartRedis(ctx context.Context, dir string) (*Redis, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis is not installed: %w", err)
	}
	addr, err := FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	p, err := Start(Command{Dir: dir, Argv: []string{
		program, "--bind", "127.0.0.1", "--port", portOf(addr), "--dir", dir, "--save", "", "--appendonly", "no",
	}})
	if err != nil {
		return nil, err
	}
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	defer c.Close() //nolint:errcheck // it only pinged
	if err := p.await(ctx, func(ctx context.Context) error { return c.Ping(ctx).Err() }); err != nil {
		p.Stop(os.Kill)
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	return &Redis{Process: p, Addr: addr}, nil
}

// URL returns the address of a database.
func (r *Redis) URL(database int) string { return fmt.Sprintf("redis://%s/%d", r.Addr, database) }
