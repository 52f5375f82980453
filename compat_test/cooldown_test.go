// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

const (
	coolInterval = 800 * time.Millisecond
	// soonAfter is how long after its end a cool-down may still delay a caller. Redisson rounds up and adds a few
	// milliseconds; the rest allows for a machine on which many JVMs wake at the same instant.
	soonAfter = 3 * time.Second
	// underWay allows for replies that were sent before a cool-down began and reach their callers after it.
	underWay = 500 * time.Millisecond
	// once is the duration of a load whose callers wait longer than that, so that each of them makes one call.
	once = time.Second
	// coolDownsAtOnce is the number of tests that run at once. It is large because the tests sleep, and limited
	// because their threads poll.
	coolDownsAtOnce = 28
)

// A cooled is a limiter that Java and Go share, with all grants of it as Redis saw them.
type cooled struct {
	trouble
	watch      *ledger
	valueKey   string
	permitsKey string
}

// coolDowns lists the tests of one version by name, the longest first.
var coolDowns = []struct {
	name string
	run  func(c cooled)
	want func(version) bool
}{
	{"callers that wait", func(c cooled) { c.callersThatWait(overall) }, every},
	{"callers that wait, per client", func(c cooled) { c.callersThatWait("PER_CLIENT") }, oldestAndNewest},
	{"all at once", func(c cooled) { c.reopens(0) }, every},
	{"re-opens gradually", func(c cooled) { c.reopens(2 * time.Second) }, every},
	{"the longest wins", cooled.longestWins, every},
	{"lifted", cooled.lifted, every},
	{"lifted within the interval", cooled.liftedSoon, every},
	{"shorter than the interval", cooled.shorterThanInterval, every},
	{"setRate by Java", cooled.setRateByJava, every},
	{"release by Java", cooled.releaseByJava, from("3.52.0")},
	{"keep-alive", cooled.keepAlive, from("3.38.0")},
	{"delete by Java", cooled.deleteByJava, every},
}

// TestCoolDown checks that nobody gets a permit before a cool-down of ours ends, in whichever version of Redisson and
// by whichever call.
func TestCoolDown(t *testing.T) {
	t.Parallel()
	watch := startLedger(t, redistest.Client(t))
	warmed(t)
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, coolDownsAtOnce)
	for _, test := range coolDowns {
		running.Go(func() {
			t.Run(test.name, func(t *testing.T) {
				versionsAbreast(t, func(t testing.TB, v version) {
					slots <- struct{}{}
					defer func() { <-slots }()
					steadily(t, func(t testing.TB) { test.run(cooled{trouble: newTrouble(t, v), watch: watch}) }, v)
				}, family, from("3.15.5"), test.want)
			})
		})
	}
}

// warmed starts every peer and makes its first calls, which take longer than later ones.
func warmed(t *testing.T) {
	t.Helper()
	var running sync.WaitGroup
	for _, v := range allVersions {
		java, name := fleet.peer(t, v), redistest.Key(t)
		running.Go(func() {
			for range 20 {
				_, _ = java.call("trySetRate", name, overall, 1, time.Minute)
				_, _ = java.call("tryAcquire", name, 1)
				_, _ = java.call("availablePermits", name)
				_, _ = java.call("hammer", name, 2, 1, "1", "try", 0)
			}
		})
	}
	running.Wait()
}

// limited gives the limiter a rate, set by Java.
func (c *cooled) limited(typ string, permits int, interval time.Duration) {
	c.Helper()
	require.True(c, c.java.truth(c, "trySetRate", c.name, typ, permits, interval))
	c.valueKey, c.permitsKey = "{"+c.name+"}:value", "{"+c.name+"}:permits"
	if typ != overall {
		c.valueKey, c.permitsKey = c.valueKey+":"+c.java.id, c.permitsKey+":"+c.java.id
	}
}

// coolDown begins a cool-down of d. It returns when the cool-down began and when it ends, by the clock of Redis,
// which is that of this machine.
func (c cooled) coolDown(d time.Duration, opts ...ratelimiter.CoolDownOption) (begun, until time.Time) {
	c.Helper()
	require.NoError(c, c.limiter.CoolDown(c.Context(), time.Now().Add(d), opts...))
	begun = time.Now()
	return begun, c.until()
}

func (c cooled) until() time.Time {
	c.Helper()
	ms := redistest.Must(c.rdb.HGet(c.Context(), c.name, "coolDown").Int64())(c)
	return time.UnixMilli(ms)
}

// javaLoad makes threads of Java request permits for d; see Load.java.
func (c cooled) javaLoad(threads int, d time.Duration, mix, mode string) func() load {
	call := c.java.begin("hammer", c.name, threads, d, mix, mode, 10)
	return func() load {
		c.Helper()
		l := redistest.Must(call.load(d + callLimit))(c)
		require.Empty(c, l.Errors)
		return l
	}
}

// none checks that nothing was granted between two instants, by the times at which Redis executed the scripts. No
// stall of the machine excuses a grant.
func (c cooled) none(begun, until time.Time) {
	c.Helper()
	for _, e := range c.watch.at(c.permitsKey) {
		require.False(always(c.TB), e.at.After(begun) && e.at.Before(until), "%d permits granted %v before the end, %v after the beginning",
			e.permits, until.Sub(e.at), e.at.Sub(begun))
	}
}

// first returns how long after an instant the first permit was granted.
func (c cooled) first(from time.Time) time.Duration {
	c.Helper()
	least := time.Duration(math.MaxInt64)
	for _, e := range c.watch.at(c.permitsKey) {
		if d := e.at.Sub(from); d >= 0 {
			least = min(least, d)
		}
	}
	return least
}

// granted returns the permits granted between two instants.
func (c cooled) granted(from, to time.Time) (sum int64) {
	for _, e := range c.watch.at(c.permitsKey) {
		if !e.at.Before(from) && e.at.Before(to) {
			sum += e.permits
		}
	}
	return sum
}

// rejectedByAll checks that neither side gets a permit now, and that both report that none is available.
func (c cooled) rejectedByAll(until time.Time) {
	c.Helper()
	r := c.try(1)
	require.False(c, r.Granted)
	require.Zero(c, r.Available)
	require.Equal(c, until, r.Time.Add(r.Wait), "until then")
	require.WithinDuration(c, until, redistest.Must(c.limiter.CoolDownUntil(c.Context()))(c), underWay)
	require.Zero(c, redistest.Must(c.limiter.AvailablePermits(c.Context()))(c))
	c.rejectedByJava()
}

func (c cooled) rejectedByJava() {
	c.Helper()
	require.False(c, c.javaTries(1))
	require.Zero(c, c.java.number(c, "availablePermits", c.name))
	require.False(c, c.javaTries(1), "availablePermits writes")
}

// wholeAgain checks that the limiter is intact: no window was exceeded, and all permits come back to both sides,
// again and again.
func (c cooled) wholeAgain(rate int64, interval time.Duration) {
	c.Helper()
	c.windows(rate, interval)
	time.Sleep(interval + 20*time.Millisecond)
	require.True(c, c.try(rate).Granted)
	time.Sleep(interval + 20*time.Millisecond)
	require.True(c, c.javaTries(int(rate)))
	require.False(c, c.rdb.HExists(c.Context(), c.name, "coolDown").Val(), "nothing is left of it")
	require.Equal(c, rate, redistest.Must(c.rdb.Get(c.Context(), c.valueKey).Int64())(c)+used(c, c.rdb, c.permitsKey))
}

// resumed checks that nothing was granted until the end, that permits are granted soon after it, and that the limiter is
// intact.
func (c cooled) resumed(begun, until time.Time, rate int64) {
	c.Helper()
	c.none(begun, until)
	require.LessOrEqual(c, c.first(until), soonAfter)
	c.wholeAgain(rate, coolInterval)
}

// windows checks that no window held more than the rate. The window is shortened by the longest time that passed
// between Java reading its clock and Redis running the script; see requireWindows.
func (c cooled) windows(rate int64, interval time.Duration) {
	c.Helper()
	grants, late := c.watch.at(c.permitsKey), time.Duration(0)
	for _, e := range grants {
		late = max(late, e.lag())
	}
	if late < interval {
		require.LessOrEqual(always(c.TB), fullest(grants, interval-late, byExecution), rate, "a window")
	}
}

// isBlock reports whether m is a block added by a cool-down of ours, and not a grant.
func isBlock(m string) bool {
	return len(m) == 21 && (m[:4] == "\x10~c~" || m[:4] == "\x10~l~") || len(m) == 20 && (m[8:10] == "~c" || m[8:10] == "~l")
}
