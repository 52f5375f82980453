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

// inBucketOf returns a limiter of that name in l's bucket, as one of many names would fall there.
func inBucketOf(l *RateLimiter, name string) *RateLimiter {
	other := l.client.RateLimiter(name)
	other.bucket = l.bucket
	return other
}

// requireDisarmed demands that no idle engine of c has a timer armed. It disarms them.
func requireDisarmed(t *testing.T, c *Client) {
	t.Helper()
	synctest.Wait()
	for i := range c.buckets {
		b := &c.buckets[i]
		b.mu.Lock()
		engines := []*engine{}
		if b.spare != nil {
			engines = append(engines, b.spare)
		}
		for e := b.first; e != nil; e = e.next {
			if e.idle() {
				engines = append(engines, e)
			}
		}
		armed := 0
		for _, e := range engines {
			if e.timer != nil && e.timer.Stop() || e.shareTimer != nil && e.shareTimer.Stop() || !e.shareDue.IsZero() {
				armed++
			}
		}
		b.mu.Unlock()
		require.Zero(t, armed, "idle engines with a timer armed")
	}
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
			begun, _ := w.l.outage().begun()
			time.Sleep(500 * time.Millisecond)
			c.down.Store(false)
			wg.Wait()
			require.Less(t, served.Sub(begun), 1500*time.Millisecond, "Redis served it")
			for i := range names {
				_, err := inBucketOf(l, fmt.Sprint(w.l.Name(), i)).Try(w.ctx, 1)
				require.ErrorIs(t, err, ErrNotInitialized)
			}
			requireDisarmed(t, w.client)
			time.Sleep(10 * time.Second)
		})
	}
}

// A timer that has fired and waits for the lock cannot be stopped. It finds an engine that was let go, or
// that is another limiter's.
func TestTimerThatFiresLate(t *testing.T) {
	inWorld(t, overall(10, 5*time.Second), func(t *testing.T, w *world) {
		policy := LocalShare(overall(10, 5*time.Second), 2)
		l := w.l.OnOutage(policy)
		w.granted(1)
		c := cutOff(w, refusedDial)
		goesAway(w, c)
		begun, _ := w.l.outage().begun()
		ctx, cancel := context.WithCancel(w.ctx)
		go func() { _ = l.Acquire(ctx, 1) }()
		synctest.Wait()
		b := l.bucket
		b.mu.Lock()
		e := b.find(l.keys.hash)
		due, shareDue := e.due, e.serveShare
		b.mu.Unlock()
		cancel()
		time.Sleep(1250 * time.Millisecond) // its call wakes and finds nobody

		_, err := inBucketOf(l, w.l.Name()+"another").OnOutage(policy).Try(w.ctx, 6)
		require.ErrorIs(t, err, ErrUnavailable, "more than the share")
		b.mu.Lock()
		found, spare := b.find(l.keys.hash), b.spare
		b.mu.Unlock()
		require.Nil(t, found, "it was let go")
		require.Same(t, e, spare)
		due()
		shareDue()

		// Another limiter's, in whose line somebody waits.
		other := inBucketOf(l, w.l.Name()+"other").OnOutage(policy)
		served := make(chan time.Duration)
		go func() {
			ok, err := other.TryAcquire(w.ctx, 1, time.Minute)
			require.NoError(t, err)
			require.True(t, ok)
			served <- time.Since(begun)
		}()
		synctest.Wait()
		b.mu.Lock()
		found = b.find(other.keys.hash)
		b.mu.Unlock()
		require.Same(t, e, found)
		due()
		shareDue()
		require.Equal(t, 5*time.Second, <-served, "no sooner and no later than its own timer has it")
	})
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
			go func() { ended <- inBucketOf(l, l.Name()+"2").OnOutage(policy).Acquire(w.ctx, 1) }()
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
		others := []*RateLimiter{inBucketOf(a, w.l.Name()+"1"), inBucketOf(a, w.l.Name()+"2"), inBucketOf(a, w.l.Name()+"3")}
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
