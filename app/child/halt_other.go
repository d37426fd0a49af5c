//go:build !unix

package child

import "errors"

// Halt fails: this system can't make a process stand still.
func (*Process) Halt() error { return errors.ErrUnsupported }

// Resume does nothing.
func (*Process) Resume() error { return nil }
