// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"math"
	"syscall"
)

// descriptors returns how many descriptors this process may open. The runtime of Go has raised the soft limit to the hard one.
func descriptors() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return math.MaxInt
	}
	return int(min(uint64(l.Cur), math.MaxInt))
}
