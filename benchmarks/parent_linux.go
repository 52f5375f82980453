package main

import "syscall"

// dieWithParent has the kernel kill the child with the thread that starts it, so with us, by whatever
// cause we end. Go ends no thread that no goroutine was locked to.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
