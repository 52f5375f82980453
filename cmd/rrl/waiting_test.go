// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
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
	require.Regexp(t, `in use by +Go [0-9a-f]{4}: 0 permits, 40 waiting; a cool-down: 10 permits\n`, l.ok("inspect", l.base+"banned"))
	out := l.ok("inspect", l.base+"each", "--clients")
	require.Contains(t, out, "3 callers wait; each client has permits of its own")
	require.Regexp(t, `\n`+c.ID()+` +0 +3 +3h`, out, "three intervals behind three others")
}

// TestPeekBehindWaitingCallers says how long a new caller waits behind 14 others, and how long if they did not wait.
func TestPeekBehindWaitingCallers(t *testing.T) {
	l := newLive(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := clienttest.New(t, l.rdb)
	defer func() { _ = c.Close() }()
	lim := c.RateLimiter(l.base)
	require.NoError(t, lim.SetRate(ctx, ratelimiter.Rate{Permits: 5, Interval: time.Minute}))
	require.NoError(t, lim.Acquire(ctx, 5))
	for range 14 {
		go func() { _ = lim.Acquire(ctx, 1) }()
	}
	require.Eventually(t, func() bool {
		_, out, _ := l.run("peek", l.base, "1")
		return strings.Contains(out, "behind 14 callers")
	}, 30*time.Second, 50*time.Millisecond)
	require.Regexp(t, `^1 permit: wait about 2m\d\ds behind 14 callers, (5\d(\.\d)?s|1m0\ds) if nobody waited, because of the permits in use; 0 available\n$`, l.ends(1, "", "peek", l.base, "1"))
	o := values[prediction](t, l.ends(1, "", "peek", l.base, "1", "--json"))[0]
	require.Greater(t, *o.QueuedMS, *o.WaitMS+100_000)
	require.False(t, o.Granted)
}

// TestDoctorChecksTheUserFirst looks at the rights of a user before the limiter exists, as the checklist of production.md asks for.
func TestDoctorChecksTheUserFirst(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 7, 0, "ACL DRYRUN")
	l := newLive(t)
	l.do("acl", "setuser", "app", "reset", "on", ">secret", "~*", "+@all", "-zadd")
	out := l.ends(1, `may not run zadd`, "doctor", l.base, "--app-user", "app", "--app-role", "acquire")
	require.Contains(t, out, `there is no limiter "`+l.base+`" yet; only the rights of the user "app" were looked at`)
	l.do("acl", "setuser", "app", "+zadd")
	l.ok("doctor", l.base, "--app-user", "app")
	l.ends(3, "there is no limiter", "doctor", l.base)
}

// TestInspectNamesProcesses shows from where the processes connect that have the id of their Client in the name of their connections.
func TestInspectNamesProcesses(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t)
	l := &live{T: t, rdb: s.Client(t), url: "redis://" + s.Addr()}
	for _, process := range []struct{ id, name string }{
		{"28d0c3a1-5b1c-4c11-9e07-2d7b3c1f0a55", "orders-28d0c3a1-5b1c-4c11-9e07-2d7b3c1f0a55"},
		{"5afe0a1b-5b1c-4c11-9e07-2d7b3c1f0a55", "5afe0a1b-5b1c-4c11-9e07-2d7b3c1f0a55"},
		{"0ddba115-5b1c-4c11-9e07-2d7b3c1f0a55", "nameless"},
	} {
		var started []ratelimiter.ClientInfo
		c := clienttest.New(t, s.Client(t, func(o *redis.Options) { o.ClientName = process.name }), ratelimiter.WithClientID(process.id),
			ratelimiter.WithHook(ratelimiter.Hook{Started: func(i ratelimiter.ClientInfo) { started = append(started, i) }}))
		defer func() { _ = c.Close() }()
		require.Equal(t, []ratelimiter.ClientInfo{{ID: process.id, Process: process.id[:4]}}, started)
		_, err := c.RateLimiter("limiter").TrySetRate(t.Context(), tenAMinute)
		require.NoError(t, err)
		require.NoError(t, c.RateLimiter("limiter").Acquire(t.Context(), 1))
	}
	out := l.ok("inspect", "limiter")
	for _, want := range []string{"Go 28d0, orders at 127.0.0.1: 1 permit", "Go 5afe at 127.0.0.1: 1 permit", "Go 0ddb: 1 permit"} {
		require.Contains(t, out, want)
	}
	of := map[string][2]string{}
	for _, p := range values[jsonState](t, l.ok("inspect", "limiter", "--json"))[0].Go {
		of[p.Process] = [2]string{p.Name, p.Host}
	}
	require.Equal(t, map[string][2]string{"28d0": {"orders", "127.0.0.1"}, "5afe": {"", "127.0.0.1"}, "0ddb": {}}, of)
	l.do("acl", "setuser", "eve", "reset", "on", ">secret", "~*", "+@all", "-client|list")
	l.url = "redis://eve:secret@" + s.Addr()
	require.Contains(t, l.ok("inspect", "limiter"), "Go 28d0: 1 permit", "what it may not ask it does not say")
}
