// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/stretchr/testify/require"
)

// TestLsSorted shows the limiters by each column, and that a limit leaves the first of them.
func TestLsSorted(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"a", ratelimiter.Rate{Permits: 6, Interval: time.Hour, KeepAlive: 3 * time.Hour})
	l.limiter(l.base+"b", ratelimiter.Rate{Permits: 600, Interval: time.Minute})
	l.limiter(l.base+"c", ratelimiter.Rate{Permits: 12, Interval: time.Hour, KeepAlive: 2 * time.Hour})
	l.do("zremrangebyrank", "{"+l.base+"c}:permits", 0, 0)
	names := func(cmd string, args ...string) (order string) {
		for _, m := range regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(l.base)+`(\w)`).FindAllStringSubmatch(l.ok(append([]string{cmd, "--match", l.base + "*"}, args...)...), -1) {
			order += m[1]
		}
		return order
	}
	for column, want := range map[string]string{"name": "abc", "rate": "bca", "used": "acb", "wait": "abc", "ttl": "acb", "members": "abc"} {
		require.Equal(t, want, names("ls", "--sort", column), column)
		require.Equal(t, want, names("top", "--sort", column, "--count", "1"), column)
		require.Equal(t, want[:2], names("ls", "--sort", column, "--limit", "2"), column)
	}
	require.Equal(t, "acb", names("top", "--count", "1"))
	out := l.ok("ls", "--sort", "name", "--limit", "2", "--match", l.base+"*")
	require.Regexp(t, `(?m)^3 limiters in 127\.0\.0\.1:\d+, database 0: 1 quota used up$`, out)
	require.Contains(t, out, "There are more: --limit 0 lists all")
}

// TestALongName shows that a name of a megabyte does not make the other rows as long, and that JSON has the whole.
func TestALongName(t *testing.T) {
	l := newLive(t)
	long := l.base + strings.Repeat("x", 1<<20)
	l.limiter(l.base, tenAMinute)
	l.limiter(long, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 10, Interval: time.Minute})
	l.do("set", "{"+l.base+"c}:value:"+strings.Repeat("y", 1<<20), 1)
	l.do("hset", l.base+"c", "rate", 1, "interval", 1000, "type", 1)
	defer func() { // searches among such names are slow
		for _, key := range l.keys() {
			l.do("del", key)
		}
	}()
	for _, args := range [][]string{{"ls", "--match", l.base + "*"}, {"top", "--count", "1", "--match", l.base + "*"}, {"inspect", l.base + "c", "--clients"}} {
		out := l.ok(args...)
		require.Less(t, len(out), 5000, "%v", args)
		require.Contains(t, out, "…", "%v", args)
	}
	require.Equal(t, long, values[jsonLimiter](t, l.ok("ls", "--json", "--match", long))[0].Name)
}
