// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// far returns a Redis of its own with limiters that are in use, each round trip to which takes that long.
func far(t *testing.T, limiters int, rtt time.Duration) *live {
	redistest.NeedReal(t)
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	proxy.Judge(func([]string) redistest.Fault { return redistest.Fault{Hold: rtt} })
	l := &live{T: t, rdb: server.Client(t), url: "redis://" + proxy.Addr(), base: "limiter"}
	_, err := l.rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range limiters {
			name := fmt.Sprintf("%s%05d", l.base, i)
			p.HSet(t.Context(), name, "rate", 5, "interval", 60_000, "type", 0, "keepAliveTime", 0)
			p.Set(t.Context(), "{"+name+"}:value", 5, 0)
		}
		return nil
	})
	require.NoError(t, err)
	return l
}

// TestFarAway bounds how long commands take of which each round trip takes 300 ms: a site on the other side of the world.
func TestFarAway(t *testing.T) {
	l := far(t, 100, 300*time.Millisecond)
	for command, most := range map[string]time.Duration{"doctor": time.Minute, "doctor limiter00001": 20 * time.Second, "ls --limit 0": 15 * time.Second, "inspect limiter00001": 6 * time.Second} {
		begin := time.Now()
		out := l.ok(strings.Fields(command)...)
		t.Logf("%s took %v", command, time.Since(begin))
		redistest.Prompt(t, time.Since(begin), most, "%s", command)
		require.NotEmpty(t, out)
	}
}

// TestManyLimitersAcrossARegion lists and examines limiters, each round trip to which takes 20 ms: 10,000 in half a minute.
func TestManyLimitersAcrossARegion(t *testing.T) {
	n := redistest.Cases(1_000, 10_000)
	l := far(t, n, 20*time.Millisecond)
	for _, command := range []string{"ls --limit 0 --json", "doctor --max 10000"} {
		begin := time.Now()
		require.NotEmpty(t, l.ok(strings.Fields(command)...))
		t.Logf("%s took %v", command, time.Since(begin))
		redistest.Prompt(t, time.Since(begin), time.Duration(n)*3*time.Millisecond, "%s", command)
	}
}
