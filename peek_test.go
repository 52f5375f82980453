package ratelimiter

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
)

// The model's test checks what Peek returns in general; these are the edge cases.

func TestPeekTakesNothing(t *testing.T) {
	inWorld(t, overall(5, 10*time.Second), func(t *testing.T, w *world) {
		for range 3 {
			r, err := w.l.Peek(w.ctx, 5)
			require.NoError(t, err)
			require.True(t, r.Granted)
			require.Zero(t, r.Wait)
			require.EqualValues(t, 5, r.Available)
			require.Equal(t, overall(5, 10*time.Second), r.Rate)
			require.WithinDuration(t, time.Now(), r.Time, time.Millisecond)
		}
		_, members := w.used()
		require.Zero(t, members)
		w.granted(2)
		w.at(3 * time.Second)
		w.granted(2)
		r, err := w.l.Peek(w.ctx, 3)
		require.NoError(t, err)
		require.False(t, r.Granted)
		require.Equal(t, 7*time.Second, r.Wait)
		require.EqualValues(t, 1, r.Available)
		w.rejected(3, 7*time.Second)
		w.granted(1)
	})
}

// There are more members than one call walks, and the last one decides.
func TestPeekWalksALargeWindow(t *testing.T) {
	inWorld(t, overall(3000, time.Hour), func(t *testing.T, w *world) {
		for range 3000 {
			w.granted(1)
			time.Sleep(time.Millisecond)
		}
		r, err := w.l.Peek(w.ctx, 3000)
		require.NoError(t, err)
		require.False(t, r.Granted)
		require.Equal(t, time.Hour-time.Millisecond, r.Wait)
	})
}

func TestPeekInACoolDownAndWithAGap(t *testing.T) {
	rate := Rate{Permits: 5, Interval: 10 * time.Second, MinGap: 200 * time.Millisecond}
	inWorld(t, rate, func(t *testing.T, w *world) {
		w.granted(1)
		r, err := w.l.Peek(w.ctx, 1)
		require.NoError(t, err)
		require.False(t, r.Granted)
		require.Equal(t, rate.MinGap, r.Wait)
		require.Equal(t, rate, r.Rate)
		w.at(rate.MinGap)
		require.NoError(t, w.l.CoolDown(w.ctx, time.Now().Add(time.Minute)))
		r, err = w.l.Peek(w.ctx, 1)
		require.NoError(t, err)
		require.False(t, r.Granted)
		require.Equal(t, time.Minute, r.Wait)
	})
}

// A dashboard must not keep a limiter alive that nobody uses.
func TestPeekKeepsNothingAlive(t *testing.T) {
	rate := Rate{Permits: 5, Interval: time.Second, KeepAlive: 10 * time.Second}
	inWorld(t, rate, func(t *testing.T, w *world) {
		left := func(key string) time.Duration { return w.rdb.PTTL(w.ctx, key).Val().Round(time.Second) }
		w.granted(1)
		for _, key := range keysOf(w.l, w.typ()) {
			require.True(t, w.rdb.PExpire(w.ctx, key, 6*time.Second).Val())
		}
		_, err := w.l.Peek(w.ctx, 1)
		require.NoError(t, err)
		require.Equal(t, 6*time.Second, left(w.l.redis.Keys.Hash))
		require.Equal(t, 6*time.Second, left(w.valueKey()))
		w.granted(1)
		require.Equal(t, 10*time.Second, left(w.l.redis.Keys.Hash))
	})
}

func TestPeekErrors(t *testing.T) {
	inWorld(t, Rate{}, func(t *testing.T, w *world) {
		_, err := w.l.Peek(w.ctx, 1)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.NoError(t, w.l.SetRate(w.ctx, overall(5, time.Second)))
		for permits, want := range map[int64]error{0: ErrInvalidArgument, -1: ErrInvalidArgument, permit.Max + 1: ErrInvalidArgument,
			6: ErrPermitsExceedRate} {
			r, err := w.l.Peek(w.ctx, permits)
			require.ErrorIs(t, err, want, permits)
			require.Zero(t, r)
		}
		require.NoError(t, w.client.Close())
		_, err = w.l.Peek(w.ctx, 1)
		require.ErrorIs(t, err, ErrClosed)
	})
}

// No policy replaces what only Redis knows.
func TestPeekWithoutRedis(t *testing.T) {
	inWorld(t, overall(5, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		cutOff(w, refusedDial).down.Store(true)
		_, err := w.l.OnOutage(FailOpen()).Peek(w.ctx, 1)
		require.ErrorIs(t, err, ErrUnavailable)
	})
}
