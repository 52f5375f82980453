// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestEveryLookTellsTheSame has limiters where callers are told something of their own, and compares what ls, top, inspect,
// peek and watch say with what the limiter tells a caller.
func TestEveryLookTellsTheSame(t *testing.T) {
	l := newLive(t)
	client := clienttest.New(t, l.rdb)
	defer client.Close()
	make := func(suffix string, rate ratelimiter.Rate, permits int64) *ratelimiter.RateLimiter {
		lim := client.RateLimiter(l.base + suffix)
		require.NoError(t, lim.SetRate(t.Context(), rate))
		if permits > 0 {
			require.NoError(t, lim.Acquire(t.Context(), permits))
		}
		return lim
	}
	hour := ratelimiter.Rate{Permits: 10, Interval: time.Hour}
	free := make("free", hour, 3)
	gap := make("gap", ratelimiter.Rate{Permits: 10, Interval: time.Hour, MinGap: 20 * time.Minute}, 1)
	surplus := make("surplus", hour, 10)
	l.do("set", "{"+surplus.Name()+"}:value", 500)
	lost := make("lost", hour, 4)
	l.do("set", "{"+lost.Name()+"}:value", 0)
	cooling := make("cooling", hour, 2)
	require.NoError(t, cooling.CoolDown(t.Context(), time.Now().Add(30*time.Minute)))
	clients := make("clients", ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 10, Interval: time.Hour}, 1)
	require.NoError(t, clients.CoolDown(t.Context(), time.Now().Add(2*time.Hour)))
	broken := make("broken", hour, 0)
	l.do("rpush", "{"+broken.Name()+"}:value", "x")

	listed := func(args ...string) map[string]jsonLimiter {
		all := map[string]jsonLimiter{}
		for _, o := range values[jsonLimiter](t, l.ok(append([]string{"ls", "--match", l.base + "*", "--json"}, args...)...)) {
			all[o.Name] = o
		}
		return all
	}
	all := listed()
	for _, lim := range []*ratelimiter.RateLimiter{free, gap, surplus, lost, cooling, clients} {
		id := map[bool]string{true: client.ID()}[lim == clients]
		in := values[jsonState](t, l.ok("inspect", lim.Name(), "--json", "--client", id))[0]
		want := redistest.Must(lim.Peek(t.Context(), 1))(t)
		code := map[bool]int{true: command.ExitOK, false: command.ExitFailed}[want.Granted]
		pk := values[jsonState](t, l.ends(code, "", "peek", lim.Name(), "1", "--json", "--client", id))[0]
		for what, o := range map[string][2]*int64{"ls": {all[lim.Name()].Available, all[lim.Name()].WaitMS}, "inspect": {in.Available, in.WaitMS}, "peek": {pk.Available, pk.WaitMS}} {
			require.NotNil(t, o[0], "%s %s", what, lim.Name())
			require.Equal(t, want.Available, *o[0], "%s %s", what, lim.Name())
			require.Equal(t, want.Granted, *o[1] == 0, "%s %s", what, lim.Name())
			require.InDelta(t, want.Wait.Minutes(), time.Duration(*o[1]*int64(time.Millisecond)).Minutes(), 2, "%s %s", what, lim.Name())
		}
	}
	require.Contains(t, all[broken.Name()].Problem, "is not a string")
	require.Contains(t, all, broken.Name())

	waiting := listed("--waiting")
	for _, lim := range []*ratelimiter.RateLimiter{gap, cooling, clients, surplus, broken} {
		require.Contains(t, waiting, lim.Name())
	}
	require.NotContains(t, waiting, free.Name())

	var order []string
	for _, o := range values[[]jsonLimiter](t, l.ok("top", "--match", l.base+"*", "--count", "1", "--json"))[0] {
		order = append(order, strings.TrimPrefix(o.Name, l.base))
	}
	require.Equal(t, []string{"broken", "clients", "cooling", "surplus", "gap"}, order[:5], fmt.Sprint(order))
}

// TestPeekOfALargeSet follows more members than one look reads.
func TestPeekOfALargeSet(t *testing.T) {
	l := newLive(t)
	l.do("hset", l.base, "rate", 3000, "interval", 3_600_000, "type", 0)
	l.grants(l.base, 2000) // and no value
	require.Equal(t, "1000 permits: granted at once, 1000 available\n", l.ok("peek", l.base, "1000"))
	l.ends(command.ExitFailed, "wait 59m", "peek", l.base, "1001")
}
