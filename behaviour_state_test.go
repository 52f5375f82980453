package ratelimiter

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// These are the rows of docs/compatibility.md that concern one call. Each test is a state or an operation for
// which Redisson's own script returns something else, and fails if we return that.

// Redisson fails forever with "attempt to perform arithmetic on a nil value" (issues 4680, 2987).
func TestRow01_ValueShortWithEmptySet(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		for i, v := range []any{0, 3, -7, "garbage", "2.5", "nan"} {
			require.NoError(t, w.rdb.Del(w.ctx, w.permitsKey()).Err())
			w.setValue(v)
			w.available(10)
			sent := count(w.rdb)
			w.granted(10)
			if i > 0 { // the first call may send the texts of both scripts
				require.LessOrEqual(t, sent.sent.Load(), int64(4), "found, healed and asked again")
			}
			require.Zero(t, w.value())
			w.rejected(1, time.Second)
		}
	})
}

// After a lost reply the call is sent again and returns what the first one was granted.
func TestRow02_ReplayAnswersWhatWasGranted(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		send := func(id permit.ID, permits, n int64, b permit.Batch) permit.Reply {
			b.ID, b.Runs = id, []permit.Run{{Permits: permits, Count: n}}
			return w.ask(b)
		}
		first, replay := permit.Batch{}, permit.Batch{Replay: true}
		for _, again := range []permit.Batch{replay, {Replay: true, Check: true}} {
			require.NoError(t, w.l.SetRate(w.ctx, overall(10, time.Second)))
			id := redisson.RandomID()
			require.EqualValues(t, 3, send(id, 3, 4, first).Granted[0]) // 3 of 4 requests: 9 permits
			for range 5 {
				r := send(id, 3, 4, again)
				require.EqualValues(t, 3, r.Granted[0])
				require.Equal(t, time.Second, r.Wait)
				require.EqualValues(t, 1, r.Available)
			}
			require.EqualValues(t, 1, w.value())
			used, members := w.used()
			require.EqualValues(t, 9, used)
			require.Equal(t, 1, members)
		}
		// Also if a release has made the grant smaller in the meantime.
		for _, n := range []int64{1, 4} {
			require.NoError(t, w.l.SetRate(w.ctx, overall(10, time.Second)))
			id := redisson.RandomID()
			require.EqualValues(t, n, send(id, 2, n, first).Granted[0])
			require.NoError(t, w.l.Release(w.ctx, 1))
			require.EqualValues(t, n, send(id, 2, n, replay).Granted[0])
			w.available(10 - 2*n + 1)
		}
		// Also if nothing marks it as a replay, as with a proxy that sends again.
		require.NoError(t, w.l.SetRate(w.ctx, overall(10, time.Second)))
		id := redisson.RandomID()
		begin := time.Now()
		for range 5 {
			require.EqualValues(t, 1, send(id, 4, 1, first).Granted[0])
			time.Sleep(10 * time.Millisecond)
		}
		require.EqualValues(t, 6, w.value())
		z := w.rdb.ZRangeWithScores(w.ctx, w.permitsKey(), 0, -1).Val()
		require.Len(t, z, 1)
		require.EqualValues(t, begin.UnixMilli(), z[0].Score, "granted when it first ran")
	})
}

// Redisson allows a second full burst.
func TestRow03_ValueEvicted(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(7)
		w.at(400 * time.Millisecond)
		require.NoError(t, w.rdb.Del(w.ctx, w.valueKey()).Err())
		w.available(3)
		w.rejected(4, 600*time.Millisecond)
		w.granted(3)
		w.at(time.Second)
		w.granted(7)
		w.rejected(1, 400*time.Millisecond)
	})
	t.Run("large", func(t *testing.T) {
		inWorld(t, overall(10_000, time.Minute), func(t *testing.T, w *world) {
			w.fill(0, 3000)
			require.NoError(t, w.rdb.Del(w.ctx, w.valueKey()).Err())
			w.available(7000)
			w.rejected(7001, time.Minute)
			w.granted(7000)
			require.Zero(t, w.value())
			used, _ := w.used()
			require.EqualValues(t, 10_000, used)
		})
	})
}

// In Redisson five lost replies turn 10/s into 5/s for good.
func TestRow04_LeakedCapacityComesBack(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(3)
		w.setValue(2) // five permits are lost
		w.available(7)
		w.granted(7)
		require.Zero(t, w.value())
		w.rejected(1, time.Second)
		// Also if waiting for the permits in use would be enough.
		require.NoError(t, w.l.SetRate(w.ctx, overall(10, time.Second)))
		w.at(time.Second) // an interval after the last check
		w.granted(3)
		w.setValue(0)
		w.granted(1)
		require.EqualValues(t, 6, w.value())
		w.granted(6)
		// A check is made once an interval, so a second loss within it waits for the next one.
		w.setValue(-3)
		w.rejected(3, time.Second)
		w.at(2*time.Second + time.Millisecond)
		w.granted(10)
	})
	t.Run("large", func(t *testing.T) {
		inWorld(t, overall(10_000, time.Minute), func(t *testing.T, w *world) {
			w.fill(0, 3000)
			w.setValue(10)
			w.granted(11)
			require.EqualValues(t, 6989, w.value())
		})
	})
	// The set changes while it is counted, of which one call reads only so many members.
	t.Run("counting starts over", func(t *testing.T) {
		inWorld(t, overall(10_000, time.Minute), func(t *testing.T, w *world) {
			const step = 1000
			w.fill(0, 3*step)
			w.setValue(7000 - 5)
			one := func(state redisson.HealState) (redisson.HealState, bool) {
				next, done, err := w.l.redis.HealStep(w.ctx, permit.Overall, permit.Checked, step, state)
				require.NoError(t, err)
				return next, done
			}
			members := w.rdb.ZRange(w.ctx, w.permitsKey(), 0, -1).Val()
			for name, gone := range map[string]string{
				"the newest counted": members[len(members)-1],
				"the oldest counted": members[len(members)-step],
				"one between":        members[len(members)-7],
			} {
				first, done := one(nil)
				require.False(t, done)
				require.NoError(t, w.rdb.ZRem(w.ctx, w.permitsKey(), gone).Err())
				again, done := one(first)
				require.False(t, done)
				require.Nil(t, again, name)
				w.put(0, []byte(gone))
			}
			// Members that are added above or removed below the cursor are counted right.
			first, _ := one(nil)
			w.put(time.Second, grant(9))
			require.NoError(t, w.rdb.ZRem(w.ctx, w.permitsKey(), members[0], members[1]).Err())
			next, done := one(first)
			require.False(t, done)
			next, done = one(next)
			require.False(t, done, "the new one lies ahead of the clock, and is marked")
			_, done = one(next)
			require.True(t, done)
			used, _ := w.used()
			require.EqualValues(t, 3000-2+9-(-5-2+9), used, "what is too much")
			w.settled(10_000)
		})
	})
}

// In Redisson the wait is that of the oldest member, whatever n is.
func TestRow05_WaitUntilAllPermitsAreFree(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		for i := range 10 {
			w.at(time.Duration(i) * 50 * time.Millisecond)
			w.granted(1)
		}
		for n := int64(1); n <= 10; n++ {
			w.rejected(n, 550*time.Millisecond+time.Duration(n-1)*50*time.Millisecond)
		}
		sent := count(w.rdb)
		ok, err := w.l.TryAcquire(w.ctx, 10, time.Minute)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, 1450*time.Millisecond, w.elapsed())
		require.LessOrEqual(t, sent.sent.Load(), int64(3))
	}, WithRecheck(time.Minute))
	t.Run("walks on over more members than one call reads", func(t *testing.T) {
		inWorld(t, overall(3000, time.Minute), func(t *testing.T, w *world) {
			for i := range 3 {
				w.at(time.Duration(i) * time.Second)
				w.fill(w.elapsed(), 1000)
			}
			w.setValue(0)
			w.rejected(1, 58*time.Second)
			w.rejected(1000, 58*time.Second)
			w.rejected(1001, 59*time.Second)
			w.rejected(2500, 60*time.Second)
			w.rejected(3000, 60*time.Second)
			r := w.ask(permit.Batch{Runs: []permit.Run{{Permits: 2500, Count: 1}}})
			require.EqualValues(t, permit.On, r.Next)
			require.EqualValues(t, 512, r.Cursor.Members, "a call walks no further")
		})
	})
}

// Redisson reclaims everything at once, which blocks Redis for 149 ms at 100,000 members.
func TestRow07_ReclaimIsBounded(t *testing.T) {
	inWorld(t, overall(4000, time.Second), func(t *testing.T, w *world) {
		w.fill(0, 4000)
		w.setValue(0)
		w.at(time.Second)
		w.available(4000)
		card := func() int64 { return w.rdb.ZCard(w.ctx, w.permitsKey()).Val() }
		w.granted(1) // needs one; 64 are reclaimed at a time
		require.EqualValues(t, 4000-64+1, card())
		require.EqualValues(t, 63, w.value())
		w.granted(1) // needs none
		require.EqualValues(t, 4000-64-64+2, card())
		w.available(3998)
		w.granted(3998) // needs all: several calls for one request
		require.Zero(t, w.value())
		w.rejected(1, time.Second)
	})
}

// In Redisson the permits come back a second time when their member expires (issues 7329, 7342).
func TestRow09_ReleaseTakesTheNewest(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(4)
		w.at(300 * time.Millisecond)
		w.granted(4)
		require.NoError(t, w.l.Release(w.ctx, 6))
		w.available(8)
		used, members := w.used()
		require.EqualValues(t, 2, used)
		require.Equal(t, 1, members)
		w.granted(8)
		w.at(time.Second)
		w.available(2) // the two of the first grant, and not four
		w.granted(2)
		w.rejected(1, 300*time.Millisecond)
		w.at(1300 * time.Millisecond)
		w.granted(8)
		// A release of more than is in use gives back what is in use.
		require.NoError(t, w.l.Release(w.ctx, 1000))
		w.available(10)
		require.EqualValues(t, 10, w.value())
		require.NoError(t, w.l.Release(w.ctx, 1))
		require.EqualValues(t, 10, w.value())
	})
	t.Run("large", func(t *testing.T) {
		inWorld(t, overall(10_000, time.Minute), func(t *testing.T, w *world) {
			w.fill(0, 5000)
			w.setValue(5000)
			require.NoError(t, w.l.Release(w.ctx, 4321))
			w.available(9321)
			used, members := w.used()
			require.EqualValues(t, 679, used)
			require.Equal(t, 679, members)
		})
	})
}

// Redisson 4.4.0 leaves all members, and each one that expires frees a permit that the lower rate does not
// have: up to the old rate within one interval.
func TestRow18_LowerRateKeepingState(t *testing.T) {
	inWorld(t, overall(100, time.Second), func(t *testing.T, w *world) {
		for i := range 50 {
			w.at(time.Duration(i) * 10 * time.Millisecond)
			w.granted(2)
		}
		ok, err := w.l.UpdateRate(w.ctx, overall(5, time.Second), KeepState())
		require.NoError(t, err)
		require.True(t, ok)
		used, _ := w.used()
		require.EqualValues(t, 5, used)
		w.available(0)
		w.rejected(1, 980*time.Millisecond) // until 4 of the last 5 are left
		for w.elapsed() < 1400*time.Millisecond {
			time.Sleep(10 * time.Millisecond)
			r := w.try(1)
			require.False(t, r.Granted, "at %v", w.elapsed())
		}
		w.at(1500 * time.Millisecond)
		w.granted(5)
		w.rejected(1, time.Second)
	})
	t.Run("large", func(t *testing.T) {
		inWorld(t, overall(10_000, time.Minute), func(t *testing.T, w *world) {
			w.fill(0, 5000)
			w.setValue(5000)
			w.at(time.Second)
			w.granted(7)
			require.NoError(t, w.l.SetRate(w.ctx, overall(6000, time.Minute), KeepState()))
			w.available(993)
			require.NoError(t, w.l.SetRate(w.ctx, overall(600, time.Minute), KeepState()))
			w.available(0)
			used, members := w.used()
			require.EqualValues(t, 600, used)
			require.Equal(t, 594, members)
			w.rejected(1, 59*time.Second)
			w.rejected(600, time.Minute)
		})
	})
}

// fill adds n members of one permit each, d after the world began.
func (w *world) fill(d time.Duration, n int) {
	w.t.Helper()
	zs := make([]redis.Z, n)
	for i := range zs {
		zs[i] = redis.Z{Score: float64(w.epoch.Add(d).UnixMilli()), Member: grant(1)}
	}
	require.NoError(w.t, w.rdb.ZAdd(w.ctx, w.permitsKey(), zs...).Err())
}
