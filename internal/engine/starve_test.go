// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/engine/list"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/testworld"
	"github.com/stretchr/testify/require"
)

// A contest is a scenario with three parties: a process whose callers take everything that a limiter has, a list of
// limiters, and a peer in another process.
type contest struct {
	*world
	stop    context.Context
	wg      sync.WaitGroup
	singles atomic.Int64 // permits granted to callers of one limiter
	lists   atomic.Int64 // lists that were served
	longest atomic.Int64 // the longest time that a list took, in ns
	paused  atomic.Int64 // the longest time in which no caller of one limiter was granted a permit, in ns
	peers   atomic.Int64 // permits granted to the peer
}

// newContest returns a contest and a function that ends it.
func newContest(w *world) (*contest, func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	c := &contest{world: w, stop: ctx}
	return c, func() {
		cancel()
		c.wg.Wait()
	}
}

// saturate starts n callers that wait for permits of l and, if tries is set, n more that try every few
// milliseconds.
func (c *contest) saturate(l *limiter, n int, tries bool) {
	var last atomic.Int64
	last.Store(int64(c.elapsed()))
	for i := range n {
		c.wg.Go(func() {
			for l.Acquire(c.stop, 1) == nil {
				c.singles.Add(1)
				now := int64(c.elapsed())
				c.paused.Store(max(c.paused.Load(), now-last.Swap(now)))
			}
		})
		if tries {
			c.wg.Go(func() {
				for c.stop.Err() == nil {
					if r, err := l.Allow(c.stop, 1); err == nil && r.Granted {
						c.singles.Add(1)
					}
					time.Sleep(time.Duration(17+i) * time.Millisecond)
				}
			})
		}
	}
}

// peer tries to take one permit of l again and again, in another process, and pauses after each try.
func (c *contest) peer(l *limiter, pause func() time.Duration) {
	other := newWorld(c.t, c.server)
	l = other.limiter(l.key)
	c.wg.Go(func() {
		defer other.close()
		for c.stop.Err() == nil {
			if r, err := l.Allow(c.stop, 1); err == nil && r.Granted {
				c.peers.Add(1)
			}
			time.Sleep(pause())
		}
	})
}

// want starts a caller that acquires the list again and again.
func (c *contest) want(demands ...list.Demand) {
	c.wg.Go(func() {
		for {
			begin := time.Now()
			if err := c.acquireAll(c.stop, demands...); err != nil {
				if !errors.Is(err, context.Canceled) {
					c.t.Error(err)
				}
				return
			}
			c.lists.Add(1)
			c.longest.Store(max(c.longest.Load(), int64(time.Since(begin))))
		}
	})
}

// every and atRandom return pauses with a mean of d. Those of every are constant, and those of atRandom are
// exponentially distributed.
func every(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func atRandom(d time.Duration) func() time.Duration {
	return func() time.Duration { return time.Duration(rand.ExpFloat64() * float64(d)) }
}

// perSecond returns the rate of n events in d, per second.
func perSecond(n int64, d time.Duration) float64 { return float64(n) / d.Seconds() }

// contend has a list wait again and again for 3 permits of l[0], which callers of this process take all of, and for 9 of
// l[1], which peers take. It returns what the callers and the list got within d, and the longest time that a list took.
func contend(w *world, l []*limiter, peers int, pause func() time.Duration, d time.Duration) (singles, lists int64, longest time.Duration) {
	c, stop := newContest(w)
	defer stop()
	c.saturate(l[0], 4, true)
	for range peers {
		c.peer(l[1], pause)
	}
	time.Sleep(2 * time.Second)
	c.singles.Store(0)
	c.want(l[0].of(3), l[1].of(9))
	time.Sleep(d)
	singles, lists, longest = c.singles.Load(), c.lists.Load(), time.Duration(c.longest.Load())
	w.t.Logf("callers of A got %.1f/s, lists were served %.2f/s, the longest took %v", perSecond(singles, d), perSecond(lists, d), longest)
	return singles, lists, longest
}

// TestAListLeavesTheOtherLimiterToItsCallers has a list wait for 3 permits of A, of which callers of this process
// take 50 a second, and for 9 of the 10 permits of B, of which a peer takes half. It checks that the callers of A
// keep 85 % of the rate and that the list is served.
func TestAListLeavesTheOtherLimiterToItsCallers(t *testing.T) {
	redistest.NoRace(t, "it takes virtual hours")
	const d = 12 * time.Second
	b := overall(10, 200*time.Millisecond)
	for name, c := range map[string]struct {
		a     permit.Rate
		pause func() time.Duration
	}{
		"every 37 ms": {overall(10, 200*time.Millisecond), every(37 * time.Millisecond)},
		"at random":   {overall(50, time.Second), atRandom(40 * time.Millisecond)},
		"PER_CLIENT":  {permit.Rate{Type: permit.PerClient, Permits: 10, Interval: 200 * time.Millisecond}, every(41 * time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			inBothWays(t, func(t *testing.T, w *world) {
				l := w.others(c.a, b)
				singles, lists, longest := contend(w, l, 1, c.pause, d)
				require.GreaterOrEqual(t, perSecond(singles+3*lists, d), .85*50, "what callers of A got, and the list")
				require.NotZero(t, lists)
				require.LessOrEqual(t, longest, 10*max(c.a.Interval, b.Interval))
			})
		})
	}
}

// TestAListThatIsHardToServeCostsLittle has peers that ask so often that they could keep B from the list forever. It checks
// that the list is served, and that the callers of A keep 85 % of the rate.
func TestAListThatIsHardToServeCostsLittle(t *testing.T) {
	redistest.NoRace(t, "it takes virtual hours")
	inBothWays(t, func(t *testing.T, w *world) {
		const d = 15 * time.Second
		l := w.others(overall(10, 200*time.Millisecond), overall(10, 200*time.Millisecond))
		singles, lists, longest := contend(w, l, 3, every(20*time.Millisecond), d)
		require.GreaterOrEqual(t, perSecond(singles+3*lists, d), .85*50)
		require.LessOrEqual(t, longest, 10*200*time.Millisecond)
	})
}

// TestAListInACoolDownHoldsNothing checks that callers of A are not affected by a list that waits for a cool-down
// of B to end, even if the list was about to starve before, and may have got its part of A.
func TestAListInACoolDownHoldsNothing(t *testing.T) {
	redistest.NoRace(t, "it takes virtual hours")
	for _, begun := range []bool{false, true} {
		t.Run(map[bool]string{false: "before", true: "while it gathers"}[begun], func(t *testing.T) {
			inBothWays(t, func(t *testing.T, w *world) {
				const d = 5 * time.Second
				l := w.others(overall(10, 200*time.Millisecond), overall(10, 200*time.Millisecond))
				other := newWorld(t, w.server)
				defer other.close()
				c, stop := newContest(w)
				defer stop()
				c.saturate(l[0], 4, true)
				coolDown := func() {
					w.server.CoolDown(l[1].key, time.Now().Add(time.Hour), 0)
				}
				if begun {
					c.peer(l[1], every(40*time.Millisecond))
					c.peer(l[1], every(41*time.Millisecond))
				} else {
					coolDown()
				}
				time.Sleep(2 * time.Second)
				c.want(l[0].of(3), l[1].of(9))
				if begun {
					time.Sleep(450 * time.Millisecond)
					coolDown()
				}
				time.Sleep(1050 * time.Millisecond) // between the instants at which permits become free
				c.singles.Store(0)
				time.Sleep(d)
				t.Logf("callers of A got %.1f/s", perSecond(c.singles.Load(), d))
				require.GreaterOrEqual(t, perSecond(c.singles.Load(), d), 49.5)
			})
		})
	}
}

// passedOver makes a list wait for permits of two limiters of 10 a minute, of which a faster process takes those of the
// second, and returns at 99 s, when the list would starve and has got something. The channel receives the error of the
// list, whose context cancel ends.
func passedOver(w *world, timeout time.Duration) (l []*limiter, cancel func(), list <-chan error) {
	l = w.others(overall(10, time.Minute), overall(10, time.Minute))
	ctx, cancel := context.WithCancel(w.ctx)
	other := newWorld(w.t, w.server)
	w.t.Cleanup(other.close)
	peer := other.limiter(l[1].key)
	take := func(n int64) {
		ok, err := peer.TryAcquire(w.ctx, n, 0)
		require.True(w.t, ok && err == nil)
	}
	take(6)
	w.at(30 * time.Second)
	take(4)
	done := make(chan error, 1)
	go func() {
		_, err := w.all(ctx, timeout, l[0].of(3), l[1].of(9))
		done <- err
	}()
	// The peer is a little faster at 60 s, so the list is rejected for longer than an interval.
	w.at(time.Minute - time.Millisecond)
	for range 40 {
		if ok, err := peer.TryAcquire(w.ctx, 2, 0); err == nil && ok {
			break
		}
		time.Sleep(100 * time.Microsecond)
	}
	w.at(99*time.Second + 250*time.Millisecond) // the list asks once a second
	require.True(w.t, w.server.Available(l[0].key) < 10 || w.server.Available(l[1].key) == 0, "it has got something")
	return l, cancel, done
}

// TestAListThatWouldBeLateGivesUp checks that with RejectEarly a list that was passed over is rejected if the queue of a limiter says
// that its time is too short, although Redis says that it is not: it does not ask again and again.
func TestAListThatWouldBeLateGivesUp(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(10, 70*time.Second), overall(10, 100*time.Second))
		begin := time.Now()
		w.server.Redisson(l[0].key, 10)
		w.at(time.Second)
		type end struct {
			list.Outcome
			err error
			at  time.Duration
		}
		done := make(chan end, 1)
		go func() {
			a, err := w.all(w.ctx, 89*time.Second, l[0].of(1), l[1].of(1))
			done <- end{a, err, w.elapsed()}
		}()
		w.at(10 * time.Second)
		w.server.Redisson(l[1].key, 10)
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		go l[1].Handle.Acquire(ctx, engine.Request{Permits: 1, Wait: true, Came: begin}) // is the first in the queue, until 110 s
		w.at(20 * time.Second)
		require.NoError(t, w.server.Redis.HSet(w.ctx, w.server.Keys(l[1].key).Hash, "interval", 65_000).Err()) // permits are free at 75 s
		e := <-done
		require.NoError(t, e.err)
		require.False(t, e.Granted)
		require.Equal(t, 1, e.Bound)
		require.InDelta(t, 70*time.Second, e.at, float64(100*time.Millisecond))
		require.InDelta(t, 110*time.Second, e.at+e.Wait, float64(100*time.Millisecond))
		time.Sleep(time.Millisecond) // what it holds goes back after it has left
		w.has(l[0], 10)
	}, rejectEarly, func(c *engine.Config) { c.Recheck = time.Hour })
}

// TestWhatAListHoldsGoesBack checks that what a list has got of some of its limiters is refunded at once, however its wait for
// the others ends.
func TestWhatAListHoldsGoesBack(t *testing.T) {
	for name, end := range map[string]func(w *world, cancel func()){
		"ctx is done": func(_ *world, cancel func()) { cancel() },
		"time is up":  func(*world, func()) { time.Sleep(time.Second) },
		"Close":       func(w *world, _ func()) { w.close() },
	} {
		t.Run(name, func(t *testing.T) {
			inBothWays(t, func(t *testing.T, w *world) {
				l, cancel, done := passedOver(w, 70*time.Second)
				defer cancel()
				end(w, cancel)
				<-done
				time.Sleep(time.Millisecond)
				w.has(l[0], 10)
				require.NotZero(t, w.server.Available(l[1].key), "nothing is kept")
				for _, l := range l {
					places := w.server.Redis.Get(w.ctx, w.server.Keys(l.key).Ahead(permit.Overall)).Val()
					require.Regexp(t, `^(0 \d+ \d+)?$`, places, "at most a pause, and no place of the list")
				}
			})
		})
	}
}

// TestAListCountsFromWhenItIsGranted checks that what a list got early counts for an interval from when it was granted all.
func TestAListCountsFromWhenItIsGranted(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l, cancel, done := passedOver(w, 4*time.Minute)
		defer cancel()
		require.NoError(t, <-done)
		require.Greater(t, w.elapsed(), 99*time.Second)
		time.Sleep(time.Minute - time.Millisecond)
		require.False(t, l[0].within(8, 0) || l[1].within(2, 0))
		time.Sleep(time.Millisecond)
		require.True(t, l[0].within(10, 0) && l[1].within(10, 0))
	})
}

// TestAListWhoseStateIsGone checks that a list is granted although Redisson sets the rate of a limiter of which it has its
// part, which deletes the permits left and those in use, or one of the two is evicted.
func TestAListWhoseStateIsGone(t *testing.T) {
	for name, gone := range map[string]func(keys []string) []string{
		"setRate of Redisson":            func(keys []string) []string { return keys[1:] },
		"the permits left are evicted":   func(keys []string) []string { return keys[1:2] },
		"the permits in use are evicted": func(keys []string) []string { return keys[2:] },
	} {
		t.Run(name, func(t *testing.T) {
			inBothWays(t, func(t *testing.T, w *world) {
				w.over = true
				l, cancel, done := passedOver(w, 4*time.Minute)
				defer cancel()
				require.NoError(t, w.server.Redis.Del(w.ctx, gone(w.server.Keys(l[0].key).Of(permit.Overall))...).Err())
				require.NoError(t, <-done)
				require.EqualValues(t, 3, w.server.Used(l[0].key), "counted from when all were together")
				time.Sleep(time.Minute + time.Millisecond)
				require.True(t, l[0].within(10, 0))
			})
		})
	}
}

// TestATryAsksAgainAfterAReservation checks that a request that took nothing, because the permits were reserved for a
// list of this process, asks again if the list has left before the reply and something was free.
func TestATryAsksAgainAfterAReservation(t *testing.T) {
	for name, permits := range map[string]int64{"enough is free": 1, "too little is free": 10} {
		t.Run(name, func(t *testing.T) {
			inBothWays(t, func(t *testing.T, w *world) {
				l, cancel, done := passedOver(w, 70*time.Second)
				defer cancel()
				before := w.p.Sent()
				r := l[1].try(permits)
				require.False(t, r.Granted)
				require.Equal(t, 1, w.p.Sent()-before, "calls")

				w.p.Next(testworld.Fault{Before: 500 * time.Millisecond})
				go func() {
					time.Sleep(100 * time.Millisecond)
					cancel()
				}()
				r = l[1].try(permits)
				require.Equal(t, permits == 1, r.Granted)
				require.Equal(t, 99*time.Second+750*time.Millisecond, w.elapsed())
				<-done
			})
		})
	}
}

// TestAnOutageWhileAListStarves checks that an outage that begins while a list has a part of its permits holds nobody up
// afterwards, and that the list is served when Redis is back.
func TestAnOutageWhileAListStarves(t *testing.T) {
	inBothWays(t, func(t *testing.T, w *world) {
		l := w.others(overall(10, 10*time.Second), overall(10, 10*time.Second))
		c, stop := newContest(w)
		defer stop()
		c.saturate(l[0], 2, false)
		c.peer(l[1], every(1700*time.Millisecond))
		c.want(l[0].of(3), l[1].of(9))
		time.Sleep(12 * time.Second)
		w.p.Cut(testworld.Rejected)
		time.Sleep(30 * time.Second)
		w.p.Fix()
		time.Sleep(10 * time.Second)
		lists, singles := c.lists.Load(), c.singles.Load()
		time.Sleep(2 * time.Minute)
		lists, singles = c.lists.Load()-lists, c.singles.Load()-singles
		t.Logf("callers of one limiter got %d of 120 permits, lists were served %d times", singles, lists)
		require.NotZero(t, lists)
		require.GreaterOrEqual(t, singles+3*lists, int64(.85*120))
	}, outageLimit(time.Hour))
}

// TestListsDoNotStarveEachOther runs lists over (A, B), (B, A) and (A, B, C) beside callers of each limiter. It checks that
// none of them waits for more than ten intervals, and that 85 % of the permits are used.
func TestListsDoNotStarveEachOther(t *testing.T) {
	redistest.NoRace(t, "it takes virtual hours")
	inBothWays(t, func(t *testing.T, w *world) {
		const d = time.Minute
		r := overall(10, 500*time.Millisecond)
		l := w.others(r, r, r)
		c, stop := newContest(w)
		defer stop()
		w.p.Always(testworld.Fault{Before: 200 * time.Microsecond, After: 200 * time.Microsecond})
		for _, l := range l {
			c.saturate(l, 4, false)
		}
		var served [3]int64
		var longest [3]time.Duration
		for i, demands := range [][]list.Demand{{l[0].of(3), l[1].of(4)}, {l[1].of(5), l[0].of(2)}, {l[0].of(2), l[1].of(2), l[2].of(9)}} {
			c.wg.Go(func() {
				for {
					begin := time.Now()
					err := w.acquireAll(c.stop, demands...)
					longest[i] = max(longest[i], time.Since(begin))
					if err != nil {
						return
					}
					served[i]++
				}
			})
		}
		time.Sleep(d)
		stop()
		var used int64
		for i, n := range []int64{7, 7, 13} {
			used += n * served[i]
			require.LessOrEqual(t, longest[i], 10*r.Interval, "list %d", i)
		}
		used += c.singles.Load()
		paused := time.Duration(c.paused.Load())
		t.Logf("lists were served %v times and waited %v at most; %.1f of 60 permits a second were used; singles paused %v at most",
			served, longest, perSecond(used, d), paused)
		require.LessOrEqual(t, paused, 4*r.Interval, "as long as a list holds permits")
		require.GreaterOrEqual(t, perSecond(used, d), .85*60)
	})
}

// TestManyListsOfOneProcess has sixty lists of one process want the same two limiters, which serve one of them an interval,
// beside callers of each limiter. It checks that the oldest go first, so that none starves, and that what the limiters give is used.
func TestManyListsOfOneProcess(t *testing.T) {
	redistest.NoRace(t, "it takes virtual minutes")
	inBothWays(t, func(t *testing.T, w *world) {
		const n = 60
		l := w.others(overall(10, 500*time.Millisecond), overall(10, 500*time.Millisecond))
		c, stop := newContest(w)
		defer stop()
		c.saturate(l[0], 2, false)
		c.saturate(l[1], 2, false)
		var served [n]time.Duration
		var wg sync.WaitGroup
		for i := range n {
			time.Sleep(time.Millisecond)
			wg.Go(func() {
				require.NoError(t, w.acquireAll(c.stop, l[i%2].of(7), l[1-i%2].of(6)))
				served[i] = c.elapsed()
			})
		}
		wg.Wait()
		overtook := 0 // the most that came later than one list and were served sooner
		for i := range n {
			sooner := 0
			for _, at := range served[i+1:] {
				if at < served[i] {
					sooner++
				}
			}
			overtook = max(overtook, sooner)
		}
		t.Logf("all were served after %v, one was overtaken by %d; singles used %d permits", c.elapsed(), overtook, c.singles.Load())
		require.LessOrEqual(t, overtook, 2, "the youngest may come first as long as nobody starves, which takes an interval")
		require.LessOrEqual(t, c.elapsed(), n*2*500*time.Millisecond, "the limiters serve one in an interval, and others in the next")
		used := n*(7+6) + c.singles.Load()
		require.GreaterOrEqual(t, perSecond(used, c.elapsed()), .8*40, "permits used a second; in 60 runs the least was 33.3")
	})
}
