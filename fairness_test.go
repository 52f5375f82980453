package ratelimiter

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A line is a group of callers who arrive one after another and wait.
type line struct {
	w  *world
	mu sync.Mutex
	wg sync.WaitGroup
	at map[string]time.Duration // the time at which each was served
}

// waits starts a caller who arrives at the instant come.
func (q *line) waits(name string, come time.Duration, permits int64) {
	q.wg.Go(func() {
		q.w.at(come)
		if err := q.w.l.Acquire(q.w.ctx, permits); err != nil {
			q.w.t.Errorf("%s: %v", name, err)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.at[name] = q.w.elapsed()
	})
}

func (q *line) served(want map[string]time.Duration) {
	q.w.t.Helper()
	q.wg.Wait()
	require.Equal(q.w.t, want, q.at)
}

// TestWaitersAreServedInOrder checks that waiters are served first come, first served: a request that does not fit
// blocks those behind it, unless they are smaller and it need not wait longer for them.
func TestWaitersAreServedInOrder(t *testing.T) {
	inWorld(t, overall(10, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(9)
		q := &line{w: w, at: map[string]time.Duration{}}
		q.waits("five", 1*time.Second, 5)
		q.waits("one", 2*time.Second, 1) // fits at once, and nine come back for five
		q.waits("five more", 3*time.Second, 5)
		q.waits("four", 4*time.Second, 4) // fits beside five and one
		q.waits("last", 5*time.Second, 1)
		q.served(map[string]time.Duration{
			"five":      10 * time.Second,
			"one":       2 * time.Second,
			"five more": 12 * time.Second, // one is back
			"four":      20 * time.Second,
			"last":      20 * time.Second,
		})
	})
}

// TestEarlyRefusal checks that with WithEarlyRefusal a request is refused at once if it is known that its time will
// be up before it can be granted.
func TestEarlyRefusal(t *testing.T) {
	inWorld(t, overall(10, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(10)
		try := func(permits int64, timeout time.Duration) (bool, time.Duration) {
			begin := time.Now()
			ok, err := w.l.TryAcquire(w.ctx, permits, timeout)
			require.NoError(t, err)
			return ok, time.Since(begin)
		}
		ok, took := try(1, 9*time.Second)
		require.False(t, ok)
		require.Zero(t, took)
		var wg sync.WaitGroup
		wg.Go(func() {
			ok, took := try(1, 10*time.Second)
			require.True(t, ok)
			require.Equal(t, 10*time.Second, took)
		})
		time.Sleep(1500 * time.Millisecond)
		sent := count(w.rdb)
		ok, took = try(1, 8*time.Second) // behind a request whose wait is known
		require.False(t, ok)
		require.Zero(t, took)
		require.Zero(t, sent.sent.Load())
		wg.Wait()
		w.granted(9)
		// A request is refused later, when the request ahead of it has got its reply.
		wg.Go(func() {
			ok, took := try(2, 12*time.Second)
			require.True(t, ok)
			require.Equal(t, 10*time.Second, took)
		})
		wg.Go(func() {
			time.Sleep(time.Second)
			ok, took := try(10, 12*time.Second) // could be served at 20 s at the earliest
			require.False(t, ok)
			require.Equal(t, 9*time.Second, took)
		})
		wg.Wait()
	}, WithEarlyRefusal())
}
