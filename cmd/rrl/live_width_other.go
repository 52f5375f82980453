// SPDX-License-Identifier: Apache-2.0

//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "os"

// windowWidth returns 0: the width of the terminal is not known here, unless COLUMNS tells it.
func windowSize(*os.File) (columns, rows int) { return 0, 0 }
