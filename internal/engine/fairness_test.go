// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
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
	}, recheck(time.Hour))
}

// TestSomebodyWhoMayPassLeaves checks that the queue wakes up for its head when nobody is left of those who might have
// passed it, and for whom it was to wake up sooner.
func TestSomebodyWhoMayPassLeaves(t *testing.T) {
	inWorld(t, overall(10, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(2)
		w.at(time.Second)
		w.granted(8)
		var line sync.WaitGroup
		line.Go(func() {
			require.NoError(t, w.l.Acquire(w.ctx, 9))
			require.Equal(t, 11*time.Second, w.elapsed())
		})
		synctest.Wait()
		line.Go(func() { require.NoError(t, w.l.Acquire(w.ctx, 8)) }) // may not pass
		w.at(2 * time.Second)
		// One permit is left beside those of the first waiter, after ten seconds.
		ctx := w.leaving(3 * time.Second)
		require.ErrorIs(t, w.l.Acquire(ctx, 1), context.DeadlineExceeded)
		line.Wait()
	}, recheck(time.Hour))
}

// TestTheNextIsServedWhenTheFirstLeaves checks that when the first waiter leaves, the next waiter is served as
// soon as it fits, without waiting for the request that left.
func TestTheNextIsServedWhenTheFirstLeaves(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(4)
		w.at(time.Second)
		w.granted(4) // so that five leave only one to those who may pass
		before := w.p.Sent()
		ctx := w.leaving(2 * time.Second)
		go func() { require.ErrorIs(t, w.l.Acquire(ctx, 5), context.DeadlineExceeded) }()
		go func() {
			w.at(2 * time.Second)
			require.False(t, w.l.within(9, 4*time.Second)) // its time is up while it is the first waiter
			require.Equal(t, 6*time.Second, w.elapsed())
		}()
		q := &line{w: w, at: map[string]time.Duration{}}
		q.waits("two", 2500*time.Millisecond, 2)
		q.served(map[string]time.Duration{"two": 6 * time.Second})
		require.LessOrEqual(t, w.p.Sent()-before, 5)
	}, recheck(time.Hour))
}

// TestTheNextOfTheSameSizeKeepsTheWait checks that a waiter takes over the known wait of the first waiter that left if its
// request has the same size.
func TestTheNextOfTheSameSizeKeepsTheWait(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(10)
		before := w.p.Sent()
		for i := range 20 {
			ctx := w.leaving(time.Duration(i+1) * time.Second)
			go func() { _ = w.l.Acquire(ctx, 5) }()
			time.Sleep(time.Millisecond)
		}
		q := &line{w: w, at: map[string]time.Duration{}}
		q.waits("five", time.Second, 5)
		q.served(map[string]time.Duration{"five": time.Minute})
		require.LessOrEqual(t, w.p.Sent()-before, 3)
	}, recheck(time.Hour))
}

// TestLargeRequestsDoNotStarve checks that a large request is served within three intervals, even if small requests
// keep coming.
func TestLargeRequestsDoNotStarve(t *testing.T) {
	const interval = time.Second
	for name, small := range map[string]func(w *world){
		"tries": func(w *world) { _, _ = w.l.Allow(w.ctx, 1); time.Sleep(20 * time.Millisecond) },
		"short waits": func(w *world) {
			_, _ = w.l.TryAcquire(w.ctx, 1, 30*time.Millisecond)
		},
		"waits": func(w *world) { _ = w.l.Acquire(w.ctx, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, interval), func(t *testing.T, w *world) {
				var (
					stop  atomic.Bool
					wg    sync.WaitGroup
					large int
				)
				for i := range 10 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 13 * time.Millisecond)
						for !stop.Load() {
							small(w)
						}
					})
				}
				w.at(1500 * time.Millisecond)
				for range 4 {
					ok, err := w.l.TryAcquire(w.ctx, 10, 3*interval)
					if err != nil || !ok {
						t.Errorf("not served within three intervals: %v", err)
						break
					}
					large++
				}
				stop.Store(true)
				wg.Wait()
				require.Equal(t, 4, large)
			})
		})
	}
}

// TestTriesDoNotQueue checks that requests that do not wait do not wait in the queue: they take what is free,
// until the first waiter has been passed over for a whole interval.
func TestTriesDoNotQueue(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(4)
		go func() { _ = w.l.Acquire(w.ctx, 10) }()
		time.Sleep(time.Second)
		w.granted(1)
		require.True(t, w.l.within(1, 0))
		require.Equal(t, time.Second, w.elapsed())
		w.rejected(6, 59*time.Second)
		// Now the first waiter has almost been passed over for a whole interval.
		w.at(time.Minute - time.Millisecond)
		w.granted(1)
		w.at(time.Minute + time.Millisecond)
		r := w.try(1)
		require.False(t, r.Granted)
		require.EqualValues(t, 7, r.Available)
		require.Equal(t, time.Minute-2*time.Millisecond, r.Wait, "when the one in line can be served")
		w.close()
	})
}

// TestManyWaitersAreNoHerd checks that 500 waiters need hardly more than one call per grant, and that no waiter
// overtakes another.
func TestManyWaitersAreNoHerd(t *testing.T) {
	inWorld(t, overall(20, time.Second), func(t *testing.T, w *world) {
		for range 20 { // spread the grants, so that permits come back one by one
			w.granted(1)
			time.Sleep(50 * time.Millisecond)
		}
		before := w.p.Sent()
		const callers = 500
		var (
			wg    sync.WaitGroup
			mu    sync.Mutex
			order []int
		)
		for i := range callers {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Microsecond)
				require.NoError(t, w.l.Acquire(w.ctx, 1))
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
		}
		wg.Wait()
		require.Len(t, order, callers)
		for place, i := range order {
			require.InDelta(t, place, i, 1, "served out of order") // two callers of the same instant may return in any order
		}
		require.LessOrEqual(t, float64(w.p.Sent()-before)/callers, 1.2, "calls a grant")
	})
}

// TestEarlyRejection checks that with RejectEarly a request is rejected at once if it is known that its time will be
// up before it can be granted.
func TestEarlyRejection(t *testing.T) {
	inWorld(t, overall(10, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(10)
		try := func(permits int64, timeout time.Duration) (bool, time.Duration) {
			begin := time.Now()
			ok := redistest.Must(w.l.TryAcquire(w.ctx, permits, timeout))(t)
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
		before := w.p.Sent()
		ok, took = try(1, 8*time.Second) // behind a request whose wait is known
		require.False(t, ok)
		require.Zero(t, took)
		require.Zero(t, w.p.Sent()-before)
		wg.Wait()
		w.granted(9)
		// A request is rejected later, when the request ahead of it has got its reply.
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
	}, rejectEarly)
}
