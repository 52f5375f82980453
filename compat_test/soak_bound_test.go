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
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// underway is the time that a Java script may be on its way before its grant counts as late: from the moment at which
// the JVM read its clock to that at which Redis ran the script.
const underway = 50 * time.Millisecond

// lag returns by how much the score is behind the execution: less than a millisecond where the time is Redis's, and the time
// that the script was on its way where it is Java's.
func lag(g grantlog.Grant) time.Duration { return g.End.Sub(g.Begin) }

// isInTime reports whether the grant is known to have been executed underway at most after its score. Of an unseen one of
// Java's nobody knows; the score of an unseen one of ours is the time of Redis.
func isInTime(g grantlog.Grant) bool { return lag(g) <= underway && g.By != javasUnseen }

// An instant is the one by which grants are judged.
type instant = func(grantlog.Grant) (begin, end time.Time)

func byScore(g grantlog.Grant) (begin, end time.Time)     { return g.Begin, g.Begin }
func byExecution(g grantlog.Grant) (begin, end time.Time) { return g.End, g.End }

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
func requireWindows(t testing.TB, grants grantlog.Grants, rate int64, interval time.Duration) {
	t.Helper()
	require.NotEmpty(t, grants)
	ours, inTime := grants.Only(func(g grantlog.Grant) bool { return !isJava(g) }), grants.Only(isInTime)
	byLag := func(a, b grantlog.Grant) int { return cmp.Compare(lag(a), lag(b)) }
	late := grants.Permits() - inTime.Permits()
	t.Logf("%d grants, %d of them ours; %d permits granted late; fullest windows of %v at rate %d: all %d by execution, "+
		"%d by score; ours %d; longest under way %v", len(grants), len(ours), late, interval, rate, grants.FullestBy(interval, byExecution).Permits(),
		grants.FullestBy(interval, byScore).Permits(), ours.FullestBy(interval, byScore).Permits(), lag(slices.MaxFunc(grants, byLag)))

	require.GreaterOrEqual(t, lag(slices.MinFunc(grants, byLag)), time.Duration(0), "a score ahead of Redis' clock")
	within := func(what string, grants grantlog.Grants, window time.Duration, when instant) {
		t.Helper()
		worst := grants.FullestBy(window, when)
		require.LessOrEqual(redistest.Final(t), worst.Permits(), rate, "%s:\n%s", what, timesOf(worst))
	}
	within("ours, by score", ours, interval, byScore)
	within("all in time, by execution", inTime, interval-underway, byExecution)
	within("all in time, by score", inTime, interval-underway, byScore)
	redistest.Measured(t, 2*inTime.Permits() > grants.Permits(), "only %d of %d permits were granted in time, and judged",
		inTime.Permits(), grants.Permits())
}

// timesOf returns a line for each grant, with its times in ms since the first was run.
func timesOf(grants grantlog.Grants) string {
	var b strings.Builder
	for _, g := range grants {
		ms := func(at time.Time) float64 { return float64(at.Sub(grants[0].End)) / float64(time.Millisecond) }
		fmt.Fprintf(&b, "run %8.3f  score %8.3f  %3d permits  %s\n", ms(g.End), ms(g.Begin), g.Permits, g.By)
	}
	return b.String()
}

// TestSoakBound checks that requireWindows notices an excess, Java's second burst after an eviction, of 9 permits
// where 5 are allowed.
func TestSoakBound(t *testing.T) {
	t.Parallel()
	java := fleet.peer(t, newestListed())
	rdb := redistest.Client(t)
	seen := startMonitor(t, rdb)
	name := redistest.Key(t)
	require.True(t, java.truth(t, "trySetRate", name, overall, 5, time.Minute))
	require.True(t, java.truth(t, "tryAcquire", name, 4))
	require.EqualValues(t, 4, seen.of(name).FullestBy(time.Minute, byExecution).Permits())
	require.NoError(t, rdb.Del(t.Context(), "{"+name+"}:value").Err())
	require.True(t, java.truth(t, "tryAcquire", name, 5))
	for _, when := range []instant{byExecution, byScore} {
		require.EqualValues(t, 9, seen.of(name).FullestBy(time.Minute, when).Permits())
	}
	require.NoError(t, newGoSide(t, rdb, newestListed(), java.id).client.RateLimiter(name).SetRate(t.Context(),
		ratelimiter.Rate{Permits: 3, Interval: time.Hour}))
	require.Equal(t, "true", newGoSide(t, rdb, newestListed(), java.id).do("tryAcquire", name, 3))
	grants := seen.of(name)
	require.Len(t, grants, 3)
	require.Equal(t, []bool{true, true, false}, []bool{isJava(grants[0]), isJava(grants[1]), isJava(grants[2])})
	for _, g := range grants {
		require.GreaterOrEqual(t, lag(g), time.Duration(0))
		require.Less(t, lag(g), 10*time.Second)
	}

	for g, want := range map[grantlog.Grant]bool{
		{Begin: scored(1000), End: scored(1050), By: javas}:       true,
		{Begin: scored(1000), End: scored(1051), By: javas}:       false,
		{Begin: scored(1000), End: scored(1000), By: javasUnseen}: false,
		{Begin: scored(1000), End: scored(1000), By: oursUnseen}:  true,
	} {
		require.Equal(t, want, isInTime(g), "%+v", g)
	}
}
