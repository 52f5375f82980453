// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/engine/list"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/testworld"
	"github.com/stretchr/testify/require"
)

// TestAllWithoutRedis checks lists of limiters during an outage. They are granted from the local quotas all or
// nothing, at once or after a wait, and the grants are reconciled when the server is back.
func TestAllWithoutRedis(t *testing.T) {
	inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
		other := w.limiter(w.l.key + "other")
		w.server.SetRate(other.key, overall(10, 4*time.Second))
		share := localQuota(overall(4, time.Second), 2)
		near, far := w.l.on(share), other.on(share)
		demands := func(a, b int64) []list.Demand { return []list.Demand{near.of(a), far.of(b)} }
		require.Equal(t, allGranted, redistest.Must(w.all(w.ctx, -1, demands(1, 1)...))(t))
		for _, l := range []*limiter{near, far} {
			l.try(1)
		}
		begun := w.goesAway()
		at := func(d time.Duration) { time.Sleep(time.Until(begun.Add(d))) }

		r := redistest.Must(w.all(w.ctx, -1, demands(1, 1)...))(t)
		require.Equal(t, list.Outcome{Bound: 1, Wait: 4 * time.Second, Degraded: true}, r)
		require.False(t, redistest.Must(w.all(w.ctx, time.Second, demands(1, 1)...))(t).Granted)
		require.Equal(t, time.Second, time.Since(begun))
		require.NoError(t, w.acquireAll(w.ctx, demands(1, 1)...))
		require.Equal(t, 4*time.Second, time.Since(begun))
		// One limiter rejects, so nothing is taken from the other.
		r = redistest.Must(w.all(w.ctx, -1, demands(2, 1)...))(t)
		require.Equal(t, list.Outcome{Bound: 0, Wait: time.Second, Degraded: true}, r)
		require.True(t, redistest.Must(w.all(w.ctx, -1, demands(1, 4)...))(t).Granted, "4 of 5 were left of the other")
		_, err := w.all(w.ctx, -1, demands(3, 1)...)
		require.ErrorIs(t, err, permit.ErrUnavailable)
		require.ErrorContains(t, err, "local quota of 2")
		_, err = w.all(w.ctx, -1, near.of(1), other.of(1))
		require.ErrorIs(t, err, permit.ErrUnavailable, "one is closed")
		r = redistest.Must(w.all(w.ctx, -1, w.l.on(failOpen).of(9), other.on(failOpen).of(9)))(t)
		require.Equal(t, list.Outcome{Granted: true, Bound: -1, Degraded: true}, r)
		ctx, cancel := context.WithCancel(w.ctx)
		time.AfterFunc(100*time.Millisecond, cancel)
		require.ErrorIs(t, w.acquireAll(ctx, demands(1, 1)...), context.Canceled)

		at(4500 * time.Millisecond)
		w.p.Fix()
		require.NoError(t, w.acquireAll(w.ctx, demands(1, 5)...), "what the telling has left, one second after it was granted")
		require.False(t, w.l.Health().Down())
		require.EqualValues(t, 10, w.server.Used(other.key), "5 were told, 5 are granted")
	})
}

// onTwoServers runs f with limiters on two servers of a ring, of which that of down is cut off and known to be.
func onTwoServers(t *testing.T, f func(t *testing.T, w *world, down, up *limiter), opts ...func(*engine.Config)) {
	t.Helper()
	inWorld(t, permit.Rate{}, func(t *testing.T, w *world) {
		w.p.InTurn()
		w.p.Divide(func(key string) string { return key[:len("other-a")] })
		l := w.others(overall(4, time.Minute), overall(4, 10*time.Second))
		l[0].granted(1)
		cut(w, "other-a")
		_, _ = l[0].Allow(w.ctx, 1)
		time.Sleep(time.Second)
		require.True(t, l[0].Health().Down())
		require.False(t, l[1].Health().Down())
		w.epoch = time.Now()
		f(t, w, l[0], l[1])
	}, opts...)
}

// cut has calls to the servers that are named by the keys be rejected, and no others.
func cut(w *world, keys ...string) {
	w.p.Hook(func(c testworld.Call) (f testworld.Fault) {
		if slices.Contains(keys, c.Key) {
			f.Err = testworld.Rejected
		}
		return f
	})
}

// granted has Redis grant permits.
func (l *limiter) granted(permits int64) {
	l.w.t.Helper()
	r := l.try(permits)
	require.True(l.w.t, r.Granted && !r.Degraded, "%+v", r)
}

// TestAListOnTwoServers has one of the two servers of a list be down. The policy of its limiter decides that one, Redis decides the
// other, and the list is granted all or nothing.
func TestAListOnTwoServers(t *testing.T) {
	degraded := list.Outcome{Granted: true, Bound: -1, Degraded: true}
	t.Run("fail open", func(t *testing.T) {
		onTwoServers(t, func(t *testing.T, w *world, down, up *limiter) {
			for range 4 {
				w.decides(degraded, down.on(failOpen).of(3), up.on(failOpen).of(1))
			}
			w.decides(boundBy(1, 10*time.Second), down.on(failOpen).of(1), up.on(failOpen).of(1))
			require.NoError(t, w.acquireAll(w.ctx, down.on(failOpen).of(1), up.on(failOpen).of(1)))
			require.Equal(t, 10*time.Second, w.elapsed(), "as Redis says")
			w.decides(degraded, down.on(failOpen).of(1), up.of(1)) // the policy of one that is up does not matter
			require.EqualValues(t, 2, w.server.Used(up.key))
		})
	})
	t.Run("fail closed", func(t *testing.T) {
		onTwoServers(t, func(t *testing.T, w *world, down, up *limiter) {
			_, err := w.all(w.ctx, -1, down.of(1), up.on(failOpen).of(1))
			require.ErrorIs(t, err, permit.ErrUnavailable)
			require.ErrorContains(t, err, down.key)
			time.AfterFunc(7*time.Second, func() { cut(w) })
			require.NoError(t, w.acquireAll(w.ctx, down.of(1), up.on(failOpen).of(1)))
			require.InDelta(t, 7*time.Second, w.elapsed(), float64(1250*time.Millisecond), "at the end of the outage")
			require.EqualValues(t, 1, w.server.Used(up.key), "the list that failed has taken nothing")
		})
	})
	t.Run("local quota", func(t *testing.T) {
		onTwoServers(t, func(t *testing.T, w *world, down, up *limiter) {
			down = down.on(localQuota(overall(4, time.Minute), 2))
			w.at(time.Minute) // an interval after the outage began
			up.granted(4)
			w.decides(boundBy(1, 10*time.Second), down.of(2), up.of(1))
			w.decides(boundBy(1, 10*time.Second), down.of(2), up.of(1)) // the first has used nothing of the quota
			w.at(70 * time.Second)
			w.decides(degraded, down.of(2), up.of(1))
			w.decides(list.Outcome{Bound: 0, Wait: time.Minute, Degraded: true}, down.of(1), up.of(1))
			require.EqualValues(t, 1, w.server.Used(up.key), "the list that was rejected has taken nothing")
			a, err := w.all(w.ctx, 5*time.Second, down.of(1), up.of(1))
			require.NoError(t, err)
			require.False(t, a.Granted)
			require.Equal(t, 75*time.Second, w.elapsed())
			require.NoError(t, w.acquireAll(w.ctx, up.of(1), down.of(1)))
			require.Equal(t, 130*time.Second, w.elapsed(), "when the quota has come back")
			_, err = w.all(w.ctx, -1, down.of(3), up.of(1))
			require.ErrorContains(t, err, "local quota of 2")
		})
	})
	t.Run("both go down", func(t *testing.T) {
		onTwoServers(t, func(t *testing.T, w *world, down, up *limiter) {
			cut(w, down.key, up.key)
			begin := time.Now()
			w.decides(degraded, down.on(failOpen).of(1), up.on(failOpen).of(1))
			require.Less(t, time.Since(begin), time.Second)
			require.True(t, up.Health().Down())
			cut(w, down.key)
			time.Sleep(1300 * time.Millisecond)
			w.decides(degraded, down.on(failOpen).of(1), up.on(failOpen).of(1))
			require.EqualValues(t, 1, w.server.Used(up.key))
			cut(w)
			time.Sleep(1300 * time.Millisecond)
			w.decides(allGranted, down.on(failOpen).of(1), up.on(failOpen).of(1))
		})
	})
	t.Run("the one that is up goes down beside a waiting list", func(t *testing.T) {
		onTwoServers(t, func(t *testing.T, w *world, down, up *limiter) {
			up.granted(4)
			time.AfterFunc(time.Second, func() {
				cut(w, down.key, up.key)
				_, _ = up.on(failOpen).Allow(w.ctx, 1)
			})
			require.NoError(t, w.acquireAll(w.ctx, down.on(failOpen).of(1), up.on(failOpen).of(1)))
			require.InDelta(t, 1500*time.Millisecond, w.elapsed(), float64(500*time.Millisecond), "as soon as that is known")
		})
	})
	t.Run("the one that is down comes back beside a waiting list", func(t *testing.T) {
		onTwoServers(t, func(t *testing.T, w *world, down, up *limiter) {
			up.granted(4)
			time.AfterFunc(time.Second, func() { cut(w) })
			a := redistest.Must(w.all(w.ctx, 0, down.on(failOpen).of(3), up.on(failOpen).of(1)))(t)
			require.Equal(t, allGranted, a)
			require.EqualValues(t, 4, w.server.Used(down.key), "Redis has granted it")
			require.EqualValues(t, 1, w.server.Used(up.key))
		})
	})
	t.Run("settled", func(t *testing.T) {
		onTwoServers(t, func(t *testing.T, w *world, down, up *limiter) {
			first, second := down.on(failOpen).of(1), up.of(2)
			first.Own, second.Own = true, true
			a := redistest.Must(w.lists.Allow(w.ctx, []list.Demand{first, second}))(t)
			require.Len(t, a.Asked, 2)
			require.Zero(t, a.Asked[0], "Redis does not know of it")
			require.NoError(t, up.Handle.Settle(w.ctx, a.Asked[1], 2, 0))
			require.Zero(t, w.server.Used(up.key))
		})
	})
	t.Run("many callers", func(t *testing.T) {
		onTwoServers(t, func(t *testing.T, w *world, down, up *limiter) {
			down = down.on(failOpen)
			var wg sync.WaitGroup
			var granted atomic.Int64
			for range 20 {
				wg.Go(func() {
					for w.elapsed() < 25*time.Second {
						if a, err := w.all(w.ctx, 15*time.Second, down.of(1), up.of(1)); err == nil && a.Granted {
							granted.Add(1)
						}
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 16, granted.Load(), "4 at once and in each 10 s, until the last callers have waited for 15 s")
			require.NoError(t, w.e.CheckIdle())
		})
	})
}

func TestAllOrNothing(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(5, time.Second), overall(20, 10*time.Second), permit.Rate{Type: permit.PerClient, Permits: 3, Interval: time.Minute})
		a, b, c := l[0], l[1], l[2]
		w.decides(allGranted, a.of(1), b.of(2), c.of(3))
		w.has(a, 4)
		w.has(b, 18)
		require.EqualValues(t, 3, w.server.Used(c.key))
		w.decides(boundBy(0, time.Minute), c.of(1), a.of(1))
		w.has(a, 4)
		w.decides(boundBy(2, time.Minute), a.of(5), b.of(1), c.of(1))
		w.has(b, 18)
		w.decides(boundBy(0, time.Second), a.of(5), b.of(1))
		w.at(999 * time.Millisecond)
		w.decides(boundBy(0, time.Millisecond), a.of(5), b.of(1))
		w.at(time.Second)
		w.decides(allGranted, a.of(5), b.of(1))
		w.has(b, 17)
	})
}

// TestTheOneThatBound checks that a rejected list reports the limiter with the longest wait.
func TestTheOneThatBound(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(1, time.Second), overall(1, time.Minute), overall(1, 10*time.Second))
		for _, l := range l {
			require.NoError(t, l.Acquire(w.ctx, 1))
		}
		w.decides(boundBy(1, time.Minute), l[0].of(1), l[1].of(1), l[2].of(1))
		w.release(l[1], 1)
		w.decides(boundBy(2, 10*time.Second), l[0].of(1), l[1].of(1), l[2].of(1))
	})
}

func TestAllWaits(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(2, time.Second), overall(3, 5*time.Second))
		demands := []list.Demand{l[0].of(1), l[1].of(1)}
		for i, at := range []time.Duration{0, 0, 1, 5, 5, 6, 10, 10, 11} {
			require.NoError(t, w.acquireAll(w.ctx, demands...))
			require.Equal(t, at*time.Second, w.elapsed(), i)
		}
		require.Equal(t, boundBy(1, time.Second), redistest.Must(w.all(w.ctx, 3*time.Second, demands...))(t))
		require.Equal(t, 14*time.Second, w.elapsed(), "rejected when its time was up")
		require.Equal(t, allGranted, redistest.Must(w.all(w.ctx, 3*time.Second, demands...))(t))
		require.Equal(t, 15*time.Second, w.elapsed())
	})
}

// TestTriesDoNotStarveAList checks that requests that do not wait take free permits for one interval, and that from
// then on the permits that a list waits for are kept for it.
func TestTriesDoNotStarveAList(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(5, time.Second), overall(5, time.Second))
		ctx, cancel := context.WithCancel(w.ctx)
		var crowd sync.WaitGroup
		for i := range 10 {
			crowd.Go(func() {
				for ctx.Err() == nil {
					_, err := l[i%2].Allow(ctx, 1)
					if err != nil {
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		w.at(100 * time.Millisecond)
		require.NoError(t, w.acquireAll(w.ctx, l[0].of(5), l[1].of(5)))
		t.Logf("served after %v", w.elapsed())
		require.Less(t, w.elapsed(), 10*time.Second)
		cancel()
		crowd.Wait()
	})
}

// TestAListHoldsUpOnlyTheLimiterThatBound checks that while a list waits for one limiter, the permits of its other
// limiters are free for other callers.
func TestAListHoldsUpOnlyTheLimiterThatBound(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(1, time.Minute), overall(10, time.Second))
		require.NoError(t, l[0].Acquire(w.ctx, 1))
		done := make(chan error, 1)
		go func() { done <- w.acquireAll(w.ctx, l[0].of(1), l[1].of(1)) }()
		for range 50 {
			require.NoError(t, l[1].Acquire(w.ctx, 1))
		}
		require.Equal(t, 4*time.Second, w.elapsed())
		require.NoError(t, <-done)
		require.Equal(t, time.Minute, w.elapsed())
	})
}

// TestReleaseWakesAList checks that a release by this process wakes a list that waits.
func TestReleaseWakesAList(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(1, time.Hour), overall(10, time.Second))
		require.NoError(t, l[0].Acquire(w.ctx, 1))
		done := make(chan error, 1)
		go func() { done <- w.acquireAll(w.ctx, l[0].of(1), l[1].of(1)) }()
		w.at(1300 * time.Millisecond)
		w.release(l[0], 1)
		require.NoError(t, <-done)
		require.Equal(t, 1300*time.Millisecond, w.elapsed())
	})
}

// TestAListQueues checks that a list and callers of one of its limiters are served in the order in which they
// arrived.
func TestAListQueues(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(1, time.Second), overall(10, time.Second))
		require.NoError(t, l[0].Acquire(w.ctx, 1))
		order := make(chan int, 3)
		for i := range 3 {
			go func() {
				if i == 1 {
					require.NoError(t, w.acquireAll(w.ctx, l[0].of(1), l[1].of(1)))
				} else {
					require.NoError(t, l[0].Acquire(w.ctx, 1))
				}
				order <- i
			}()
			time.Sleep(time.Millisecond)
		}
		for i := range 3 {
			require.Equal(t, i, <-order)
			require.Equal(t, time.Duration(i+1)*time.Second, w.elapsed())
		}
	})
}

func TestALeavingListLeavesNothing(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(1, time.Hour), overall(10, time.Hour))
		require.NoError(t, l[0].Acquire(w.ctx, 1))
		for range 20 {
			ctx := w.leaving(50 * time.Millisecond)
			require.ErrorIs(t, w.acquireAll(ctx, l[0].of(1), l[1].of(1)), context.DeadlineExceeded)
		}
		require.Equal(t, time.Second, w.elapsed())
		w.has(l[1], 10)
		w.release(l[0], 1)
		w.decides(allGranted, l[0].of(1), l[1].of(1))
		done := make(chan error, 1)
		go func() { done <- w.acquireAll(w.ctx, l[0].of(1), l[1].of(1)) }()
		time.Sleep(time.Millisecond)
		w.close()
		require.ErrorIs(t, <-done, permit.ErrClosed)
	})
}

// release returns permits, as a caller of this process does.
func (w *world) release(l *limiter, permits int64) {
	w.server.Release(l.key, permits)
	l.Changed()
}

// TestErrorsOfLists checks that a list takes nothing if one of its limiters has no rate, has too small a rate, or
// is broken.
func TestErrorsOfLists(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(10, time.Minute), overall(3, time.Minute))
		for _, wait := range []time.Duration{-1, 0} {
			_, err := w.all(w.ctx, wait, l[0].of(1), w.limiter("without").of(1))
			require.ErrorIs(t, err, permit.ErrNotInitialized)
			_, err = w.all(w.ctx, wait, l[0].of(1), l[1].of(4))
			require.ErrorIs(t, err, permit.ErrPermitsExceedRate)
			require.ErrorContains(t, err, l[1].key)
			w.server.Spoil(l[1].key)
			_, err = w.all(w.ctx, wait, l[0].of(1), l[1].of(1))
			require.ErrorIs(t, err, permit.ErrMalformed)
			w.server.Unspoil(l[1].key)
			w.has(l[0], 10)
		}
		w.p.Next(testworld.Fault{Err: testworld.Denied})
		_, err := w.all(w.ctx, -1, l[0].of(1), l[1].of(1))
		require.ErrorIs(t, err, testworld.Denied.Err)
		require.NotErrorIs(t, err, permit.ErrUnavailable)
		w.decides(allGranted, l[0].of(10), l[1].of(3))
	})
}

// TestLostRepliesOfLists checks that a list whose reply is lost is sent again, and that its permits are taken once,
// whichever of its calls lost the reply.
func TestLostRepliesOfLists(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		for after := range 3 {
			l := w.others(overall(10, time.Minute), overall(3, time.Minute), overall(5, time.Minute))
			w.p.Next(slices.Repeat([]testworld.Fault{{}}, after)...)
			w.p.Next(testworld.LostReply, testworld.LostReply)
			w.decides(allGranted, l[0].of(10), l[1].of(3), l[2].of(4))
			w.has(l[0], 0)
			w.has(l[1], 0)
			w.has(l[2], 1)
			w.p.Forget()
		}
	})
}

// TestAListThatLeavesInFlight checks that what is granted to a list whose caller has left is refunded.
func TestAListThatLeavesInFlight(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(10, time.Minute), overall(3, time.Minute))
		w.delay(200 * time.Millisecond)
		w.p.Next(testworld.Fault{Err: testworld.Rejected})
		_, err := w.all(w.leaving(100*time.Millisecond), -1, l[0].of(2), l[1].of(2))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, testworld.Rejected.Err, "how the last attempt ended")
		time.Sleep(10 * time.Second)
		w.delay(900 * time.Millisecond)
		for name, ask := range map[string]func(ctx context.Context) error{
			"at once": func(ctx context.Context) error { _, err := w.all(ctx, -1, l[0].of(2), l[1].of(2)); return err },
			"waiting": func(ctx context.Context) error { return w.acquireAll(ctx, l[0].of(2), l[1].of(2)) },
		} {
			ctx := w.leaving(500 * time.Millisecond)
			begin := time.Now()
			require.ErrorIs(t, ask(ctx), context.DeadlineExceeded, name)
			require.Equal(t, 500*time.Millisecond, time.Since(begin))
			time.Sleep(10 * time.Second)
			w.has(l[0], 10)
			w.has(l[1], 3)
		}
		begin := time.Now()
		_, err = w.all(w.ctx, 700*time.Millisecond, l[0].of(2), l[1].of(2))
		require.ErrorIs(t, err, permit.ErrUnavailable)
		require.Equal(t, 700*time.Millisecond+engine.Grace, time.Since(begin))
		time.Sleep(10 * time.Second)
		w.has(l[0], 10)
		w.has(l[1], 3)
		w.idle()
	})
}

// TestAListThatWasRejectedIsRejected checks that a list whose time is up while it asks again, or asks the others of its limiters for their
// waits, is rejected, since Redis has rejected it, as a request for one limiter is; and that one whose context ends gets that for an error, and not that Redis is unavailable.
func TestAListThatWasRejectedIsRejected(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(1, time.Minute), overall(4, 50*time.Second))
		l[0].granted(1)
		l[1].granted(3)
		w.delay(200 * time.Millisecond)
		for _, timeout := range []time.Duration{700 * time.Millisecond, 900 * time.Millisecond, 1700 * time.Millisecond, 1900 * time.Millisecond, 2100 * time.Millisecond} {
			begin := time.Now()
			wait := time.Minute - w.elapsed() - timeout
			a, err := w.all(w.ctx, timeout, l[0].of(1), l[1].of(2))
			require.NoError(t, err, timeout)
			require.False(t, a.Granted)
			require.Zero(t, a.Bound)
			require.InDelta(t, wait, a.Wait, float64(200*time.Millisecond+engine.Grace), "%v, as of the reply", timeout)
			require.LessOrEqual(t, time.Since(begin), timeout+engine.Grace)
			err = w.acquireAll(w.leaving(timeout), l[0].of(1), l[1].of(2))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, permit.ErrUnavailable, timeout)
		}
		time.Sleep(10 * time.Second)
		w.has(l[1], 1)
	}, recheck(time.Second))
}

// TestAListWakesAtAReset checks that a list that waits notices at once that any of its limiters was deleted by this process, or has
// another rate, also while it asks.
func TestAListWakesAtAReset(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"while it waits":                300 * time.Millisecond,
		"before the call arrives":       2 * time.Millisecond,
		"while the reply is on its way": 60 * time.Millisecond,
		"while it starves":              3500 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			inBothWays(t, func(t *testing.T, w *world) {
				interval, starves := time.Hour, name == "while it starves"
				if starves {
					interval = 2 * time.Second
				}
				for _, deleted := range []bool{true, false} {
					l := w.others(overall(2, interval), overall(3, time.Hour))
					l[0].granted(2)
					if starves {
						time.AfterFunc(interval+time.Millisecond, func() { require.Zero(t, w.server.Redisson(l[0].key, 2), "it is faster") })
					}
					w.p.Always(testworld.Fault{Before: 50 * time.Millisecond, After: 50 * time.Millisecond})
					begin, reset := time.Now(), time.Time{}
					time.AfterFunc(after, func() {
						reset = time.Now()
						if deleted {
							w.server.Delete(l[1].key)
						} else {
							w.server.SetRate(l[1].key, overall(1, time.Hour))
						}
						l[1].Changed()
						w.lists.Reset(l[1].key)
					})
					err := w.acquireAll(w.ctx, l[0].of(2), l[1].of(2))
					if deleted {
						require.ErrorIs(t, err, permit.ErrNotInitialized)
					} else {
						require.ErrorIs(t, err, permit.ErrPermitsExceedRate)
					}
					require.GreaterOrEqual(t, time.Since(begin), after)
					require.LessOrEqual(t, time.Since(reset), 400*time.Millisecond)
					w.p.Always(testworld.Fault{})
				}
				w.idle()
			}, recheck(time.Hour))
		})
	}
}

// TestBehindAList checks that a caller who stands behind a list, so that no call asks for it, is told soon that the rate has become too
// low for it.
func TestBehindAList(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(10, 10*time.Hour), overall(10, time.Hour))
		l[0].granted(10)
		go func() { _ = w.acquireAll(w.ctx, l[0].of(1), l[1].of(2)) }()
		time.Sleep(100 * time.Millisecond)
		errs := make(chan error)
		for _, n := range []int64{3, 1, 2} {
			go func() { errs <- l[0].Acquire(w.ctx, n) }()
			time.Sleep(time.Millisecond)
		}
		w.server.SetRate(l[0].key, overall(1, 10*time.Hour)) // by another process
		require.Zero(t, w.server.Redisson(l[0].key, 1))
		begin := time.Now()
		for range 2 {
			require.ErrorIs(t, <-errs, permit.ErrPermitsExceedRate)
			require.LessOrEqual(t, time.Since(begin), time.Second)
		}
		w.close()
		require.ErrorIs(t, <-errs, permit.ErrClosed, "one may come true")
	}, recheck(time.Second))
}

// TestListsInAnOutage checks that lists wait during an outage, up to the outage limit, and are served when the
// server is back.
func TestListsInAnOutage(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(10, time.Minute), overall(3, time.Minute))
		w.goesAway()
		before, begin := w.p.Sent(), time.Now()
		_, err := w.all(w.ctx, -1, l[0].of(1), l[1].of(1))
		require.ErrorIs(t, err, permit.ErrUnavailable)
		require.Zero(t, time.Since(begin), "told at once")
		require.Equal(t, before, w.p.Sent(), "and nothing was sent")
		begin = time.Now()
		_, err = w.all(w.ctx, 5*time.Second, l[0].of(1), l[1].of(1))
		require.ErrorIs(t, err, permit.ErrUnavailable)
		require.Equal(t, 5*time.Second, time.Since(begin))
		begin = time.Now()
		require.ErrorIs(t, w.acquireAll(w.ctx, l[0].of(1), l[1].of(1)), permit.ErrUnavailable)
		require.GreaterOrEqual(t, time.Since(begin), 10*time.Second)
		require.LessOrEqual(t, time.Since(begin), 10*time.Second+1250*time.Millisecond)
		require.LessOrEqual(t, w.p.Sent()-before, 17, "one probe a second")
		time.AfterFunc(5*time.Second, w.p.Fix)
		begin = time.Now()
		require.NoError(t, w.acquireAll(w.ctx, l[0].of(1), l[1].of(1)))
		require.LessOrEqual(t, time.Since(begin), 6250*time.Millisecond)
	}, outageLimit(10*time.Second))
}

// TestAListInTurnUndoes checks that a list that is decided in turn refunds what it has when a later limiter fails.
// It also refunds the permits of that limiter if it is not known whether they were granted.
func TestAListInTurnUndoes(t *testing.T) {
	for name, test := range map[string]struct {
		fault   testworld.Fault
		refunds int
	}{
		"no reply":    {testworld.LostReply, 2},
		"not there":   {testworld.Fault{Err: testworld.Rejected}, 1},
		"not ready":   {testworld.Fault{Err: testworld.Loading}, 1},
		"is rejected": {testworld.Fault{Err: testworld.Denied}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, permit.Rate{}, func(t *testing.T, w *world) {
				w.p.InTurn()
				l := w.others(overall(10, time.Minute), overall(3, time.Minute), overall(3, time.Minute))
				asked := 0
				w.p.Hook(func(c testworld.Call) testworld.Fault {
					if c.Op == "acquire" && c.Key == l[1].key {
						asked++
						return test.fault
					}
					return testworld.Fault{}
				})
				_, err := w.all(w.ctx, -1, l[0].of(2), l[1].of(2), l[2].of(1))
				require.Error(t, err)
				synctest.Wait() // nobody waits for what goes back
				refunds := 0
				for _, c := range w.p.Calls() {
					if c.Op == "refund" {
						refunds++
					}
				}
				require.Equal(t, test.refunds, refunds)
				for i, n := range []int64{10, 3, 3} {
					w.has(l[i], n)
				}
			})
		})
	}
}

// TestAListWhoseCallIsLostInAnOutage checks that what a list may have been granted by a call whose reply was lost goes back when Redis
// is there again, however long that takes, as the list asks anew. When the Engine closes, the list does not wait for it.
func TestAListWhoseCallIsLostInAnOutage(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(10, time.Hour), overall(10, time.Hour))
		w.p.Hook(func(c testworld.Call) testworld.Fault {
			return testworld.Fault{Err: testworld.Lost, Runs: strings.HasPrefix(c.Op, "acquire")}
		})
		time.AfterFunc(20*time.Second, func() { w.p.Hook(nil) })
		_, err := w.all(w.ctx, time.Minute, l[0].of(3), l[1].of(4))
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 3, w.server.Used(l[0].key))
		require.EqualValues(t, 4, w.server.Used(l[1].key))
	}, outageLimit(time.Hour))
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(10, time.Hour), overall(10, time.Hour))
		w.p.Always(testworld.Fault{After: 2 * time.Second, Err: testworld.Lost})
		time.AfterFunc(time.Second, w.close)
		_, err := w.all(w.ctx, time.Minute, l[0].of(3), l[1].of(4))
		require.ErrorIs(t, err, permit.ErrClosed)
		require.Less(t, w.elapsed(), 5*time.Second)
	})
}
