package ratelimiter

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A cut is a hook that fails scripts without sending them while it is down.
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

// TestOutage checks that during an outage a process probes Redis about once a second, however many callers and
// limiters it has. Requests that do not wait fail at once, and waiters keep waiting.
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

// TestOutageLimit checks that waiters fail as well once the outage limit has passed.
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

// TestExhaustedPoolIsNoOutage checks that an exhausted connection pool does not start an outage. It is a local
// fault, and other requests may still be sent.
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
