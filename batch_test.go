package ratelimiter

import (
	"slices"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestBatchedRequestsAreOneCall checks that a queue of requests of many sizes is sent in one call, and that equal
// requests share one member.
func TestBatchedRequestsAreOneCall(t *testing.T) {
	inWorld(t, overall(1000, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		sent := count(w.rdb)
		var permits []int64
		for range 100 {
			permits = append(permits, 1, 2, 5)
		}
		for i, r := range batched(w.ctx, w.l, permits) {
			require.NoError(t, r.Err)
			require.True(t, r.Granted, i)
		}
		require.EqualValues(t, 1+1, sent.sent.Load(), "the server does not know acquire_rest yet, so that it is sent twice")
		used, members := w.used()
		require.EqualValues(t, 801, used)
		require.Equal(t, 1+3, members)
		require.EqualValues(t, 199, w.value())
	})
}

// TestBatchedRequestsBeyondOneCall checks a queue that is longer than one call can carry.
func TestBatchedRequestsBeyondOneCall(t *testing.T) {
	inWorld(t, overall(1<<30, time.Second), func(t *testing.T, w *world) {
		sent := count(w.rdb)
		granted, _, err := together(w.ctx, w.l, 3, 5*permit.MaxRequests)
		require.NoError(t, err)
		require.EqualValues(t, 5*permit.MaxRequests, granted)
		require.LessOrEqual(t, sent.sent.Load(), int64(5+2))
		require.GreaterOrEqual(t, sent.sent.Load(), int64(5))
		var permits []int64
		for i := range 3 * permit.MaxRuns {
			permits = append(permits, int64(i+1))
		}
		for i, r := range batched(w.ctx, w.l, permits) {
			require.True(t, r.Granted && r.Err == nil, "%d: %v", i, r.Err)
		}
		used, _ := w.used()
		n := int64(3 * permit.MaxRuns)
		require.EqualValues(t, 15*permit.MaxRequests+n*(n+1)/2, used)
	})
}

// TestBatchedRequestsBeyondOneMember checks batched requests whose sum does not fit into one member. Redisson
// allows rates that large.
func TestBatchedRequestsBeyondOneMember(t *testing.T) {
	inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
		require.NoError(t, w.rdb.HSet(w.ctx, w.l.redis.Keys.Hash, "rate", 1_000_000_000_000).Err())
		for _, r := range batched(w.ctx, w.l, []int64{3e9, 3e9, 1, 3e9}) {
			require.NoError(t, r.Err)
			require.True(t, r.Granted)
		}
		used, members := w.used()
		require.EqualValues(t, 9e9+1, used)
		require.Equal(t, 4, members)
		require.EqualValues(t, 1_000_000_000_000-9e9-1, w.value())
	})
}

// TestBatchedAnswersAreThoseOfOneAfterAnother checks that batched requests get the results that they would get if
// they were sent one after another at the same instant: the same grants, permits left, waits and errors.
func TestBatchedAnswersAreThoseOfOneAfterAnother(t *testing.T) {
	inWorld(t, overall(1, time.Second), func(t *testing.T, w *world) {
		check(t, func(rt *rapid.T) {
			rate := rapid.Int64Range(1, 40).Draw(rt, "rate")
			require.NoError(rt, w.l.SetRate(w.ctx, overall(rate, time.Minute)))
			m := &model{rate: rate, interval: time.Minute}
			for range rapid.IntRange(0, 4).Draw(rt, "before") {
				if n := rapid.Int64Range(1, rate).Draw(rt, "n"); m.acquire(w.elapsed(), n) {
					w.granted(n)
				}
				time.Sleep(time.Duration(rapid.IntRange(1, 3000).Draw(rt, "ms")) * time.Millisecond)
			}
			permits := rapid.SliceOfN(rapid.Int64Range(1, rate+2), 1, 30).Draw(rt, "permits")
			// The order of requests of one instant is undefined, so the model takes them by size, in the order in
			// which the sizes first appear.
			var sizes []int64
			for _, n := range permits {
				if !slices.Contains(sizes, n) {
					sizes = append(sizes, n)
				}
			}
			answers := batched(w.ctx, w.l, permits)
			now := w.elapsed()
			for _, size := range sizes {
				for i, n := range permits {
					if n != size {
						continue
					}
					r := answers[i]
					if n > rate {
						require.ErrorIs(rt, r.Err, ErrPermitsExceedRate)
						continue
					}
					require.NoError(rt, r.Err)
					require.Equal(rt, m.acquire(now, n), r.Granted, "%d of %v", n, permits)
					if r.Granted {
						require.Equal(rt, m.available(now), r.Available)
					}
				}
			}
			for i, n := range permits {
				if r := answers[i]; r.Err == nil && !r.Granted {
					require.Equal(rt, m.wait(now, n), r.Wait)
					require.Equal(rt, m.available(now), r.Available)
				}
			}
		})
	})
}
