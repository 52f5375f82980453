// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestHoldKeepsPermits checks that a Hold makes callers wait, and keeps free permits from those that try, until it is
// released.
func TestHoldKeepsPermits(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		x := w.l.Hold()
		require.Equal(t, [2]bool{true, true}, [2]bool{w.l.State().Busy, w.l.State().Kept})
		require.False(t, redistest.Must(w.l.Allow(w.ctx, 1))(t).Granted, "ten are free")
		var wg sync.WaitGroup
		var at time.Duration
		wg.Go(func() {
			require.NoError(t, w.l.Acquire(w.ctx, 2))
			at = w.elapsed()
		})
		w.at(5 * time.Second)
		x.Release()
		x.Release() // does nothing
		wg.Wait()
		require.Equal(t, 5*time.Second, at)
		require.Equal(t, [2]bool{}, [2]bool{w.l.State().Busy, w.l.State().Kept})
		w.granted(8)
	})
}

// TestPlaceGetsItsTurn checks that a caller with a place is let ask when it is the first, by the time at which it came, and
// that nobody is served from the queue before it leaves. Others may then take the permits that it left.
func TestPlaceGetsItsTurn(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		p := &engine.Place{Handle: &w.l.Handle, Permits: 3, Came: time.Now()}
		turn := func(a engine.Rejection) {
			t.Helper()
			require.True(t, redistest.Must(p.Turn(w.ctx, a))(t))
		}
		turn(engine.Rejection{})
		var wg sync.WaitGroup
		var at time.Duration
		wg.Go(func() {
			require.NoError(t, w.l.Acquire(w.ctx, 2))
			at = w.elapsed()
		})
		w.at(5 * time.Second)
		require.False(t, w.l.State().Came.IsZero(), "one stands in line")
		turn(engine.Rejection{Wait: 10 * time.Second, Recheck: time.Minute, Changes: w.l.State().Changes})
		require.Equal(t, 15*time.Second, w.elapsed(), "it is still the first, and was told to wait")
		require.True(t, redistest.Must(w.l.Allow(w.ctx, 1))(t).Granted, "nothing is kept for one that has not waited for long")
		w.at(16 * time.Second)
		p.Leave()
		p.Leave() // does nothing
		wg.Wait()
		require.Equal(t, 16*time.Second, at)

		p.Came, p.Deadline = time.Now(), time.Now().Add(time.Second)
		ok, err := p.Turn(w.ctx, engine.Rejection{Wait: time.Minute, Recheck: time.Minute, Changes: w.l.State().Changes})
		require.NoError(t, err)
		require.False(t, ok, "its time is up")
		synctest.Wait()
		require.False(t, w.l.State().Busy)
	})
}
