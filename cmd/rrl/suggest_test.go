// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func TestDidYouMean(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"orders: create", tenAMinute)
	l.limiter(l.base+"refunds", tenAMinute)
	for _, args := range []string{"inspect", "peek 1", "watch", "heal", "release --permits 1", "cool-down --for 1s", "delete --write", "doctor --sample 0"} {
		cmd, rest, _ := strings.Cut(args, " ")
		code, _, errs := l.run(append([]string{cmd, l.base + "orders:create"}, strings.Fields(rest)...)...)
		require.NotZero(t, code, args)
		redistest.Measured(t, strings.Contains(errs, "; did you mean '"+l.base+"orders: create'?\n"), "%v: %s", args, errs) // what is found in time
	}
	require.NotContains(t, l.ends(command.ExitFailed, "", "inspect", "something else"), "did you mean")
}

// TestCompletion asks real shells, which run this test's program as rrl, what they would complete.
func TestCompletion(t *testing.T) {
	redistest.NoRace(t, "shells complete words")
	bin := t.TempDir()
	require.NoError(t, os.Symlink(redistest.Must(os.Executable())(t), filepath.Join(bin, "rrl")))
	l := newLive(t)
	l.limiter(l.base, tenAMinute)
	// Each script completes the words of its arguments, and prints a completion a line.
	for shell, script := range map[string]string{
		"bash": `source <(rrl completion bash)
			COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
			__rrl_bash_autocomplete; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh": `autoload -U compinit; compinit -u -D
			source <(rrl completion zsh)
			_describe() { printf '%s\n' "${(@P)2}" } # these two need the line editor
			_files() { }
			words=("$@"); _rrl`,
		"fish": `rrl completion fish | source
			complete -C "$argv"`,
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				if os.Getenv("CI") == "true" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			complete := func(words ...string) string {
				args := []string{"-c", script, "-"}
				if shell == "fish" {
					args = []string{"--no-config", "-c", script}
				}
				cmd := exec.CommandContext(t.Context(), path, append(args, words...)...)
				cmd.Env = append(os.Environ(), asProgram+"=1", "PATH="+bin+":"+os.Getenv("PATH"), "REDIS_URL="+l.url, "HOME="+bin, "TERM=dumb")
				var errs bytes.Buffer
				cmd.Stderr = &errs
				out, err := cmd.Output()
				require.NoError(t, err, errs.String())
				require.Empty(t, errs.String())
				return string(out)
			}
			all := complete("rrl", "")
			for _, want := range []string{"doctor", "cool-down", "set-rate", "completion"} {
				require.Regexp(t, `(?m)^`+want+`\b`, all)
			}
			require.Regexp(t, `(?m)^--match\b`, complete("rrl", "ls", "--ma"))
			require.NotRegexp(t, `(?m)^--limit\b`, complete("rrl", "ls", "--ma"))
			require.Regexp(t, `(?m)^--write\b`, complete("rrl", "delete", l.base, "--"))
			require.Regexp(t, `(?m)^zsh\b`, complete("rrl", "completion", ""))
			complete("rrl", "delete", l.base, "--write", "") // which does not run
		})
	}
	require.Len(t, l.keys(), 3)
}
