package ratelimiter

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
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

// TestExhaustedPoolIsNoOutage checks that an exhausted connection pool does not start an outage. It is a local
// fault, and other requests may still be sent.
func TestExhaustedPoolIsNoOutage(t *testing.T) {
	inWorld(t, overall(10, time.Minute), func(t *testing.T, w *world) {
		f := inject(w.rdb, false, redis.ErrPoolTimeout)
		f.left.Store(retry.MaxAttempts)
		_, err := w.l.Allow(w.ctx, 1)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, redis.ErrPoolTimeout)
		w.granted(1)
	})
}
