// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/stretchr/testify/require"
)

// A command that is printed has to run as it stands, also for a name that looks like a flag, and names its Redis.
func TestCommand(t *testing.T) {
	parse := func(raw string) Target {
		to, err := ParseTarget(raw)
		require.NoError(t, err, raw)
		return to
	}
	server := parse("redis://h:1/2")
	for want, got := range map[string]Cmd{
		"rrl heal a --redis redis://h:1/2 --user default --write":           server.Command("heal", []string{"a"}, "--write"),
		"rrl heal 'a b' --redis redis://h:1/2 --user default":               server.Command("heal", []string{"a b"}),
		"rrl heal --redis redis://h:1/2 --user default --write -- -a":       server.Command("heal", []string{"-a"}, "--write"),
		"rrl peek --redis redis://h:1/2 --user default -- --a 1":            server.Command("peek", []string{"--a", "1"}),
		"rrl ls --redis redis://h:1/2 --user default":                       server.Command("ls", nil),
		"rrl watch a --redis redis://h:1/2 --user default --client 'c d'":   server.Command("watch", []string{"a"}, Flag("--client", "c d")),
		"rrl watch a --redis redis://h:1/2 --user default --client=-c":      server.Command("watch", []string{"a"}, Flag("--client", "-c")),
		"redis-cli -h h -p 1 -n 2 unlink '{a}:value'":                       server.RedisCLI("unlink", "{a}:value"),
		"redis-cli -h h -p 6379 -n 0 --user u unlink a":                     parse("redis://u:secret@h").RedisCLI("unlink", "a"),
		"redis-cli -h ::1 -p 7 -n 0 unlink a":                               parse("redis://[::1]:7").RedisCLI("unlink", "a"),
		"redis-cli -s /tmp/s -n 3 --user u unlink a":                        parse("unix://u:secret@/tmp/s?db=3").RedisCLI("unlink", "a"),
		"rrl ls --redis 'unix:///tmp/s?db=3' --user u":                      parse("unix://u:secret@/tmp/s?db=3").Command("ls", nil),
		"redis-cli -h h -p 1 -n 0 --tls --insecure unlink a":                parse("rediss://h:1?skip_verify=true").RedisCLI("unlink", "a"),
		"redis-cli -h n -p 7 -c unlink a":                                   parse("redis+cluster://h:1").At("n:7").RedisCLI("unlink", "a"),
		"redis-cli --user u --cluster check n:7":                            parse("redis+cluster://u:secret@h:1").RedisCLI("--cluster", "check", "n:7"),
		"rrl ls --redis 'redis+cluster://h:1?addr=h%3A2' --user u":          parse("redis+cluster://u:secret@h:1?addr=h:2").Command("ls", nil),
		"redis-cli -h m -p 7 -n 1 --user u unlink a":                        parse("redis+sentinel://su:secret@h:1/1?master_name=x&username=u&password=secret").At("m:7").RedisCLI("unlink", "a"),
		"redis-cli -h HOST -p PORT -n 0 unlink a":                           parse("redis+sentinel://h:1?master_name=x").RedisCLI("unlink", "a"),
		"rrl ls --redis 'redis+sentinel://su@h:1/1?master_name=x' --user u": parse("redis+sentinel://su:secret@h:1/1?master_name=x&username=u&password=secret").Command("ls", nil),
		"rrl ls --redis URL --user default":                                 Target{}.Command("ls", nil),
		"rrl ls --redis 'redis://h:1/0?protocol=2' --user default":          parse("redis://:secret@h:1?protocol=2&db=0").Command("ls", nil),
	} {
		require.Equal(t, want, string(got))
		require.NotContains(t, string(got), "secret")
	}
	require.Contains(t, parse("redis://u:secret@h").Note().String(), `the user "u" in the environment variable REDISCLI_AUTH`)
	require.Contains(t, parse("redis+sentinel://su:secret@h:1?master_name=x").Note().String(), "REDIS_SENTINEL_PASSWORD")
	require.Empty(t, server.Note().String())
	for _, bad := range []string{"", "h:1", "http://h", "redis+ring://h:1", "redis+sentinel://h:1", "redis://u:secret@h:port"} {
		_, err := ParseTarget(bad)
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), "secret")
	}
	p := &patient{name: "-a", to: server, main: &survey.State{}}
	require.EqualValues(t, "rrl set-rate --redis redis://h:1/2 --user default --permits N --interval D --write -- -a", p.rrl("set-rate", "--permits N", "--interval D", "--write"))
	for _, none := range []Cmd{server.Command("watch", []string{"a"}, Flag("--client", "\n")), server.RedisCLI("get", "\xff")} {
		require.EqualValues(t, NoCommand, none)
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
	random := proptest.Rand(t)
	for range 100 {
		b := make([]byte, 1+random.IntN(12))
		for i := range b {
			b[i] = special[random.IntN(len(special))]
		}
		names = append(names, string(b))
	}
	to := Target{Addrs: []string{"h:1"}}
	for _, shell := range [][]string{{"sh"}, {"bash"}, {"bash", "--norc", "--noprofile", "-i", "-o", "histexpand"}, {"zsh", "-f"}} {
		path, err := exec.LookPath(shell[0])
		if err != nil {
			continue
		}
		var script strings.Builder
		script.WriteString(`rrl() { printf '%s\0' "$@"; }` + "\n")
		var want []string
		for _, name := range names {
			heal, unlink := strings.Replace(string(to.Command("heal", []string{name}, "--write")), " --redis redis://h:1/0 --user default", "", 1), Shell("rrl", "unlink", "{"+name+"}:value")
			if unlink == NoCommand {
				require.True(t, heal == NoCommand || strings.Contains(heal, " --base64") || len(name) == 1000, "%q", name)
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
