package ratelimiter

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestWithCachedRejections checks what callers see of it: results as if Redis had been asked, another process' release within
// the bound, one of their own at once, and the option of one handle.
func TestWithCachedRejections(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		h := &ledger{}
		c, peer := newClient(t, rdb, WithClientClock(), WithHook(h.hook()), WithCachedRejections(time.Second)), newClient(t, rdb, WithClientClock())
		defer c.Close()
		defer peer.Close()
		name := redistest.Key(t)
		l := c.RateLimiter(name)
		require.NoError(t, l.SetRate(ctx, Rate{Permits: 4, Interval: time.Minute}))
		calls := func(f func()) int {
			h.mu.Lock()
			h.calls = nil
			h.mu.Unlock()
			f()
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.calls)
		}
		try := func(l *RateLimiter, permits int64, want bool) Result {
			t.Helper()
			r, err := l.Allow(ctx, permits)
			require.NoError(t, err)
			require.Equal(t, want, r.Granted)
			return r
		}
		try(l, 3, true)
		asked := try(l, 2, false)
		time.Sleep(100 * time.Millisecond)
		require.Zero(t, calls(func() {
			want := asked
			want.Wait -= 100 * time.Millisecond
			want.Time = want.Time.Add(100 * time.Millisecond)
			require.Equal(t, want, try(l, 2, false))
			ok, err := l.TryAcquire(ctx, 4, 0)
			require.NoError(t, err)
			require.False(t, ok)
		}))
		require.NotZero(t, calls(func() { try(l.CachedRejections(0), 2, false) }))
		require.NotZero(t, calls(func() { try(l, 1, true) }))
		try(l, 1, false)
		require.NoError(t, peer.RateLimiter(name).Release(ctx, 1))
		require.Zero(t, calls(func() { try(l, 1, false) }))
		time.Sleep(time.Second)
		try(l, 1, true)
		try(l, 2, false)
		require.NoError(t, l.Release(ctx, 2))
		try(l, 2, true)

		_, err := l.CachedRejections(-1).Allow(ctx, 1)
		require.ErrorIs(t, err, ErrInvalidArgument)
	})
}
