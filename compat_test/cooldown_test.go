// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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
	watch      *watchedGrants
	valueKey   string
	permitsKey string
}

// watchedGrants lets many tests use one ledger.
type watchedGrants struct {
	mu     sync.Mutex
	ledger *ledger
	rdb    *redis.Client
}

func (w *watchedGrants) at(key string) []entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.at(w.rdb, key)
}

// coolDowns lists the tests of one version by name, the longest first.
var coolDowns = []struct {
	name string
	run  func(c cooled)
	want func(version) bool
}{
	{"callers that wait", func(c cooled) { c.callersThatWait(overall) }, nil},
	{"callers that wait, per client", func(c cooled) { c.callersThatWait("PER_CLIENT") }, oldestAndNewest},
	{"all at once", func(c cooled) { c.reopens(0) }, nil},
	{"re-opens gradually", func(c cooled) { c.reopens(2 * time.Second) }, nil},
	{"the longest wins", cooled.longestWins, nil},
	{"lifted", cooled.lifted, nil},
	{"lifted within the interval", cooled.liftedSoon, nil},
	{"shorter than the interval", cooled.shorterThanInterval, nil},
	{"setRate by Java", cooled.setRateByJava, nil},
	{"release by Java", cooled.releaseByJava, from("3.52.0")},
	{"keep-alive", cooled.keepAlive, from("3.38.0")},
	{"delete by Java", cooled.deleteByJava, nil},
}

// TestCoolDown checks that nobody gets a permit before a cool-down of ours ends, in whichever version of Redisson and
// by whichever call.
func TestCoolDown(t *testing.T) {
	rdb := redistest.Client(t)
	watch := &watchedGrants{ledger: startLedger(t, rdb.Options().Addr), rdb: rdb}
	warmed(t)
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, coolDownsAtOnce)
	for _, test := range coolDowns {
		for _, v := range allVersions {
			if !v.since("3.15.5") || test.want != nil && !test.want(v) {
				continue
			}
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				t.Run(v.name+"/"+test.name, func(t *testing.T) {
					onVersionSteadily(t, v, func(t testing.TB, v version) {
						test.run(cooled{trouble: newTrouble(t, v), watch: watch})
					})
				})
			})
		}
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
		text := redistest.Must(call.wait(d + callLimit))(c)
		l := redistest.Must(parseLoad(text))(c)
		require.Zero(c, l.errors, "%v", l.kinds)
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

// callersThatWait checks callers that are already waiting when the cool-down begins: Java's in acquire and in
// tryAcquire with a timeout, and ours.
func (c cooled) callersThatWait(typ string) {
	const rate = 12
	c.limited(typ, rate, coolInterval)
	require.True(c, c.javaTries(rate/2))
	c.spent(rate / 2)

	waits := []func() load{c.javaLoad(3, once, "1", "block"), c.javaLoad(2, once, "1", "wait:10000")}
	givesUp := c.javaLoad(1, once, "1", "wait:1500")
	var callers sync.WaitGroup
	var mu sync.Mutex
	var served []time.Time
	for i := range 5 {
		callers.Go(func() {
			timeout := []time.Duration{0, 0, 10 * time.Second, 10 * time.Second, 1500 * time.Millisecond}[i]
			ok, err := true, error(nil)
			if timeout == 0 {
				err = c.limiter.Acquire(c.Context(), 1)
			} else {
				ok, err = c.limiter.TryAcquire(c.Context(), 1, timeout)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil || ok != (i < 4) {
				c.Errorf("caller %d: %v, %v", i, ok, err)
			}
			if ok {
				served = append(served, time.Now())
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	begun, until := c.coolDown(3 * time.Second)
	require.WithinDuration(c, begun.Add(3*time.Second), until, underWay)
	time.Sleep(time.Until(begun.Add(coolInterval + coolInterval/2))) // by now Java's callers have tried again
	c.rejectedByAll(until)

	callers.Wait()
	require.Len(c, served, 4)
	byGo, byJava := time.Hour, time.Hour
	for _, at := range served {
		require.False(c, at.Before(until), "returned %v before the end", until.Sub(at))
		byGo = min(byGo, at.Sub(until))
	}
	for i, wait := range waits {
		l := wait()
		require.EqualValues(c, 3-i, l.granted)
		require.Zero(c, l.rejected)
		for _, g := range l.grants {
			require.False(c, g.at.Before(until), "returned %v before the end", until.Sub(g.at))
			byJava = min(byJava, g.at.Sub(until))
		}
	}
	l := givesUp()
	require.EqualValues(c, 1, l.rejected)
	require.Zero(c, l.granted)
	c.none(begun, until)
	c.Logf("Redisson %s, %s: the first of Java's returns %v after the end, of ours %v", c.version, typ, byJava, byGo)
	require.LessOrEqual(c, byJava, soonAfter)
	require.LessOrEqual(c, byGo, soonAfter)

	// Both sides make requests for two windows.
	java, end := c.javaLoad(2, 2*coolInterval, "1", "try"), time.Now().Add(2*coolInterval)
	for time.Now().Before(end) {
		c.try(1)
		time.Sleep(5 * time.Millisecond)
	}
	java()
	require.GreaterOrEqual(c, c.granted(until, until.Add(time.Hour)), int64(2*rate), "and they are used")
	c.wholeAgain(rate, coolInterval)
}

// reopens checks that Java, requesting all the time, gets the permits back gradually, over the given time.
func (c cooled) reopens(over time.Duration) {
	const rate = 20
	c.limited(overall, rate, coolInterval)
	require.True(c, c.javaTries(rate/2))
	var opts []ratelimiter.CoolDownOption
	if over > 0 {
		opts = append(opts, ratelimiter.Reopen(over))
	}
	begun, until := c.coolDown(1500*time.Millisecond, opts...)
	time.Sleep(time.Until(until) - 200*time.Millisecond)
	mix := "1"
	if over == 0 {
		mix = "5"
	}
	java := c.javaLoad(2, time.Until(until.Add(max(over, time.Second)+200*time.Millisecond)), mix, "try")()
	c.none(begun, until)
	for _, g := range java.grants {
		require.False(c, g.at.Before(until))
	}
	require.LessOrEqual(c, c.first(until), soonAfter)
	in := func(d time.Duration) int64 { return c.granted(until, until.Add(d)) }
	c.Logf("Redisson %s, over %v: first after %v, in 100 ms %d, in 500 ms %d, in 1 s %d, altogether %d", c.version, over,
		c.first(until), in(100*time.Millisecond), in(500*time.Millisecond), in(time.Second), in(time.Hour))
	if over == 0 {
		require.GreaterOrEqual(c, in(time.Second), int64(rate))
	} else {
		require.LessOrEqual(c, in(100*time.Millisecond), int64(2)) // one every 100 ms
		require.LessOrEqual(c, in(500*time.Millisecond), int64(6))
		require.LessOrEqual(c, in(coolInterval), int64(9))
		require.GreaterOrEqual(c, in(time.Hour), int64(rate))
	}
	c.wholeAgain(rate, coolInterval)
}

func (c cooled) longestWins() {
	const rate = 5
	c.limited(overall, rate, coolInterval)
	begun, until := c.coolDown(1800 * time.Millisecond)
	_, still := c.coolDown(400 * time.Millisecond)
	require.Equal(c, until, still, "a shorter one changes nothing")
	java := c.javaLoad(2, 3500*time.Millisecond, "1", "try")
	time.Sleep(600 * time.Millisecond)
	_, longer := c.coolDown(2 * time.Second)
	require.Greater(c, longer.Sub(until), 500*time.Millisecond)
	c.rejectedByAll(longer)
	java()
	c.none(begun, longer)
	require.LessOrEqual(c, c.first(longer), soonAfter)
	c.wholeAgain(rate, coolInterval)
}

// lifted checks that requests are granted again once the cool-down is lifted. A caller of Java's that was told to
// sleep until the end still sleeps until then, since nothing wakes Redisson's callers.
func (c cooled) lifted() {
	const rate = 5
	c.limited(overall, rate, coolInterval)
	require.True(c, c.javaTries(rate))
	sleeps := c.javaLoad(1, once, "1", "block")
	ours := make(chan error, 1)
	go func() { ours <- c.limiter.Acquire(c.Context(), 1) }()
	time.Sleep(200 * time.Millisecond)
	begun, until := c.coolDown(4 * time.Second)
	time.Sleep(time.Until(begun.Add(1500 * time.Millisecond)))
	require.Empty(c, ours)
	c.rejectedByAll(until)
	require.True(c, redistest.Must(c.limiter.LiftCoolDown(c.Context()))(c))
	at := time.Now()
	require.NoError(c, c.within(coolInterval, ours))
	asks := c.javaLoad(1, 300*time.Millisecond, "1", "try")()
	require.NotEmpty(c, asks.grants)
	require.Less(c, asks.grants[0].at.Sub(at), until.Sub(at), "not at the end")
	require.False(c, c.rdb.HExists(c.Context(), c.name, "coolDown").Val())

	l := sleeps()
	require.Len(c, l.grants, 1)
	c.Logf("Redisson %s: lifted %v before the end; who asked Java got one after %v, who slept %v after the end", c.version,
		until.Sub(at), asks.grants[0].at.Sub(at), l.grants[0].at.Sub(until))
	require.Less(c, l.grants[0].at.Sub(until), soonAfter)
	c.none(begun, at.Add(-underWay))
	c.wholeAgain(rate, coolInterval)
}

// liftedSoon checks that what was free is free at once when the cool-down is lifted early, and that what was granted
// within the interval comes back when it would have done so anyway. If it came back at once, there would be a second
// burst.
func (c cooled) liftedSoon() {
	const rate, interval = 7, 3 * time.Second
	c.limited(overall, rate, interval)
	early := time.Now().Truncate(time.Millisecond)
	require.True(c, c.javaTries(3))
	time.Sleep(time.Second)
	late := time.Now().Truncate(time.Millisecond)
	require.True(c, c.javaTries(2))
	begun, _ := c.coolDown(time.Hour)
	java := c.javaLoad(1, time.Until(late.Add(interval+underWay)), "1", "try")
	time.Sleep(300 * time.Millisecond)
	lifted := time.Now()
	require.True(c, redistest.Must(c.limiter.LiftCoolDown(c.Context()))(c))
	java()
	c.none(begun, lifted)
	require.LessOrEqual(c, c.first(lifted), soonAfter)
	require.EqualValues(c, 2, c.granted(begun, early.Add(interval)), "the five in use are so on")
	require.EqualValues(c, 5, c.granted(begun, late.Add(interval)))
	require.EqualValues(c, 7, c.granted(begun, lifted.Add(interval)))
	c.windows(rate, interval)
}

// shorterThanInterval checks that permits that expire after the end of the cool-down stay in use.
func (c cooled) shorterThanInterval() {
	const rate, interval = 6, 3 * time.Second
	c.limited(overall, rate, interval)
	early := time.Now().Truncate(time.Millisecond) // scores are in whole milliseconds
	require.True(c, c.javaTries(2))
	time.Sleep(time.Second)
	late := time.Now().Truncate(time.Millisecond)
	c.spent(1)
	require.True(c, c.javaTries(1))
	begun, until := c.coolDown(time.Second)
	java := c.javaLoad(2, time.Until(late.Add(interval+underWay)), "1", "try")
	time.Sleep(300 * time.Millisecond)
	require.False(c, c.try(1).Granted, "of 2 that are left")
	java()
	c.none(begun, until)
	require.LessOrEqual(c, c.first(until), soonAfter)
	require.EqualValues(c, 2, c.granted(until, early.Add(interval)), "the four in use are so on")
	require.EqualValues(c, 4, c.granted(until, late.Add(interval)))
	require.EqualValues(c, 6, c.granted(until, until.Add(interval)))
	c.windows(rate, interval)
}

// isBlock reports whether m is a block added by a cool-down of ours, and not a grant.
func isBlock(m string) bool {
	return len(m) == 21 && (m[:4] == "\x10~c~" || m[:4] == "\x10~l~") || len(m) == 20 && (m[8:10] == "~c" || m[8:10] == "~l")
}
