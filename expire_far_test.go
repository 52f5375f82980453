package ratelimiter

import (
	"math"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestExpireAtFarAway checks that an instant which milliseconds cannot count is rejected and deletes nothing, and that
// every instant in the past deletes the limiter, however long ago it is.
func TestExpireAtFarAway(t *testing.T) {
	inWorld(t, overall(3, time.Second), func(t *testing.T, w *world) {
		sent := count(w.rdb)
		for _, at := range []time.Time{
			time.Unix(1<<63-62135596801, 999_999_999), // the last time.Time
			time.Unix(math.MaxInt64, 0),
			time.UnixMilli(math.MaxInt64),
			time.UnixMilli(1<<53 + 1),
		} {
			ok, err := w.l.ExpireAt(w.ctx, at)
			require.ErrorIs(t, err, ErrInvalidArgument, "%v", at)
			require.False(t, ok)
		}
		require.Zero(t, sent.sent.Load())
		exists, err := w.l.Exists(w.ctx)
		require.NoError(t, err)
		require.True(t, exists)
		for _, at := range []time.Time{time.Unix(0, 0), time.UnixMilli(-1), time.UnixMilli(math.MinInt64), time.Date(-300_000_000, 1, 1, 0, 0, 0, 0, time.UTC)} {
			require.NoError(t, w.l.SetRate(w.ctx, overall(3, time.Second)))
			ok, err := w.l.ExpireAt(w.ctx, at)
			require.NoError(t, err, "%v", at)
			require.True(t, ok)
			exists, err := w.l.Exists(w.ctx)
			require.NoError(t, err)
			require.False(t, exists, "%v", at)
		}
	})
}

// TestTTLLongerThanADuration checks the operations of limiters that expire later than a time.Duration can tell, such as
// at the end of the year 9999, or as late as Redis allows, which Java's new Date(Long.MAX_VALUE) is.
func TestTTLLongerThanADuration(t *testing.T) {
	redistest.NeedReal(t)
	longest := time.Duration(math.MaxInt64).Truncate(time.Millisecond)
	for _, typ := range []RateType{Overall, PerClient} {
		for _, at := range []int64{253_402_300_799_000, 1 << 53, math.MaxInt64} {
			inWorld(t, Rate{Type: typ, Permits: 3, Interval: time.Hour}, func(t *testing.T, w *world) {
				require.NoError(t, w.rdb.Do(w.ctx, "PEXPIREAT", w.l.redis.Keys.Hash, at).Err())
				ttl, err := w.l.TTL(w.ctx)
				require.NoError(t, err)
				require.Equal(t, longest, ttl)
				expires, err := w.l.ExpireTime(w.ctx)
				require.NoError(t, err)
				require.False(t, expires.IsZero())
				require.GreaterOrEqual(t, expires.UnixMilli(), min(at, 1<<53))
				state, err := w.l.Inspect(w.ctx)
				require.NoError(t, err)
				require.Equal(t, longest, state.HashTTL)

				w.granted(2)
				other := w.l.client.RateLimiter(w.l.Name() + "-other")
				defer other.Delete(w.ctx)
				require.NoError(t, other.SetRate(w.ctx, Rate{Type: typ, Permits: 3, Interval: time.Hour}))
				a, err := w.l.client.TryAcquireAll(w.ctx, 0, Demand{w.l, 1}, Demand{other, 1})
				require.NoError(t, err)
				require.True(t, a.Granted)
				w.rejected(1, time.Hour)
				require.NoError(t, w.l.Release(w.ctx, 1))
				require.EqualValues(t, 1, w.value())
				require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: typ, Permits: 4, Interval: time.Hour}, KeepState()))
				w.granted(1)
				require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Minute)))
				lifted, err := w.l.LiftCoolDown(w.ctx)
				require.NoError(t, err)
				require.True(t, lifted)
				w.granted(1)
				for _, key := range keysOf(w.l, typ) {
					left, err := w.rdb.Do(w.ctx, "PTTL", key).Int64()
					require.NoError(t, err)
					require.Greater(t, left, int64(200_000_000_000_000), key)
				}
				_, err = w.l.ClearExpire(w.ctx)
				require.NoError(t, err)
			})
		}
	}
}
