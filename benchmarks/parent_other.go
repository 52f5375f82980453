// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import "syscall"

// dieWithParent: only Linux can tie a child's life to ours.
func dieWithParent() *syscall.SysProcAttr { return nil }
