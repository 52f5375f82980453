// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// underway is the time that a Java script may be on its way before its grant counts as late: from the moment at which
// the JVM read its clock to that at which Redis ran the script.
const underway = 50 * time.Millisecond

// requireWindows checks what is promised of a limiter that Java and Go share while all clocks agree.
//
// Every grant has a score s, the clock reading of the side that granted it, and an instant e at which Redis ran it; e
// ≥ s, since a clock is read before the reading is used. Our script reads the clock of Redis, so e − s is below a
// millisecond, which is rounding. Java reads its own clock before it sends, so e − s is the time spent in its queues,
// on the network and in Redis's queue. Nothing takes a grant out of the set before s + interval. Therefore:
//
//   - Among our grants, by score, no half-open window of interval holds more than rate. The call that
//     took a out of the set before b was granted did so when Redis's clock showed s(a) + interval or
//     more, and s(b) is no less than that.
//   - Among all grants that were not late, e − s ≤ d, no window of interval − d holds more. In the window
//     (T−interval+d, T], let b be the grant that Redis ran last, and a any other. The call that took a out
//     before b did so with a clock c ≥ s(a) + interval ≥ e(a) − d + interval > T, but c ≤ e(b) ≤ T.
//     So all of them were in the set together. The same holds by score.
//   - Late grants come on top of that. They are counted by an instant that is long past, and are free
//     again that much too early. A JVM that stalls, or that sends again after Redis was down, exceeds the
//     rate with Redisson alone as well. Nobody else can notice, because the score does not tell when the
//     script ran.
//   - A grant that MONITOR did not report, since Redis was killed before it could, has no e. If it is
//     Java's, it may have been late, and counts as that.
func requireWindows(t testing.TB, grants []entry, rate int64, interval time.Duration) {
	t.Helper()
	require.NotEmpty(t, grants)
	ours := only(grants, func(e entry) bool { return !e.java })
	inTime := only(grants, entry.inTime)
	byLag := func(a, b entry) int { return cmp.Compare(a.lag(), b.lag()) }
	late := permitsIn(grants) - permitsIn(inTime)
	t.Logf("%d grants, %d of them ours; %d permits granted late; fullest windows of %v at rate %d: all %d by execution, "+
		"%d by score; ours %d; longest under way %v", len(grants), len(ours), late, interval, rate, fullest(grants, interval, byExecution),
		fullest(grants, interval, byScore), fullest(ours, interval, byScore), slices.MaxFunc(grants, byLag).lag())

	require.GreaterOrEqual(t, slices.MinFunc(grants, byLag).lag(), time.Duration(0), "a score ahead of Redis' clock")
	within := func(what string, grants []entry, window time.Duration, when func(entry) time.Time) {
		t.Helper()
		worst := fullestOf(grants, window, when)
		require.LessOrEqual(redistest.Final(t), permitsIn(worst), rate, "%s:\n%s", what, timesOf(worst))
	}
	within("ours, by score", ours, interval, byScore)
	within("all in time, by execution", inTime, interval-underway, byExecution)
	within("all in time, by score", inTime, interval-underway, byScore)
	redistest.Measured(t, 2*permitsIn(inTime) > permitsIn(grants), "only %d of %d permits were granted in time, and judged",
		permitsIn(inTime), permitsIn(grants))
}

// timesOf returns a line for each grant, with its times in ms since the first was run.
func timesOf(grants []entry) string {
	var b strings.Builder
	for _, e := range grants {
		ms := func(at time.Time) float64 { return float64(at.Sub(grants[0].at)) / float64(time.Millisecond) }
		fmt.Fprintf(&b, "run %8.3f  score %8.3f  %3d permits", ms(e.at), ms(e.scored()), e.permits)
		if e.java {
			b.WriteString("  Java")
		}
		if e.unseen {
			b.WriteString("  unseen")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestSoakBound checks that requireWindows notices an excess, Java's second burst after an eviction, of 9 permits
// where 5 are allowed.
func TestSoakBound(t *testing.T) {
	t.Parallel()
	java := fleet.peer(t, newestListed())
	rdb := redistest.Client(t)
	seen := startLedger(t, rdb)
	name := redistest.Key(t)
	require.True(t, java.truth(t, "trySetRate", name, overall, 5, time.Minute))
	require.True(t, java.truth(t, "tryAcquire", name, 4))
	require.EqualValues(t, 4, fullest(seen.of(name), time.Minute, byExecution))
	require.NoError(t, rdb.Del(t.Context(), "{"+name+"}:value").Err())
	require.True(t, java.truth(t, "tryAcquire", name, 5))
	for _, when := range []func(entry) time.Time{byExecution, byScore} {
		require.EqualValues(t, 9, fullest(seen.of(name), time.Minute, when))
	}
	require.NoError(t, newGoSide(t, rdb, newestListed(), java.id).client.RateLimiter(name).SetRate(t.Context(),
		ratelimiter.Rate{Permits: 3, Interval: time.Hour}))
	require.Equal(t, "true", newGoSide(t, rdb, newestListed(), java.id).do("tryAcquire", name, 3))
	grants := seen.of(name)
	require.Len(t, grants, 3)
	require.Equal(t, []bool{true, true, false}, []bool{grants[0].java, grants[1].java, grants[2].java})
	for _, e := range grants {
		require.GreaterOrEqual(t, e.lag(), time.Duration(0))
		require.Less(t, e.lag(), 10*time.Second)
	}

	for e, want := range map[entry]bool{
		{score: 1000, at: time.UnixMilli(1050), java: true}:               true,
		{score: 1000, at: time.UnixMilli(1051), java: true}:               false,
		{score: 1000, at: time.UnixMilli(1000), java: true, unseen: true}: false,
		{score: 1000, at: time.UnixMilli(1000), unseen: true}:             true,
	} {
		require.Equal(t, want, e.inTime(), "%+v", e)
	}
}
