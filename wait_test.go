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

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
	"github.com/redis/go-redis/v9"
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
		require.Equal(t, time.Second, must(w.l.TTL(w.ctx))(t))
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
			require.True(t, must(w.l.Expire(w.ctx, 5500*time.Millisecond))(t))
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

// 100,000 grants expire together. Redisson reclaims them in one call, which blocked Redis for 85 ms.
func TestKillerManyExpireAtOnce(t *testing.T) {
	redistest.NeedReal(t)
	const n = 100_000
	s := redistest.Start(t)
	w := newWorld(t, s.Client(t))
	require.NoError(t, w.l.SetRate(w.ctx, overall(n, time.Minute)))
	for range n / 1000 {
		w.fill(-time.Hour, 1000)
	}
	w.setValue(0)
	m := &cpuMeter{t: t, admin: s.Client(t)}
	m.on(w.rdb)
	w.available(n)
	for range 10 {
		w.granted(1)
	}
	w.granted(n - 10)
	require.False(t, w.try(1).Granted)
	took := m.sorted()
	require.Greater(t, len(took), n/512, "bounded calls are many calls")
	require.Less(t, took[len(took)*95/100], 2*time.Millisecond)
}

// A peer uses its own clock, which is 5 s fast, as that of a Java client may be.
func TestKillerPeerClockAhead(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 20 * time.Second} {
		inWorld(t, overall(10, interval), func(t *testing.T, w *world) {
			w.put(5*time.Second, redistest.LuaPack("BcI", 16, make([]byte, 16), 10))
			w.setValue(0)
			require.NoError(t, w.l.Acquire(w.ctx, 10))
			require.Equal(t, interval, w.elapsed())
			w.rejected(1, interval)
		})
	}
}

// This runs on the clock of Redis and in real time, which is the default of every user.
func TestRealTime(t *testing.T) {
	ctx, rdb := context.Background(), redistest.Client(t)
	c := newClient(t, rdb)
	defer c.Close()
	l := c.RateLimiter(redistest.Key(t))
	const rate, interval = 5, 200 * time.Millisecond
	require.NoError(t, l.SetRate(ctx, overall(rate, interval)))
	var log grantLog
	for range 6 * rate {
		require.NoError(t, l.Acquire(ctx, 1))
	}
	z := rdb.ZRangeWithScores(ctx, l.redis.Keys.Permits[Overall], 0, -1).Val()
	require.NotEmpty(t, z)
	begin := time.Now()
	for range 3 {
		var r Result
		for !r.Granted {
			var err error
			r, err = l.Allow(ctx, rate)
			require.NoError(t, err)
			require.LessOrEqual(t, r.Wait, interval)
			time.Sleep(r.Wait)
		}
		log.add(time.Duration(r.Time.UnixNano()), rate)
	}
	require.GreaterOrEqual(t, time.Since(begin), 2*interval)
	require.EqualValues(t, rate, log.worst(interval))
}

// TestWaitersKeepTheirLimiterAlive checks that a limiter does not expire while callers wait for its permits, however
// short its KeepAlive is beside the wait and the WithRecheck.
func TestWaitersKeepTheirLimiterAlive(t *testing.T) {
	rate := Rate{Permits: 1, Interval: time.Second, KeepAlive: time.Second}
	inWorld(t, rate, func(t *testing.T, w *world) {
		needVirtualTTLs(t)
		w.granted(1)
		for range 5 {
			require.NoError(t, w.l.Acquire(w.ctx, 1))
		}
		require.Equal(t, 5*time.Second, w.elapsed())
	}, WithRecheck(time.Minute))
}

// TestLimiterLivesWhilePermitsAreTakenAhead checks the same of two processes that take permits ahead in turns, and so leave
// each other pauses in which nobody takes any. Only others set a KeepAlive below the interval.
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

// TestWaitingListsKeepTheirLimitersAlive checks the same of lists: neither the limiter that rejects nor those that would
// have granted expires, whether or not one script decides.
func TestWaitingListsKeepTheirLimitersAlive(t *testing.T) {
	for _, n := range []int{2, 7} { // one script decides up to six
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
					require.NoError(t, errOf(w.l.client.AcquireAll(w.ctx, demands...)), "%d limiters, %s, after %v", n, name, w.elapsed())
				}
				require.Equal(t, 3*rates[0].Interval, w.elapsed())
			})
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
			d := must(l.TTL(w.ctx))(t)
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
// if it had never been taken.
func TestGrantOfACallerThatLeftGoesBack(t *testing.T) {
	for _, format := range []wire.Format{wire.FormatBc0I, wire.FormatLc0I} {
		for _, typ := range []RateType{Overall, PerClient} {
			inWorld(t, Rate{Type: typ, Permits: 10, Interval: time.Minute}, func(t *testing.T, w *world) {
				w.granted(1)
				h := hold(w, 800*time.Millisecond)
				for _, ask := range []func(ctx context.Context) error{
					func(ctx context.Context) error { _, err := w.l.Allow(ctx, 4); return err },
					func(ctx context.Context) error { return w.l.Acquire(ctx, 4) },
					func(ctx context.Context) error { _, err := w.l.TryAcquire(ctx, 4, time.Minute); return err },
				} {
					ctx, cancel := context.WithTimeout(w.ctx, 300*time.Millisecond)
					begin := time.Now()
					err := ask(ctx)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorIs(t, err, ErrUnavailable, "there has been no reply")
					require.Equal(t, 300*time.Millisecond, time.Since(begin))
					cancel()
					time.Sleep(5 * time.Second)
					used, members := w.used()
					require.EqualValues(t, 1, used)
					require.Equal(t, 1, members)
					require.EqualValues(t, 9, w.value())
				}
				// Two of five callers of one batch leave, and their part is refunded.
				before, leave := context.WithTimeout(w.ctx, 300*time.Millisecond)
				defer leave()
				var wg sync.WaitGroup
				go func() { _, _ = w.l.Allow(w.ctx, 1) }()
				go func() { _, _ = w.l.Allow(w.ctx, 1) }() // occupy both flights, so that the requests that follow are batched
				time.Sleep(time.Millisecond)
				for i := range 5 {
					ctx := w.ctx
					if i%2 == 1 {
						ctx = before
					}
					wg.Go(func() {
						time.Sleep(time.Duration(i) * time.Millisecond)
						r, err := w.l.Allow(ctx, 1)
						require.Equal(t, i%2 == 1, errors.Is(err, context.DeadlineExceeded))
						require.Equal(t, i%2 == 0, r.Granted)
					})
				}
				wg.Wait()
				h.Store(0)
				time.Sleep(5 * time.Second)
				used, _ := w.used()
				require.EqualValues(t, 1+2+3, used)
				require.EqualValues(t, 10-6, w.value())
			}, WithMemberFormat(format))
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
				case err == nil, errors.Is(err, ErrPermitsExceedRate), errors.Is(err, ErrUnavailable):
					rejected.Add(1) // unavailable because no reply came within its few milliseconds
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

// TestCloseInFlight checks that Close fails the callers in flight at once, and that permits granted to them
// afterwards are refunded.
func TestCloseInFlight(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Since(t, 6, 2, "CLIENT UNPAUSE")
	s := redistest.Start(t)
	// Without a read timeout nothing but Close ends the callers while the server is paused.
	rdb, ctx := s.Client(t, func(o *redis.Options) { o.ReadTimeout = -1 }), context.Background()
	admin := s.Client(t)
	ends, cancel := context.WithCancel(ctx) // with a context that can be cancelled, no caller flies its own request
	defer cancel()
	before := runtime.NumGoroutine()
	for range 5 {
		c := newClient(t, rdb)
		l, full := c.RateLimiter("closed"), c.RateLimiter("full")
		require.NoError(t, l.SetRate(ctx, overall(1000, time.Hour)))
		require.NoError(t, full.SetRate(ctx, overall(1, time.Hour)))
		require.NoError(t, full.Acquire(ctx, 1))
		require.NoError(t, l.Acquire(ctx, 7))
		require.NoError(t, admin.Do(ctx, "CLIENT", "PAUSE", "60000", "WRITE").Err())

		errs := make(chan error)
		for range 20 {
			go func() { errs <- l.Acquire(ends, 2) }()
			go func() { _, err := l.Allow(ends, 3); errs <- err }()
			go func() { _, err := l.TryAcquire(ends, 5, time.Minute); errs <- err }()
			go func() { errs <- full.Acquire(ends, 1) }()
		}
		soon(t, "everybody is on the way", func() bool { return callers(l)+callers(full) == 80 && blocked(admin) >= 3 })
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		for range 80 {
			require.ErrorIs(t, inTime(t, errs), ErrClosed)
		}
		require.NotZero(t, blocked(admin), "they did not wait for the server")
		require.NoError(t, admin.Do(ctx, "CLIENT", "UNPAUSE").Err())
		require.NoError(t, inTime(t, closed))
		soon(t, "what was granted in flight is back", func() bool { return accounts(admin, l, 1000, 7) == nil })
		require.NoError(t, accounts(admin, full, 1, 1))
		require.NoError(t, c.engine.CheckIdle())
		soon(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	}
}

// TestIdleLimitersHoldNothing checks that thousands of limiters, each used once in every way, hold no resources.
func TestIdleLimitersHoldNothing(t *testing.T) {
	redistest.NeedReal(t)
	rdb, ctx, name := redistest.Client(t), context.Background(), redistest.Key(t)
	before := runtime.NumGoroutine()
	c := newClient(t, rdb)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 250 {
				l := c.RateLimiter(fmt.Sprint(name, g, ".", i))
				_, err := l.TrySetRate(ctx, overall(1, time.Hour))
				if err == nil {
					err = l.Acquire(ctx, 1)
				}
				if err != nil {
					t.Error(err)
				}
				if ok, err := l.TryAcquire(ctx, 1, time.Millisecond); ok || err != nil && !errors.Is(err, ErrUnavailable) {
					t.Error(ok, err)
				}
				ends, cancel := context.WithTimeout(ctx, time.Millisecond)
				if err := l.Acquire(ends, 1); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	soon(t, "nothing is in flight", func() bool { return idle(c) })
	require.NoError(t, c.engine.CheckIdle())
	soon(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}
