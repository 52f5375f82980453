// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/testworld"
	"github.com/stretchr/testify/require"
)

// TestOutage checks that during an outage a process probes Redis about once a second, however many callers and
// limiters it has. Requests that do not wait fail at once, and waiters keep waiting.
func TestOutage(t *testing.T) {
	inWorld(t, overall(1000, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		w.p.Cut(testworld.Rejected)
		var wg sync.WaitGroup
		for i := range 50 {
			l := w.limiter(fmt.Sprint(w.l.key, i%10))
			if i >= 40 {
				l = w.l
			}
			wg.Go(func() {
				for w.elapsed() < 20*time.Second {
					begin := time.Now()
					r, err := l.Allow(w.ctx, 1)
					require.ErrorIs(t, err, permit.ErrUnavailable)
					require.ErrorIs(t, err, testworld.Rejected.Err)
					require.False(t, r.Granted)
					if w.elapsed() > time.Second {
						require.Zero(t, time.Since(begin), "told at once")
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
		for range 50 {
			wg.Go(func() {
				time.Sleep(5 * time.Second)
				require.NoError(t, w.l.Acquire(w.ctx, 1))
				require.LessOrEqual(t, w.elapsed(), 25*time.Second+1250*time.Millisecond)
			})
		}
		wg.Go(func() {
			time.Sleep(5 * time.Second)
			ok, err := w.l.TryAcquire(w.ctx, 1, 2*time.Second)
			require.False(t, ok)
			require.ErrorIs(t, err, permit.ErrUnavailable, "nobody knows whether it would have been rejected")
			require.InDelta(t, 7*time.Second, w.elapsed(), float64(engine.Grace))
		})
		w.at(time.Second)
		first, sent := w.p.Probes(), w.p.Sent()
		require.LessOrEqual(t, sent, 1+11*2*retry.MaxAttempts)
		w.at(25 * time.Second)
		require.Equal(t, sent, w.p.Sent())
		require.LessOrEqual(t, w.p.Probes()-first, 24, "one probe a second")
		require.Greater(t, w.p.Probes()-first, 24*8/10)
		w.p.Fix()
		back := time.Now()
		for {
			if r, err := w.l.Allow(w.ctx, 1); err == nil && r.Granted {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(back), 1250*time.Millisecond)
		wg.Wait()
		require.False(t, w.l.Health().Down())
	})
}

// TestOneProbeAtATime checks that there is only one probe at a time, even if it is slow, that nobody waits for it, and that its
// result holds for all limiters.
func TestOneProbeAtATime(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		other := w.limiter(w.l.key + "other")
		w.server.SetRate(other.key, overall(10, time.Minute))
		w.granted(1)
		w.p.Cut(testworld.Rejected)
		w.l.fails(1, permit.ErrUnavailable)
		w.p.Always(testworld.Fault{After: 400 * time.Millisecond, Err: testworld.Rejected})
		time.Sleep(1250 * time.Millisecond)
		probes, sent, begin := w.p.Probes(), w.p.Sent(), time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := other.Allow(w.ctx, 1)
				require.ErrorIs(t, err, permit.ErrUnavailable)
				require.ErrorContains(t, err, other.key, "names the limiter that was asked")
			})
		}
		wg.Wait()
		require.Equal(t, begin, time.Now())
		require.Equal(t, sent, w.p.Sent())
		time.Sleep(10 * time.Second)
		require.LessOrEqual(t, w.p.Probes()-probes, 10)

		var served [2]time.Duration
		for i, l := range []*limiter{w.l, other} {
			wg.Go(func() {
				require.NoError(t, l.Acquire(w.ctx, 1))
				served[i] = w.elapsed()
			})
		}
		time.Sleep(200 * time.Millisecond)
		w.p.Fix()
		wg.Wait()
		require.Equal(t, served[0], served[1])
	})
}

// TestOutageWhileTriesYield checks that an outage also fails tries that are queued behind the waiters because the
// first waiter was passed over.
func TestOutageWhileTriesYield(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(4)
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		go func() { _ = w.l.Acquire(ctx, 10) }()
		w.at(59 * time.Second)
		w.granted(1)
		w.at(61500 * time.Millisecond)
		w.p.Always(testworld.Fault{After: 50 * time.Millisecond, Err: testworld.Rejected})
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				w.l.fails(1, permit.ErrUnavailable)
				require.LessOrEqual(t, w.elapsed(), 63*time.Second)
			})
		}
		wg.Wait()
	}, recheck(time.Hour))
}

// TestOutageLimit checks that waiters fail as well once the outage limit has passed.
func TestOutageLimit(t *testing.T) {
	inWorld(t, overall(1, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				err := w.l.Acquire(w.ctx, 1)
				require.ErrorIs(t, err, permit.ErrUnavailable)
				require.ErrorContains(t, err, "LOADING")
				require.GreaterOrEqual(t, w.elapsed(), 20*time.Second)
				require.LessOrEqual(t, w.elapsed(), 23*time.Second)
			})
		}
		w.at(9500 * time.Millisecond)
		w.p.Cut(testworld.Loading)
		wg.Wait()
		synctest.Wait()
		w.idle()
		w.p.Fix()
		w.at(time.Minute + time.Second)
		w.granted(1)
	}, outageLimit(10*time.Second))
}

// TestHiccup checks that a failure that a retry cures does not disturb anyone: no request fails, and no permit is
// spent twice.
func TestHiccup(t *testing.T) {
	for _, fault := range []testworld.Fault{testworld.LostReply, {Err: testworld.Lost}, {Err: testworld.Rejected}, {Err: testworld.Exhausted},
		{Err: testworld.Loading}} {
		inWorld(t, overall(1000, time.Second), func(t *testing.T, w *world) {
			w.granted(1)
			var left atomic.Int64
			w.p.Hook(func(c testworld.Call) testworld.Fault {
				if c.Op != "probe" && left.Add(-1) >= 0 {
					return fault
				}
				return testworld.Fault{}
			})
			var wg sync.WaitGroup
			var granted atomic.Int64
			for i := range 200 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
					ok := redistest.Must(w.l.TryAcquire(w.ctx, 1, time.Duration(i%3)*time.Second))(t)
					if ok {
						granted.Add(1)
					}
				})
			}
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				left.Store(retry.MaxAttempts - 1)
			}
			wg.Wait()
			require.EqualValues(t, 200, granted.Load())
			time.Sleep(2 * time.Second)
			require.EqualValues(t, 1+200, w.server.Granted(w.l.key, time.Time{}, time.Time{}))
			w.granted(1000)
		})
	}
}

// TestContextEndsTheWaitForRedis checks that a call returns when its context ends during an outage.
func TestContextEndsTheWaitForRedis(t *testing.T) {
	inWorld(t, overall(1, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		w.p.Cut(testworld.Rejected)
		ctx := w.leaving(7 * time.Second)
		err := w.l.Acquire(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, permit.ErrUnavailable)
		require.Equal(t, 7*time.Second, w.elapsed())
		time.Sleep(2 * time.Second)
		w.idle()
		sent := w.p.Sent()
		time.Sleep(time.Hour)
		require.Equal(t, sent, w.p.Sent(), "nobody waits, nobody asks")
		require.True(t, w.l.Health().Down())
		w.p.Fix()
		time.Sleep(1250 * time.Millisecond)
		require.False(t, w.l.Health().Down())
	})
}

// TestLocalFaultIsNoOutage checks that an exhausted connection pool does not start an outage. It is a local
// fault, and other requests may still be sent.
func TestLocalFaultIsNoOutage(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.p.Next(slices.Repeat([]testworld.Fault{{Err: testworld.Exhausted}}, retry.MaxAttempts)...)
		_, err := w.l.on(failOpen).Allow(w.ctx, 1)
		require.ErrorIs(t, err, permit.ErrOverloaded)
		require.NotErrorIs(t, err, permit.ErrUnavailable)
		require.ErrorIs(t, err, testworld.Exhausted.Err)
		require.False(t, w.l.Health().Down())
		// A waiter keeps asking about once a second.
		w.p.Cut(testworld.Exhausted)
		begin := time.Now()
		time.AfterFunc(5*time.Second, w.p.Fix)
		before := w.p.Sent()
		require.NoError(t, w.l.Acquire(w.ctx, 1))
		require.LessOrEqual(t, time.Since(begin), 5*time.Second+1250*time.Millisecond)
		require.LessOrEqual(t, w.p.Sent()-before, 5+retry.MaxAttempts)
		w.granted(1)
	})
}

// TestOutageOfAShard checks that the shards of a ring fail independently: what a call to one limiter reveals
// applies to the limiters on the same shard.
func TestOutageOfAShard(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.p.Divide(func(key string) string { return map[bool]string{true: key[:1]}[key != "unknown"] })
		far, near, unknown := w.limiter("far"), w.limiter("limiter 2"), w.limiter("unknown")
		for _, l := range []*limiter{far, near, unknown} {
			w.server.SetRate(l.key, overall(10, time.Minute))
		}
		w.goesAway()
		require.True(t, near.Health().Down())
		require.False(t, far.Health().Down())
		require.False(t, unknown.Health().Down())
		sent := w.p.Sent()
		near.fails(1, permit.ErrUnavailable)
		require.Equal(t, sent, w.p.Sent())
		w.p.Fix()
		for _, l := range []*limiter{far, unknown} {
			require.True(t, l.within(1, 0))
		}
		w.l.fails(1, permit.ErrUnavailable)
	})
}

// TestLostReplyIsAReplay checks that a request whose reply is lost is sent again, under the same ID and as a
// replay, so that its permits are spent only once. This holds even if no permits are left, and if the replay is the
// probe that ends an outage.
func TestLostReplyIsAReplay(t *testing.T) {
	for lost := 1; lost < retry.MaxAttempts; lost++ {
		inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
			w.p.Next(slices.Repeat([]testworld.Fault{testworld.LostReply}, lost)...)
			w.granted(10)
			w.used(10)
			calls := w.p.Calls()
			require.Len(t, calls, lost+1)
			for i, c := range calls {
				require.Equal(t, i > 0, c.Replay)
				require.Equal(t, calls[0].Batch.ID, c.Batch.ID)
			}
		})
	}
	for name, ask := range map[string]func(w *world) error{
		"in a goroutine of its own": func(w *world) error {
			ctx, cancel := context.WithCancel(w.ctx)
			defer cancel()
			return w.l.Acquire(ctx, 7)
		},
		"in that of its caller": func(w *world) error { return w.l.Acquire(w.ctx, 7) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
				w.p.Next(testworld.LostReply)
				w.p.Cut(testworld.Rejected)
				time.AfterFunc(10*time.Second, w.p.Fix)
				require.NoError(t, ask(w))
				require.Greater(t, w.elapsed(), 10*time.Second)
				require.LessOrEqual(t, w.elapsed(), 11250*time.Millisecond)
				w.used(7)
				require.EqualValues(t, 7, w.server.Granted(w.l.key, time.Time{}, time.Time{}))
				require.Len(t, w.server.Grants(w.l.key), 1)
			})
		})
	}
}

// TestWaitersResume checks that at the end of an outage requests are sent for the waiters as soon as the probe has
// its reply, in the order in which the waiters arrived.
func TestWaitersResume(t *testing.T) {
	inWorld(t, overall(3, time.Minute), func(t *testing.T, w *world) {
		begun := w.goesAway()
		order := make(chan int, 4)
		var at [4]time.Time
		for i := range 4 {
			ctx, cancel := context.WithCancel(w.ctx)
			defer cancel()
			go func() {
				require.NoError(t, w.l.Acquire(ctx, 1))
				at[i] = time.Now()
				order <- i
			}()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(500 * time.Millisecond)
		w.p.Fix()
		before := w.p.Sent()
		for range 3 {
			require.Less(t, <-order, 3)
		}
		require.True(t, at[0].Equal(at[1]) && at[1].Equal(at[2]))
		require.LessOrEqual(t, at[0].Sub(begun), 1250*time.Millisecond)
		require.LessOrEqual(t, w.p.Sent()-before, 3, "the probe, which is the first one's call; the others; and one that looks for lost permits")
		require.Equal(t, 3, <-order)
		require.Equal(t, time.Minute, at[3].Sub(at[0]))
	}, recheck(time.Hour))
}

// TestWhoYieldsInFlight checks that what yields when an outage begins, in one flight, because another one notices the outage, is in
// neither of them any more: its request is used by others at once.
func TestWhoYieldsInFlight(t *testing.T) {
	inWorld(t, overall(100, time.Second), func(t *testing.T, w *world) {
		for range 100 {
			w.p.Always(testworld.Fault{Err: testworld.Rejected})
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 3 {
						_, _ = w.l.Handle.Acquire(w.ctx, engine.Request{Permits: 1, Wait: true, Came: time.Now(), Yields: true})
					}
				})
				wg.Go(func() {
					for range 3 {
						_, _ = w.l.Allow(w.ctx, 1)
					}
				})
			}
			time.Sleep(3 * time.Second)
			w.p.Fix()
			wg.Wait()
			time.Sleep(2 * time.Second)
		}
		w.idle()
	})
}
