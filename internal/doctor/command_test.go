// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// A command that is printed has to run as it stands, also for a name that looks like a flag.
func TestCommand(t *testing.T) {
	for want, got := range map[string]string{
		"rrl heal a --write":           Command("heal", []string{"a"}, "--write"),
		"rrl heal 'a b'":               Command("heal", []string{"a b"}),
		"rrl heal --write -- -a":       Command("heal", []string{"-a"}, "--write"),
		"rrl peek -- --a 1":            Command("peek", []string{"--a", "1"}),
		"rrl watch a --client 'c d'":   Command("watch", []string{"a"}, Flag("--client", "c d")),
		"rrl watch a --client=-c":      Command("watch", []string{"a"}, Flag("--client", "-c")),
		"redis-cli unlink '{a}:value'": Shell("redis-cli", "unlink", "{a}:value"),
	} {
		require.Equal(t, want, got)
	}
	p := &patient{name: "-a"}
	require.Equal(t, "rrl set-rate --permits N --interval D --write -- -a", p.rrl("set-rate", "--permits N", "--interval D", "--write"))
	for _, none := range []string{Command("heal", []string{"a\x00b"}), Command("watch", []string{"a"}, Flag("--client", "\n")), Shell("redis-cli", "\xff")} {
		require.Equal(t, NoCommand, none)
	}
}

func TestShellQuote(t *testing.T) {
	for text, want := range map[string]string{
		"": "''", "a:b.c/d": "a:b.c/d", "a b": "'a b'", "it's": `'it'\''s'`, "{a}": "'{a}'", "名": "'名'", "=ls": "'=ls'", "~": "'~'", "a\\b": `'a\b'`,
		"a\x00b": NoCommand, "a\x1b[31m": NoCommand, "a\nb": NoCommand, "\u202e": NoCommand, "a\xff": NoCommand, strings.Repeat("a", 1001): NoCommand,
	} {
		require.Equal(t, want, ShellQuote(text), "%q", text)
	}
}

// TestCommandsKeepTheirNames runs commands with names of all kinds in shells: what is run has the bytes of the name, or
// nothing is printed.
func TestCommandsKeepTheirNames(t *testing.T) {
	names := []string{"", "-", "--", "-a", "--write", "!", "!!", "a!b", "it's!x", `"!"`, "$(touch x)", "`id`", "$HOME", "${a}", "a;b", "a&b", "a|b", "a>b", "a<b", "(a)",
		"*", "?", "[a]", "~", "~root", "#a", "a#b", "=ls", "%1", "^a^b", "{a,b}", "a b", " a", "a ", "a  b", `a\`, `a\\b`, `\n`, `'`, `''`, `'''`, `'\''`, `"`, `a"b'c`,
		"名", "é", "e\u0301", "\u202e", "\ufeff", "\u00a0", "\ufffd", "a\xffb", "\xc3", "a\nb", "\r", "\x1b[31m", "a\x00b", "\x00", strings.Repeat("x", 1000), strings.Repeat("x", 5000)}
	for c := range 256 {
		names = append(names, "a"+string([]byte{byte(c)})+"b")
	}
	const special = " !\"#$%&'()*+-/:;<=>?@[\\]^_{|}~`a"
	for range 100 {
		b := make([]byte, 1+rand.IntN(12))
		for i := range b {
			b[i] = special[rand.IntN(len(special))]
		}
		names = append(names, string(b))
	}
	for _, shell := range [][]string{{"sh"}, {"bash"}, {"bash", "--norc", "--noprofile", "-i", "-o", "histexpand"}, {"zsh", "-f"}} {
		path, err := exec.LookPath(shell[0])
		if err != nil {
			continue
		}
		var script strings.Builder
		script.WriteString(`rrl() { printf '%s\0' "$@"; }` + "\n")
		var want []string
		for _, name := range names {
			heal, unlink := Command("heal", []string{name}, "--write"), Shell("rrl", "unlink", "{"+name+"}:value")
			if heal == NoCommand || unlink == NoCommand {
				require.True(t, !utf8.ValidString(name) || len(name) >= 1000 || strings.ContainsAny(name, "\u202e\ufeff\u00a0") ||
					strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) >= 0, "%q", name)
				continue
			}
			script.WriteString(heal + "\n" + unlink + "\n")
			if strings.HasPrefix(name, "-") {
				want = append(want, "heal", "--write", "--", name)
			} else {
				want = append(want, "heal", name, "--write")
			}
			want = append(want, "unlink", "{"+name+"}:value")
		}
		cmd := exec.Command(path, shell[1:]...)
		cmd.Stdin = strings.NewReader(script.String())
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C.UTF-8"}
		got, err := cmd.Output()
		require.NoError(t, err, "%v", shell)
		require.Equal(t, want, strings.Split(strings.TrimSuffix(string(got), "\x00"), "\x00"), "%v", shell)
	}
}
