// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

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
		require.Len(c, l.Grants, 3-i)
		require.Zero(c, l.Rejected)
		for _, g := range l.Grants {
			require.False(c, g.at().Before(until), "returned %v before the end", until.Sub(g.at()))
			byJava = min(byJava, g.at().Sub(until))
		}
	}
	l := givesUp()
	require.EqualValues(c, 1, l.Rejected)
	require.Empty(c, l.Grants)
	c.none(begun, until)
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
	for _, g := range java.Grants {
		require.False(c, g.at().Before(until))
	}
	in := func(d time.Duration) int64 { return c.granted(until, until.Add(d)) }
	if over == 0 {
		require.GreaterOrEqual(c, in(time.Second), int64(rate))
	} else {
		require.LessOrEqual(c, in(100*time.Millisecond), int64(2)) // one every 100 ms
		require.LessOrEqual(c, in(500*time.Millisecond), int64(6))
		require.LessOrEqual(c, in(coolInterval), int64(9))
		require.GreaterOrEqual(c, in(time.Hour), int64(rate))
	}
	c.resumed(begun, until, rate)
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
	c.resumed(begun, longer, rate)
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
	require.NotEmpty(c, asks.Grants)
	require.Less(c, asks.Grants[0].at().Sub(at), until.Sub(at), "not at the end")
	require.False(c, c.rdb.HExists(c.Context(), c.name, "coolDown").Val())

	l := sleeps()
	require.Len(c, l.Grants, 1)
	require.Less(c, l.Grants[0].at().Sub(until), soonAfter)
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
