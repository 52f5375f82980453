package ratelimiter

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// These are the faults that killed earlier ports of RRateLimiter, one test each.

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
					w.rejected(1, time.Second)
				}
			})
		})
	}
}

func TestKillerRedisGoneAndBack(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	ctx := context.Background()
	c := newClient(t, s.Client(t))
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
	soon(t, "Redis answers again", func() bool {
		ok, err = l.TryAcquire(ctx, 2, 0)
		return err == nil && ok // a try whose caller left may have been granted first, and goes back
	})
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
		w.rejected(3, 700*time.Millisecond)
		w.granted(2)
		w.rejected(5, time.Second)
		w.at(time.Second)
		w.granted(4)
		w.at(1300 * time.Millisecond)
		w.granted(6)
		w.rejected(10, time.Second)
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
	s := redistest.Start(t)
	w := newWorld(t, s.Client(t))
	require.NoError(t, w.l.SetRate(w.ctx, overall(n, time.Minute)))
	for range n / 1000 {
		w.fill(-time.Hour, 1000)
	}
	w.setValue(0)
	m := &cpuMeter{t: t, admin: s.Client(t)}
	w.rdb.AddHook(m)
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

// A cpuMeter is a hook that measures the processor time that each script takes of Redis, one script after another. Unlike
// the time that passes it is the same however busy the machine is. It holds the two looks at the clock, too.
type cpuMeter struct {
	scriptHook
	t     *testing.T
	admin *redis.Client
	mu    sync.Mutex
	took  []time.Duration
}

func (m *cpuMeter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		before := m.used()
		err := next(ctx, cmd)
		m.took = append(m.took, m.used()-before)
		return err
	}
}

// sorted returns and logs what each script has taken, the least first.
func (m *cpuMeter) sorted() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	took := slices.Sorted(slices.Values(m.took))
	m.t.Logf("%d calls, median %v, largest %v", len(took), took[len(took)/2], took[len(took)-1])
	return took
}

// requireBounded checks that most scripts have not taken Redis long, and returns how many ran.
func (m *cpuMeter) requireBounded() (calls int) {
	took := m.sorted()
	half := took[len(took)/2] // the others have the machine's own stalls in them
	redistest.Measured(m.t, half < 2*time.Millisecond, "half of the calls took Redis more than %v", half)
	return len(took)
}

// used returns the processor time that the thread which runs the commands has taken so far. Redis before 6.2 tells that of
// all its threads, of which the others have nothing to do.
func (m *cpuMeter) used() (d time.Duration) {
	info, found := m.admin.Info(context.Background(), "cpu").Val(), 0
	of := ""
	if strings.Contains(info, "_main_thread") {
		of = "_main_thread"
	}
	for line := range strings.FieldsSeq(info) {
		switch name, seconds, _ := strings.Cut(line, ":"); name {
		case "used_cpu_sys" + of, "used_cpu_user" + of:
			n, err := time.ParseDuration(seconds + "s")
			if err != nil {
				m.t.Error(err)
			}
			d, found = d+n, found+1
		}
	}
	if found != 2 {
		m.t.Errorf("INFO does not tell the processor time: %q", info)
	}
	return d
}

func TestKillerScriptFlush(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t)
	rdb := s.Client(t)
	ctx, cancel := context.WithCancel(context.Background())
	c := newClient(t, rdb)
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

func TestKillerThousandGoroutines(t *testing.T) {
	redistestRealTime(t, func(rdb *redis.Client, name string) {
		ctx := context.Background()
		c := newClient(t, rdb)
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

// This runs on the clock of Redis and in real time, which is the default of every user.
func TestRealTime(t *testing.T) {
	redistestRealTime(t, func(rdb *redis.Client, name string) {
		ctx := context.Background()
		c := newClient(t, rdb)
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
				r, err = l.Allow(ctx, rate)
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

// redistestRealTime runs f outside a bubble, on the server of the lane.
func redistestRealTime(t *testing.T, f func(rdb *redis.Client, name string)) {
	t.Helper()
	f(redistest.Client(t), redistest.Key(t))
}
