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
