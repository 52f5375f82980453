// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"cmp"
	"context"
	"math"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// slow are limiters of five permits in ten minutes.
func slow() map[string]Algorithm {
	r := per(5, 10*time.Minute)
	return map[string]Algorithm{
		"fixed window": FixedWindow{r}, "sliding log": SlidingLog{r}, "sliding counter": SlidingCounter{r},
		"interval bucket": IntervalBucket{r, 5}, "token bucket": TokenBucket{r, 5}, "debt bucket": DebtBucket{r, 5, 1},
		"gcra": GCRA{r, 5}, "leaky queue": LeakyQueue{r, 5},
		"smooth bursty":     SmoothBursty{PermitsPerSecond: 5. / 600, MaxBurst: 10 * time.Minute},
		"smooth warming up": SmoothWarmingUp{PermitsPerSecond: 5. / 600, Warmup: 10 * time.Minute},
	}
}

// TestWaitSeesAReset: callers that wait for up to hours are served about a second after the key was deleted, in the order
// in which they came, as many of them as an unused limiter grants; a process looks once a second.
func TestWaitSeesAReset(t *testing.T) {
	for kind, a := range slow() {
		for name, opts := range map[string][]Option{"": nil, ", nothing known": {WithoutCachedRejections()}} {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				what := kind + name
				l := redistest.Must(NewShared(rdb, redistest.Key(t), a, append(opts, WithClientClock())...))(t)
				require.NoError(t, rdb.ScriptLoad(t.Context(), a.model().Script.Src).Err())
				h := &holder{}
				rdb.AddHook(h)
				require.True(t, redistest.Must(l.Peek(t.Context(), 1))(t).Granted)
				exhaust(t, l)
				c := &crowd{t: t, begin: time.Now()}
				for i, timeout := range []time.Duration{1 << 62, 20 * time.Hour, 1 << 62, 1 << 62, 1 << 62, 1 << 62} {
					c.join(i, l, 1, timeout)
					time.Sleep(time.Millisecond)
				}
				calls := h.calls()
				time.Sleep(100*time.Second - 6*time.Millisecond)
				calls = h.calls() - calls
				require.LessOrEqual(t, calls, 102, "%s: a call a second", what)
				require.GreaterOrEqual(t, calls, 90, "%s: a call a second", what)
				c.mu.Lock()
				require.Empty(t, c.served, what)
				c.mu.Unlock()

				// The clock of Redis was set, it failed over or was flushed: nobody is told of it.
				time.Sleep(300 * time.Millisecond)
				require.NoError(t, rdb.Del(t.Context(), l.Keys()...).Err())
				c.mu.Lock()
				c.begin = time.Now()
				c.mu.Unlock()
				time.Sleep(1500 * time.Millisecond)
				c.mu.Lock()
				want := 1
				if !a.model().Reserves {
					want = 5
				}
				require.GreaterOrEqual(t, len(c.served), want, "%s: of an unused limiter's permits", what)
				for _, s := range c.served {
					require.LessOrEqual(t, s.after, 1100*time.Millisecond, what)
				}
				c.mu.Unlock()
				c.all.Wait()
				slices.SortFunc(c.served, func(a, b served) int { return cmp.Or(cmp.Compare(a.after, b.after), a.who-b.who) })
				for i, s := range c.served {
					require.True(t, s.ok)
					require.Equal(t, i, s.who, "%s: first come, first served: %v", what, c.served)
				}
				require.Less(t, c.served[5].after, 30*time.Minute, what)
			})
		}
	}
}

// loading returns whether Redis is to reply to no script.
func loading(rdb *redis.Client) *atomic.Bool {
	down := new(atomic.Bool)
	rdb.AddHook(redistest.Failing(func(redis.Cmder) error {
		if down.Load() {
			return redisError("LOADING")
		}
		return nil
	}))
	o := rdb.Options()
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if down.Load() {
			return nil, redisError("LOADING")
		}
		return dial(ctx, network, addr)
	}
	return down
}

// A wait without a reset takes as long as before, and its context ends it at once, also while the process looks.
func TestLookingEndsNoWait(t *testing.T) {
	onEach(t, slow(), func(t *testing.T, rdb *redis.Client, kind string, a Algorithm) {
		down := loading(rdb)
		l := shared(t, rdb, a)
		r := exhaust(t, l)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), r.Wait-time.Second)
		defer cancel()
		require.True(t, Wait(ctx, l, 1) == context.DeadlineExceeded, kind)
		require.Zero(t, time.Since(begin), "%s: known at once", kind)
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(2500*time.Millisecond, cancel)
		require.True(t, Wait(ctx, l, 1) == context.Canceled, kind)
		require.Equal(t, 2500*time.Millisecond, time.Since(begin), kind)

		// Redis is down for a minute of the wait.
		time.AfterFunc(10*time.Second, func() { down.Store(true) })
		time.AfterFunc(70*time.Second, func() { down.Store(false) })
		require.NoError(t, Wait(t.Context(), l, 1), kind)
		if !a.model().Reserves {
			require.InDelta(t, r.Wait, time.Since(begin), float64(time.Millisecond), kind)
		}
	})
}

// A RateLimiter and a Limiter of another package see a reset as well, and it does not matter what makes the permits available early.
func TestOthersSeeAReset(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		rate := ratelimiter.Rate{Permits: 1, Interval: time.Hour}
		r := clienttest.InBubble(t, rdb).RateLimiter(redistest.Key(t))
		require.NoError(t, r.SetRate(t.Context(), rate))
		shared := shared(t, rdb, FixedWindow{per(1, time.Hour)})
		type other struct {
			l     Limiter
			reset func() error
		}
		others := map[string]other{
			"RateLimiter": {r, func() error { return r.SetRate(t.Context(), rate) }},
			"wrapped":     {struct{ Limiter }{shared}, func() error { return rdb.Del(t.Context(), shared.Keys()...).Err() }},
		}
		for kind, a := range slow() {
			var ahead atomic.Int64
			l := redistest.Must(NewShared(rdb, redistest.Key(t), a, WithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })))(t)
			others["clock put forward, "+kind] = other{l, func() error { ahead.Store(int64(2 * time.Hour)); return nil }}
		}
		for name, c := range others {
			exhaust(t, c.l)
			begin := time.Now()
			reset := make(chan error, 1)
			time.AfterFunc(10*time.Second, func() { reset <- c.reset() })
			require.NoError(t, Wait(t.Context(), c.l, 1), name)
			require.NoError(t, <-reset)
			require.LessOrEqual(t, time.Since(begin), 11100*time.Millisecond, name)
		}
	})
}

// Looking costs no call where the wait is no longer than the pause between two looks: a grant still takes one.
func TestShortWaitsNeedNoLook(t *testing.T) {
	r := per(1, time.Second)
	for kind, a := range map[string]Algorithm{
		"fixed window": FixedWindow{r}, "sliding log": SlidingLog{r}, "interval bucket": IntervalBucket{r, 1},
		"token bucket": TokenBucket{r, 1}, "gcra": GCRA{r, 1}, "leaky queue": LeakyQueue{r, 1}, "smooth bursty": SmoothBursty{1, time.Second},
	} {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			h := &holder{}
			l := shared(t, rdb, a)
			require.NoError(t, rdb.ScriptLoad(t.Context(), a.model().Script.Src).Err())
			rdb.AddHook(h)
			const callers = 20
			c := &crowd{t: t, begin: time.Now()}
			for i := range callers {
				c.join(i, l, 1, math.MaxInt64)
			}
			c.all.Wait()
			most := callers + 2
			if a.model().Reserves || kind == "sliding log" {
				// Those whose turns are far away look once a second; a log does not say when the next one is due.
				most += callers
			}
			require.LessOrEqual(t, h.calls(), most, kind)
		})
	}
}

// TestReset: a limiter that nobody can get permits of is unused again, and those who wait for it are served: at once in the
// process that resets it, and within a second in another.
func TestReset(t *testing.T) {
	for kind, a := range slow() {
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
			l := shared(t, rdb, a)
			other := redistest.Must(NewShared(rdb, l.config.Name, a, WithClientClock()))(t)
			idle := redistest.Must(l.Peek(t.Context(), 1))(t)
			exhaust(t, l)
			here, there := &crowd{t: t, begin: time.Now()}, &crowd{t: t, begin: time.Now()}
			here.join(0, l, 1, math.MaxInt64)
			if !a.model().Reserves {
				there.join(0, other, 1, math.MaxInt64)
			}
			time.Sleep(300 * time.Millisecond)
			require.NoError(t, l.Reset(t.Context()))
			here.all.Wait()
			there.all.Wait()
			if !a.model().Reserves {
				require.Equal(t, 300*time.Millisecond, here.served[0].after, kind)
				require.LessOrEqual(t, there.served[0].after, 1400*time.Millisecond, kind)
				require.NoError(t, l.Reset(t.Context()))
				again := redistest.Must(l.Peek(t.Context(), 1))(t)
				require.Equal(t, idle, again, kind)
			}
		})
		local := redistest.Must(NewLocal(a))(t)
		first := redistest.Must(local.Peek(t.Context(), 1))(t)
		exhaust(t, local)
		local.Reset()
		again := redistest.Must(local.Peek(t.Context(), 1))(t)
		require.Equal(t, first.Granted, again.Granted, kind)
	}
}
