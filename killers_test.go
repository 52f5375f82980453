package ratelimiter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What killed earlier ports of RRateLimiter, each once.

func TestKillerIdleForTwoWindows(t *testing.T) {
	for name, r := range map[string]Rate{
		"plain":      overall(5, time.Second),
		"keep-alive": {Permits: 5, Interval: time.Second, KeepAlive: time.Hour},
		"per client": {Type: PerClient, Permits: 5, Interval: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, r, func(t *testing.T, w *world) {
				for i := range 10 {
					w.at(time.Duration(i) * 2 * time.Second)
					w.available(5)
					w.granted(5)
					w.refused(1, time.Second)
				}
			})
		})
	}
}

func TestKillerRedisGoneAndBack(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	ctx := context.Background()
	c := New(s.Client(t))
	defer c.Close()
	l := c.RateLimiter("gone")
	require.NoError(t, l.SetRate(ctx, overall(5, time.Hour)))
	ok, err := l.TryAcquire(ctx, 3, 0)
	require.NoError(t, err)
	require.True(t, ok)

	s.Kill()
	for range 3 {
		ok, err = l.TryAcquire(ctx, 1, 100*time.Millisecond)
		require.ErrorIs(t, err, ErrUnavailable, "no Redis, no grant")
		require.False(t, ok)
	}
	waiting := make(chan error)
	s.Restart()
	back := time.Now()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		ok, err = l.TryAcquire(ctx, 2, 0)
		require.NoError(t, err)
	}, 2500*time.Millisecond, time.Millisecond)
	require.True(t, ok)
	t.Log("first grant", time.Since(back), "after Redis was back")
	ok, err = l.TryAcquire(ctx, 1, 0)
	require.NoError(t, err)
	require.False(t, ok, "what was granted before counts")

	go func() { waiting <- l.Acquire(ctx, 1) }()
	s.Kill()
	s.Restart()
	require.NoError(t, l.Release(ctx, 1))
	select {
	case err = <-waiting:
		require.NoError(t, err, "a restart is only a longer wait")
	case <-time.After(30 * time.Second):
		t.Fatal("the waiter never came back")
	}
}

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
				peer := newWorld(t, redistest.Peer(t, w.rdb)) // another process: only the recheck can notice
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
			time.Sleep(9 * time.Second) // each acquire renews it
		}
		ttl, err := w.l.TTL(w.ctx)
		require.NoError(t, err)
		require.Equal(t, time.Second, ttl)
		time.Sleep(time.Second)
		_, err = w.l.TryAcquire(w.ctx, 1, time.Hour)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.Zero(t, w.rdb.Exists(w.ctx, keysAll(w.l, Overall)...).Val(), "nothing is left behind")
		ok, err := w.l.TrySetRate(w.ctx, overall(1, time.Second))
		require.NoError(t, err)
		require.True(t, ok)
		w.granted(1)
	})
	t.Run("under a waiter", func(t *testing.T) {
		inWorld(t, overall(1, time.Hour), func(t *testing.T, w *world) {
			w.granted(1)
			ok, err := w.l.Expire(w.ctx, 5500*time.Millisecond)
			require.NoError(t, err)
			require.True(t, ok)
			require.ErrorIs(t, w.l.Acquire(w.ctx, 1), ErrNotInitialized)
			require.Equal(t, 6*time.Second, w.elapsed())
		})
	})
}

func TestKillerMultiPermitRequests(t *testing.T) {
	inWorld(t, overall(10, time.Second), func(t *testing.T, w *world) {
		w.granted(4)
		w.at(300 * time.Millisecond)
		w.granted(4)
		w.refused(3, 700*time.Millisecond)
		w.granted(2)
		w.refused(5, time.Second)
		w.at(time.Second)
		w.granted(4)
		w.at(1300 * time.Millisecond)
		w.granted(6)
		w.refused(10, time.Second)
		ok, err := w.l.TryAcquire(w.ctx, 10, time.Minute)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, 2300*time.Millisecond, w.elapsed())
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

// 100,000 grants expire together. Redisson reclaims them in one call, which blocked Redis for 149 ms.
func TestKillerManyExpireAtOnce(t *testing.T) {
	redistest.NeedReal(t)
	const n = 100_000
	s := redistest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000")
	// The bound is 2 ms a call. The largest few also hold the moments at which this machine ran something else, and so may
	// a whole run; they are shown, not judged: the best of five runs counts.
	best := time.Hour
	for run := 0; run < 5 && best >= 2*time.Millisecond; run++ {
		w := newWorld(t, s.Client(t))
		w.l = w.client.RateLimiter(fmt.Sprint(w.l.Name(), run))
		require.NoError(t, w.l.SetRate(w.ctx, overall(n, time.Minute)))
		for range n / 1000 {
			w.fill(-time.Hour, 1000)
		}
		w.setValue(0)
		require.NoError(t, w.rdb.Do(w.ctx, "SLOWLOG", "RESET").Err())
		w.available(n)
		for range 10 {
			w.granted(1)
		}
		w.granted(n - 10)
		require.False(t, w.try(1).Granted)
		var took []time.Duration
		for _, e := range w.rdb.SlowLogGet(w.ctx, 100_000).Val() {
			if e.Args[0] == "evalsha" || e.Args[0] == "eval" {
				took = append(took, e.Duration)
			}
		}
		slices.Sort(took)
		require.Greater(t, len(took), n/512, "bounded calls are many calls")
		best = min(best, took[len(took)*95/100])
		t.Logf("%d calls, median %v, largest %v", len(took), took[len(took)/2], took[len(took)-1])
	}
	require.Less(t, best, 2*time.Millisecond)
}

func TestKillerScriptFlush(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t)
	rdb := s.Client(t)
	ctx, cancel := context.WithCancel(context.Background())
	c := New(rdb)
	defer c.Close()
	l := c.RateLimiter("flushed")
	require.NoError(t, l.SetRate(ctx, overall(10_000, time.Hour)))
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = rdb.ScriptFlush(context.Background()).Err()
			time.Sleep(time.Millisecond)
		}
	})
	var callers sync.WaitGroup
	var granted atomic.Int64
	for range 8 {
		callers.Go(func() {
			for range 500 {
				ok, err := l.TryAcquire(context.Background(), 1, 0)
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					granted.Add(1)
				}
			}
		})
	}
	callers.Wait()
	cancel()
	wg.Wait()
	require.EqualValues(t, 4000, granted.Load())
	n, err := l.AvailablePermits(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, 6000, n)
}

// A peer on its own clock, 5 s fast, as a Java client may be.
func TestKillerPeerClockAhead(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 20 * time.Second} {
		inWorld(t, overall(10, interval), func(t *testing.T, w *world) {
			w.put(5*time.Second, luaPack("BcI", 16, make([]byte, 16), 10))
			w.setValue(0)
			require.NoError(t, w.l.Acquire(w.ctx, 10))
			require.Equal(t, interval, w.elapsed())
			w.refused(1, interval)
		})
	}
}

func TestKillerThousandGoroutines(t *testing.T) {
	redistestRealTime(t, func(rdb *redis.Client, name string) {
		ctx := context.Background()
		c := New(rdb)
		defer c.Close()
		require.NoError(t, c.RateLimiter(name).SetRate(ctx, overall(617, time.Hour)))
		var granted atomic.Int64
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				ok, err := c.RateLimiter(name).TryAcquire(ctx, 1, 0)
				if err != nil {
					t.Error(err)
				}
				if ok {
					granted.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 617, granted.Load())
	})
}

// On the clock of Redis and in real time: the default of every user.
func TestRealTime(t *testing.T) {
	redistestRealTime(t, func(rdb *redis.Client, name string) {
		ctx := context.Background()
		c := New(rdb)
		defer c.Close()
		l := c.RateLimiter(name)
		const rate, interval = 5, 200 * time.Millisecond
		require.NoError(t, l.SetRate(ctx, overall(rate, interval)))
		var log windowLog
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
				r, err = l.Try(ctx, rate)
				require.NoError(t, err)
				require.LessOrEqual(t, r.Wait, interval)
				time.Sleep(r.Wait)
			}
			log.add(time.Duration(r.Time.UnixNano()), rate)
		}
		require.GreaterOrEqual(t, time.Since(begin), 2*interval)
		require.EqualValues(t, rate, log.worst(interval))
	})
}

// redistestRealTime runs f outside of a bubble, on the lane's server.
func redistestRealTime(t *testing.T, f func(rdb *redis.Client, name string)) {
	t.Helper()
	f(redistest.Client(t), redistest.Key(t))
}
