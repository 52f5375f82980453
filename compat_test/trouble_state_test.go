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

// TestTroubleValueShortWithEmptySet checks a limiter whose permits set was evicted, or deleted by hand. Java fails at
// every call from then on, however long it waits; after one call of ours it works again.
func TestTroubleValueShortWithEmptySet(t *testing.T) {
	eachTrouble(t, func(t trouble) {
		const interval = 600 * time.Millisecond
		l := t.another(5, interval)
		require.True(t, l.javaTries(4))
		require.EqualValues(t, 1, t.rdb.Del(t.Context(), l.permits()).Val())
		for range 3 {
			_, err := t.java.call("tryAcquire", l.name, 2)
			require.ErrorContains(t, err, nilError)
			time.Sleep(interval / 2)
		}
		require.True(t, l.try(2).Granted)
		require.True(t, l.javaTries(3))
		require.False(t, l.javaTries(1))
		time.Sleep(interval + 20*time.Millisecond)
		require.True(t, l.javaTries(5))
	})
}

// TestTroubleLeakedCapacity checks a limiter on which a script of Redisson's was sent again and took its permits
// twice. Java never gets them back; one rejected call of ours raises the permits left.
func TestTroubleLeakedCapacity(t *testing.T) {
	eachTrouble(t, func(t trouble) {
		const interval = 700 * time.Millisecond
		l := t.another(5, interval)
		leak := func(permits int) {
			require.True(t, l.javaTries(permits))
			require.NoError(t, t.rdb.DecrBy(t.Context(), l.value(), int64(permits)).Err())
		}
		leak(2)
		time.Sleep(2*interval + 20*time.Millisecond)
		require.EqualValues(t, 3, t.java.number(t, "availablePermits", l.name))
		_, err := t.java.call("tryAcquire", l.name, 4)
		require.ErrorContains(t, err, nilError, "and what is left fails forever")

		require.True(t, l.try(5).Granted)
		require.False(t, l.javaTries(1))
		time.Sleep(interval + 20*time.Millisecond)
		require.EqualValues(t, 5, t.java.number(t, "availablePermits", l.name))

		// While a grant is live, a call of ours that is rejected gives back the permits that no grant holds.
		l = t.another(5, time.Hour)
		leak(2)
		require.False(t, l.javaTries(2), "1 is left, 2 are used, 2 are lost")
		require.False(t, l.try(4).Granted)
		require.EqualValues(t, 3, t.java.number(t, "availablePermits", l.name))
		require.True(t, l.javaTries(3))
		require.False(t, l.javaTries(1))
	})
}

// TestTroubleValueEvicted checks a limiter whose value was evicted: Java alone hands out a second burst, and after
// one call of ours it does not.
func TestTroubleValueEvicted(t *testing.T) {
	eachTrouble(t, func(t trouble) {
		evicted := func() trouble {
			l := t.another(5, time.Hour)
			require.True(t, l.javaTries(4))
			require.EqualValues(t, 1, t.rdb.Del(t.Context(), l.value()).Val())
			return l
		}
		require.True(t, evicted().javaTries(5), "9 permits of 5")
		l := evicted()
		require.False(t, l.try(2).Granted)
		require.False(t, l.javaTries(2))
		require.True(t, l.javaTries(1))
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
