// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestGrow checks that a stack which has grown does not move when a deep call follows.
func TestGrow(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it shrinks stacks
	moved := make(chan bool)
	go func() {
		var here int
		Grow()
		at := uintptr(unsafe.Pointer(&here))
		deep(40)
		moved <- at != uintptr(unsafe.Pointer(&here))
	}()
	require.False(t, <-moved)
}

//go:noinline
func deep(n int) (sum byte) {
	var frame [64]byte
	if n > 0 {
		frame[n] = deep(n - 1)
	}
	return frame[n] + frame[0]
}
