package ratelimiter

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWithRate checks that each call which acquires sets the rate that its handle carries where there is none, again after a
// flush, and that a limiter with a rate keeps it.
func TestWithRate(t *testing.T) {
	for name, acquire := range map[string]func(w *world, l *RateLimiter) (bool, error){
		"TryAcquire": func(w *world, l *RateLimiter) (bool, error) { return l.TryAcquire(w.ctx, 2, time.Second) },
		"Acquire":    func(w *world, l *RateLimiter) (bool, error) { return true, l.Acquire(w.ctx, 2) },
		"Allow":      func(w *world, l *RateLimiter) (bool, error) { r, err := l.Allow(w.ctx, 2); return r.Granted, err },
		"AcquireGrant": func(w *world, l *RateLimiter) (bool, error) {
			g, err := l.AcquireGrant(w.ctx, 2)
			return g != nil, err
		},
		"TryAcquireAll": func(w *world, l *RateLimiter) (bool, error) {
			r, err := w.client.TryAcquireAll(w.ctx, time.Second, Demand{l, 2}, Demand{w.client.RateLimiter(w.l.Name() + "2").WithRate(overall(9, time.Hour)), 1})
			return r.Granted, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
				l := w.client.RateLimiter(w.l.Name()).WithRate(Rate{PerClient, 5, time.Hour, 0, 0})
				ok, err := acquire(w, l)
				require.NoError(t, err)
				require.True(t, ok)
				r, err := l.Rate(w.ctx)
				require.NoError(t, err)
				require.Equal(t, overall(10, time.Minute), r, "it has a rate, and keeps it")
				for range 2 {
					_, err := w.l.Delete(w.ctx)
					require.NoError(t, err)
					_, err = w.client.RateLimiter(w.l.Name()).Allow(w.ctx, 1)
					require.ErrorIs(t, err, ErrNotInitialized, "a handle that carries none")
					ok, err := acquire(w, l)
					require.NoError(t, err)
					require.True(t, ok)
					n, err := l.AvailablePermits(w.ctx)
					require.NoError(t, err)
					require.EqualValues(t, 3, n)
				}
			})
		})
	}
}

// TestWithRateWaiting checks that callers that wait go on by the rate that is set again.
func TestWithRateWaiting(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		l := w.l.WithRate(overall(4, time.Minute))
		w.granted(1)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				ok, err := l.TryAcquire(w.ctx, 1, 30*time.Minute)
				require.NoError(t, err)
				require.True(t, ok)
				require.Less(t, w.elapsed(), 2*time.Minute)
			})
		}
		w.at(time.Minute)
		_, err := w.client.RateLimiter(w.l.Name()).Delete(w.ctx)
		require.NoError(t, err)
		wg.Wait()
		w.holds(w.l, 4, 3)
	})
}

func TestWithRateInvalid(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		_, err := w.l.WithRate(Rate{}).Allow(w.ctx, 1)
		require.ErrorIs(t, err, ErrInvalidArgument)
	})
}
