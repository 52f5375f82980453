// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// everyLive returns a command line of each command that needs a Redis, and its exit code.
func everyLive(t *testing.T, name string) map[string]struct {
	args []string
	code int
} {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(`rules: [{name: r, match: {hosts: [a.b]}, limits: [{name: "`+name+`", permits: 99, interval: 1m}]}]`), 0o600))
	type c = struct {
		args []string
		code int
	}
	return map[string]c{
		"ls": {[]string{"--match", name + "*"}, command.ExitOK}, "inspect": {[]string{name, "--members"}, command.ExitOK}, "peek": {[]string{name, "9"}, command.ExitFailed},
		"top": {[]string{"--match", name + "*", "--count", "1", "--every", "100ms"}, command.ExitOK}, "watch": {[]string{name, "--count", "1", "--every", "100ms"}, command.ExitOK},
		"doctor": {[]string{name, "--sample", "0", "--rules", rules}, exitSick}, "diff": {[]string{rules, "--match", name + "*"}, exitSick},
		"export": {[]string{"--match", name + "*"}, command.ExitOK},
		"heal":   {[]string{name, "--write"}, command.ExitOK}, "set-rate": {[]string{name, "--permits", "12", "--write"}, command.ExitOK},
		"release": {[]string{name, "--permits", "1", "--write"}, command.ExitOK}, "cool-down": {[]string{name, "--for", "1h", "--write"}, command.ExitOK},
		"lift": {[]string{name}, command.ExitFailed}, "delete": {[]string{name}, command.ExitOK},
	}
}

// TestEveryLiveCommand checks of each command that needs a Redis: its exit code, that --json writes JSON and nothing
// else, what it says without a Redis and of one that is away, and that a terminal of 40 columns is wide enough.
func TestEveryLiveCommand(t *testing.T) {
	l := newLive(t)
	live := 0
	every := everyLive(t, l.base)
	for _, cmd := range newApp(nil, nil).Commands {
		isLive := false
		for _, f := range cmd.Flags {
			isLive = isLive || f.Names()[0] == "ask-password"
		}
		if isLive && cmd.Name != "page" { // which stays, and has tests of its own
			live++
			require.Contains(t, every, cmd.Name)
		}
	}
	require.Equal(t, len(every), live)
	for name, c := range every {
		require.NoError(t, l.rdb.Del(t.Context(), l.base, "{"+l.base+"}:value", "{"+l.base+"}:permits").Err()) // it may cool down
		l.limiter(l.base, tenAMinute)
		args := append([]string{name}, c.args...)
		for _, width := range []string{"40", "300"} {
			t.Setenv("COLUMNS", width)
			code, out, errs := l.run(args...)
			require.Equal(t, c.code, code, "%v: %s", args, errs)
			require.NotEmpty(t, out, name)
			if name == "ls" || name == "top" {
				table, _, _ := strings.Cut(out, "\n\n")
				for line := range strings.Lines(table) {
					require.LessOrEqual(t, widthOf(strings.TrimSuffix(line, "\n")), 40+260*(len(width)-2), "%s\n%s", name, out)
				}
			}
		}
		code, out, errs := l.run(append(args, "--json")...)
		require.Equal(t, c.code, code, "%v: %s", args, errs)
		require.NotEmpty(t, out, name)
		for d := json.NewDecoder(bufio.NewReader(strings.NewReader(out))); d.More(); {
			var v any
			require.NoError(t, d.Decode(&v), "%v: %s", args, out)
		}
		away := command.ExitFailed
		if name == "doctor" || name == "diff" {
			away = exitNoAccess
		}
		code, out, errs = l.run(append(args, "--redis", "redis://127.0.0.1:1")...)
		require.Equal(t, away, code, name)
		require.Empty(t, out, name)
		require.Contains(t, errs, "nothing listens there", name)
		require.Equal(t, 1, strings.Count(errs, "\n"), name)
		url := l.url
		l.url = ""
		code, _, errs = l.run(args...)
		l.url = url
		require.Equal(t, command.ExitUsage, code, name)
		require.Contains(t, errs, "set REDIS_URL", name)
		code, _, _ = l.run(name, "--no-such-flag")
		require.Equal(t, command.ExitUsage, code, name)
	}
}

// TestShardsOfARing checks that each shard of a go-redis Ring can be looked at, and its limiters changed, by the URL of
// that shard: the limiters of a ring are each on one of them.
func TestShardsOfARing(t *testing.T) {
	redistest.NeedReal(t)
	a, b := redistest.Start(t, "--appendonly", "yes"), redistest.Start(t, "--appendonly", "yes")
	ring := newRing(t, map[string]string{"a": a.Addr(), "b": b.Addr()})
	l := &live{T: t, rdb: ring, base: "ring"}
	names := strings.Fields("n0 n1 n2 n3 n4 n5 n6 n7 n8 n9")
	for _, n := range names {
		l.limiter(n, tenAMinute)
	}
	var seen []string
	for _, s := range []*redistest.Server{a, b} {
		l.url = "redis://" + s.Addr()
		n := 0
		for line := range strings.Lines(l.ok("ls", "--json")) {
			var o jsonLimiter
			require.NoError(t, json.Unmarshal([]byte(line), &o))
			require.EqualValues(t, 4, *o.Available)
			l.ok("release", o.Name, "--permits", "6", "--write")
			seen = append(seen, o.Name)
			n++
		}
		require.NotZero(t, n, "each shard has some")
		l.ok("doctor")
	}
	require.ElementsMatch(t, names, seen)
	for _, n := range names {
		require.EqualValues(t, "10", ring.Get(t.Context(), "{"+n+"}:value").Val(), "the ring sees the change")
	}
}

func newRing(t *testing.T, addrs map[string]string) *redis.Ring {
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs})
	t.Cleanup(func() { _ = ring.Close() })
	return ring
}
