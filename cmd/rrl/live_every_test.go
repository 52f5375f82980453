// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
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
		away := append(args, "--redis", "redis://127.0.0.1:1")
		require.True(t, strings.HasPrefix(l.ends(command.ExitDown, "nothing listens there", away...), "rrl: "), name)
		_, out, _ = l.run(append(away, "--json")...)
		require.Equal(t, command.ExitDown, values[jsonError](t, out)[0].ExitCode, name)
		requireSchema(t, name, out)
		(&live{T: t}).ends(command.ExitUsage, "set REDIS_URL", args...)
		l.ends(command.ExitUsage, "no-such-flag", name, "--no-such-flag")
	}
}

// TestShardsOfARing checks that each shard of a go-redis Ring can be looked at, and its limiters changed, by the URL of
// that shard: the limiters of a ring are each on one of them.
func TestShardsOfARing(t *testing.T) {
	redistest.NeedReal(t)
	a, b := redistest.Start(t, "--appendonly", "yes"), redistest.Start(t, "--appendonly", "yes")
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr(), "b": b.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	l := &live{T: t, rdb: ring}
	names := strings.Fields("n0 n1 n2 n3 n4 n5 n6 n7 n8 n9")
	for _, n := range names {
		l.limiter(n, tenAMinute)
	}
	var seen []string
	for _, s := range []*redistest.Server{a, b} {
		l.url = "redis://" + s.Addr()
		for _, o := range values[jsonLimiter](t, l.ok("ls", "--json")) { // each shard has some
			require.EqualValues(t, 4, *o.Available)
			l.ok("release", o.Name, "--permits", "6", "--write")
			seen = append(seen, o.Name)
		}
		l.ok("doctor")
	}
	require.ElementsMatch(t, names, seen)
	for _, n := range names {
		require.EqualValues(t, "10", ring.Get(t.Context(), "{"+n+"}:value").Val(), "the ring sees the change")
	}
}
