package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine/enginetest"
	"github.com/stretchr/testify/require"
)

// A side is a group of callers that acquire in a loop.
type side struct {
	callers    int
	permits    int64
	think      time.Duration
	from, till time.Duration // when the side takes part; a till of 0 means to the end
	acquire    func(ctx context.Context, permits int64) bool
	got        grantLog
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
func (s *side) in(from, to time.Duration) (n int64) {
	for _, g := range s.got.grants {
		if g.at >= from && g.at < to {
			n += g.permits
		}
	}
	return n
}

func play(w *world, lasts time.Duration, sides ...*side) {
	w.epoch = time.Now()
	var wg sync.WaitGroup
	for _, s := range sides {
		if s.till == 0 {
			s.till = lasts
		}
		for i := range s.callers {
			wg.Go(func() {
				late := time.Duration(i) * time.Microsecond
				w.at(s.from + late)
				ctx, cancel := context.WithTimeout(w.ctx, s.till-s.from-late)
				defer cancel()
				for ctx.Err() == nil && s.acquire(ctx, s.permits) {
					s.got.add(w.elapsed(), s.permits)
					time.Sleep(s.think)
				}
			})
		}
	}
	wg.Wait()
	synctest.Wait()
}

// shares plays the sides for the given number of intervals at a rate per second. It leaves out the first ten
// intervals, and returns how many permits each side was granted after them, their sum, and how many permits there
// were.
func shares(w *world, rate int64, intervals int, sides ...*side) (got []int64, all, most int64) {
	lasts, from := time.Duration(intervals)*time.Second, 10*time.Second
	play(w, lasts, sides...)
	for _, s := range sides {
		n := s.in(from, lasts)
		got = append(got, n)
		all += n
	}
	return got, all, rate * int64((lasts-from)/time.Second)
}

// spread takes the permits of one second one by one, so that they also become free one by one.
func (w *world) spread(rate int64) {
	for range rate {
		w.granted(1)
		time.Sleep(time.Second / time.Duration(rate))
	}
}

// TestRedissonGetsItsShare checks that at equal demand callers of Redisson get their part, although they wake up
// after the instant at which a permit becomes free, and that little of the rate is lost.
func TestRedissonGetsItsShare(t *testing.T) {
	for _, rate := range []int64{10, 100} {
		for _, spread := range []bool{false, true} {
			inWorld(t, overall(rate, time.Second), func(t *testing.T, w *world) {
				if spread {
					w.spread(rate)
				}
				got, all, most := shares(w, rate, 60, ourSide(w, 8, 1), redissonSide(w, 8, 37*time.Millisecond))
				t.Log(got, all, most)
				require.GreaterOrEqual(t, float64(min(got[0], got[1])), .35*float64(all), "%v", got)
				require.GreaterOrEqual(t, float64(all), .95*float64(most))
			})
		}
	}
}

// TestProcessesShareFairly checks that each of several processes gets at least half of its fair share, whatever it
// asks for.
func TestProcessesShareFairly(t *testing.T) {
	for _, c := range []struct {
		name             string
		callers, permits []int64
	}{
		{"two", []int64{8, 8}, []int64{1, 1}},
		{"four", []int64{8, 8, 8, 8}, []int64{1, 1, 1, 1}},
		{"one caller and 32", []int64{1, 32}, []int64{1, 1}},
		{"half of the rate at a time", []int64{8, 2}, []int64{1, 5}},
		{"half of the rate at a time beside three", []int64{8, 8, 8, 1}, []int64{1, 1, 1, 5}},
	} {
		for _, spread := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, spread %v", c.name, spread), func(t *testing.T) {
				inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
					if spread {
						w.spread(10)
					}
					var sides []*side
					for i := range c.callers {
						process := newWorld(t, w.server)
						defer process.close()
						process.p.Always(enginetest.Fault{Before: 200 * time.Microsecond, After: 200 * time.Microsecond})
						sides = append(sides, ourSide(process, int(c.callers[i]), c.permits[i]))
					}
					got, all, most := shares(w, 10, 60, sides...)
					t.Log(got, all, most)
					for _, n := range got {
						require.GreaterOrEqual(t, float64(n), .5*float64(all)/float64(len(got)), "%v", got)
					}
					if len(got) > 2 && c.permits[3] > 1 {
						most = most * 88 / 100 // saving up permits costs something, and calls take time
					}
					require.GreaterOrEqual(t, float64(all), .97*float64(most))
				})
			})
		}
	}
}

// TestNobodyElseCostsNothing checks that a saturated process without competitors is served at the very instants at
// which permits become free.
func TestNobodyElseCostsNothing(t *testing.T) {
	for _, spread := range []bool{false, true} {
		inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
			if spread {
				w.spread(10)
			}
			before, ours := w.p.Sent(), ourSide(w, 8, 1)
			play(w, 200*time.Second, ours)
			for _, g := range ours.got.grants {
				require.Zero(t, g.at%(100*time.Millisecond), "served at %v", g.at)
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
		var want []granted
		for i := range 10 {
			want = append(want, granted{100*time.Millisecond + time.Duration(i)*90*time.Millisecond, 1})
		}
		require.Equal(t, want, ours.got.grants)
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
		for i, g := range ours.got.grants {
			if g.at > 46*time.Second {
				require.Equal(t, time.Second, g.at-ours.got.grants[i-10].at, "alone again, nothing is late: %v", g.at)
			}
		}
	})
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		ours, theirs := ourSide(w, 8, 1), redissonSide(w, 1, 37*time.Millisecond)
		theirs.think = 2 * time.Second
		got, all, most := shares(w, 10, 60, ours, theirs)
		t.Log(got, all, most)
		require.GreaterOrEqual(t, got[1], int64(50/3), "one in three seconds at least")
		require.GreaterOrEqual(t, float64(all), .93*float64(most), "what is left to its caller is often late")
	})
}

// TestOwnCallsAreNoSignOfOthers checks that other calls of the same process, which may reclaim the tripwire of its
// waiters, are not taken for other processes: the waiters are still served at the very instants.
func TestOwnCallsAreNoSignOfOthers(t *testing.T) {
	for name, ask := range map[string]func(w *world) error{
		"Peek": func(w *world) error { _, err := w.l.Peek(w.ctx, 1); return err },
		"Try":  func(w *world) error { _, err := w.l.Try(w.ctx, 10); return err },
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
