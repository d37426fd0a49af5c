package child

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the system kill cmd's process when the thread that starts it ends.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
