package app

import (
	"os"
	"runtime"
)

// headroom is by how much the heap grows at least, in bytes, until garbage is looked for.
const headroom = 32 << 20

// KeepHeadroom has the garbage collector wait for that, until release is called. The server lives
// in some 10 MB and makes garbage with each delivery: by Go's defaults, which go by what is in
// use, up to a quarter of a busy server's work is to collect it.
//
// Where the environment sets GOGC or GOMEMLIMIT, those hold alone.
func KeepHeadroom() (release func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	// It counts as in use, but no memory stands behind what is never touched.
	ballast := make([]byte, headroom)
	return func() { runtime.KeepAlive(ballast) }
}
