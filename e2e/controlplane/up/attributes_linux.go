package up

import "syscall"

// childAttributes puts a child into the process group and lets the kernel kill it when this process is gone, so that
// even SIGKILL leaves nothing behind.
func childAttributes(pgid int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: pgid, Pdeathsig: syscall.SIGKILL}
}
