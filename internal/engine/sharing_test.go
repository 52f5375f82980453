// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/test/testworld"
	"github.com/stretchr/testify/require"
)

// A side is a group of callers that acquire in a loop.
type side struct {
	callers    int
	permits    int64
	think      time.Duration
	from, till time.Duration // when the side takes part; a till of 0 means to the end
	acquire    func(ctx context.Context, permits int64) bool
	begun      time.Time
	got        grantlog.Ledger
}

// ourSide returns a side of callers in the process of w.
func ourSide(w *world, callers int, permits int64) *side {
	return &side{callers: callers, permits: permits, acquire: func(ctx context.Context, n int64) bool {
		err := w.l.Acquire(ctx, n)
		if err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
		return err == nil
	}}
}

// redissonSide returns a side of callers that wait as Redisson's threads do: they ask at the ticks of one timer,
// every 100 ms.
func redissonSide(w *world, callers int, phase time.Duration) *side {
	return &side{callers: callers, permits: 1, acquire: func(ctx context.Context, permits int64) bool {
		for {
			wait := w.server.Redisson(w.l.key, permits)
			if wait == 0 {
				return true
			}
			const tick = 100 * time.Millisecond
			at := (w.elapsed()+wait-phase+tick-1)/tick*tick + phase
			select {
			case <-time.After(at - w.elapsed()):
			case <-ctx.Done():
				return false
			}
		}
	}}
}

// in returns the permits that the side was granted between two instants.
func (s *side) in(from, to time.Duration) int64 {
	return s.got.Told().Only(func(g grantlog.Grant) bool { return g.End.Sub(s.begun) >= from && g.End.Sub(s.begun) < to }).Permits()
}

func play(w *world, lasts time.Duration, sides ...*side) {
	w.epoch = time.Now()
	var wg sync.WaitGroup
	for _, s := range sides {
		s.begun = w.epoch
		if s.till == 0 {
			s.till = lasts
		}
		for i := range s.callers {
			wg.Go(func() {
				late := time.Duration(i) * time.Microsecond
				w.at(s.from + late)
				ctx := w.leaving(s.till - s.from - late)
				for ctx.Err() == nil && s.acquire(ctx, s.permits) {
					s.got.Add(grantlog.At(time.Now(), s.permits))
					time.Sleep(s.think)
				}
			})
		}
	}
	wg.Wait()
	synctest.Wait()
}

// shares plays the sides for the given number of intervals of r. It leaves out the first ten intervals, and returns how
// many permits each side was granted after them, their sum, and how many permits there were.
func shares(w *world, r permit.Rate, intervals int, sides ...*side) (got []int64, all, most int64) {
	w.t.Helper()
	lasts, from := time.Duration(intervals)*r.Interval, 10*r.Interval
	play(w, lasts, sides...)
	for _, s := range sides {
		n := s.in(from, lasts)
		got = append(got, n)
		all += n
	}
	most = r.Permits * int64((lasts-from)/r.Interval)
	w.t.Log(r, got, all, most)
	return got, all, most
}

// sharedBy plays sides of equal demand, and checks that each of them gets the given part at least, and that together
// they use the given part of the rate.
func sharedBy(w *world, r permit.Rate, intervals int, parts []float64, used float64, sides ...*side) {
	w.t.Helper()
	got, all, most := shares(w, r, intervals, sides...)
	for i, n := range got {
		require.GreaterOrEqual(w.t, float64(n), parts[i]*float64(all), "%v", got)
	}
	require.GreaterOrEqual(w.t, float64(all), used*float64(most), "%v", got)
}

// spread takes the permits of an interval one by one, so that they also become free one by one.
func (w *world) spread(r permit.Rate) {
	for range r.Permits {
		w.granted(1)
		time.Sleep(r.Interval / time.Duration(r.Permits))
	}
}

// underWay makes each call of the process take a random time to the server. So it is not the scheduler that decides which
// of several processes is first whenever permits become free, and maybe the same way each time.
func underWay(w *world) {
	w.p.Hook(func(testworld.Call) testworld.Fault { return testworld.Fault{Before: rand.N(time.Millisecond)} })
}

// TestRedissonGetsItsShare checks that at equal demand callers of Redisson get their part, although they wake up
// after the instant at which a permit becomes free, and that little of the rate is lost.
func TestRedissonGetsItsShare(t *testing.T) {
	redistest.Repeats(t)
	redistest.NoRace(t, "the other scenarios race as much")
	for i, r := range []permit.Rate{
		overall(10, time.Second), overall(2, time.Second), overall(100, time.Second),
		overall(10, 10*time.Second), overall(10, 500*time.Millisecond), overall(1, time.Second),
	} {
		// The phase is not 0, because ticks at the very instants of the permits are ties. Only virtual time has
		// those, and the scheduler may decide them the same way every time.
		for _, phase := range []time.Duration{time.Millisecond, 37 * time.Millisecond, 99 * time.Millisecond} {
			if i > 0 && phase != 37*time.Millisecond && !redistest.Long() {
				continue
			}
			for _, spread := range []bool{false, true} {
				inWorld(t, r, func(t *testing.T, w *world) {
					if spread {
						w.spread(r)
					}
					intervals, used := 30, .95
					if r.Interval > time.Second || r.Permits == 1 {
						intervals = 60 // permits that come back together go to either side by chance
					}
					if r.Permits == 1 {
						used = .94 // every other one is late because of Redisson's timer
					}
					sharedBy(w, r, intervals, []float64{.4, .4}, used, ourSide(w, 8, 1), redissonSide(w, 8, phase))
				})
			}
		}
	}
}

// TestTimeoutsLeaveRoomToo checks that callers with a timeout leave as much room, even if most of them are rejected.
func TestTimeoutsLeaveRoomToo(t *testing.T) {
	for _, callers := range []int{8, 40} {
		r := overall(10, time.Second)
		inWorld(t, r, func(t *testing.T, w *world) {
			underWay(w)
			ours := ourSide(w, callers, 1)
			ours.acquire = func(ctx context.Context, n int64) bool {
				for ctx.Err() == nil {
					if ok, err := w.l.TryAcquire(ctx, n, 2*time.Second); ok || err != nil {
						return ok
					}
				}
				return false
			}
			sharedBy(w, r, 40, []float64{.35, .35}, .95, ours, redissonSide(w, 8, 37*time.Millisecond))
		})
	}
}

// TestRedissonBesideTwoProcesses checks that beside two processes, which share one half, Redisson gets the other.
func TestRedissonBesideTwoProcesses(t *testing.T) {
	r := overall(20, time.Second)
	inWorld(t, r, func(t *testing.T, w *world) {
		other := newWorld(t, w.server)
		defer other.close()
		sharedBy(w, r, 40, []float64{.125, .125, .35}, .95, ourSide(w, 8, 1), ourSide(other, 8, 1), redissonSide(w, 8, 37*time.Millisecond))
	})
}

// TestReopeningIsShared checks that neither side takes all permits that a cool-down gives back one after another.
func TestReopeningIsShared(t *testing.T) {
	for _, rate := range []int64{10, 100} {
		inWorld(t, overall(rate, time.Second), func(t *testing.T, w *world) {
			w.server.CoolDown(w.l.key, time.Now().Add(2*time.Second), 6*time.Second)
			ours, theirs := ourSide(w, 8, 1), redissonSide(w, 8, 37*time.Millisecond)
			play(w, 8*time.Second, ours, theirs)
			g, j := ours.in(0, 8*time.Second), theirs.in(0, 8*time.Second)
			require.GreaterOrEqual(t, float64(min(g, j)), .35*float64(g+j), "ours %d, theirs %d", g, j)
		})
	}
}

// TestProcessesShareFairly checks that several processes get equal parts within a fifth if they ask alike, and otherwise at
// least half of that.
func TestProcessesShareFairly(t *testing.T) {
	redistest.Repeats(t)
	redistest.NoRace(t, "the other scenarios race as much")
	for _, c := range []struct {
		name             string
		callers, permits []int64
	}{
		{"two", []int64{8, 8}, []int64{1, 1}},
		{"four", []int64{8, 8, 8, 8}, []int64{1, 1, 1, 1}},
		{"one caller and 32", []int64{1, 32}, []int64{1, 1}},
		{"half of the rate at a time", []int64{8, 2}, []int64{1, 5}},
		{"half of the rate at a time, one caller", []int64{8, 1}, []int64{1, 5}},
		{"half of the rate at a time beside three", []int64{8, 8, 8, 1}, []int64{1, 1, 1, 5}},
	} {
		for _, spread := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, spread %v", c.name, spread), func(t *testing.T) {
				r := overall(10, time.Second)
				inWorld(t, r, func(t *testing.T, w *world) {
					if spread {
						w.spread(r)
					}
					var sides []*side
					var parts []float64
					part, used := .8, .97
					if slices.Max(c.permits) > 1 {
						part, used = .5, .85 // to take permits ahead costs something, and calls take time
					}
					for i := range c.callers {
						process := newWorld(t, w.server)
						defer process.close()
						underWay(process)
						sides = append(sides, ourSide(process, int(c.callers[i]), c.permits[i]))
						parts = append(parts, part/float64(len(c.callers)))
					}
					sharedBy(w, r, 40, parts, used, sides...)
				})
			})
		}
	}
}

// TestNobodyElseCostsNothing checks that a saturated process without competitors is served at the very instants at
// which permits become free.
func TestNobodyElseCostsNothing(t *testing.T) {
	redistest.NoRace(t, "it takes virtual hours")
	for _, spread := range []bool{false, true} {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			if spread {
				w.spread(overall(10, time.Second))
			}
			before, ours := w.p.Sent(), ourSide(w, 8, 1)
			play(w, 200*time.Second, ours)
			for _, g := range ours.got.Told().Grants {
				at := g.End.Sub(w.epoch)
				require.Zero(t, at%(100*time.Millisecond), "served at %v", at)
			}
			require.EqualValues(t, 2000, ours.in(0, 200*time.Second))
			require.LessOrEqual(t, float64(w.p.Sent()-before), 1.3*2000, "calls")
		})
	}
}

// TestWhoDoesNotWaitIsLeftNothing checks that a line is served at the very instants at which permits become free that
// another process holds whose callers do not wait.
func TestWhoDoesNotWaitIsLeftNothing(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		other := newWorld(t, w.server)
		defer other.close()
		for range 10 {
			other.granted(1)
			time.Sleep(90 * time.Millisecond)
		}
		ours := ourSide(w, 8, 1)
		play(w, time.Second, ours) // from 900 ms on
		var want grantlog.Grants
		for i := range 10 {
			want = append(want, grantlog.At(w.epoch.Add(100*time.Millisecond+time.Duration(i)*90*time.Millisecond), 1))
		}
		require.Equal(t, want, ours.got.Told().Grants)
	})
}

// TestUnusedSharesAreUsed checks that permits that other processes do not use go to this one, and that soon after
// their callers have left it is served at the very instants again.
func TestUnusedSharesAreUsed(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		ours, theirs := ourSide(w, 8, 1), redissonSide(w, 8, 37*time.Millisecond)
		theirs.from, theirs.till = 20*time.Second, 40*time.Second
		play(w, 60*time.Second, ours, theirs)
		require.EqualValues(t, 200, ours.in(0, 20*time.Second), "alone")
		require.GreaterOrEqual(t, theirs.in(25*time.Second, 40*time.Second), int64(60), "together")
		require.GreaterOrEqual(t, ours.in(40*time.Second, 45*time.Second), int64(45), "they have left")
		list := ours.got.Told().Grants
		for i, g := range list {
			if at := g.End.Sub(w.epoch); at > 46*time.Second {
				require.Equal(t, time.Second, g.End.Sub(list[i-10].End), "alone again, nothing is late: %v", at)
			}
		}
	})
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		ours, theirs := ourSide(w, 8, 1), redissonSide(w, 1, 37*time.Millisecond)
		theirs.think = 2 * time.Second
		got, all, most := shares(w, overall(10, time.Second), 60, ours, theirs)
		require.GreaterOrEqual(t, got[1], int64(50/3), "one in three seconds at least")
		require.GreaterOrEqual(t, float64(all), .93*float64(most), "what is left to its caller is often late")
	})
}

// TestOwnCallsAreNoSignOfOthers checks that other calls of the same process, which may reclaim the tripwire of its
// waiters, are not taken for other processes: the waiters are still served at the very instants.
func TestOwnCallsAreNoSignOfOthers(t *testing.T) {
	for name, ask := range map[string]func(w *world) error{
		"Peek":  func(w *world) error { _, err := w.l.Peek(w.ctx, 1); return err },
		"Allow": func(w *world) error { _, err := w.l.Allow(w.ctx, 10); return err },
		"a list": func(w *world) error {
			_, err := w.all(w.ctx, -1, w.l.of(10), w.limiter("other-a").of(1))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
				w.others(overall(10, time.Second))
				ctx, cancel := context.WithCancel(w.ctx)
				done := make(chan error, 1)
				go func() {
					for ctx.Err() == nil {
						if err := ask(w); err != nil {
							done <- err
							return
						}
						time.Sleep(70 * time.Millisecond)
					}
					done <- nil
				}()
				time.Sleep(10 * time.Millisecond)
				begin := time.Now()
				for range 50 {
					require.NoError(t, w.l.Acquire(w.ctx, 1))
				}
				took := time.Since(begin)
				cancel()
				require.NoError(t, <-done)
				require.LessOrEqual(t, took, 5*time.Second)
				if name == "Peek" { // the other calls take permits themselves
					require.Equal(t, 4*time.Second, took)
				}
			})
		})
	}
}
