// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine/list"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/testworld"
	"github.com/stretchr/testify/require"
)

// nineLists has three processes, with a caller of each limiter and three lists each, that want permits of all limiters or all but one, and
// ask again and again for d. It returns how often each list was granted, and the longest wait of all; a wait that has not ended counts.
func nineLists(w *world, l []*limiter, permits int64, d time.Duration) (granted []int, longest time.Duration, singles int) {
	ctx, cancel := context.WithTimeout(w.ctx, d)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	again := func(acquire func() error, ended func(took time.Duration, granted bool)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				err := acquire()
				mu.Lock()
				ended(time.Since(began), err == nil)
				mu.Unlock()
			}
		})
	}
	for process := range 3 {
		p := newWorld(w.t, w.server)
		defer p.close()
		p.p.Always(testworld.Fault{Before: 200 * time.Microsecond, After: 200 * time.Microsecond})
		for i := range 3 {
			var demands []list.Demand
			for j, o := range l {
				if j != 3*process+i {
					demands = append(demands, p.limiter(o.key).of(permits))
				}
			}
			n := len(granted)
			granted = append(granted, 0)
			again(func() error { return p.acquireAll(ctx, demands...) }, func(took time.Duration, ok bool) {
				longest = max(longest, took)
				if ok {
					granted[n]++
				}
			})
		}
		for _, o := range l {
			o := p.limiter(o.key)
			again(func() error { return o.Acquire(ctx, 1) }, func(_ time.Duration, ok bool) {
				if ok {
					singles++
				}
			})
		}
	}
	wg.Wait()
	return granted, longest, singles
}

// TestListsOfManyLimitersAreServed has nine lists want more than half of the rates of seven or eight limiters, of which other callers
// take all that they can. It checks that each list is served again and again, and that the others keep two fifths of the rate.
func TestListsOfManyLimitersAreServed(t *testing.T) {
	redistest.Repeats(t)
	redistest.NoRace(t, "it takes virtual hours")
	inWorld(t, permit.Rate{}, func(t *testing.T, w *world) {
		const d = 20 * time.Second
		r := overall(20, 200*time.Millisecond)
		granted, longest, singles := nineLists(w, w.others(slices.Repeat([]permit.Rate{r}, 8)...), 12, d)
		lists := 0
		for _, n := range granted {
			lists += n
		}
		used := float64(singles) / (8 * 20 * 5 * d.Seconds())
		t.Logf("lists were granted %v times, %d in all, the longest wait was %v; the others got %.2f of the rate", granted, lists, longest, used)
		require.GreaterOrEqual(t, lists, 20, "one in five intervals")
		require.GreaterOrEqual(t, used, .4)
	})
}

// passedOverByPeer has a list wait whose demand of 6 of the 10 permits of l is never met at one instant, since another process takes
// 5 at a time. One and a half intervals later the list has starved, and acquires its limiters in order. After two
// intervals and a second it can have its permits of l.
func passedOverByPeer(w *world, ctx context.Context, l *limiter, interval time.Duration, demands ...list.Demand) <-chan error {
	other := newWorld(w.t, w.server)
	w.t.Cleanup(other.close)
	peer := other.limiter(l.key)
	take := func(permits int64) { require.True(w.t, peer.within(permits, 0)) }
	take(5)
	time.Sleep(100 * time.Millisecond)
	done := make(chan error, 1)
	go func() { done <- w.acquireAll(ctx, demands...) }()
	w.at(interval / 2)
	take(5)
	w.at(interval + time.Second)
	take(5)
	return done
}

// TestAPartOfAListSaysSo checks that what is taken ahead for a list is told from what is taken for a large request (see
// TestWhatALargeRequestTakesAheadGoesBack): others go on for a quarter of the time afterwards.
func TestAPartOfAListSaysSo(t *testing.T) {
	inWorld(t, permit.Rate{}, func(t *testing.T, w *world) {
		l := w.others(slices.Repeat([]permit.Rate{overall(10, time.Minute)}, 2)...)
		parts := 0
		w.p.Hook(func(call testworld.Call) testworld.Fault {
			if call.Part {
				parts++
			}
			return testworld.Fault{}
		})
		require.NoError(t, <-passedOverByPeer(w, w.ctx, l[0], time.Minute, l[0].of(6), l[1].of(3)))
		require.NotZero(t, parts)
	})
}

// TestAListWithoutReplyTakesNothing has each reply to the call for a list be lost. It checks that the list fails, and that what it was
// granted goes back as soon as Redis is there again.
func TestAListWithoutReplyTakesNothing(t *testing.T) {
	inWorld(t, permit.Rate{}, func(t *testing.T, w *world) {
		l := w.others(slices.Repeat([]permit.Rate{overall(10, time.Minute)}, 3)...)
		for _, l := range l {
			require.True(t, l.within(1, 0))
		}
		w.p.Next(slices.Repeat([]testworld.Fault{testworld.LostReply}, 4)...)
		_, err := w.all(w.ctx, -1, l[0].of(3), l[1].of(4), l[2].of(5))
		require.ErrorIs(t, err, permit.ErrUnavailable)
		time.Sleep(time.Second)
		for _, l := range l {
			w.has(l, 9)
		}
	})
}

// TestAListWaitsForTheSlowLimiterFirst has a list want a limiter of a second and one of an hour that others take. It checks that it
// holds nothing of the fast one while it waits for the slow one, although that has the greater key.
func TestAListWaitsForTheSlowLimiterFirst(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(10, time.Second), overall(10, time.Hour))
		done := passedOverByPeer(w, w.ctx, l[1], time.Hour, l[0].of(3), l[1].of(6))
		for w.elapsed() < 2*time.Hour {
			w.has(l[0], 10)
			time.Sleep(10 * time.Second)
		}
		require.NoError(t, <-done)
		require.LessOrEqual(t, w.elapsed(), 2*time.Hour+11*time.Second)
	})
}
