package ratelimiter

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAllWithoutRedis checks lists of limiters during an outage. They are granted from the local shares all or
// nothing, at once or after a wait, and the grants are reconciled when Redis is back.
func TestAllWithoutRedis(t *testing.T) {
	inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
		other := w.client.RateLimiter(w.l.Name() + "other")
		require.NoError(t, other.SetRate(w.ctx, overall(10, 4*time.Second)))
		share := LocalShare(overall(4, time.Second), 2)
		near, far := w.l.OnOutage(share), other.OnOutage(share)
		demands := func(a, b int64) []Demand { return []Demand{{near, a}, {far, b}} }
		r, err := w.client.TryAcquireAll(w.ctx, 0, demands(1, 1)...) // both rates become known
		require.NoError(t, err)
		require.Equal(t, AllResult{Granted: true}, r)
		for _, l := range []*RateLimiter{near, far} {
			_, err := l.Try(w.ctx, 1)
			require.NoError(t, err)
		}
		c := cutOff(w, refusedDial)
		goesAway(w, c)
		begun, _ := w.l.handle.Health().Since()
		at := func(d time.Duration) { time.Sleep(time.Until(begun.Add(d))) }

		r, err = w.client.TryAcquireAll(w.ctx, 0, demands(1, 1)...)
		require.NoError(t, err)
		require.Equal(t, AllResult{Limiter: far, Wait: 4 * time.Second, Degraded: true}, r)
		r, err = w.client.TryAcquireAll(w.ctx, time.Second, demands(1, 1)...)
		require.NoError(t, err)
		require.False(t, r.Granted)
		require.Equal(t, time.Second, time.Since(begun))
		require.NoError(t, w.client.AcquireAll(w.ctx, demands(1, 1)...))
		require.Equal(t, 4*time.Second, time.Since(begun))
		// One limiter refuses, so nothing is taken from the other.
		r, err = w.client.TryAcquireAll(w.ctx, 0, demands(2, 1)...)
		require.NoError(t, err)
		require.Equal(t, AllResult{Limiter: near, Wait: time.Second, Degraded: true}, r)
		r, err = w.client.TryAcquireAll(w.ctx, 0, demands(1, 4)...)
		require.NoError(t, err)
		require.True(t, r.Granted, "4 of 5 were left of the other")
		_, err = w.client.TryAcquireAll(w.ctx, 0, demands(3, 1)...)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "local share of 2")
		_, err = w.client.TryAcquireAll(w.ctx, 0, Demand{near, 1}, Demand{other, 1})
		require.ErrorIs(t, err, ErrUnavailable, "one is closed")
		r, err = w.client.TryAcquireAll(w.ctx, 0, Demand{w.l.OnOutage(FailOpen()), 9}, Demand{other.OnOutage(FailOpen()), 9})
		require.NoError(t, err)
		require.Equal(t, AllResult{Granted: true, Degraded: true}, r)
		ctx, cancel := context.WithCancel(w.ctx)
		time.AfterFunc(100*time.Millisecond, cancel)
		require.ErrorIs(t, w.client.AcquireAll(ctx, demands(1, 1)...), context.Canceled)

		at(4500 * time.Millisecond)
		c.down.Store(false)
		require.NoError(t, w.client.AcquireAll(w.ctx, demands(1, 5)...), "what the charge has left, one second after it was granted")
		require.False(t, w.l.handle.Health().Down())
		n, err := other.AvailablePermits(w.ctx)
		require.NoError(t, err)
		require.Zero(t, n, "5 were charged, 5 are granted")
	})
}
