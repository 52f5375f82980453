package ratelimiter

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A cut is a hook that keeps scripts from Redis while it is down.
type cut struct {
	scriptHook
	down atomic.Bool
	err  error
	sent atomic.Int64
}

func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !c.down.Load() {
			return next(ctx, cmd)
		}
		c.sent.Add(1)
		cmd.SetErr(c.err)
		return c.err
	}
}

var refusedDial = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

func cutOff(w *world, err error) *cut {
	c := &cut{err: err}
	w.rdb.AddHook(c)
	return c
}

// While Redis is away a process probes it about once a second, however many callers and limiters it
// has: those who do not wait are told at once, those who wait go on waiting.
func TestOutage(t *testing.T) {
	inWorld(t, overall(1000, time.Second), func(t *testing.T, w *world) {
		w.granted(1)
		c := cutOff(w, refusedDial)
		c.down.Store(true)
		var wg sync.WaitGroup
		for i := range 50 {
			l := w.client.RateLimiter(fmt.Sprint(w.l.Name(), i%10))
			if i >= 40 {
				l = w.l
			}
			wg.Go(func() {
				for w.elapsed() < 20*time.Second {
					begin := time.Now()
					r, err := l.Try(w.ctx, 1)
					require.ErrorIs(t, err, ErrUnavailable)
					require.ErrorIs(t, err, syscall.ECONNREFUSED)
					require.False(t, r.Granted)
					if w.elapsed() > time.Second {
						require.Zero(t, time.Since(begin), "told at once")
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
		for range 50 {
			wg.Go(func() {
				time.Sleep(5 * time.Second)
				require.NoError(t, w.l.Acquire(w.ctx, 1))
				require.LessOrEqual(t, w.elapsed(), 25*time.Second+1250*time.Millisecond)
			})
		}
		wg.Go(func() {
			time.Sleep(5 * time.Second)
			ok, err := w.l.TryAcquire(w.ctx, 1, 2*time.Second)
			require.False(t, ok)
			require.ErrorIs(t, err, ErrUnavailable, "nobody knows whether it would have been refused")
			require.Equal(t, 7*time.Second, w.elapsed())
		})
		w.at(time.Second)
		first := c.sent.Load()
		require.LessOrEqual(t, first, int64(11*2*retry.MaxAttempts))
		w.at(25 * time.Second)
		require.LessOrEqual(t, c.sent.Load()-first, int64(24), "one probe a second")
		require.Greater(t, c.sent.Load()-first, int64(24*8/10))
		c.down.Store(false)
		back := time.Now()
		for {
			if r, err := w.l.Try(w.ctx, 1); err == nil && r.Granted {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(back), 1250*time.Millisecond)
		wg.Wait()
		require.False(t, w.l.handle.Health().Down())
	})
}

// A probe that takes its time is the only one, and what it finds is for all.
func TestOneProbeAtATime(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		other := w.client.RateLimiter(w.l.Name() + "other")
		require.NoError(t, other.SetRate(w.ctx, overall(10, time.Minute)))
		w.granted(1)
		h := hold(w, 0)
		c := cutOff(w, refusedDial)
		c.down.Store(true)
		_, err := w.l.Try(w.ctx, 1)
		require.ErrorIs(t, err, ErrUnavailable)
		time.Sleep(1500 * time.Millisecond)
		h.set(500 * time.Millisecond)
		sent := c.sent.Load()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := other.Try(w.ctx, 1)
				require.ErrorIs(t, err, ErrUnavailable)
				require.ErrorContains(t, err, other.Name(), "names the limiter that was asked")
			})
		}
		wg.Wait()
		require.Equal(t, sent+1, c.sent.Load())

		var served [2]time.Duration
		for i, l := range []*RateLimiter{w.l, other} {
			wg.Go(func() {
				require.NoError(t, l.Acquire(w.ctx, 1))
				served[i] = w.elapsed()
			})
		}
		time.Sleep(200 * time.Millisecond)
		h.set(0)
		c.down.Store(false)
		wg.Wait()
		require.Equal(t, served[0], served[1])
	})
}

// Tries that stand behind the waiters, for one of these was passed over, are told too.
func TestOutageWhileTriesYield(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		w.granted(4)
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		go func() { _ = w.l.Acquire(ctx, 10) }()
		w.at(59 * time.Second)
		w.granted(1)
		w.at(61500 * time.Millisecond)
		hold(w, 50*time.Millisecond)
		cutOff(w, refusedDial).down.Store(true)
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				_, err := w.l.Try(w.ctx, 1)
				require.ErrorIs(t, err, ErrUnavailable)
				require.LessOrEqual(t, w.elapsed(), 63*time.Second)
			})
		}
		wg.Wait()
	}, WithRecheck(time.Hour))
}

// After the outage limit those who wait are told too.
func TestOutageLimit(t *testing.T) {
	inWorld(t, overall(1, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		c := cutOff(w, redisError("LOADING Redis is loading the dataset in memory"))
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				err := w.l.Acquire(w.ctx, 1)
				require.ErrorIs(t, err, ErrUnavailable)
				require.ErrorContains(t, err, "LOADING")
				require.GreaterOrEqual(t, w.elapsed(), 20*time.Second)
				require.LessOrEqual(t, w.elapsed(), 23*time.Second)
			})
		}
		w.at(9500 * time.Millisecond)
		c.down.Store(true)
		wg.Wait()
		synctest.Wait()
		requireIdle(t, w.client)
		c.down.Store(false)
		w.at(time.Minute + time.Second)
		w.granted(1)
	}, WithOutageLimit(10*time.Second))
}

// A hiccup that a re-send cures is nobody's business: nobody is thrown out, nothing is spent twice.
func TestHiccup(t *testing.T) {
	for _, err := range []error{io.EOF, refusedDial, redis.ErrPoolTimeout, redisError("READONLY You can't write against a read only replica."),
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}} {
		inWorld(t, overall(1000, time.Second), func(t *testing.T, w *world) {
			w.granted(1)
			executed := dispatch.Classify(err) == retry.Unknown
			f := inject(w.rdb, executed, err)
			var wg sync.WaitGroup
			var granted atomic.Int64
			for i := range 200 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
					ok, err := w.l.TryAcquire(w.ctx, 1, time.Duration(i%3)*time.Second)
					require.NoError(t, err)
					if ok {
						granted.Add(1)
					}
				})
			}
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				f.left.Store(retry.MaxAttempts - 1)
			}
			wg.Wait()
			require.EqualValues(t, 200, granted.Load())
			time.Sleep(2 * time.Second)
			w.available(1000)
			w.granted(1000)
			require.Zero(t, w.value())
		})
	}
}

// A context that ends while Redis is away ends the call.
func TestContextEndsTheWaitForRedis(t *testing.T) {
	inWorld(t, overall(1, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		c := cutOff(w, refusedDial)
		c.down.Store(true)
		ctx, cancel := context.WithTimeout(w.ctx, 7*time.Second)
		defer cancel()
		require.True(t, w.l.Acquire(ctx, 1) == context.DeadlineExceeded)
		require.Equal(t, 7*time.Second, w.elapsed())
		time.Sleep(2 * time.Second)
		requireIdle(t, w.client)
		sent := c.sent.Load()
		time.Sleep(time.Hour)
		require.Equal(t, sent, c.sent.Load(), "nobody waits, nobody probes")
	})
}

// Close ends the probing.
func TestCloseDuringAnOutage(t *testing.T) {
	inWorld(t, overall(1, time.Minute), func(t *testing.T, w *world) {
		w.granted(1)
		cutOff(w, refusedDial).down.Store(true)
		errs := make(chan error, 1)
		go func() { errs <- w.l.Acquire(w.ctx, 1) }()
		w.at(5500 * time.Millisecond)
		require.NoError(t, w.client.Close())
		require.ErrorIs(t, <-errs, ErrClosed)
		require.Equal(t, 5500*time.Millisecond, w.elapsed())
	})
}

// A pool that is exhausted is this process' own fault: no reason to keep others from asking.
func TestExhaustedPoolIsNoOutage(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		f := inject(w.rdb, false, redis.ErrPoolTimeout)
		f.left.Store(retry.MaxAttempts)
		_, err := w.l.Try(w.ctx, 1)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, redis.ErrPoolTimeout)
		w.granted(1)
	})
}

// The nodes of a cluster fail one by one: what one limiter learns is not held against the others.
func TestOutageOfAShard(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		c := cutOff(w, refusedDial)
		c.down.Store(true)
		_, err := w.l.Try(w.ctx, 1)
		require.ErrorIs(t, err, ErrUnavailable)
		c.down.Store(false)
		other := w.client.RateLimiter(w.l.Name() + "other")
		for i := 0; other.handle.Health() == w.l.handle.Health(); i++ { // one of 512 hashes alike
			other = w.client.RateLimiter(fmt.Sprint(w.l.Name(), i))
		}
		require.NoError(t, other.SetRate(w.ctx, overall(10, time.Minute)))
		ok, err := other.TryAcquire(w.ctx, 1, 0)
		require.NoError(t, err)
		require.True(t, ok)
		_, err = w.l.Try(w.ctx, 1)
		require.ErrorIs(t, err, ErrUnavailable)
	}, apart)
}
