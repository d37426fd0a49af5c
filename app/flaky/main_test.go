package flaky_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/admitone/admitone/adapters/servertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := servertest.Shutdown(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code) //nolint:forbidigo // the exit code of a test binary is decided here
	}))
}
