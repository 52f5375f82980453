// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// setRateByJava checks that what a setRate of Java's frees is blocked again by our next call.
func (c cooled) setRateByJava() {
	const rate = 8
	c.limited(overall, 5, coolInterval)
	c.spent(5)
	_, until := c.coolDown(3 * time.Second)
	c.java.must(c, "setRate", c.name, overall, rate, coolInterval)
	require.True(c, c.javaTries(1), "which is why it says so")
	c.rejectedByAll(until)
	begun := time.Now()
	require.Equal(c, until, c.until())
	c.javaLoad(2, time.Until(until)+underWay, "1", "try")()
	c.none(begun, until)
	require.LessOrEqual(c, c.first(until), soonAfter)
	require.LessOrEqual(c, c.granted(until, until.Add(coolInterval)), int64(rate))
	// A setRate of ours keeps the cool-down.
	_, until = c.coolDown(1200 * time.Millisecond)
	begun = time.Now()
	require.NoError(c, c.limiter.SetRate(c.Context(), ratelimiter.Rate{Permits: rate, Interval: coolInterval}))
	c.rejectedByJava()
	c.rejectedByAll(until)
	time.Sleep(time.Until(until))
	c.none(begun, until)
	c.wholeAgain(rate, coolInterval)
}

func (c cooled) releaseByJava() {
	const rate = 5
	c.limited(overall, rate, coolInterval)
	require.True(c, c.javaTries(rate))
	begun, until := c.coolDown(2500 * time.Millisecond)
	c.java.must(c, "release", c.name, 2)
	c.rejectedByAll(until) // our client calls first
	require.NoError(c, c.limiter.Release(c.Context(), 2))
	c.rejectedByJava()
	c.javaLoad(2, time.Until(until)+underWay, "1", "try")()
	c.none(begun, until)
	require.EqualValues(c, rate, c.granted(until, until.Add(coolInterval)), "not 7")
	c.wholeAgain(rate, coolInterval)
}

func (c cooled) deleteByJava() {
	c.limited(overall, 5, coolInterval)
	c.coolDown(time.Hour)
	c.rejectedByJava()
	require.True(c, c.java.truth(c, "delete", c.name))
	require.Zero(c, c.rdb.Exists(c.Context(), c.name, c.valueKey, c.permitsKey).Val())
	require.True(c, c.java.truth(c, "trySetRate", c.name, overall, 5, coolInterval))
	require.True(c, c.javaTries(2))
	require.True(c, c.try(3).Granted)
	require.Zero(c, redistest.Must(c.limiter.CoolDownUntil(c.Context()))(c))
}

// keepAlive checks that the limiter does not expire before the cool-down is over. Our calls give it a TTL that is
// long enough. A call of Java's sets it back to the keep-alive, so that the limiter then lasts only as long as it is
// used.
func (c cooled) keepAlive() {
	const rate, keepAlive = 5, time.Second
	c.name = redistest.Key(c)
	c.limiter = newGoSide(c, c.rdb, c.version, c.java.id).client.RateLimiter(c.name)
	require.True(c, c.java.truth(c, "trySetRate", c.name, overall, rate, coolInterval, keepAlive))
	c.valueKey, c.permitsKey = "{"+c.name+"}:value", "{"+c.name+"}:permits"
	require.True(c, c.javaTries(rate))
	begun, until := c.coolDown(2500 * time.Millisecond)
	require.Greater(c, c.rdb.PTTL(c.Context(), c.name).Val(), time.Until(until))
	c.rejectedByAll(until)
	require.LessOrEqual(c, c.rdb.PTTL(c.Context(), c.name).Val(), keepAlive, "Java's was the last")
	for time.Until(until) > 400*time.Millisecond {
		require.False(c, c.javaTries(1))
		time.Sleep(200 * time.Millisecond)
	}
	time.Sleep(time.Until(until.Add(20 * time.Millisecond)))
	c.none(begun, until)
	require.True(c, c.javaTries(rate))
}

// TestCoolDownAndTheOldest checks that 3.13.4 grants nothing during a cool-down and goes on after it. It returns an
// error while a score lies ahead of its clock, which is the case until an interval before the end.
func TestCoolDownAndTheOldest(t *testing.T) {
	t.Parallel()
	watch := startLedger(t, redistest.Client(t))
	require.Equal(t, "3.13.4", allVersions[0].name)
	steadily(t, func(t testing.TB) {
		coolDownAndTheOldest(cooled{trouble: newTrouble(t, allVersions[0]), watch: watch})
	}, allVersions[0])
}

func coolDownAndTheOldest(c cooled) {
	const rate = 5
	c.limited(overall, rate, coolInterval)
	require.True(c, c.javaTries(rate))
	begun, until := c.coolDown(2 * time.Second)
	for due := until.Add(-coolInterval); time.Until(due) > 300*time.Millisecond; {
		for _, call := range [][]any{{"tryAcquire", c.name, 1}, {"acquire", c.name, 1}, {"tryAcquire", c.name, 1, 5 * time.Second}} {
			_, err := c.java.call(call[0].(string), call[1:]...)
			require.ErrorContains(c, err, "bad argument #2 to 'unpack' (string expected, got nil)")
		}
		r := c.try(1)
		require.False(c, r.Granted, "%v before the end", until.Sub(r.Time))
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(time.Until(until.Add(-coolInterval / 2))) // from here on the scores of the blocks are no longer ahead
	require.False(c, c.javaTries(1))
	time.Sleep(time.Until(until.Add(20 * time.Millisecond)))
	c.none(begun, until)
	require.True(c, c.javaTries(1))
	require.True(c, c.try(rate-1).Granted)
	require.False(c, c.javaTries(1))
	c.wholeAgain(rate, coolInterval)
}

// TestFieldsAreHarmless checks that every version works on a limiter whose hash has the fields of a gap and of a
// cool-down as it does on one without them. It is the blocks that keep Redisson from granting.
func TestFieldsAreHarmless(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{overall, perClient} {
		versionsSteadily(t, func(t testing.TB, v version) { fieldsAreHarmless(newTrouble(t, v), typ) })
	}
}

func fieldsAreHarmless(t trouble, typ string) {
	java, late := javaSide{t.java}, slack{steps: underWay}
	m := matrix{version: t.version, java: t.java, newest: t.java, rdb: t.rdb}
	names := [2]string{t.name + "with", t.name + "without"}
	for _, name := range names {
		require.Equal(t, "true", java.do("trySetRate", name, typ, 9, time.Second))
	}
	until := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	fields := map[string]string{"hash minGap": "20", "hash coolDown": until, "hash reopenUntil": until}
	require.NoError(t, t.rdb.HSet(t.Context(), names[0], "minGap", "20", "coolDown", until, "reopenUntil", until).Err())
	for _, s := range []step{
		do("getConfig"), do("isExists"), take(2), take(7), take(1), do("availablePermits"),
		do("tryAcquire", 3, 2*time.Second), do("acquire", 6), take(10), do("trySetRate", typ, 4, time.Second),
		do("release", 1), do("setRate", typ, 7, time.Second), do("getConfig"), take(7),
		do("setRateArgs", typ, 8, time.Second, "-", true), do("availablePermits"),
		do("updateRate", typ, 6, time.Second, "-", false), do("getConfig"), take(5), do("availablePermits"),
		do("expire", time.Minute), take(1), do("clearExpire"), do("remainTimeToLive"),
	} {
		differs := map[string]string{}
		for _, d := range m.step(t, "", s, names, java, java, &late) {
			if d.what != "elapsed" {
				require.Equal(t, absent, d.alone, "%v", d)
				differs[d.what] = d.together
			}
		}
		require.Equal(t, fields, differs, "%s %v", s.operation, s.args)
	}
	ours := newGoSide(t, t.rdb, t.version, t.java.id).client.RateLimiter(names[0])
	require.Equal(t, 20*time.Millisecond, redistest.Must(ours.Rate(t.Context()))(t).MinGap)
	require.Equal(t, java.do("delete", names[1]), java.do("delete", names[0]))
	require.Zero(t, t.rdb.Exists(t.Context(), names[0]).Val())
	require.Equal(t, java.do("getConfig", names[1]), java.do("getConfig", names[0]))
}
