package ratelimiter

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// requireDisarmed checks that no idle limiter of c has a timer armed. It stops the timers that it finds.
func requireDisarmed(t *testing.T, c *Client) {
	t.Helper()
	synctest.Wait()
	require.NoError(t, c.engine.CheckIdle())
}

// TestEngineIsLetGoAfterAnOutage checks that no timer stays armed when Redis comes back and serves a caller that was
// waiting for its local share, even if afterwards only other limiters of the same shard are used.
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
