// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package redistest

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
)

const terminate = syscall.SIGTERM

// dieWithParent returns nil: only Linux can end a child process with its parent. Elsewhere, if a test run is killed,
// its servers have to be ended by hand.
func dieWithParent() *syscall.SysProcAttr { return nil }

func (p *process) pause() error  { return p.signal("-STOP") }
func (p *process) resume() error { return p.signal("-CONT") }

// signal uses kill(1), because package syscall has no SIGSTOP on Windows, and this package should build there.
func (p *process) signal(name string) error {
	if p == nil {
		return errors.New("the server is not running")
	}
	return exec.Command("kill", name, fmt.Sprint(p.cmd.Process.Pid)).Run()
}
