// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"errors"
	"syscall"
)

const terminate = syscall.SIGTERM

// dieWithParent makes the kernel kill the server when this process ends for any
// reason, so that no run leaves servers behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func (p *process) pause() error  { return p.signal(syscall.SIGSTOP) }
func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(sig syscall.Signal) error {
	if p == nil {
		return errors.New("the server is not running")
	}
	return p.cmd.Process.Signal(sig)
}
