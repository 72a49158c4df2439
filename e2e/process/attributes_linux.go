package process

import "syscall"

// attributes let the kernel kill the process when the test is gone, even if it was killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
