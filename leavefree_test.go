// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLeaveFreeIsExact checks what a lower class is granted, and the wait that it is told, down to a millisecond.
func TestLeaveFreeIsExact(t *testing.T) {
	for _, typ := range []RateType{Overall, PerClient} {
		inWorld(t, Rate{Type: typ, Permits: 10, Interval: time.Second}, func(t *testing.T, w *world) {
			low := w.l.LeaveFree(3, time.Minute)
			for _, step := range []struct {
				at      time.Duration
				lower   bool
				permits int64
				wait    time.Duration // of a rejection; 0 for a grant
				left    int64
			}{
				{0, true, 4, 0, 6},
				{100, false, 2, 0, 4},
				{200, true, 2, 800, 4}, // 5 have to be free: at 1000 there are 8
				{200, true, 1, 0, 3},   // exactly 3 stay
				{300, true, 1, 700, 3},
				{300, false, 3, 0, 0},
				{400, true, 1, 600, 0},   // at 1000 there are 4
				{400, true, 4, 800, 0},   // at 1100 there are 6, at 1200 7
				{400, true, 7, 900, 0},   // all of them
				{400, false, 7, 800, 0},  // one that leaves none free waits for less
				{1000, false, 1, 0, 3},   // and takes what the class has waited for
				{1000, true, 1, 100, 3},  // at 1100 there are 5
				{1100, true, 2, 0, 3},    // exactly
				{5000, true, 7, 0, 3},    //
				{5000, true, 1, 1000, 3}, //
			} {
				w.at(step.at * time.Millisecond)
				l := w.l
				if step.lower {
					l = low
				}
				peek, err := l.Peek(w.ctx, step.permits)
				require.NoError(t, err)
				r, err := l.Allow(w.ctx, step.permits)
				require.NoError(t, err)
				require.Equal(t, step.wait == 0, r.Granted, "%+v: %+v", step, r)
				require.Equal(t, step.wait*time.Millisecond, r.Wait, "%+v", step)
				require.Equal(t, step.left, r.Available, "%+v", step)
				require.Equal(t, r.Granted, peek.Granted, "%+v", step)
				require.Equal(t, r.Wait, peek.Wait, "%+v", step)
			}
		})
	}
}

// TestLowerClassWaits checks when waiters of a class are served whose age is 3500 ms: behind all others, in this process
// or another one, and like them once they have waited for that long.
func TestLowerClassWaits(t *testing.T) {
	for _, c := range []struct {
		name   string
		beside func(w *world, low *RateLimiter) *RateLimiter // who takes what it gets, one permit after another, or nil
		want   time.Duration
		late   time.Duration // how much later it may be
	}{
		{"nobody else", nil, 1010 * time.Millisecond, 0},
		{"others of this process", func(w *world, low *RateLimiter) *RateLimiter { return w.l }, 4 * time.Second, 0},
		{"another process", func(w *world, low *RateLimiter) *RateLimiter {
			other := w.otherProcess()
			w.t.Cleanup(func() { _ = other.Close() })
			return other.RateLimiter(w.l.Name())
		}, 4 * time.Second, time.Second}, // which of the two processes asks first then is a matter of chance
	} {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			w.granted(10)
			low := w.l.LeaveFree(3, 3500*time.Millisecond)
			ctx, stop := context.WithCancel(w.ctx)
			var lower, others sync.WaitGroup
			var taken []time.Duration
			if c.beside != nil {
				l := c.beside(w, low)
				others.Go(func() {
					for l.Acquire(ctx, 1) == nil {
						taken = append(taken, w.elapsed())
					}
				})
			}
			for range 3 {
				lower.Go(func() {
					require.NoError(t, low.Acquire(w.ctx, 1))
					require.Contains(t, []time.Duration{c.want, c.want + c.late}, w.elapsed(), c.name)
				})
			}
			lower.Wait()
			stop()
			others.Wait()
			for i, at := range taken[:min(len(taken), 30)] {
				require.Equal(t, time.Duration(1+i/10)*time.Second, at, "%s: %d", c.name, i)
			}
		})
	}
}

// TestLowerClassOfAnotherProcess checks that waiters take each permit in the instant in which it is back, as they do alone,
// while a lower class of another process tries and waits for it: its calls leave no room for a peer, and do not look like
// Redisson's.
func TestLowerClassOfAnotherProcess(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		for i := range 10 {
			w.at(time.Duration(100*i) * time.Millisecond)
			w.granted(1)
		}
		other := w.otherProcess()
		defer other.Close()
		low := other.RateLimiter(w.l.Name()).LeaveFree(1, time.Minute)
		ctx, stop := context.WithCancel(w.ctx)
		var all sync.WaitGroup
		all.Go(func() { require.ErrorIs(t, low.Acquire(ctx, 1), context.Canceled) })
		all.Go(func() {
			for ctx.Err() == nil {
				r, err := low.Allow(w.ctx, 1)
				require.NoError(t, err)
				require.False(t, r.Granted)
				time.Sleep(7 * time.Millisecond)
			}
		})
		var mu sync.Mutex
		var taken []time.Duration
		for range 3 {
			all.Go(func() {
				for w.l.Acquire(ctx, 1) == nil {
					mu.Lock()
					taken = append(taken, w.elapsed())
					mu.Unlock()
				}
			})
		}
		w.at(5050 * time.Millisecond)
		stop()
		all.Wait()
		require.Len(t, taken, 41)
		for i, at := range taken {
			require.Equal(t, time.Duration(1000+100*i)*time.Millisecond, at)
		}
	})
}

// TestLowerClassLeaves checks how a waiter of a class whose age is 2500 ms ends that is not served as one.
func TestLowerClassLeaves(t *testing.T) {
	for _, c := range []struct {
		name    string
		timeout time.Duration
		during  func(w *world) // at 100 ms
		granted bool
		at      time.Duration
	}{
		{"in time as everybody", 4 * time.Second, nil, true, 3 * time.Second},
		{"its time is up before", 2400 * time.Millisecond, nil, false, 2400 * time.Millisecond},
		{"its time is up behind others", 2800 * time.Millisecond, nil, false, 2800 * time.Millisecond},
		{"a release", 4 * time.Second, func(w *world) { require.NoError(w.t, w.l.Release(w.ctx, 4)) }, true, 100 * time.Millisecond},
		{"too small a release", 4 * time.Second, func(w *world) { require.NoError(w.t, w.l.Release(w.ctx, 3)) }, true, 2500 * time.Millisecond},
	} {
		for _, all := range []bool{false, true} {
			inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
				w.granted(10)
				if c.during == nil { // others take all that comes back
					for i := range 2 {
						time.AfterFunc(time.Duration(i+1)*time.Second, func() { w.granted(10) })
					}
				} else {
					w.l.SetRate(w.ctx, overall(10, time.Minute), KeepState())
					time.AfterFunc(100*time.Millisecond, func() { c.during(w) })
				}
				low := w.l.LeaveFree(3, 2500*time.Millisecond)
				var granted bool
				var err error
				if all {
					var r AllResult
					r, err = w.client.TryAcquireAll(w.ctx, c.timeout, Demand{low, 1}, Demand{w.others(overall(10, time.Second))[0], 1})
					granted = r.Granted
				} else {
					granted, err = low.TryAcquire(w.ctx, 1, c.timeout)
				}
				require.NoError(t, err, c.name)
				require.Equal(t, c.granted, granted, "%s, of two limiters: %v", c.name, all)
				require.Equal(t, c.at, w.elapsed(), "%s, of two limiters: %v", c.name, all)
			})
		}
	}
}

// TestLeaveFreeArguments checks that a class is refused that no request could be of.
func TestLeaveFreeArguments(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		for _, c := range []struct {
			free    int64
			age     time.Duration
			permits int64
			want    error
			says    string
		}{
			{-1, time.Second, 1, ErrInvalidArgument, "LeaveFree: -1 permits"},
			{1 << 32, time.Second, 1, ErrInvalidArgument, "LeaveFree: 4294967296 permits"},
			{1, 0, 1, ErrInvalidArgument, "LeaveFree: the age of 0s"},
			{1, -1, 1, ErrInvalidArgument, "LeaveFree: the age of -1ns"},
			{6, time.Second, 5, ErrPermitsExceedRate, "and to leave 6 free, whose rate is 10"},
			{10, time.Second, 1, ErrPermitsExceedRate, "asked for 1 permit of "},
			{10, time.Second, 1, ErrPermitsExceedRate, "and to leave 10 free, whose rate is 10"},
			{6, time.Second, 4, nil, ""},
			{0, time.Second, 10, nil, ""},
		} {
			low := w.l.LeaveFree(c.free, c.age)
			_, err := low.Peek(w.ctx, c.permits)
			_, err2 := w.client.TryAcquireAll(w.ctx, 0, Demand{low, c.permits}, Demand{w.others(overall(1, time.Second))[0], 1})
			for _, err := range []error{err, low.Acquire(w.ctx, c.permits), err2} {
				require.ErrorIs(t, err, c.want, "%+v", c)
				if c.want != nil {
					require.ErrorContains(t, err, c.says)
				}
			}
			time.Sleep(time.Minute)
		}
		require.ErrorIs(t, (&RateLimiter{}).LeaveFree(1, 1).Acquire(w.ctx, 1), ErrInvalidArgument)
		var none *Client
		require.ErrorIs(t, none.RateLimiter("x").LeaveFree(1, 1).Acquire(w.ctx, 1), ErrInvalidArgument)
		require.NoError(t, w.l.LeaveFree(9, time.Second).LeaveFree(1, time.Second).Acquire(w.ctx, 9), "the last counts")
	})
}

// TestLowerClassAmongItself checks that nobody of a class passes its first waiter, which waits for 4 permits beside the 3 that
// stay free, by more than is left when that is served; and that a release makes a rejection forgotten.
func TestLowerClassAmongItself(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		w.at(500 * time.Millisecond)
		w.granted(3)
		low := w.l.LeaveFree(3, time.Minute)
		var all sync.WaitGroup
		for _, c := range []struct {
			permits int64
			at      time.Duration
		}{{4, 1010 * time.Millisecond}, {1, 1510 * time.Millisecond}} {
			all.Go(func() {
				require.NoError(t, low.Acquire(w.ctx, c.permits))
				require.Equal(t, c.at, w.elapsed())
			})
			synctest.Wait()
		}
		all.Wait()

		known := low.CachedRejections(time.Minute)
		for _, granted := range []bool{false, true} {
			r, err := known.Allow(w.ctx, 3)
			require.NoError(t, err)
			require.Equal(t, granted, r.Granted)
			require.NoError(t, w.l.Release(w.ctx, 1))
		}
	})
}

// TestLowerClassWithoutRedis checks that during an outage a class and its limiter have one local quota, and that Redis is told
// of both, whoever asks first.
func TestLowerClassWithoutRedis(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		l := w.l.OnOutage(LocalQuota(overall(10, time.Minute), 1))
		low := l.LeaveFree(3, time.Hour)
		require.NoError(t, low.Acquire(w.ctx, 7))
		var waiter sync.WaitGroup
		waiter.Go(func() { // waits in the queue of its class when the outage begins
			require.NoError(t, low.Acquire(w.ctx, 7))
		})
		w.at(time.Millisecond)
		c := cutOff(w, io.EOF)
		goesAway(w, c)
		waiter.Wait()
		waiter.Go(func() { // stands before the class
			granted, err := l.TryAcquire(w.ctx, 4, time.Second)
			require.NoError(t, err)
			require.False(t, granted)
		})
		synctest.Wait()
		r, err := low.Allow(w.ctx, 1)
		require.NoError(t, err)
		require.False(t, r.Granted)
		waiter.Wait()
		for _, step := range []struct {
			l       *RateLimiter
			permits int64
			granted bool
		}{{l, 2, true}, {low, 1, true}, {low, 1, false}, {l, 1, false}} {
			r, err := step.l.Allow(w.ctx, step.permits)
			require.NoError(t, err)
			require.True(t, r.Degraded)
			require.Equal(t, step.granted, r.Granted, "%+v", step)
		}
		c.down.Store(false)
		over, _ := l.handle.Health().Outage()
		<-over
		r, err = low.Allow(w.ctx, 1)
		require.NoError(t, err)
		require.False(t, r.Granted || r.Degraded, "%+v", r)
		used, _ := w.used()
		require.Equal(t, int64(10), used)
	})
}
