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

// TestPrograms checks that rrl gateway and rrl compare become the programs, with their arguments, and say how to get them.
func TestPrograms(t *testing.T) {
	if name := os.Getenv("RRL_TEST_PROGRAM"); name != "" {
		rrl(t, name, "ca", "--ca-dir", "x y")
		t.Fatal("it came back")
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for name, pkg := range map[string]string{"gateway": "cmd/rrl-gateway", "compare": "cmd/rrl/rrl-compare"} {
		(&live{T: t}).ends(command.ExitUsage, "go install github.com/goredisson/ratelimiter/"+pkg+"@latest, or in a clone go run ./"+pkg, name, "--help")
		require.DirExists(t, "../../"+pkg)

		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(pkg)), []byte("#!/bin/sh\necho $0 \"$@\"\n"), 0o700))
		cmd := exec.Command(os.Args[0], "-test.run", "^TestPrograms$")
		cmd.Env = append(os.Environ(), "RRL_TEST_PROGRAM="+name)
		require.Contains(t, string(redistest.Must(cmd.Output())(t)), filepath.Base(pkg)+" ca --ca-dir x y\n")
	}
}
