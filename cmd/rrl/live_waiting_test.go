// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/stretchr/testify/require"
)

// TestLsFindsWhoWaitsInACoolDown shows the limiter that a platform has banned, and at which 40 callers wait, in the first row, before
// cool-downs that nobody uses and a limiter at which a caller waits for milliseconds, whatever the width of the terminal. A PER_CLIENT
// limiter at which callers wait comes next, and its clients say who waits.
func TestLsFindsWhoWaitsInACoolDown(t *testing.T) {
	l := newLive(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := clienttest.New(t, l.rdb)
	defer func() { _ = c.Close() }()
	limiter := func(name string, r ratelimiter.Rate) *ratelimiter.RateLimiter {
		lim := c.RateLimiter(l.base + name)
		require.NoError(t, lim.SetRate(ctx, r))
		return lim
	}
	second, hour := ratelimiter.Rate{Permits: 10, Interval: time.Second}, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 1, Interval: time.Hour}
	until := l.rdb.Time(ctx).Val().Add(10 * time.Minute)
	for _, name := range []string{"a-idle", "b-idle", "banned"} {
		require.NoError(t, limiter(name, second).CoolDown(ctx, until))
	}
	perClient := limiter("each", hour)
	require.NoError(t, perClient.Acquire(ctx, 1))
	for range 40 {
		go func() { _ = c.RateLimiter(l.base+"banned").Acquire(ctx, 1) }()
	}
	for range 3 {
		go func() { _ = perClient.Acquire(ctx, 1) }()
	}
	l.Setenv("COLUMNS", "40")
	row := func(out string, line int) string { return strings.Split(out, "\n")[line] }
	require.Eventually(t, func() bool {
		out := l.ok("ls")
		return strings.Contains(row(out, 0), "WAITING") && strings.Contains(row(out, 1), " 40 ") && strings.Contains(row(out, 2), " 3 ")
	}, 30*time.Second, 50*time.Millisecond)
	l.Setenv("COLUMNS", "200")
	for _, args := range [][]string{{"ls"}, {"ls", "--waiting"}, {"top", "--count", "1"}} {
		out := l.ok(args...)
		head := 0
		if args[0] == "top" {
			head = 1
		}
		require.Regexp(t, `banned .* 40 +10m\d+s +9m`, row(out, head+1), "%v", args)
		require.Regexp(t, `each .* 3 +-`, row(out, head+2), "%v", args)
	}
	require.Contains(t, l.ok("inspect", l.base+"banned"), "40 callers wait; a new caller waits about 10m")
	require.Regexp(t, `in use by +Go [0-9a-f]{4}: 0 permits, 40 wait`, l.ok("inspect", l.base+"banned"))
	out := l.ok("inspect", l.base+"each", "--clients")
	require.Contains(t, out, "3 callers wait; each client has permits of its own")
	require.Regexp(t, `\n`+c.ID()+` +0 +3 +3h`, out, "three intervals behind three others")
}
