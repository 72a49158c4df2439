//go:build !linux

package up

import "syscall"

// childAttributes puts a child into the process group. Only Linux can also end it with this process: elsewhere SIGKILL
// of this process leaves the group behind.
func childAttributes(pgid int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: pgid}
}
