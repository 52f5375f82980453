package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGatewayIsAProgram checks that rrl gateway becomes rrl-gateway with its arguments, and says how to get it.
func TestGatewayIsAProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	code, _, errs := rrl(t, "gateway", "--help")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "go install github.com/goredisson/ratelimiter/cmd/rrl-gateway@latest")

	require.NoError(t, os.WriteFile(filepath.Join(dir, gatewayProgram), []byte("#!/bin/sh\necho $0 \"$@\"\n"), 0o700))
	if os.Getenv("RRL_TEST_GATEWAY") != "" {
		rrl(t, "gateway", "ca", "--ca-dir", "x y")
		t.Fatal("it came back")
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestGatewayIsAProgram$")
	cmd.Env = append(os.Environ(), "RRL_TEST_GATEWAY=1")
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "ca --ca-dir x y\n")
}
