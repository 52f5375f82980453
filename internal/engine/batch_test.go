// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/testworld"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestBatchedRequestsAreOneCall checks that a queue of requests of many sizes is sent in one call, and that equal
// requests share one run.
func TestBatchedRequestsAreOneCall(t *testing.T) {
	inWorld(t, overall(1000, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		var permits []int64
		for range 100 {
			permits = append(permits, 1, 2, 5)
		}
		for i, r := range w.batched(permits) {
			require.NoError(t, r.Err)
			require.True(t, r.Granted, i)
		}
		calls := w.p.Calls()
		require.Len(t, calls, 2)
		require.Equal(t, []permit.Run{{Permits: 1, Count: 100}, {Permits: 2, Count: 100}, {Permits: 5, Count: 100}}, calls[1].Batch.Runs)
		w.used(801)
	})
}

// TestBatchedRequestsBeyondOneCall checks a queue that is longer than one call can carry.
func TestBatchedRequestsBeyondOneCall(t *testing.T) {
	inWorld(t, overall(1<<30, time.Second), func(t *testing.T, w *world) {
		require.Equal(t, 5*permit.MaxRequests, w.together(3, 5*permit.MaxRequests))
		require.Equal(t, 5, w.p.Sent())
		var permits []int64
		for i := range 3 * permit.MaxRuns {
			permits = append(permits, int64(i+1))
		}
		for i, r := range w.batched(permits) {
			require.True(t, r.Granted && r.Err == nil, "%d: %v", i, r.Err)
		}
		require.Equal(t, 5+3, w.p.Sent())
		n := int64(3 * permit.MaxRuns)
		w.used(15*permit.MaxRequests + n*(n+1)/2)
	})
}

// TestBatchedOutcomesAreThoseOfOneAfterAnother checks that batched requests get the outcomes that they would get
// if they were sent one after another at the same instant: the same grants, permits left, waits and errors.
func TestBatchedOutcomesAreThoseOfOneAfterAnother(t *testing.T) {
	inWorld(t, overall(1, time.Second), func(t *testing.T, w *world) {
		other := w.limiter("one after another")
		proptest.Check(t, func(rt *rapid.T) {
			rate := rapid.Int64Range(1, 40).Draw(rt, "rate")
			for _, l := range []*limiter{w.l, other} {
				w.server.SetRate(l.key, overall(rate, time.Minute))
			}
			for range rapid.IntRange(0, 4).Draw(rt, "before") {
				n := rapid.Int64Range(1, rate).Draw(rt, "n")
				a := w.try(n)
				b := other.try(n)
				require.Equal(rt, a.Granted, b.Granted)
				time.Sleep(time.Duration(rapid.IntRange(1, 3000).Draw(rt, "ms")) * time.Millisecond)
			}
			permits := rapid.SliceOfN(rapid.Int64Range(1, rate+2), 1, 30).Draw(rt, "permits")
			// The order of requests of one instant is undefined, so the comparison takes them by size, in the order
			// in which the sizes first appear.
			var sizes []int64
			for _, n := range permits {
				if !slices.Contains(sizes, n) {
					sizes = append(sizes, n)
				}
			}
			got := w.batched(permits)
			for _, size := range sizes {
				for i, n := range permits {
					if n != size {
						continue
					}
					want, err := other.Allow(w.ctx, n)
					if n > rate {
						require.ErrorIs(rt, got[i].Err, permit.ErrPermitsExceedRate)
						require.ErrorIs(rt, err, permit.ErrPermitsExceedRate)
						continue
					}
					require.NoError(rt, got[i].Err)
					require.Equal(rt, want.Granted, got[i].Granted, "%d of %v", n, permits)
					if want.Granted {
						require.Equal(rt, want.Available, got[i].Available)
					}
				}
			}
			for i, n := range permits { // rejected requests report the state after the whole batch
				if n <= rate && !got[i].Granted {
					want := other.try(n)
					require.Equal(rt, want.Wait, got[i].Wait)
					require.Equal(rt, want.Available, got[i].Available)
				}
			}
		})
	})
}

// TestTriesAreBatchedBehindTwoCalls checks that at most two flights of tries are in flight and that requests are batched
// behind them. Another flight starts only if one of the two is slow.
func TestTriesAreBatchedBehindTwoCalls(t *testing.T) {
	inWorld(t, overall(100, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		w.delay(800 * time.Millisecond)
		before := w.p.Sent()
		var wg sync.WaitGroup
		try := func(at, until time.Duration) {
			wg.Go(func() {
				w.at(at)
				require.True(t, w.try(1).Granted)
				require.Equal(t, until, w.elapsed())
			})
		}
		for i := range 2 {
			ms := time.Duration(i) * time.Millisecond
			try(ms, 800*time.Millisecond+ms)
		}
		for i := range 6 { // they leave with the request at 101 ms
			try(time.Duration(10+i)*time.Millisecond, 901*time.Millisecond)
		}
		try(101*time.Millisecond, 901*time.Millisecond)
		wg.Wait()
		require.Equal(t, 3, w.p.Sent()-before)
	})
}

// TestACallGoesOn checks that what one call leaves undone is done by further calls before any caller gets its
// outcome: the rest of a batch, and a walk, which continues at its cursor.
func TestACallGoesOn(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		reply := func(next permit.Next, c permit.Cursor) testworld.Fault {
			return testworld.Fault{Reply: func(a *permit.Reply) { a.Next, a.Cursor = next, c }}
		}
		w.p.Next(reply(permit.On, permit.Cursor{}), reply(permit.On, permit.Cursor{Members: 512, Permits: 7}),
			reply(permit.On, permit.Cursor{Members: 1024, Permits: 8}))
		w.granted(4)
		calls := w.p.Calls()
		require.Len(t, calls, 4)
		require.Zero(t, calls[1].Batch.Cursor)
		require.Equal(t, permit.Cursor{Members: 512, Permits: 7}, calls[2].Batch.Cursor)
		require.Equal(t, permit.Cursor{Members: 1024, Permits: 8}, calls[3].Batch.Cursor)
		for i := range calls {
			for j := range i {
				require.NotEqual(t, calls[i].Batch.ID, calls[j].Batch.ID, "each is a call of its own")
			}
		}
	})
}

// TestHeals checks that if a reply says that the limiter is to be healed, it is, and the requests are sent again.
func TestHeals(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.p.Next(testworld.Fault{Reply: func(a *permit.Reply) { a.Next = permit.Heal }})
		r := w.try(3)
		require.True(t, r.Granted)
		require.Equal(t, 3, w.p.Sent(), "asked, healed, asked again")
		require.Equal(t, 1, w.calls("heal"))
	})
}

// TestErrorsOfReplies checks that errors that Redis replies, for instance for a limiter without a rate, reach the
// callers of that limiter and affect nothing else.
func TestErrorsOfReplies(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		nobody := w.limiter("nobody")
		for range 3 {
			nobody.fails(1, permit.ErrNotInitialized)
			require.ErrorIs(t, nobody.Acquire(w.ctx, 1), permit.ErrNotInitialized)
			ok, err := nobody.TryAcquire(w.ctx, 1, time.Second)
			require.ErrorIs(t, err, permit.ErrNotInitialized)
			require.False(t, ok)
		}
		w.p.Next(testworld.Fault{Err: testworld.Denied})
		_, err := w.l.Allow(w.ctx, 1)
		require.ErrorIs(t, err, testworld.Denied.Err)
		require.ErrorContains(t, err, `acquire of "limiter"`)
		require.NotErrorIs(t, err, permit.ErrUnavailable)
		require.Zero(t, w.elapsed())
		require.False(t, w.l.Health().Down())
		_, err = w.l.Allow(w.ctx, 11)
		require.ErrorIs(t, err, permit.ErrPermitsExceedRate)
		require.ErrorContains(t, err, `asked for 11 permits of "limiter", whose rate is 10`)
		require.ErrorIs(t, w.l.Acquire(w.ctx, 11), permit.ErrPermitsExceedRate)
		w.granted(10)
	})
}
