// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

const coolInterval = 800 * time.Millisecond

// coolDowns are the scenes in which nobody gets a permit before a cool-down of ours ends, by whichever call of Redisson's. A
// client of 3.13.4 has its own.
var coolDowns = []struct {
	name string
	play func(s *scene)
	want func(version) bool
}{
	{"callers that wait", func(s *scene) { s.callersThatWait("0") }, every},
	{"callers that wait, per client", func(s *scene) { s.callersThatWait("1") }, every},
	{"re-opens gradually", (*scene).reopens, every},
	{"the longest wins", (*scene).longestWins, every},
	{"lifted", (*scene).lifted, every},
	{"lifted within the interval", (*scene).liftedSoon, every},
	{"shorter than the interval", (*scene).shorterThanInterval, every},
	{"setRate by Redisson", (*scene).setRateByRedisson, every},
	{"release by Redisson", (*scene).releaseByRedisson, from("3.52.0")},
	{"keep-alive", (*scene).keepAlive, from("3.38.0")},
	{"delete by Redisson", (*scene).deleteByRedisson, every},
}

// TestCoolDown plays them.
func TestCoolDown(t *testing.T) {
	t.Parallel()
	for _, c := range coolDowns {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eachJar(t, c.play, from("3.15.5"), c.want)
		})
	}
}

// coolDown begins a cool-down of d and returns its end.
func (s *scene) coolDown(d time.Duration, opts ...ratelimiter.CoolDownOption) (until time.Time) {
	s.Helper()
	until = time.Now().Add(d)
	require.NoError(s, s.limiter.CoolDown(s.Context(), until, opts...))
	return until
}

// closed checks that neither side gets a permit now, that both report that none is available, and that we tell until when.
func (s *scene) closed(until time.Time) {
	s.Helper()
	r := s.try(1)
	require.False(s, r.Granted)
	require.Zero(s, r.Available)
	require.Equal(s, time.Until(until), r.Wait)
	require.Equal(s, until.UnixMilli(), redistest.Must(s.limiter.Admin().CoolDownUntil(s.Context()))(s).UnixMilli())
	require.Zero(s, redistest.Must(s.limiter.AvailablePermits(s.Context()))(s))
	require.False(s, s.java(1))
	require.Equal(s, "0", s.javaLeft())
	require.False(s, s.java(1), "availablePermits writes")
}

// closedUntil checks that from now until the last millisecond, and is back at the end.
func (s *scene) closedUntil(until time.Time) {
	s.Helper()
	for ; time.Until(until) > 20*time.Millisecond; time.Sleep(20 * time.Millisecond) {
		s.closed(until)
	}
	time.Sleep(time.Until(until) - time.Millisecond)
	s.closed(until)
	time.Sleep(time.Millisecond)
}

// callersThatWait checks callers of both sides that are waiting when the cool-down begins.
func (s *scene) callersThatWait(typ string) {
	const rate = 12
	s = s.another(typ, rate, coolInterval)
	require.True(s, s.java(rate/2))
	require.True(s, s.try(rate/2).Granted)
	java := waits(5, func() { s.javaWaits(1) })
	ours := waits(5, func() { assert.NoError(s, s.limiter.Acquire(s.Context(), 1)) })
	time.Sleep(300 * time.Millisecond)
	until := s.coolDown(3 * time.Second)
	s.closedUntil(until)
	for _, at := range append(java(), ours()...) {
		require.False(s, at.Before(until), "served %v before the end", until.Sub(at))
		require.Less(s, at.Sub(until), 10*time.Millisecond)
	}
	require.True(s, s.java(2))
	require.False(s, s.java(1))
	s.wholeAgain(rate, coolInterval)
}

// reopens checks that Redisson gets the permits back gradually, over two seconds.
func (s *scene) reopens() {
	const rate, over = 20, 2 * time.Second
	s = s.another("0", rate, coolInterval)
	require.True(s, s.java(rate/2))
	s.closedUntil(s.coolDown(1500*time.Millisecond, ratelimiter.Reopen(over)))
	for end := time.Now().Add(coolInterval); time.Now().Before(end); {
		s.free(1, time.Now().Add(over/rate))
	}
	time.Sleep(over)
	s.wholeAgain(rate, coolInterval)
}

func (s *scene) longestWins() {
	s = s.another("0", 5, coolInterval)
	until := s.coolDown(1800 * time.Millisecond)
	s.coolDown(400 * time.Millisecond)
	s.closed(until)
	time.Sleep(600 * time.Millisecond)
	s.closedUntil(s.coolDown(2 * time.Second))
	require.True(s, s.java(5))
	s.wholeAgain(5, coolInterval)
}

// lifted checks that requests are granted again once the cool-down is lifted. A caller of Redisson's that was told to sleep
// until the end still sleeps until then, since nothing wakes it.
func (s *scene) lifted() {
	s = s.another("0", 5, coolInterval)
	require.True(s, s.java(5))
	java := waits(1, func() { s.javaWaits(1) })
	ours := waits(1, func() { assert.NoError(s, s.limiter.Acquire(s.Context(), 1)) })
	until := s.coolDown(4 * time.Second)
	time.Sleep(1500 * time.Millisecond)
	s.closed(until)
	require.True(s, redistest.Must(s.limiter.Admin().LiftCoolDown(s.Context()))(s))
	require.Zero(s, time.Since(ours()[0]))
	require.True(s, s.java(4))
	require.False(s, s.java(1))
	require.Less(s, java()[0].Sub(until).Abs(), 10*time.Millisecond)
	s.wholeAgain(5, coolInterval)
}

// liftedSoon checks that what was free is free at once when the cool-down is lifted early, and that what was granted within
// the interval comes back when it would have done so anyway. If it came back at once, there would be a second burst.
func (s *scene) liftedSoon() {
	const interval = 3 * time.Second
	s = s.another("0", 7, interval)
	early := time.Now()
	require.True(s, s.java(3))
	time.Sleep(time.Second)
	late := time.Now()
	require.True(s, s.java(2))
	until := s.coolDown(time.Hour)
	time.Sleep(300 * time.Millisecond)
	s.closed(until)
	require.True(s, redistest.Must(s.limiter.Admin().LiftCoolDown(s.Context()))(s))
	s.free(2, early.Add(interval))
	s.free(3, late.Add(interval))
	s.free(2, late.Add(interval+300*time.Millisecond))
	s.wholeAgain(7, interval)
}

// free checks that Redisson gets so many permits now, and that nobody gets more before until.
func (s *scene) free(permits int64, until time.Time) {
	s.Helper()
	require.True(s, s.java(permits))
	for _, d := range []time.Duration{0, time.Until(until) - time.Millisecond} {
		time.Sleep(d)
		require.False(s, s.java(1))
		require.False(s, s.try(1).Granted)
	}
	time.Sleep(time.Millisecond)
}

// shorterThanInterval checks that permits that expire after the end of the cool-down stay in use.
func (s *scene) shorterThanInterval() {
	const interval = 3 * time.Second
	s = s.another("0", 6, interval)
	early := time.Now()
	require.True(s, s.java(2))
	time.Sleep(time.Second)
	late := time.Now()
	require.True(s, s.try(1).Granted)
	require.True(s, s.java(1))
	until := s.coolDown(time.Second)
	s.closedUntil(until)
	s.free(2, early.Add(interval))
	s.free(2, late.Add(interval))
	s.free(2, until.Add(interval))
	s.wholeAgain(6, interval)
}

// setRateByRedisson checks that what a setRate of Redisson's frees is blocked again by our next call. One of ours keeps the
// cool-down.
func (s *scene) setRateByRedisson() {
	const rate = 8
	s = s.another("0", 5, coolInterval)
	require.True(s, s.try(5).Granted)
	until := s.coolDown(3 * time.Second)
	require.Equal(s, "null", s.redisson(twinOp{name: "setRate", typ: "0", rate: rate, interval: coolInterval.Milliseconds()}).word)
	require.True(s, s.java(1), "which is why it says so")
	s.closedUntil(until)
	require.True(s, s.java(rate))
	until = s.coolDown(1200 * time.Millisecond)
	require.NoError(s, s.limiter.SetRate(s.Context(), ratelimiter.Rate{Permits: rate, Interval: coolInterval}))
	require.False(s, s.java(1))
	s.closedUntil(until)
	s.wholeAgain(rate, coolInterval)
}

func (s *scene) releaseByRedisson() {
	s = s.another("0", 5, coolInterval)
	require.True(s, s.java(5))
	until := s.coolDown(2500 * time.Millisecond)
	require.Equal(s, "null", s.redisson(twinOp{name: "release", permits: 2}).word)
	s.closed(until) // our client calls first
	require.NoError(s, s.limiter.Release(s.Context(), 2))
	require.False(s, s.java(1))
	s.closedUntil(until)
	s.free(5, until.Add(coolInterval)) // and not 7
	s.wholeAgain(5, coolInterval)
}

func (s *scene) deleteByRedisson() {
	s = s.another("0", 5, coolInterval)
	s.closed(s.coolDown(time.Hour))
	require.Equal(s, "true", s.redisson(twinOp{name: "delete"}).word)
	require.Zero(s, s.rdb.Exists(s.Context(), s.keys()...).Val())
	require.Equal(s, "true", s.redisson(twinOp{name: "trySetRate", typ: "0", rate: 5, interval: coolInterval.Milliseconds()}).word)
	require.True(s, s.java(2))
	require.True(s, s.try(3).Granted)
	require.Zero(s, redistest.Must(s.limiter.Admin().CoolDownUntil(s.Context()))(s))
	s.wholeAgain(5, coolInterval)
}

// keepAlive checks that the limiter does not expire before the cool-down is over: our calls give it a TTL that is long enough.
// A call of Redisson's sets it back to the keep-alive, so that the limiter then lasts only as long as it is used.
func (s *scene) keepAlive() {
	s = s.another("0", 5, coolInterval)
	require.Equal(s, "null", s.redisson(twinOp{name: "setRate", typ: "0", rate: 5, interval: coolInterval.Milliseconds(), keepAlive: 60_000}).word)
	require.True(s, s.java(5))
	until := s.coolDown(time.Hour)
	ttl := func() time.Duration { return s.rdb.PTTL(s.Context(), s.name).Val() }
	require.Greater(s, ttl(), 59*time.Minute)
	require.False(s, s.java(1))
	require.LessOrEqual(s, ttl(), time.Minute)
	require.False(s, s.try(1).Granted)
	require.Greater(s, ttl(), 59*time.Minute)
	s.closed(until)
}
