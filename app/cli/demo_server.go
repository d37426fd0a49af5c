package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/admitone/admitone/app/child"
)

// startPatience is how long a server may take to become ready.
const startPatience = 20 * time.Second

// startServer runs this binary as a server in dir and waits until it is ready.
func startServer(ctx context.Context, dir, config string, admin adminAPI) (*child.Process, error) {
	c, err := child.Start(dir, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("the server was not ready within %s", startPatience))
	defer cancel()
	return c, poll(ctx, func() (bool, error) {
		if !c.Runs() {
			return false, errors.New("the server ended instead of becoming ready")
		}
		var out struct{}
		return admin.do(ctx, http.MethodGet, "/readyz", nil, nil, &out) == nil, nil
	})
}

// poll calls done every few milliseconds until it returns true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
