// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// rrl runs a command without a Redis in its environment.
func rrl(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"rrl"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// TestUsage checks of a wrong command line that nothing is done and that one line says what is wrong, in plain text and
// without a password, and which help to read.
func TestUsage(t *testing.T) {
	odd := "a\x1b[2J\u009b"
	for args, want := range map[string]string{
		"dance":          `no command "dance" (see rrl --help)`,
		"--fast":         "flag provided but not defined: -fast (see rrl --help)",
		"docter":         `no command "docter"; did you mean doctor? (see rrl --help)`,
		"setrate":        `no command "setrate"; did you mean set-rate?`,
		"--verison":      "; did you mean --version? (see",
		"version 2":      `version takes no argument "2"`,
		odd:              `no command "a\x1b[2J\u009b"`,
		"--" + odd:       `a\x1b[2J\u009b`,
		"version " + odd: `a\x1b[2J\u009b`,

		"completion zhs":   `no completion for the shell "zhs"; did you mean zsh? (see rrl completion --help)`,
		"scripts acquires": `no script "acquires"`,

		"ls":                        "no Redis: give --redis URL, or set REDIS_URL",
		"ls --redis localhost:6379": "it looks like redis://127.0.0.1:6379/0 (see rrl ls --help)",
		"ls --redis localhost":      "it looks like redis://127.0.0.1:6379/0 (see rrl ls --help)",
		"ls --redis http://h":       "it looks like redis://127.0.0.1:6379/0 (see rrl ls --help)",
		"ls --mach x":               "; did you mean --match? (see rrl ls --help)",
		"ls --wiating":              "; did you mean --waiting? (see",
		"ls --fast":                 "flag provided but not defined: -fast (see",
		"ls --limit x":              "(see rrl ls --help)",
	} {
		code, out, errs := rrl(t, strings.Fields(args)...)
		require.Equal(t, command.ExitUsage, code, "%v: %s", args, errs)
		require.Empty(t, out, args)
		require.Contains(t, errs, want, args)
		require.Regexp(t, `^rrl: .* \(see rrl( [a-z-]+)? --help\)\n$`, errs)
		require.NotContains(t, errs, "secret")
		require.Equal(t, strings.Contains(want, "did you mean"), strings.Contains(errs, "did you mean"), errs)
		requireVisible(t, errs)
	}
}

// TestCtrlC checks that a signal ends a command that waits for Redis, with one clear line and the exit code of a shell.
func TestCtrlC(t *testing.T) {
	redistest.NoServer(t)
	silent := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = silent.Close() }()
	cmd := exec.Command(os.Args[0], "ls")
	cmd.Env = append(os.Environ(), asProgram+"=1", "REDIS_URL=redis://"+silent.Addr().String())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	conn := redistest.Must(silent.Accept())(t)
	defer func() { _ = conn.Close() }()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	require.Equal(t, command.ExitInterrupted, cmd.ProcessState.ExitCode(), &errs)
	require.Equal(t, "rrl: interrupted\n", errs.String())
	require.Empty(t, out.String())
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"", "--help", "help"} {
		code, out, errs := rrl(t, strings.Fields(args)...)
		require.Equal(t, command.ExitOK, code)
		require.Empty(t, errs)
		require.Contains(t, out, "doctor")
		require.Contains(t, out, "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 there is no such limiter, 4 Redis cannot be reached, 130 interrupted.")
	}
}

func TestVersion(t *testing.T) {
	code, out, errs := rrl(t, "version")
	require.Equal(t, command.ExitOK, code)
	require.Regexp(t, `^rrl \S.* `+runtime.Version()+` `+runtime.GOOS+`/`+runtime.GOARCH+`\nratelimiter \S+\ngo-redis v9\.\S+\n`, out)
	require.Empty(t, errs)
}
