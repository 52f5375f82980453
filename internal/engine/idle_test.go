// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestLimiterIsEvictedAfterAnOutage checks that no timer stays armed when the server comes back and serves a caller
// that was waiting for its local quota, even if afterwards only other limiters of the same shard are used.
func TestLimiterIsEvictedAfterAnOutage(t *testing.T) {
	for _, names := range []int{0, 1, 2, 3, 50} {
		inWorld(t, overall(10, 5*time.Second), func(t *testing.T, w *world) {
			l := w.l.on(localQuota(overall(10, 5*time.Second), 2))
			w.granted(1)
			w.goesAway()
			var served time.Time
			var wg sync.WaitGroup
			wg.Go(func() {
				require.True(t, l.within(1, 30*time.Second))
				served = time.Now()
			})
			begun, _ := w.l.Health().Since()
			time.Sleep(500 * time.Millisecond)
			w.p.Fix()
			wg.Wait()
			require.Less(t, served.Sub(begun), 1500*time.Millisecond, "Redis served it")
			for i := range names {
				w.beside(l, fmt.Sprint(w.l.key, i)).fails(1, permit.ErrNotInitialized)
			}
			w.idle()
			time.Sleep(10 * time.Second)
		})
	}
}

// TestNothingIsArmedWithoutAWaiter checks that a limiter has no timer armed once its callers were served or have
// left, or the engine is closed.
func TestNothingIsArmedWithoutAWaiter(t *testing.T) {
	policy := localQuota(overall(10, 5*time.Second), 2)
	for name, f := range map[string]func(t *testing.T, w *world, l *limiter){
		"served by the share": func(t *testing.T, w *world, l *limiter) {
			require.NoError(t, l.Acquire(w.ctx, 1))
			time.Sleep(1250 * time.Millisecond)
		},
		"its time is up": func(t *testing.T, w *world, l *limiter) {
			require.False(t, l.within(1, time.Second))
			time.Sleep(1250 * time.Millisecond)
		},
		"it leaves": func(t *testing.T, w *world, l *limiter) {
			ctx := w.leaving(time.Second)
			require.ErrorIs(t, l.Acquire(ctx, 1), context.DeadlineExceeded)
			time.Sleep(1250 * time.Millisecond)
		},
		"it leaves when Redis is back": func(t *testing.T, w *world, l *limiter) {
			ctx := w.leaving(4 * time.Second)
			ended := make(chan error)
			go func() { ended <- l.Acquire(ctx, 10) }()
			go func() { ended <- l.Acquire(ctx, 5) }() // waits for its local quota
			time.Sleep(time.Second)
			w.p.Fix()
			require.ErrorIs(t, <-ended, permit.ErrUnavailable)
			require.NoError(t, <-ended)
		},
		"Close": func(t *testing.T, w *world, l *limiter) {
			ended := make(chan error)
			go func() { ended <- l.Acquire(w.ctx, 1) }()
			go func() { ended <- w.beside(l, l.key+"2").on(policy).Acquire(w.ctx, 1) }()
			time.Sleep(time.Second)
			w.close()
			require.ErrorIs(t, <-ended, permit.ErrClosed)
			require.ErrorIs(t, <-ended, permit.ErrClosed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, 5*time.Second), func(t *testing.T, w *world) {
				w.granted(1)
				w.goesAway()
				f(t, w, w.l.on(policy))
				w.idle()
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestTellingOutlivesTheLimiter checks that the pending grants of a limiter in a list are reconciled even if the
// shard evicts the limiter while the call is in flight.
func TestTellingOutlivesTheLimiter(t *testing.T) {
	inWorld(t, overall(10, 4*time.Second), func(t *testing.T, w *world) {
		policy := localQuota(overall(10, 4*time.Second), 2)
		a, b := w.l.on(policy), w.limiter(w.l.key+"b").on(policy)
		others := []*limiter{w.beside(a, w.l.key+"1"), w.beside(a, w.l.key+"2"), w.beside(a, w.l.key+"3")}
		for _, l := range append(others, b) {
			w.server.SetRate(l.key, overall(10, 4*time.Second))
		}
		w.granted(1)
		w.goesAway()
		time.Sleep(4 * time.Second)
		a.lent(5)
		time.Sleep(2 * time.Second)
		w.p.Fix()
		require.NoError(t, b.on(nil).Acquire(w.ctx, 1)) // finds that Redis is up again
		w.delay(200 * time.Millisecond)
		var wg sync.WaitGroup
		wg.Go(func() {
			require.True(t, redistest.Must(w.all(w.ctx, -1, a.of(1), b.of(1)))(t).Granted)
		})
		time.Sleep(100 * time.Millisecond)
		for _, l := range others {
			wg.Go(func() {
				l.try(1)
			})
			time.Sleep(250 * time.Millisecond)
		}
		wg.Wait()
		w.used(6)
		for _, l := range others {
			require.EqualValues(t, 1, w.server.Used(l.key), "nobody else's grants")
		}
	})
}

// TestTimerThatFiresLate checks a timer that has fired and waits for the lock, so that it cannot be stopped any
// more. By the time it gets the lock, its limiter has been evicted, or is reused for another key.
func TestTimerThatFiresLate(t *testing.T) {
	inWorld(t, overall(10, 5*time.Second), func(t *testing.T, w *world) {
		policy := localQuota(overall(10, 5*time.Second), 2)
		l := w.l.on(policy)
		w.granted(1)
		begun := w.goesAway()
		ctx, cancel := context.WithCancel(w.ctx)
		go func() { _ = l.Acquire(ctx, 1) }()
		synctest.Wait()
		line, local := l.Fired()
		was := l.Same()
		cancel()
		time.Sleep(1250 * time.Millisecond) // its flight wakes up and finds no waiters

		w.beside(l, "another").on(policy).fails(6, permit.ErrUnavailable) // more than the share
		require.Nil(t, l.Same(), "it was evicted")
		require.Same(t, was, l.Spare())
		line()
		local()

		// The limiter is reused for another key, in whose line a caller waits.
		other := w.beside(l, "other").on(policy)
		served := make(chan time.Duration)
		go func() {
			require.True(t, other.within(1, time.Minute))
			served <- time.Since(begun)
		}()
		synctest.Wait()
		require.Same(t, was, other.Same())
		line()
		local()
		require.Equal(t, 5*time.Second, <-served, "no sooner and no later than its own timer has it")
		time.Sleep(1250 * time.Millisecond)
		w.idle()
	})
}

// TestEviction checks that each shard keeps only one idle limiter, with no timer armed, and that a reused limiter
// knows nothing of the one that was evicted.
func TestEviction(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		perClient := permit.Rate{Type: permit.PerClient, Permits: 10, Interval: time.Minute}
		for i := range 100 {
			l := w.beside(w.l, fmt.Sprint(i))
			if w.server.SetRate(l.key, perClient); i%2 == 1 {
				w.server.SetRate(l.key, overall(1, time.Hour))
			}
			require.NoError(t, l.Acquire(w.ctx, 1))
			if i%2 == 1 { // arm its timer
				require.False(t, l.within(1, 1500*time.Millisecond))
			}
			w.idle()
		}
		// A limiter in whose line a caller waits is not evicted.
		w.granted(10)
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		go func() { _ = w.l.Acquire(ctx, 1) }()
		synctest.Wait()
		was := w.l.Same()
		for i := range 10 {
			require.NoError(t, w.beside(w.l, fmt.Sprint(2*i)).Acquire(w.ctx, 1))
			require.Same(t, was, w.l.Same())
		}
		require.Error(t, w.e.CheckIdle(), "somebody waits")
	})
}
