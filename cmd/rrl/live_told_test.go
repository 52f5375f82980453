// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
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
	value := func(lim *ratelimiter.RateLimiter, v any) {
		require.NoError(t, l.rdb.Set(t.Context(), "{"+lim.Name()+"}:value", v, 0).Err())
	}
	hour := ratelimiter.Rate{Permits: 10, Interval: time.Hour}
	free := make("free", hour, 3)
	gap := make("gap", ratelimiter.Rate{Permits: 10, Interval: time.Hour, MinGap: 20 * time.Minute}, 1)
	surplus := make("surplus", hour, 10)
	value(surplus, 500)
	lost := make("lost", hour, 4)
	value(lost, 0)
	cooling := make("cooling", hour, 2)
	require.NoError(t, cooling.CoolDown(t.Context(), time.Now().Add(30*time.Minute)))
	clients := make("clients", ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 10, Interval: time.Hour}, 1)
	require.NoError(t, clients.CoolDown(t.Context(), time.Now().Add(2*time.Hour)))
	broken := make("broken", hour, 0)
	require.NoError(t, l.rdb.RPush(t.Context(), "{"+broken.Name()+"}:value", "x").Err())

	listed := func(args ...string) map[string]jsonLimiter {
		all := map[string]jsonLimiter{}
		for line := range strings.Lines(l.ok(append([]string{"ls", "--match", l.base + "*", "--json"}, args...)...)) {
			var o jsonLimiter
			require.NoError(t, json.Unmarshal([]byte(line), &o))
			all[o.Name] = o
		}
		return all
	}
	all := listed()
	for _, lim := range []*ratelimiter.RateLimiter{free, gap, surplus, lost, cooling, clients} {
		var in, pk jsonState
		require.NoError(t, json.Unmarshal([]byte(l.ok("inspect", lim.Name(), "--json", "--client", map[bool]string{true: client.ID()}[lim == clients])), &in))
		args := []string{"peek", lim.Name(), "1", "--json"}
		if lim == clients {
			args = append(args, "--client", client.ID())
		}
		code, out, _ := l.run(args...)
		require.NoError(t, json.Unmarshal([]byte(out), &pk))
		want := redistest.Must(lim.Peek(t.Context(), 1))(t)
		require.Equal(t, want.Granted, code == command.ExitOK, lim.Name())
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

	var top []jsonLimiter
	require.NoError(t, json.Unmarshal([]byte(l.ok("top", "--match", l.base+"*", "--count", "1", "--json")), &top))
	var order []string
	for _, o := range top {
		order = append(order, strings.TrimPrefix(o.Name, l.base))
	}
	require.Equal(t, []string{"broken", "clients", "surplus", "cooling", "gap"}, order[:5], fmt.Sprint(order))
}

// TestPeekOfALargeSet follows more members than one look reads.
func TestPeekOfALargeSet(t *testing.T) {
	l := newLive(t)
	require.NoError(t, l.rdb.HSet(t.Context(), l.base, "rate", 3000, "interval", 3_600_000, "type", 0).Err())
	for i := range 2000 { // and no value
		require.NoError(t, l.rdb.ZAdd(t.Context(), "{"+l.base+"}:permits", redis.Z{Score: float64(time.Now().UnixMilli()), Member: redisson.Member(false, redisson.RandomID(), 1)}).Err(), i)
	}
	require.Equal(t, "1000 permits: granted at once, 1000 available\n", l.ok("peek", l.base, "1000"))
	code, out, _ := l.run("peek", l.base, "1001")
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, out, "wait 59m")
}
