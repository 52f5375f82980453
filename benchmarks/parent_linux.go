// SPDX-License-Identifier: Apache-2.0

package main

import "syscall"

// dieWithParent makes the kernel kill the child when the thread that starts it ends, and so when this process ends
// for any reason. Go does not end threads to which no goroutine was locked.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
