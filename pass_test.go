package ratelimiter

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSomebodyWhoMayPassLeaves checks that the line wakes up for its head when nobody is left of those who might have
// passed it, and for whom it was to wake up sooner.
func TestSomebodyWhoMayPassLeaves(t *testing.T) {
	inWorld(t, overall(10, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(2)
		w.at(time.Second)
		w.granted(8)
		var line, small sync.WaitGroup
		line.Go(func() {
			require.NoError(t, w.l.Acquire(w.ctx, 9))
			require.Equal(t, 11*time.Second, w.elapsed())
		})
		synctest.Wait()
		line.Go(func() { require.NoError(t, w.l.Acquire(w.ctx, 8)) }) // may not pass
		w.at(2 * time.Second)
		small.Go(func() { // may: one permit is left beside those of the head, after ten seconds
			ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
			defer cancel()
			require.ErrorIs(t, w.l.Acquire(ctx, 1), context.DeadlineExceeded)
		})
		small.Wait()
		line.Wait()
	}, WithRecheck(time.Hour))
}

// TestSmallRequestsPassALargeOne checks that requests behind one that has to wait take what it leaves, as soon as that is
// free, and nothing for which it would have to wait longer.
func TestSmallRequestsPassALargeOne(t *testing.T) {
	inWorld(t, overall(10, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(2)
		w.at(time.Second)
		w.granted(8)
		var line sync.WaitGroup
		for i, c := range []struct {
			permits int64
			granted time.Duration
		}{
			{9, 11 * time.Second}, // one permit is left
			{1, 10 * time.Second},
			{2, 21 * time.Second}, // more than is left
			{1, 20 * time.Second}, // nothing is left any more
		} {
			line.Go(func() {
				require.NoError(t, w.l.Acquire(w.ctx, c.permits))
				require.Equal(t, c.granted, w.elapsed(), "%d. %d permits", i, c.permits)
			})
			synctest.Wait()
		}
		line.Wait()
	}, WithRecheck(time.Hour))
}
