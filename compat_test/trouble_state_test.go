// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// nilError is the error of Redisson's script when too few permits are left and no grant is in the set.
const nilError = "attempt to perform arithmetic"

// TestTroubleBrokenStates checks limiters that somebody else has broken, of rate 5: what Java alone does, however often it is
// called, and that after one call of ours, granted or rejected, Java gets what is free and no more.
func TestTroubleBrokenStates(t *testing.T) {
	eachTrouble(t, func(t trouble) {
		for _, c := range []struct {
			name      string
			taken     int
			spoil     func(l trouble) error
			java      func(l trouble) // Java alone
			ours      int64           // what we ask for then
			granted   bool
			left      int  // what Java gets then
			forgetful bool // Java alone has changed the state, so that we are called on another limiter
		}{
			{name: "set evicted", taken: 4, spoil: func(l trouble) error { return l.rdb.Del(l.Context(), l.permits()).Err() }, java: func(l trouble) {
				for range 3 {
					_, err := l.java.call("tryAcquire", l.name, 2)
					require.ErrorContains(l, err, nilError)
				}
			}, ours: 2, granted: true, left: 3},
			{name: "sent twice", taken: 2, spoil: func(l trouble) error { return l.rdb.DecrBy(l.Context(), l.value(), 2).Err() }, java: func(l trouble) {
				require.False(l, l.javaTries(2), "1 is left, 2 are used, 2 are lost")
			}, ours: 4, left: 3},
			{name: "value evicted", taken: 4, spoil: func(l trouble) error { return l.rdb.Del(l.Context(), l.value()).Err() }, java: func(l trouble) {
				require.True(l, l.javaTries(5), "9 permits of 5")
			}, ours: 2, left: 1, forgetful: true},
		} {
			broken := func() trouble {
				l := t.another(5, time.Hour)
				require.True(l, l.javaTries(c.taken))
				require.NoError(l, c.spoil(l))
				return l
			}
			l := broken()
			c.java(l)
			if c.forgetful {
				l = broken()
			}
			require.Equal(l, c.granted, l.try(c.ours).Granted, c.name)
			require.EqualValues(l, c.left, l.java.number(l, "availablePermits", l.name), c.name)
			require.False(l, l.javaTries(c.left+1), c.name)
			require.True(l, l.javaTries(c.left), c.name)
			l.requireWhole(5)
		}
	})
}

// TestTroubleFutureScores checks a limiter of which a client whose clock was a minute fast has taken all permits.
// Java waits for that minute. A caller of ours waits for one interval, and then Java works again too. The first look
// of our call only marks the grants, since it cannot know how long they have been there: so it is one Acquire, and
// not one Allow, that repairs the limiter.
func TestTroubleFutureScores(t *testing.T) {
	eachTrouble(t, func(t trouble) {
		const interval = 700 * time.Millisecond
		l := t.another(5, interval)
		require.True(t, l.javaTries(5))
		member := t.rdb.ZRange(t.Context(), l.permits(), 0, 0).Val()[0]
		ahead := float64(time.Now().Add(time.Minute).UnixMilli())
		require.NoError(t, t.rdb.ZAdd(t.Context(), l.permits(), redis.Z{Score: ahead, Member: member}).Err())

		require.False(t, t.java.truth(t, "tryAcquire", l.name, 1, 2*interval), "longer than an interval")
		call := l.javaWaiting(1)
		began := time.Now()
		r := l.try(1)
		require.False(t, r.Granted)
		require.InDelta(t, time.Minute, r.ClockSkew, float64(5*time.Second), "and it says why")
		require.NoError(t, l.limiter.Acquire(t.Context(), 1))
		require.GreaterOrEqual(t, time.Since(began), interval-10*time.Millisecond)
		require.Less(t, time.Since(began), 30*time.Second, "not the minute")
		require.True(t, l.javaTries(4))
		require.False(t, l.javaTries(1))
		time.Sleep(interval + 20*time.Millisecond)
		require.True(t, l.javaTries(5))

		// A call that was told to wait a minute sleeps on.
		require.True(t, call.running())
		require.True(t, redistest.Must(call.cancel())(t))
	})
}
