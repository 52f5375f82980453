// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestWriting checks that each command that writes shows the limiter before and after, and without --write changes nothing
// but shows the same.
func TestWriting(t *testing.T) {
	l := newLive(t)
	name := l.base
	l.limiter(name, tenAMinute)
	dump := func() string {
		ctx := t.Context()
		return fmt.Sprint(l.rdb.HGetAll(ctx, name).Val(), l.rdb.Get(ctx, "{"+name+"}:value").Val(),
			l.rdb.ZRangeWithScores(ctx, "{"+name+"}:permits", 0, -1).Val())
	}
	running := regexp.MustCompile(`[\d.]+m?s|\d+m\d\ds|\d+h\d\dm`) // durations
	for _, c := range []struct{ args, after string }{
		{"release $ --permits 2", "available 6 of 10"},
		{"set-rate $ --permits 7", "OVERALL 7/1m, does not expire; available 3 of 7"},
		{"cool-down $ --for 1h --reopen 1m", "cool-down for 59m"},
		{"lift $", "available 3 of 7"},
		{"heal $", "available 3 of 7"},
		{"set-rate $ --interval 1h --keep-alive 2h --min-gap 1ms --type overall --forget", "OVERALL 7/1h gap 1ms, expires in "},
		{"set-rate $ --rate 8/min", "OVERALL 8/1m gap 1ms, expires in "},
		{"set-rate $ --rate 100/d --min-gap 1s --keep-alive 0", "OVERALL 100/24h gap 1s, "},
		{"delete $", "no limiter"},
		{"set-rate $ --rate 5/10s --create", "OVERALL 5/10s"},
		{"set-rate $ --rate OVERALL_9/10s_gap_1s", "OVERALL 9/10s gap 1s, does not expire"},
		{"set-rate $ --rate OVERALL_9/10s", "OVERALL 9/10s, "},
		{"delete $", "no limiter"},
		{"set-rate $ --permits 3 --interval 5s --create", "OVERALL 3/5s"},
	} {
		args, before := strings.Fields(strings.Replace(c.args, "$", name, 1)), dump()
		if strings.Contains(c.args, "L_") { // an argument with spaces
			args[3] = strings.ReplaceAll(args[3], "_", " ")
		}
		dry := strings.Split(l.ok(args...), "\n")
		require.Equal(t, []string{"nothing was changed; --write does it", ""}, dry[2:], c.args)
		require.Equal(t, before, dump())
		wet := strings.Split(l.ok(append(args, "--write")...), "\n")
		require.Equal(t, []string{""}, wet[2:], c.args)
		for i, when := range []string{"before  ", "after   "} {
			require.True(t, strings.HasPrefix(dry[i], when+name+": "), dry[i])
			require.Equal(t, running.ReplaceAllString(dry[i], "D"), running.ReplaceAllString(wet[i], "D"), c.args)
		}
		require.Contains(t, wet[1], c.after, "%v", c.args)
	}
}

// TestMembersOfRedisson316: a change that writes what the versions that have written here cannot read says so, before it is made.
func TestMembersOfRedisson316(t *testing.T) {
	l := newLive(t)
	for layout, warns := range map[string]bool{"\x08\x00\x00\x00\x00\x00\x00\x00abcdefgh\x01\x00\x00\x00": true, "\x08abcdefgh\x01\x00\x00\x00": false} {
		name := redistest.Key(t)
		l.limiter(name, tenAMinute)
		l.do("set", "{"+name+"}:value", 9)
		l.do("zadd", "{"+name+"}:permits", time.Now().UnixMilli(), layout)
		code, _, errs := l.run("set-rate", name, "--permits", "8", "--write")
		require.Equal(t, []any{command.ExitOK, ""}, []any{code, errs})
		for _, write := range []bool{false, true} {
			args := []string{"cool-down", name, "--for", "1h", "--json"}
			if write {
				args = append(args, "--write")
			}
			code, _, errs := l.run(args...)
			require.Equal(t, command.ExitOK, code)
			require.Equal(t, warns, strings.HasPrefix(errs, "warning: Redisson 3.16.4 to 3.16.8, which has written here, cannot read the members of this change"), errs)
			require.Equal(t, !warns, errs == "")
		}
	}
}

// TestWritesLeaveNoKeysOfNobody runs each command that writes on a PER_CLIENT limiter as no client that there is: what it
// leaves is the limiter and the permits of those that there are.
func TestWritesLeaveNoKeysOfNobody(t *testing.T) {
	l := newLive(t)
	name := l.base
	l.limiter(name, ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 10, Interval: time.Hour})
	k := redisson.NewKeys(name, "client-1")
	clients := []string{k.Value[1], k.Permits[1]}
	whole := append(slices.Clone(clients), name)
	for _, c := range []struct {
		args string
		left []string
	}{
		{"set-rate $ --permits 7", whole},
		{"set-rate $ --keep-alive 2h", whole},
		{"cool-down $ --for 1h --reopen 1m", whole},
		{"set-rate $ --permits 8", whole}, // in a cool-down
		{"set-rate $ --permits 9 --forget", whole},
		{"lift $", whole},
		{"set-rate $ --type overall", whole},
		{"cool-down $ --for 1h", append(slices.Clone(whole), "{"+name+"}:value", "{"+name+"}:permits")},
		{"set-rate $ --type per_client", whole},
		{"set-rate $ --rate 8/h", whole},
		{"delete $", clients},
	} {
		args, before := strings.Fields(strings.Replace(c.args, "$", name, 1)), l.keys()
		l.ok(args...)
		require.ElementsMatch(t, before, l.keys(), "%v without --write", c.args)
		l.ok(append(args, "--write")...)
		require.ElementsMatch(t, c.left, l.keys(), "%v", c.args)
	}
}

// TestSetRateOfATypo shows that set-rate makes no limiter of a name that is misspelled, unless it is told to.
func TestSetRateOfATypo(t *testing.T) {
	l := newLive(t)
	l.limiter(l.base+"orders", tenAMinute)
	set := []string{"set-rate", l.base + "ordres", "--permits", "5", "--interval", "1m"}
	for _, flag := range []string{"--json", "--write"} {
		require.Contains(t, l.ends(command.ExitAbsent, `there is no limiter "`+l.base+`ordres" in `, append(set, flag)...),
			"--create makes it; did you mean "+l.base+"orders?\n")
	}
	require.Len(t, l.keys(), 3)
	require.Contains(t, l.ok(append(set, "--create", "--write")...), "OVERALL 5/1m")

	// What there is something of is no typo: a hash that lost its rate, permits that outlived their hash.
	l.do("hdel", l.base+"ordres", "rate")
	l.ok(append(set, "--write")...)
	l.do("del", l.base+"orders")
	l.ok("set-rate", l.base+"orders", "--permits", "10", "--interval", "1m", "--write")
}

// TestDryRunOfBrokenLimiters shows what a change would do to states that are not sound, and that it tells the errors that the
// change would have.
func TestDryRunOfBrokenLimiters(t *testing.T) {
	l := newLive(t)
	name := l.base
	ctx := t.Context()
	l.limiter(name, ratelimiter.Rate{Permits: 10, Interval: time.Hour})
	l.do("set", "{"+name+"}:value", 500)
	require.Contains(t, l.ok("set-rate", name, "--permits", "8"), "after   "+name+": OVERALL 8/1h")
	require.Equal(t, "500", l.rdb.Get(ctx, "{"+name+"}:value").Val())

	// The keys expire in the copy as they do here.
	require.NoError(t, l.rdb.PExpire(ctx, name, time.Hour).Err())
	require.Regexp(t, `after   .*expires in (59m|1h)`, l.ok("heal", name))

	// JSON says that nothing was written.
	type written struct {
		When    string
		Written bool
		Permits int64
	}
	list := values[written](t, l.ok("set-rate", name, "--permits", "8", "--json"))
	require.Equal(t, []written{{"before", false, 10}, {"after", false, 8}}, list)
	require.Contains(t, l.url, values[struct{ Node string }](t, l.ok("heal", name, "--json"))[1].Node)

	// A key of another type is an error before anything is changed.
	l.do("del", "{"+name+"}:value")
	l.do("lpush", "{"+name+"}:value", "x")
	l.ends(command.ExitFailed, "is a list, not a string; nothing was changed", "heal", name)
	l.ends(command.ExitFailed, "is a list, not a string; nothing was changed", "heal", name, "--write")

	// A set that is too large is not copied.
	l.do("del", "{"+name+"}:value")
	var zs []redis.Z
	for i := range mostCopied + 1 {
		zs = append(zs, redis.Z{Score: float64(i), Member: fmt.Sprintf("\x08%08d\x01\x00\x00\x00", i)})
	}
	for part := range slices.Chunk(zs, 10_000) {
		redistest.Must(l.rdb.ZAdd(ctx, "{"+name+"}:permits", part...).Result())(t)
	}
	l.ends(command.ExitFailed, "more than 100000; --write changes it", "heal", name)
}
