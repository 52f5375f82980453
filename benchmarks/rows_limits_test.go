// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

func limitKeys() []string {
	var keys []string
	for _, k := range limitKinds() {
		keys = append(keys, k.key)
	}
	return keys
}

// TestEveryLimitIsMeasured checks that every limiter of package limit is a contestant: otherwise it would be in no
// table.
func TestEveryLimitIsMeasured(t *testing.T) {
	files := redistest.Must(filepath.Glob("../limit/scripts/*.lua"))(t)
	var keys []string
	for _, f := range files {
		name, ok := strings.CutSuffix(filepath.Base(f), ".lua")
		require.True(t, ok, f)
		keys = append(keys, "limit-"+strings.ReplaceAll(name, "_", "-"))
	}
	require.ElementsMatch(t, keys, limitKeys())

	b := testBench(t)
	for _, k := range limitKinds() {
		s := redistest.Must(b.with(t, k.key).open(t.Context(), job{prefix: "p", limiters: 1, permits: 5, interval: time.Hour}))(t)
		script := strings.ReplaceAll(strings.TrimPrefix(k.key, "limit-"), "-", "_")
		require.Contains(t, s.keys()[0], ":"+script+":", "the contestant is what it is called")
	}
}

// TestLimitCountsBite checks that one grant more or less in Redis than the callers saw ends the run, whatever type
// holds it.
func TestLimitCountsBite(t *testing.T) {
	b := testBench(t)
	for _, limiters := range []int{1, 3} {
		row := loadRow{callers: 1, limiters: limiters, limits: true}
		for _, key := range append(limitKeys(), limitGCRAKey+"-endable", limitGCRAKey+"-without-replay") {
			c := b.with(t, key)
			require.True(t, row.takes(c))
			j := row.job("bite." + key + string(rune('a'+limiters)))
			s := redistest.Must(c.open(t.Context(), j))(t)
			j.calls = 7
			tally := redistest.Must(s.load(t.Context(), j))(t)
			require.NoError(t, row.check(t.Context(), c, s, tally), key)
			require.EqualValues(t, 1, redistest.Must(s.(*goSession).ask(t.Context(), 0))(t), key)
			require.ErrorContains(t, row.check(t.Context(), c, s, tally), "7 requests were granted, and the limiter holds 8", key)
			tally.Granted += 2
			require.ErrorContains(t, row.check(t.Context(), c, s, tally), "9 requests were granted, and the limiter holds 8", key)
		}
	}
}

// TestLogWithAGap checks that a log whose members do not add up is reported, and not counted.
func TestLogWithAGap(t *testing.T) {
	n := redistest.Must(limitState{members: []string{"0000000000000041:1", "0000000000000044:3"}}.logged())(t)
	require.EqualValues(t, 44, n, "what has been dropped was granted too")
	for _, bad := range [][]string{{"1:1", "3:1"}, {"x:1"}, {"1"}} {
		_, err := limitState{members: bad}.logged()
		require.Error(t, err, "%q", bad)
	}
}

// TestLimitRowsByThemselves checks that -rows limit- selects those rows and no others, without Java.
func TestLimitRowsByThemselves(t *testing.T) {
	o := redistest.Must(parseFlags(strings.Fields("-rows limit- -only limit-gcra")))(t)
	require.Equal(t, []string{limitGCRAKey, baselineKey, redisRateKey}, o.only)
	b := &bench{options: o}
	keys := []string{}
	for _, r := range allRows(o) {
		if o.rows.MatchString(r.about().key) {
			b.rows = append(b.rows, r)
			keys = append(keys, r.about().key)
			require.False(t, r.takes(newOurs(newClient("", 1), true)), "%s: RRateLimiter has rows of its own", r.about().key)
		}
	}
	require.Equal(t, []string{"limit-1", "limit-64", "limit-512", "limit-keys", "limit-keys-8", "limit-keys-512", "limit-rejected", "limit-waiters", costsKey}, keys)
	require.False(t, b.needsRedisson())
	b.rows = allRows(o)
	require.True(t, b.needsRedisson())
	for _, r := range b.rows[:len(b.rows)-len(keys)] {
		for _, c := range newLimits("", 1) {
			if r.about().by() != baselineKey && c.about().key == limitGCRAKey {
				continue // where Redisson's script is not the measure, limit.GCRA is beside
			}
			require.False(t, r.takes(c), "%s takes %s", r.about().key, c.about().key)
		}
	}
}

// TestServerTime checks that a command outside of a script counts for the client that sends it, and that no nested
// command counts twice.
func TestServerTime(t *testing.T) {
	u := usage{scriptCalls: 10, scriptTime: 5, commands: map[string]commandCount{
		"eval": {10, 5}, "time": {10, 1}, "get": {20, 4}, "setex": {9, 3}, "setnx": {1, 7}, "info": {2, 100}, "config|resetstat": {1, 100},
	}}
	require.InDelta(t, 5, u.asking(about{}), 1e-9)
	require.InDelta(t, 5+1+2+7, u.asking(about{reads: true}), 1e-9)
	require.EqualValues(t, 10+20+9+1, u.ran())
}
