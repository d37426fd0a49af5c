//go:build unix

package child

import "syscall"

// Halt makes the server stand still until Resume.
func (p *Process) Halt() error { return p.process.Signal(syscall.SIGSTOP) }

// Resume lets the server go on.
func (p *Process) Resume() error { return p.process.Signal(syscall.SIGCONT) }
