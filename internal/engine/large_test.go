// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/testworld"
	"github.com/stretchr/testify/require"
)

// longest returns the longest time in which the side was granted nothing, in the intervals after the first ten.
func (s *side) longest(from, to time.Duration) time.Duration {
	return s.got.Told().Gap(s.begun.Add(from), s.begun.Add(to))
}

// trying makes the callers of a side try every few milliseconds, so that they leave no room to anybody.
func (s *side) trying(l *limiter) *side {
	var n atomic.Int64
	s.acquire = func(ctx context.Context, permits int64) bool {
		pause := 5*time.Millisecond + time.Duration(n.Add(1)*37)*time.Microsecond
		for ctx.Err() == nil {
			if ok, err := l.TryAcquire(ctx, permits, 0); ok || err != nil {
				return ok
			}
			time.Sleep(pause)
		}
		return false
	}
	return s
}

// TestALargeRequestAndSmallOnes has one process ask for 1, 10 (which is not large) or 50 of 100 permits a second at a time,
// beside callers of its own and of other processes that ask for one. It checks that the large request waits for a
// few intervals at most, that the small ones of its process go on, and that each process gets half of an equal part
// or more. Others that try get what chance gives them.
func TestALargeRequestAndSmallOnes(t *testing.T) {
	redistest.Repeats(t)
	redistest.NoRace(t, "the other scenarios race as much")
	random := proptest.Rand(t) // a short run draws half of the cases
	for _, c := range []struct {
		processes int
		others    string
		large     int64
		longest   time.Duration // that the large request waits
		pause     time.Duration // in which no small one of its process is granted
		used      float64       // of the permits
	}{
		{processes: 1, large: 50, longest: time.Second, pause: time.Second, used: .65},
		{processes: 4, large: 1, longest: 2 * time.Second, pause: 2 * time.Second, used: .95},
		{processes: 4, large: 10, longest: 2 * time.Second, pause: 2 * time.Second, used: .95},
		{processes: 4, large: 50, longest: 6 * time.Second, pause: 3 * time.Second, used: .85},
		{processes: 4, others: "try", large: 50, longest: 5 * time.Second, used: .95},
	} {
		for _, spread := range []bool{false, true} {
			if random.IntN(100) >= redistest.Cases(50, 100) {
				continue
			}
			if c.others == "try" && !spread {
				continue // whoever wakes at the very instant takes all of a burst; only virtual time has those
			}
			t.Run(fmt.Sprintf("%d of 100, %d processes %s, spread %v", c.large, c.processes, c.others, spread), func(t *testing.T) {
				r := overall(100, time.Second)
				inWorld(t, r, func(t *testing.T, w *world) {
					if spread {
						w.spread(r)
					}
					callers, intervals := 8, 25
					switch {
					case c.others == "try":
						callers, intervals = 2, 15 // each of them makes 200 calls a second
					case c.large == 50:
						intervals = 50 // of which the large request takes every third or so
					}
					sides := []*side{ourSide(w, 1, c.large), ourSide(w, callers, 1)}
					if c.others == "try" {
						sides[1].trying(w.l)
					}
					for range c.processes - 1 {
						other := newWorld(t, w.server)
						defer other.close()
						s := ourSide(other, callers, 1)
						if c.others == "try" {
							s.trying(other.l)
						}
						sides = append(sides, s)
					}
					lasts, from := time.Duration(intervals)*time.Second, 10*time.Second
					got, all, most := shares(w, r, intervals, sides...)
					longest, pause := sides[0].longest(from, lasts), sides[1].longest(from, lasts)
					t.Logf("of %d permits %d were used; large %d, small %v; the large one waited %v, the small ones %v",
						most, all, got[0], got[1:], longest, pause)
					const tie = 100 * time.Millisecond // several callers of one instant: in 200 runs the worst was 52 ms late
					require.LessOrEqual(t, longest, c.longest+tie)
					require.GreaterOrEqual(t, float64(all), c.used*float64(most))
					if c.others == "try" {
						return
					}
					require.LessOrEqual(t, pause, c.pause+tie)
					got = append([]int64{got[0] + got[1]}, got[2:]...)
					for _, n := range got {
						require.GreaterOrEqual(t, float64(n), .5*float64(all)/float64(len(got)), "%v", got)
					}
				})
			})
		}
	}
}

// TestLargeRequestsOfSeveralProcesses has two to four processes ask for 60 or all of 100 permits again and again, beside
// one that tries for each permit as it comes back. It checks that they are served in turn, each within two intervals
// for each of them, and that small ones go on, too.
func TestLargeRequestsOfSeveralProcesses(t *testing.T) {
	redistest.Repeats(t)
	redistest.NoRace(t, "the other scenarios race as much")
	for _, c := range []struct {
		n       int
		permits int64
	}{{2, 100}, {4, 60}, {4, 100}} {
		t.Run(fmt.Sprintf("%d processes, %d of 100", c.n, c.permits), func(t *testing.T) {
			r := overall(100, time.Second)
			inWorld(t, r, func(t *testing.T, w *world) {
				w.spread(r)
				sides := []*side{ourSide(w, 2, 1).trying(w.l)}
				for range c.n {
					other := newWorld(t, w.server)
					defer other.close()
					sides = append(sides, ourSide(other, 1, c.permits))
				}
				const intervals = 25
				got, all, most := shares(w, r, intervals, sides...)
				var longest time.Duration
				for _, s := range sides[1:] {
					longest = max(longest, s.longest(10*time.Second, intervals*time.Second))
				}
				t.Logf("of %d permits %d were used: %v; the longest wait was %v", most, all, got, longest)
				for _, n := range got {
					require.NotZero(t, n)
				}
				require.LessOrEqual(t, longest, time.Duration(2*c.n)*time.Second+time.Duration(c.n)*30*time.Millisecond)
				require.GreaterOrEqual(t, float64(all), .85*float64(most))
			})
		})
	}
}

// TestWhatALargeRequestTakesAheadGoesBack checks that permits that were taken ahead for a large request go back at once
// when its caller leaves or the engine is closed, and after an interval if its process has died.
func TestWhatALargeRequestTakesAheadGoesBack(t *testing.T) {
	for name, end := range map[string]func(w *world, cancel func()){
		"ctx is done": func(_ *world, cancel func()) { cancel() },
		"Close":       func(w *world, _ func()) { w.close() },
		"it died":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
				other := newWorld(t, w.server)
				defer other.close()
				other.spread(overall(10, time.Minute))
				left := func() int64 {
					value := redistest.Must(w.server.Redis.Get(w.ctx, w.server.Keys(w.l.key).Value[permit.Overall]).Int64())(t)
					return value
				}
				if end == nil {
					v := permit.Reservation{ID: other.p.NewID(), Want: 9, Ahead: true}
					a := redistest.Must(w.l.backend.Reserve(w.ctx, v))(t)
					require.EqualValues(t, 9, a.Held)
					require.EqualValues(t, 8, a.Lacking)
					require.Equal(t, 48*time.Second, a.Wait)
					require.EqualValues(t, -8, left())
					w.rejected(1, 54*time.Second)
					time.Sleep(time.Minute)
					other.granted(10)
					return
				}
				var wg sync.WaitGroup
				stop, stopped := context.WithCancel(w.ctx)
				wg.Go(func() { // it takes each permit as it comes back
					for stop.Err() == nil {
						other.try(1)
						time.Sleep(6 * time.Second)
					}
				})
				ctx, cancel := context.WithCancel(w.ctx)
				defer cancel()
				w.p.Hook(func(call testworld.Call) testworld.Fault {
					if call.Part {
						t.Error("no part of a list")
					}
					return testworld.Fault{}
				})
				done := make(chan error, 1)
				go func() { done <- w.l.Acquire(ctx, 9) }()
				for left() > -2 { // of which one may be a tripwire
					time.Sleep(time.Second)
				}
				stopped()
				wg.Wait()
				end(w, cancel)
				require.Error(t, <-done)
				time.Sleep(time.Millisecond)
				require.GreaterOrEqual(t, left(), int64(-1), "given back")
			})
		})
	}
}

// TestALargeRequestThatMayNotTakeAhead checks that a large request whose calls ahead are rejected for good ends with what Redis
// says, and does not wait in vain: the queue's own calls, which are allowed, never learn it. Those behind it go on.
func TestALargeRequestThatMayNotTakeAhead(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		other := newWorld(t, w.server)
		defer other.close()
		other.spread(overall(10, time.Minute))
		stop, stopped := context.WithCancel(w.ctx)
		var wg sync.WaitGroup
		wg.Go(func() { // it takes each permit as it comes back
			for stop.Err() == nil {
				other.try(1)
				time.Sleep(6 * time.Second)
			}
		})
		w.p.Hook(func(c testworld.Call) (f testworld.Fault) {
			if c.Op == "reserve" {
				f.Err = testworld.Denied
			}
			return f
		})
		begin := time.Now()
		ok, err := w.l.TryAcquire(w.ctx, 9, 20*time.Minute)
		stopped()
		wg.Wait()
		require.False(t, ok)
		require.ErrorIs(t, err, testworld.Denied.Err)
		require.ErrorContains(t, err, w.l.key)
		require.Less(t, time.Since(begin), 5*time.Minute)
		require.True(t, redistest.Must(w.l.TryAcquire(w.ctx, 1, time.Hour))(t), "the queue goes on")
	})
}
