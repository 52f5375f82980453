// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestGateway checks that rrl gateway becomes rrl-gateway, with its arguments, and says how to get it.
func TestGateway(t *testing.T) {
	if os.Getenv("RRL_TEST_PROGRAM") != "" {
		rrl(t, "gateway", "ca", "--ca-dir", "x y")
		t.Fatal("it came back")
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	const pkg = "cmd/rrl-gateway"
	(&live{T: t}).ends(command.ExitUsage, "go install github.com/goredisson/ratelimiter/"+pkg+"@latest, or in a clone go run ./"+pkg, "gateway", "--help")
	require.DirExists(t, "../../"+pkg)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "rrl-gateway"), []byte("#!/bin/sh\necho $0 \"$@\"\n"), 0o700))
	cmd := exec.Command(os.Args[0], "-test.run", "^TestGateway$")
	cmd.Env = append(os.Environ(), "RRL_TEST_PROGRAM=1")
	require.Contains(t, string(redistest.Must(cmd.Output())(t)), "rrl-gateway ca --ca-dir x y\n")
}
