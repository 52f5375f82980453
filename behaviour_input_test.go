package ratelimiter

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These are the rows of docs/compatibility.md about arguments and settings; see behaviour_state_test.go.

// Redisson writes, drops the TTL, and returns 15 at a rate of 10.
func TestRow08_AvailablePermitsOnlyReads(t *testing.T) {
	inWorld(t, Rate{Permits: 10, Interval: time.Second, KeepAlive: time.Hour}, func(t *testing.T, w *world) {
		w.available(10)
		require.EqualValues(t, -1, w.value(), "created by a read")
		w.granted(4)
		w.at(time.Second)
		w.available(10)
		require.EqualValues(t, 6, w.value())
		require.Positive(t, w.rdb.PTTL(w.ctx, w.valueKey()).Val())
		w.setValue(15)
		w.available(10)
		w.granted(1)
		w.setValue(-20)
		w.available(9) // the number that the next acquire corrects it to
		w.at(time.Second + 500*time.Millisecond)
		w.granted(9)
	})
	t.Run("large", func(t *testing.T) {
		inWorld(t, overall(10_000, time.Minute), func(t *testing.T, w *world) {
			w.fill(0, 2500)
			w.fill(30*time.Second, 3500)
			w.setValue(4000)
			w.available(4000)
			w.at(time.Minute)
			w.available(6500)
			w.at(2 * time.Minute)
			w.available(10_000)
		})
	})
}

// In Redisson tryAcquire(0), (−5) and (2³²+1) corrupt the state.
func TestRow10_PermitsOutOfRange(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(3)
		sent := count(w.rdb)
		for _, n := range []int64{0, -5, math.MinInt64, 1 << 32, 1<<32 + 1, math.MaxInt64} {
			_, err := w.l.Allow(w.ctx, n)
			require.ErrorIs(t, err, ErrInvalidArgument)
			_, err = w.l.TryAcquire(w.ctx, n, time.Second)
			require.ErrorIs(t, err, ErrInvalidArgument)
			require.ErrorIs(t, w.l.Acquire(w.ctx, n), ErrInvalidArgument)
			require.ErrorIs(t, w.l.Release(w.ctx, n), ErrInvalidArgument)
		}
		require.Zero(t, sent.sent.Load())
		for _, n := range []int64{11, 1<<32 - 1} {
			_, err := w.l.TryAcquire(w.ctx, n, time.Hour)
			require.ErrorIs(t, err, ErrPermitsExceedRate)
			require.ErrorContains(t, err, "rate is 10")
		}
		require.Zero(t, w.elapsed())
		require.EqualValues(t, 7, w.value())
	})
}

// Redisson accepts a rate of 0 or less, and fails in DECRBY from 1e17 on.
func TestRow11_RatesOutOfRange(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		sent := count(w.rdb)
		for _, r := range []Rate{
			{Permits: 0, Interval: time.Second},
			{Permits: -1, Interval: time.Second},
			{Permits: 1 << 32, Interval: time.Second},
			{Permits: 1e17, Interval: time.Second},
			{Permits: 1},
			{Permits: 1, Interval: -time.Second},
			{Permits: 1, Interval: time.Millisecond - 1},
			{Permits: 1, Interval: time.Second + time.Microsecond},
			{Permits: 1, Interval: time.Second, KeepAlive: -time.Second},
			{Permits: 1, Interval: time.Second, KeepAlive: time.Second - time.Millisecond},
			{Permits: 1, Interval: time.Second, KeepAlive: time.Minute + time.Nanosecond},
			{Type: 2, Permits: 1, Interval: time.Second},
			{Type: -1, Permits: 1, Interval: time.Second},
		} {
			_, err := w.l.TrySetRate(w.ctx, r)
			require.ErrorIs(t, err, ErrInvalidArgument, "%v", r)
			require.ErrorIs(t, w.l.SetRate(w.ctx, r), ErrInvalidArgument)
			_, err = w.l.UpdateRate(w.ctx, r)
			require.ErrorIs(t, err, ErrInvalidArgument)
		}
		require.Zero(t, sent.sent.Load())
		require.NoError(t, w.l.SetRate(w.ctx, Rate{Permits: 1<<32 - 1, Interval: time.Millisecond, KeepAlive: time.Hour}))
		w.granted(1<<32 - 1)
		w.rejected(1<<32-1, time.Millisecond)
		w.at(time.Millisecond)
		w.granted(1<<32 - 2)
		w.granted(1)
	})
	t.Run("written by others", func(t *testing.T) {
		inWorld(t, Rate{}, func(t *testing.T, w *world) {
			for _, h := range [][3]string{{"0", "1000", "0"}, {"-5", "1000", "0"}, {"10", "0", "0"}, {"10", "1.5", "0"},
				{"ten", "1000", "0"}, {"inf", "1000", "0"}, {"1e300", "1000", "0"}, {"10", "1000", "2"}, {"10", "1000", "x"}, {"9223372036854775807", "1000", "0"}, {"10", "9223372036854775807", "0"}} {
				require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "rate", h[0], "interval", h[1], "type", h[2]).Err())
				_, err := w.l.Allow(w.ctx, 1)
				require.ErrorIs(t, err, ErrMalformed, "%v", h)
				if h[2] == "0" { // a rate of Long.MAX_VALUE is a positive whole number
					require.ErrorContains(t, err, "is not a whole number from 1 to 2^53", "%v", h)
				}
				_, err = w.l.Rate(w.ctx)
				require.ErrorIs(t, err, ErrMalformed, "%v", h)
				_, err = w.l.TryAcquire(w.ctx, 1, time.Hour)
				require.ErrorIs(t, err, ErrMalformed, "%v", h)
				require.EqualValues(t, -1, w.value())
			}
		})
	})
}

// Redisson leaves the keys of the other type.
func TestRow12_SetRateDeletesBothTypes(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		exists := func(typ RateType) int64 {
			return w.rdb.Exists(w.ctx, w.l.redis.Keys.Value[typ], w.l.redis.Keys.Permits[typ]).Val()
		}
		w.granted(10)
		require.EqualValues(t, 2, exists(Overall))
		require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: PerClient, Permits: 10, Interval: time.Second}))
		require.Zero(t, exists(Overall))
		w.granted(10)
		require.EqualValues(t, 2, exists(PerClient))
		ok, err := w.l.UpdateRate(w.ctx, overall(10, time.Second), KeepState())
		require.NoError(t, err)
		require.True(t, ok)
		require.Zero(t, exists(PerClient))
		w.granted(10)
	})
	// The permits of another client have keys that cannot be named; they adapt after its rate has changed.
	t.Run("other clients", func(t *testing.T) {
		inWorld(t, Rate{Type: PerClient, Permits: 100, Interval: time.Second}, func(t *testing.T, w *world) {
			peer := newWorld(t, w.rdb)
			peer.l = peer.client.RateLimiter(w.l.Name())
			peer.granted(60)
			require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: PerClient, Permits: 20, Interval: time.Second}))
			peer.available(0) // 40 left of 100, 60 in use: over 20
			peer.rejected(1, time.Second)
			peer.at(time.Second)
			peer.granted(20)
			peer.rejected(1, time.Second)
			require.NoError(t, w.l.SetRate(w.ctx, Rate{Type: PerClient, Permits: 50, Interval: time.Second}))
			peer.at(2*time.Second + time.Millisecond)
			peer.granted(50)
		})
	})
}
