// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/stretchr/testify/require"
)

func TestKillerRateChangesUnderAWaiter(t *testing.T) {
	for name, c := range map[string]struct {
		rate  Rate
		until time.Duration
		err   error
	}{
		"more permits":      {rate: overall(4, time.Hour), until: 10 * time.Second},
		"shorter":           {rate: overall(2, time.Minute), until: 10 * time.Second},
		"fewer than wanted": {rate: overall(1, time.Hour), until: 10 * time.Second, err: ErrPermitsExceedRate},
		"other type":        {rate: Rate{Type: PerClient, Permits: 2, Interval: time.Hour}, until: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, overall(2, time.Hour), func(t *testing.T, w *world) {
				w.granted(2)
				peer := newWorld(t, redistest.Peer(t, w.rdb)) // another process, so only the recheck can notice
				go func() {
					time.Sleep(9500 * time.Millisecond)
					_ = peer.client.RateLimiter(w.l.Name()).SetRate(w.ctx, c.rate)
				}()
				ok, err := w.l.TryAcquire(w.ctx, 2, 30*time.Minute)
				require.Equal(t, c.until, w.elapsed())
				if c.err != nil {
					require.ErrorIs(t, err, c.err)
					return
				}
				require.NoError(t, err)
				require.True(t, ok)
			})
		})
	}
}

func TestKillerKeepAliveRunsOut(t *testing.T) {
	if !redistest.TTLsAreVirtual() {
		t.Skip("TTLs of a real server take real time: the lane on miniredis has this test")
	}
	inWorld(t, Rate{Permits: 2, Interval: time.Second, KeepAlive: 10 * time.Second}, func(t *testing.T, w *world) {
		for range 5 {
			w.granted(1)
			time.Sleep(9 * time.Second) // each acquire renews the TTL
		}
		require.Equal(t, time.Second, must(w.l.Admin().TTL(w.ctx))(t))
		time.Sleep(time.Second)
		_, err := w.l.TryAcquire(w.ctx, 1, time.Hour)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.Zero(t, w.rdb.Exists(w.ctx, keysAll(w.l, Overall)...).Val(), "nothing is left behind")
		require.True(t, must(w.l.TrySetRate(w.ctx, overall(1, time.Second)))(t))
		w.granted(1)
	})
	t.Run("under a waiter", func(t *testing.T) {
		inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
			w.granted(1)
			require.True(t, must(w.l.Admin().Expire(w.ctx, 5500*time.Millisecond))(t))
			require.ErrorIs(t, w.l.Acquire(w.ctx, 1), ErrNotInitialized)
			require.Equal(t, 6*time.Second, w.elapsed())
		})
	})
}

func TestKillerKeysDeletedUnderAWaiter(t *testing.T) {
	inWorld(t, overall(2, 10*time.Second), func(t *testing.T, w *world) {
		w.granted(2)
		go func() {
			time.Sleep(3500 * time.Millisecond)
			w.rdb.Del(w.ctx, w.valueKey())
		}()
		require.NoError(t, w.l.Acquire(w.ctx, 1))
		require.Equal(t, 10*time.Second, w.elapsed(), "a lost value is no second burst")
		w.granted(1)
		go func() {
			time.Sleep(3500 * time.Millisecond)
			w.rdb.Del(w.ctx, w.permitsKey())
		}()
		require.NoError(t, w.l.Acquire(w.ctx, 1))
		require.Equal(t, 14*time.Second, w.elapsed(), "nothing in use is everything free")
		go func() {
			time.Sleep(500 * time.Millisecond)
			w.rdb.Del(w.ctx, w.l.redis.Keys.Hash)
		}()
		require.ErrorIs(t, w.l.Acquire(w.ctx, 2), ErrNotInitialized)
	})
}

// TestKillerManyAtOnce checks that no call takes Redis long of a limiter with as many members as its rate, which have all
// expired or lie ahead of the clock. Redisson reclaims 100,000 in one call, which blocked Redis for 85 ms.
func TestKillerManyAtOnce(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	for name, c := range map[string]struct {
		n        int
		interval time.Duration
		at       time.Duration
		each     int // members that a call may look at
		take     func(w *world, n int64)
	}{
		"expired": {100_000, time.Minute, -time.Hour, 512, func(w *world, n int64) {
			w.available(n)
			for range 10 {
				w.granted(1)
			}
			w.granted(n - 10)
			require.False(w.t, w.try(1).Granted)
		}},
		"ahead of the clock": {50_000, 3 * time.Second, time.Hour, 192, func(w *world, n int64) {
			// On a slow machine the interval of the first marks is over before the last is made, and on a very slow one that of all.
			if !w.try(n).Granted {
				require.Equal(w.t, n, int64(w.marked())+w.value(), "all are marked, or were and are free again")
				require.NoError(w.t, w.l.Acquire(w.ctx, n))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			w := newWorld(t, s.Client(t), func(c *config) { c.clientClock = false })
			require.NoError(t, w.l.SetRate(w.ctx, overall(int64(c.n), c.interval)))
			for i := range c.n / 1000 {
				w.ahead(c.at+time.Duration(i)*time.Second, 1000)
			}
			w.setValue(0)
			m := &cpuMeter{t: t, admin: s.Client(t)}
			m.on(w.rdb)
			c.take(w, int64(c.n))
			took := m.requireBounded()
			require.Greater(t, len(took), c.n/c.each, "bounded calls are many calls")
			if c.at < 0 {
				redistest.Measured(t, took[len(took)*95/100] < 2*time.Millisecond, "of twenty calls one took Redis more than %v", took[len(took)*95/100])
			}
		})
	}
}

// TestLimiterLivesWhilePermitsAreTakenAhead checks that a limiter does not expire while two processes take permits ahead in
// turns, and so leave each other pauses in which nobody takes any. Only others set a KeepAlive below the interval.
func TestLimiterLivesWhilePermitsAreTakenAhead(t *testing.T) {
	for _, keep := range []time.Duration{time.Second, 500 * time.Millisecond} {
		for _, permits := range []int64{2, 3, 4} {
			inWorld(t, overall(4, time.Second), func(t *testing.T, w *world) {
				needVirtualTTLs(t)
				require.NoError(t, w.rdb.HSet(w.ctx, w.l.Name(), "keepAliveTime", keep.Milliseconds()).Err())
				other := newClient(t, w.rdb)
				var wg sync.WaitGroup
				for i, c := range []*Client{w.client, other} {
					wg.Go(func() {
						for range 12 {
							if err := c.RateLimiter(w.l.Name()).Acquire(w.ctx, permits); err != nil {
								t.Errorf("KeepAlive %v, %d permits, client %d, after %v: %v", keep, permits, i, w.elapsed(), err)
								return
							}
						}
					})
				}
				wg.Wait()
				require.NoError(t, other.Close())
			})
		}
	}
}

// TestWaitersKeepTheirLimitersAlive checks that no limiter expires for which a caller waits, however short its KeepAlive is
// beside the wait and the WithRecheck: of a list neither the limiter that rejects nor those that would have granted.
func TestWaitersKeepTheirLimitersAlive(t *testing.T) {
	for _, n := range []int{1, 2, 7} { // one script decides up to six
		for name, rates := range map[string][2]Rate{
			"the limiter that rejects":  {{Permits: 1, Interval: time.Second, KeepAlive: time.Second}, {Permits: 1, Interval: time.Second, KeepAlive: time.Second}},
			"those that do not reject":  {{Permits: 1, Interval: 10 * time.Second}, {Permits: 1, Interval: time.Second, KeepAlive: 2 * time.Second}},
			"one that rejects, shortly": {{Permits: 1, Interval: 4 * time.Second, KeepAlive: 4 * time.Second}, {Permits: 9, Interval: time.Second, KeepAlive: 3 * time.Second}},
		} {
			inWorld(t, rates[0], func(t *testing.T, w *world) {
				needVirtualTTLs(t)
				demands := []Demand{{w.l, 1}}
				for i := range n - 1 {
					l := w.l.client.RateLimiter(w.l.Name() + string(rune('a'+i)))
					require.NoError(t, l.SetRate(w.ctx, rates[1]))
					demands = append(demands, Demand{l, 1})
				}
				for range 4 {
					require.NoError(t, w.l.client.AcquireAll(w.ctx, demands...), "%d limiters, %s, after %v", n, name, w.elapsed())
				}
				require.Equal(t, 3*rates[0].Interval, w.elapsed())
			}, WithRecheck(time.Minute))
		}
	}
}

// TestRejectedListKeepsItsLimitersAlive checks that a list which is rejected renews all of its limiters, as any rejected call
// but Peek does.
func TestRejectedListKeepsItsLimitersAlive(t *testing.T) {
	inWorld(t, Rate{Permits: 1, Interval: time.Minute, KeepAlive: time.Minute}, func(t *testing.T, w *world) {
		needVirtualTTLs(t)
		other := w.l.client.RateLimiter(w.l.Name() + "-other")
		require.NoError(t, other.SetRate(w.ctx, Rate{Permits: 2, Interval: time.Minute, KeepAlive: time.Minute}))
		ttl := func(l *RateLimiter) time.Duration {
			d := must(l.Admin().TTL(w.ctx))(t)
			return d
		}
		w.granted(1)
		w.at(10 * time.Second)
		must(w.l.Peek(w.ctx, 1))(t)
		require.Equal(t, 50*time.Second, ttl(w.l))
		require.Equal(t, 50*time.Second, ttl(other))
		for i := range 2 { // the first call checks all limiters, which renews them as well
			w.at(time.Duration(20+10*i) * time.Second)
			require.False(t, must(w.l.client.TryAcquireAll(w.ctx, 0, Demand{w.l, 1}, Demand{other, 1}))(t).Granted)
			require.Equal(t, time.Minute, ttl(w.l))
			require.Equal(t, time.Minute, ttl(other))
		}
	})
}

// TestGrantOfACallerThatLeftGoesBack checks that an unclaimed grant is refunded to Redis if nobody else waits, as
// if it had never been taken, in both formats.
func TestGrantOfACallerThatLeftGoesBack(t *testing.T) {
	for _, format := range []wire.Format{wire.FormatBc0I, wire.FormatLc0I} {
		for _, typ := range []RateType{Overall, PerClient} {
			inWorld(t, Rate{Type: typ, Permits: 10, Interval: time.Minute}, func(t *testing.T, w *world) {
				w.granted(1)
				hold(w, 800*time.Millisecond)
				ctx, cancel := context.WithTimeout(w.ctx, 300*time.Millisecond)
				defer cancel()
				err := w.l.Acquire(ctx, 4)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, ErrUnavailable, "there has been no reply")
				time.Sleep(5 * time.Second)
				w.holds(w.l, 10, 1)
			}, inFormat(format))
		}
	}
}

// TestHundredThousandCancels makes a hundred thousand calls that end at random: before they begin, in flight, while
// they wait, or not at all. It checks that no goroutine, timer or permit is leaked.
func TestHundredThousandCancels(t *testing.T) {
	redistest.NeedReal(t)
	const callers, each, rate = 200, 500, 300_000
	s := redistest.Start(t)
	rdb, ctx := s.Client(t), context.Background()
	c := newClient(t, rdb)
	wide, narrow := c.RateLimiter("wide"), c.RateLimiter("narrow")
	require.NoError(t, wide.SetRate(ctx, overall(rate, time.Hour)))
	require.NoError(t, narrow.SetRate(ctx, overall(1, time.Hour)))
	before := runtime.NumGoroutine()

	var got [2]atomic.Int64
	var cancelled, rejected atomic.Int64
	var storm, feed sync.WaitGroup
	for range callers {
		storm.Go(func() {
			for range each {
				which := rand.N(2)
				l := [2]*RateLimiter{wide, narrow}[which]
				ends, cancel := context.WithCancel(ctx)
				switch at := rand.N(3*time.Millisecond) - 300*time.Microsecond; {
				case at <= 0:
					cancel()
				case rand.N(2) == 0:
					ends, cancel = context.WithTimeout(ctx, at)
				default:
					time.AfterFunc(at, cancel)
				}
				permits := 1 + rand.N(int64(3))
				var ok bool
				var err error
				switch rand.N(3) {
				case 0:
					var r Result
					r, err = l.Allow(ends, permits)
					ok = r.Granted
				case 1:
					ok, err = l.TryAcquire(ends, permits, rand.N(3*time.Millisecond))
				default:
					err = l.Acquire(ends, permits)
					ok = err == nil
				}
				switch {
				case ok:
					got[which].Add(permits)
				case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
					cancelled.Add(1)
				case err == nil, errors.Is(err, ErrPermitsExceedRate), errors.Is(err, ErrUnavailable), errors.Is(err, ErrOverloaded):
					rejected.Add(1) // no reply came within its few milliseconds
				default:
					t.Error(err)
				}
				cancel()
			}
		})
	}
	// The rate of the narrow limiter grows by a few permits at a time, so that waiters race for them while they are
	// cancelled.
	feeding, stop := context.WithCancel(ctx)
	wider := int64(1)
	feed.Go(func() {
		for feeding.Err() == nil {
			wider += 4
			if _, err := narrow.UpdateRate(ctx, overall(wider, time.Hour), KeepState()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	storm.Wait()
	stop()
	feed.Wait()

	soon(t, "nothing is in flight, a return of permits neither", func() bool { return idle(c) })
	for i, l := range []*RateLimiter{wide, narrow} { // a flight does not wait for a refund that takes long
		soon(t, "every permit is accounted for", func() bool { return accounts(rdb, l, []int64{rate, wider}[i], got[i].Load()) == nil })
	}
	require.NoError(t, c.engine.CheckIdle())
	soon(t, fmt.Sprint("no more goroutines than ", before), func() bool { return runtime.NumGoroutine() <= before })
	require.Greater(t, cancelled.Load(), int64(callers*each/4))
	require.Positive(t, got[1].Load())
	t.Logf("%d cancelled, %d rejected, %d and %d permits granted", cancelled.Load(), rejected.Load(), got[0].Load(), got[1].Load())
	require.NoError(t, c.Close())
}
