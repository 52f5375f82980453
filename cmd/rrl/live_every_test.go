// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/stretchr/testify/require"
)

// TestEveryLiveCommand checks of each command that needs a Redis: its exit code, that --json writes JSON and nothing
// else, what it says without a Redis and of one that is away, and that a terminal of 40 columns is wide enough.
func TestEveryLiveCommand(t *testing.T) {
	l := newLive(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(`rules: [{name: r, match: {hosts: [a.b]}, limits: [{name: "`+l.base+`", permits: 99, interval: 1m}]}]`), 0o600))
	every := map[string]struct { // by command, its arguments and its exit code
		args string
		code int
	}{
		"ls": {"--match $*", command.ExitOK}, "inspect": {"$ --members", command.ExitOK}, "peek": {"$ 9", command.ExitFailed},
		"top": {"--match $* --count 1 --every 100ms", command.ExitOK}, "watch": {"$ --count 1 --every 100ms", command.ExitOK},
		"doctor": {"$ --sample 0 --rules " + rules, exitSick}, "diff": {rules + " --match $*", exitSick}, "export": {"--match $*", command.ExitOK},
		"heal": {"$ --write", command.ExitOK}, "set-rate": {"$ --permits 12 --write", command.ExitOK}, "release": {"$ --permits 1 --write", command.ExitOK},
		"cool-down": {"$ --for 1h --write", command.ExitOK}, "lift": {"$", command.ExitFailed}, "delete": {"$", command.ExitOK},
	}
	isLive := map[string]bool{}
	for _, cmd := range newApp(nil, nil).Commands {
		for _, f := range cmd.Flags {
			isLive[cmd.Name] = isLive[cmd.Name] || f.Names()[0] == "ask-password" && cmd.Name != "page" && cmd.Name != "record" // which stay, and have tests of their own
		}
	}
	for name, is := range isLive {
		require.Equal(t, is, every[name].args != "", name)
	}
	t.Setenv("COLUMNS", "40")
	for name, c := range every {
		l.do("del", l.base, "{"+l.base+"}:value", "{"+l.base+"}:permits") // it may cool down
		l.limiter(l.base, tenAMinute)
		args := append([]string{name}, strings.Fields(strings.ReplaceAll(c.args, "$", l.base))...)
		require.NotEmpty(t, l.ends(c.code, "", args...), name)
		code, out, errs := l.run(append(args, "--json")...)
		require.Equal(t, c.code, code, "%v: %s", args, errs)
		if name != "export" { // which writes a rule file
			requireSchema(t, name, out)
		}
		away := append(args, "--redis", "redis://user:secret@127.0.0.1:1")
		require.Regexp(t, `^rrl: the Redis at 127.0.0.1:1, database 0 does not answer: .*refused \(nothing listens there; check host and port\)\n$`, l.ends(command.ExitDown, "", away...), name)
		_, out, _ = l.run(append(away, "--json")...)
		require.Equal(t, command.ExitDown, values[jsonError](t, out)[0].ExitCode, name)
		requireSchema(t, name, out)
		(&live{T: t}).ends(command.ExitUsage, "set REDIS_URL", args...)
		(&live{T: t, url: "http://x"}).ends(command.ExitUsage, "invalid Redis URL", args...)
		l.ends(command.ExitUsage, "no-such-flag", name, "--no-such-flag")
	}
}
