//go:build !linux

package child

import "os/exec"

// dieWithParent does nothing: only Linux ends a process with its parent.
func dieWithParent(*exec.Cmd) {}
