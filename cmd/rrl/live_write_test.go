// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestWritesLeaveNoKeysOfNobody runs each command that writes on a PER_CLIENT limiter as no client that there is: what it
// leaves is the limiter and the permits of those that there are.
func TestWritesLeaveNoKeysOfNobody(t *testing.T) {
	l := newLive(t)
	name := l.base
	perClient := ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 10, Interval: time.Hour}
	of := func(ids ...string) (keys []string) {
		for _, id := range ids {
			k := redisson.NewKeys(name, id)
			keys = append(keys, k.Value[1], k.Permits[1])
		}
		return append(keys, name)
	}
	for _, c := range []struct {
		args []string
		left []string
	}{
		{[]string{"set-rate", name, "--permits", "7"}, of("client-1")},
		{[]string{"set-rate", name, "--keep-alive", "2h"}, of("client-1")},
		{[]string{"cool-down", name, "--for", "1h", "--reopen", "1m"}, of("client-1")},
		{[]string{"set-rate", name, "--permits", "8"}, of("client-1")}, // in a cool-down
		{[]string{"set-rate", name, "--permits", "9", "--forget"}, of("client-1")},
		{[]string{"lift", name}, of("client-1")},
		{[]string{"set-rate", name, "--type", "overall"}, of("client-1")},
		{[]string{"cool-down", name, "--for", "1h"}, append(of("client-1"), "{"+name+"}:value", "{"+name+"}:permits")},
		{[]string{"set-rate", name, "--type", "per_client"}, of("client-1")},
		{[]string{"delete", name}, of("client-1")[:2]},
	} {
		if c.args[1] == name && c.args[0] == "set-rate" && slices.Contains(c.args, "7") {
			l.limiter(name, perClient)
		}
		before := keysOfBase(l)
		l.ok(c.args...)
		require.ElementsMatch(t, before, keysOfBase(l), "%v without --write", c.args)
		l.ok(append(c.args, "--write")...)
		require.ElementsMatch(t, c.left, keysOfBase(l), "%v", c.args)
	}
}

func keysOfBase(l *live) []string {
	keys := redistest.Must(l.rdb.Keys(l.Context(), "*"+redisson.EscapePattern(l.base)+"*").Result())(l)
	return keys
}

// TestSetRateOfATypo shows that set-rate makes no limiter of a name that is misspelled, unless it is told to.
func TestSetRateOfATypo(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"orders", tenAMinute)
	for _, write := range []string{"--json", "--write"} {
		code, out, errs := l.run("set-rate", l.base+"ordres", "--permits", "5", "--interval", "1m", write)
		require.Equal(t, command.ExitFailed, code)
		require.Empty(t, out)
		require.Contains(t, errs, `there is no limiter "`+l.base+`ordres" in `)
		require.Contains(t, errs, "--create makes it; did you mean "+l.base+"orders?\n")
	}
	require.Len(t, keysOfBase(l), 3)
	require.Contains(t, l.ok("set-rate", l.base+"ordres", "--permits", "5", "--interval", "1m", "--create", "--write"), "OVERALL 5/1m")

	// What there is something of is no typo: a hash that lost its rate, permits that outlived their hash.
	require.NoError(t, l.rdb.HDel(t.Context(), l.base+"ordres", "rate").Err())
	l.ok("set-rate", l.base+"ordres", "--permits", "5", "--interval", "1m", "--write")
	require.NoError(t, l.rdb.Del(t.Context(), l.base+"orders").Err())
	l.ok("set-rate", l.base+"orders", "--permits", "10", "--interval", "1m", "--write")
}

// TestDryRunOfBrokenLimiters shows what a change would do to states that are not sound, and that it tells the errors that the
// change would have.
func TestDryRunOfBrokenLimiters(t *testing.T) {
	l := newLive(t)
	name := l.base
	ctx := t.Context()
	l.limiter(name, ratelimiter.Rate{Permits: 10, Interval: time.Hour})
	require.NoError(t, l.rdb.Set(ctx, "{"+name+"}:value", 500, 0).Err())
	require.Contains(t, l.ok("set-rate", name, "--permits", "8"), "after   "+name+": OVERALL 8/1h")
	require.Equal(t, "500", l.rdb.Get(ctx, "{"+name+"}:value").Val())
	code, _, errs := l.run("lift", name)
	require.Equal(t, command.ExitFailed, code)
	require.Equal(t, "rrl: there was no cool-down\n", errs)

	// The keys expire in the copy as they do here.
	require.NoError(t, l.rdb.PExpire(ctx, name, time.Hour).Err())
	require.Regexp(t, `after   .*expires: expires in (59m|1h)`, l.ok("heal", name))

	// JSON says that nothing was written.
	var o struct {
		When, Node string
		Written    bool
		Permits    int64
	}
	lines := strings.Split(strings.TrimSpace(l.ok("set-rate", name, "--permits", "8", "--json")), "\n")
	require.Len(t, lines, 2)
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &o))
	require.Equal(t, "after", o.When)
	require.False(t, o.Written)
	require.EqualValues(t, 8, o.Permits)
	require.Contains(t, l.url, o.Node)

	// A key of another type makes the same error.
	require.NoError(t, l.rdb.Del(ctx, "{"+name+"}:value").Err())
	require.NoError(t, l.rdb.LPush(ctx, "{"+name+"}:value", "x").Err())
	for _, args := range [][]string{{"heal", name}, {"heal", name, "--write"}} {
		code, _, errs = l.run(args...)
		require.Equal(t, command.ExitFailed, code)
		require.Contains(t, errs, "WRONGTYPE")
	}

	// A set that is too large is not copied.
	var zs []redis.Z
	for i := range mostCopied + 1 {
		zs = append(zs, redis.Z{Score: float64(i), Member: fmt.Sprintf("\x08%08d\x01\x00\x00\x00", i)})
	}
	for part := range slices.Chunk(zs, 10_000) {
		require.NoError(t, l.rdb.ZAdd(ctx, "{"+name+"}:permits", part...).Err())
	}
	code, _, errs = l.run("heal", name)
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errs, "more than 100000; --write changes it")
}
