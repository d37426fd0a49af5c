package rig

import "syscall"

// attributes make the system end a process with the one that started it. SIGQUIT ends
// PostgreSQL at once and with its children; programs in Go die of it as well.
func attributes(user *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: user, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}
