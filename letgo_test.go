package ratelimiter

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// requireDisarmed demands that no idle engine of c has a timer armed. It disarms them.
func requireDisarmed(t *testing.T, c *Client) {
	t.Helper()
	synctest.Wait()
	require.NoError(t, c.engine.CheckIdle())
}

// A caller waits for its share when Redis comes back and serves it. Its limiter is not asked again, and
// others of its bucket are.
func TestEngineIsLetGoAfterAnOutage(t *testing.T) {
	for _, names := range []int{0, 1, 2, 3, 50} {
		inWorld(t, overall(10, 5*time.Second), func(t *testing.T, w *world) {
			l := w.l.OnOutage(LocalShare(overall(10, 5*time.Second), 2))
			w.granted(1)
			c := cutOff(w, refusedDial)
			goesAway(w, c)
			var served time.Time
			var wg sync.WaitGroup
			wg.Go(func() {
				ok, err := l.TryAcquire(w.ctx, 1, 30*time.Second)
				require.NoError(t, err)
				require.True(t, ok)
				served = time.Now()
			})
			begun, _ := w.l.handle.Health().Since()
			time.Sleep(500 * time.Millisecond)
			c.down.Store(false)
			wg.Wait()
			require.Less(t, served.Sub(begun), 1500*time.Millisecond, "Redis served it")
			for i := range names {
				_, err := beside(l, fmt.Sprint(w.l.Name(), i)).Try(w.ctx, 1)
				require.ErrorIs(t, err, ErrNotInitialized)
			}
			requireDisarmed(t, w.client)
			time.Sleep(10 * time.Second)
		})
	}
}

// Whoever waits for a share, and whoever was served or left, leaves nothing armed: also not at Close.
func TestNothingIsArmedWithoutAWaiter(t *testing.T) {
	policy := LocalShare(overall(10, 5*time.Second), 2)
	for name, f := range map[string]func(t *testing.T, w *world, c *cut, l *RateLimiter){
		"served by the share": func(t *testing.T, w *world, c *cut, l *RateLimiter) {
			require.NoError(t, l.Acquire(w.ctx, 1))
			time.Sleep(1250 * time.Millisecond)
		},
		"its time is up": func(t *testing.T, w *world, c *cut, l *RateLimiter) {
			ok, err := l.TryAcquire(w.ctx, 1, time.Second)
			require.NoError(t, err)
			require.False(t, ok)
			time.Sleep(1250 * time.Millisecond)
		},
		"it leaves": func(t *testing.T, w *world, c *cut, l *RateLimiter) {
			ctx, cancel := context.WithTimeout(w.ctx, time.Second)
			defer cancel()
			require.ErrorIs(t, l.Acquire(ctx, 1), context.DeadlineExceeded)
			time.Sleep(1250 * time.Millisecond)
		},
		"it leaves when Redis is back": func(t *testing.T, w *world, c *cut, l *RateLimiter) {
			ctx, cancel := context.WithTimeout(w.ctx, 4*time.Second)
			defer cancel()
			ended := make(chan error)
			go func() { ended <- l.Acquire(ctx, 10) }()
			go func() { ended <- l.Acquire(ctx, 5) }() // waits for its share
			time.Sleep(time.Second)
			c.down.Store(false)
			require.ErrorIs(t, <-ended, ErrUnavailable)
			require.NoError(t, <-ended)
		},
		"Close": func(t *testing.T, w *world, c *cut, l *RateLimiter) {
			ended := make(chan error)
			go func() { ended <- l.Acquire(w.ctx, 1) }()
			go func() { ended <- beside(l, l.Name()+"2").OnOutage(policy).Acquire(w.ctx, 1) }()
			time.Sleep(time.Second)
			require.NoError(t, w.client.Close())
			require.ErrorIs(t, <-ended, ErrClosed)
			require.ErrorIs(t, <-ended, ErrClosed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, 5*time.Second), func(t *testing.T, w *world) {
				w.granted(1)
				c := cutOff(w, refusedDial)
				goesAway(w, c)
				f(t, w, c, w.l.OnOutage(policy))
				requireIdle(t, w.client)
				requireDisarmed(t, w.client)
				time.Sleep(time.Minute)
			})
		})
	}
}

// What a list of limiters owes is charged to the limiter that owes it, however many others are asked for
// while the charge is on its way.
func TestChargeOutlivesTheEngine(t *testing.T) {
	inWorld(t, overall(10, 4*time.Second), func(t *testing.T, w *world) {
		policy := LocalShare(overall(10, 4*time.Second), 2)
		a, b := w.l.OnOutage(policy), w.client.RateLimiter(w.l.Name()+"b").OnOutage(policy)
		others := []*RateLimiter{beside(a, w.l.Name()+"1"), beside(a, w.l.Name()+"2"), beside(a, w.l.Name()+"3")}
		for _, l := range append(others, b) {
			require.NoError(t, l.SetRate(w.ctx, overall(10, 4*time.Second)))
		}
		w.granted(1)
		h := hold(w, 0)
		c := cutOff(w, refusedDial)
		goesAway(w, c)
		time.Sleep(4 * time.Second)
		r, err := a.Try(w.ctx, 5)
		require.NoError(t, err)
		require.True(t, r.Granted && r.Degraded)
		time.Sleep(2 * time.Second)
		c.down.Store(false)
		require.NoError(t, b.OnOutage(FailClosed()).Acquire(w.ctx, 1)) // finds that Redis is back
		h.set(200 * time.Millisecond)
		var wg sync.WaitGroup
		wg.Go(func() {
			got, err := w.client.TryAcquireAll(w.ctx, 0, Demand{a, 1}, Demand{b, 1})
			require.NoError(t, err)
			require.True(t, got.Granted)
		})
		time.Sleep(100 * time.Millisecond)
		for _, l := range others {
			wg.Go(func() {
				_, err := l.Try(w.ctx, 1)
				require.NoError(t, err)
			})
			time.Sleep(250 * time.Millisecond)
		}
		wg.Wait()
		used, _ := w.used()
		require.EqualValues(t, 6, used, "charged and acquired")
		for _, l := range others {
			n, err := l.AvailablePermits(w.ctx)
			require.NoError(t, err)
			require.EqualValues(t, 9, n, "nobody else's debt")
		}
	})
}
