package ratelimiter

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/stretchr/testify/require"
)

func paced(permits int64, interval, gap time.Duration) Rate {
	return Rate{Permits: permits, Interval: interval, MinGap: gap}
}

func TestMinGap(t *testing.T) {
	t.Run("permits leave one by one", func(t *testing.T) {
		inWorld(t, paced(20, time.Second, 50*time.Millisecond), func(t *testing.T, w *world) {
			for i := range 45 {
				require.NoError(t, w.l.Acquire(w.ctx, 1))
				require.Equal(t, time.Duration(i)*50*time.Millisecond, w.elapsed(), i)
			}
		})
	})
	t.Run("a grant of n takes n gaps", func(t *testing.T) {
		inWorld(t, paced(20, time.Second, 10*time.Millisecond), func(t *testing.T, w *world) {
			w.granted(5)
			w.rejected(1, 50*time.Millisecond)
			w.at(49 * time.Millisecond)
			w.rejected(3, time.Millisecond)
			w.at(50 * time.Millisecond)
			w.granted(15)
			w.rejected(5, 950*time.Millisecond) // the window binds, not the gap
			w.at(time.Second)
			w.granted(5)
		})
	})
	t.Run("batched requests share the gap", func(t *testing.T) {
		inWorld(t, paced(20, time.Second, 50*time.Millisecond), func(t *testing.T, w *world) {
			a := w.ask(permit.Batch{ID: redisson.RandomID(), Runs: []permit.Run{{Permits: 1, Count: 10}, {Permits: 2, Count: 3}}})
			require.Equal(t, []int64{1, 0}, a.Granted)
			require.Equal(t, 50*time.Millisecond, a.Wait)
			require.EqualValues(t, 19, a.Available)
			require.EqualValues(t, permit.Done, a.Next)
			require.Equal(t, 50*time.Millisecond, a.Rate.MinGap)
		})
	})
	t.Run("the window still holds", func(t *testing.T) {
		inWorld(t, paced(3, time.Second, 10*time.Millisecond), func(t *testing.T, w *world) {
			for i := range 9 {
				require.NoError(t, w.l.Acquire(w.ctx, 1))
				require.Equal(t, time.Duration(i/3)*time.Second+time.Duration(i%3)*10*time.Millisecond, w.elapsed(), i)
			}
		})
	})
	t.Run("many processes", func(t *testing.T) {
		inWorld(t, paced(20, time.Second, 50*time.Millisecond), func(t *testing.T, w *world) {
			other := newWorld(t, w.rdb)
			defer other.client.Close()
			other.l = other.client.RateLimiter(w.l.Name())
			w.granted(1)
			other.rejected(1, 50*time.Millisecond)
		})
	})
	t.Run("a score ahead of the clock does not stop it", func(t *testing.T) {
		inWorld(t, paced(20, time.Second, 50*time.Millisecond), func(t *testing.T, w *world) {
			w.put(time.Hour, grant(2))
			w.setValue(18)
			w.granted(1)
			w.at(50 * time.Millisecond)
			w.granted(1)
		})
	})
	t.Run("set, changed, taken away", func(t *testing.T) {
		inWorld(t, Rate{}, func(t *testing.T, w *world) {
			r := paced(20, time.Second, 50*time.Millisecond)
			ok, err := w.l.TrySetRate(w.ctx, r)
			require.NoError(t, err)
			require.True(t, ok)
			got, err := w.l.Rate(w.ctx)
			require.NoError(t, err)
			require.Equal(t, r, got)
			require.Equal(t, "OVERALL 20/1s gap 50ms", got.String())
			w.granted(1)
			w.rejected(1, 50*time.Millisecond)
			r.MinGap = 0
			require.NoError(t, w.l.SetRate(w.ctx, r))
			w.granted(20)
			got, err = w.l.Rate(w.ctx)
			require.NoError(t, err)
			require.Equal(t, r, got)
			for _, gap := range []time.Duration{-1, time.Microsecond, time.Second + time.Millisecond} {
				r.MinGap = gap
				require.ErrorIs(t, w.l.SetRate(w.ctx, r), ErrInvalidArgument)
			}
		})
	})
}
