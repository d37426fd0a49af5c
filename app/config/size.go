package config

import (
	"errors"
	"math"
	"strconv"

	"github.com/dustin/go-humanize"
)

// A Size is a number of bytes.
type Size int64

var errSize = errors.New("is no size in bytes; write 1MiB, 500kB or 1048576")

func parseSize(text string) (Size, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return 0, errSize
	}
	return Size(n), nil
}

// String returns the size as the configuration may say it, in the largest unit that divides it.
func (s Size) String() string {
	n, unit := int64(s), ""
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, next
	}
	return strconv.FormatInt(n, 10) + unit
}

// MarshalText implements encoding.TextMarshaler.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
