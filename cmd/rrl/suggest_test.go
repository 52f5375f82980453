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
	"github.com/goredisson/ratelimiter/internal/test/redistest"
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
		require.Contains(t, errs, "; did you mean '"+l.base+"orders: create'?\n", args)
	}
	require.NotContains(t, l.ends(command.ExitAbsent, "", "inspect", "something else"), "did you mean")
}

// TestCompletion asks real shells, which run this test's program as rrl, what they would complete.
func TestCompletion(t *testing.T) {
	redistest.NoRace(t, "shells complete words")
	redistest.Repeats(t)
	bin := t.TempDir()
	require.NoError(t, os.Symlink(redistest.Must(os.Executable())(t), filepath.Join(bin, "rrl")))
	l := newLive(t)
	l.limiter(l.base, tenAMinute)
	lines := []string{"rrl ", "rrl ls --ma", "rrl delete " + l.base + " --", "rrl completion ", "rrl delete " + l.base + " --write "}
	// Each script completes the last words of the lines that are its arguments, and prints a completion a line.
	for shell, script := range map[string]string{
		"bash": `source <(rrl completion bash)
			for COMP_LINE in "$@"; do
				echo "== $COMP_LINE"
				mapfile -td ' ' COMP_WORDS < <(printf '%s ' "$COMP_LINE")
				COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_POINT=${#COMP_LINE}
				__rrl_bash_autocomplete; printf '%s\n' "${COMPREPLY[@]}"
			done`,
		"zsh": `autoload -U compinit; compinit -u -D
			source <(rrl completion zsh)
			_describe() { printf '%s\n' "${(@P)2}" } # these two need the line editor
			_files() { }
			for line in "$@"; do
				echo "== $line"
				words=("${(@s: :)line}"); _rrl
			done`,
		"fish": `rrl completion fish | source
			for line in $argv
				echo "== $line"
				complete -C "$line"
			end`,
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				if os.Getenv("CI") == "true" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			args := []string{"-c", script, "-"}
			if shell == "fish" {
				args = []string{"--no-config", "-c", script}
			}
			cmd := exec.CommandContext(t.Context(), path, append(args, lines...)...)
			cmd.Env = append(os.Environ(), asProgram+"=1", "PATH="+bin+":"+os.Getenv("PATH"), "REDIS_URL="+l.url, "HOME="+bin, "TERM=dumb")
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out := redistest.Must(cmd.Output())(t)
			require.Empty(t, errs.String())
			found := strings.Split(string(out), "== ")[1:]
			require.Len(t, found, len(lines), "%s", out)
			for _, want := range []string{"doctor", "cool-down", "set-rate", "completion"} {
				require.Regexp(t, `(?m)^`+want+`\b`, found[0])
			}
			require.Regexp(t, `(?m)^--match\b`, found[1])
			require.NotRegexp(t, `(?m)^--limit\b`, found[1])
			require.Regexp(t, `(?m)^--write\b`, found[2])
			require.Regexp(t, `(?m)^zsh\b`, found[3])
		})
	}
	require.Len(t, l.keys(), 3, "delete --write did not run")
}
