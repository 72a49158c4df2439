//go:build !linux

package process

import "syscall"

// attributes keep an interrupt at the terminal from the process: the test stops it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
