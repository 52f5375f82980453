// SPDX-License-Identifier: Apache-2.0

package ratelimiter_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// This file is a tour of the package: five short stories of a limiter of 3 permits in 10 seconds. The scripts are the
// real ones. Time is virtual: a wait of ten seconds takes no time here, and is exact.

// TestTourGrant shows the usual call. It does not wait: permits are granted as long as there are some.
func TestTourGrant(t *testing.T) {
	tour(t, func(t *testing.T, ctx context.Context, l *ratelimiter.RateLimiter, _ *network) {
		for left := int64(2); left >= 0; left-- {
			r, err := l.Allow(ctx, 1)
			require.NoError(t, err)
			require.True(t, r.Granted)
			require.Equal(t, left, r.Available)
		}
		time.Sleep(4 * time.Second)
		r, err := l.Allow(ctx, 1)
		require.NoError(t, err)
		require.False(t, r.Granted)
		require.Equal(t, 6*time.Second, r.Wait, "when the first permit becomes available again")
	})
}

// TestTourWait shows callers that wait. They stand in a queue of their process, which asks Redis for all of them.
func TestTourWait(t *testing.T) {
	tour(t, func(t *testing.T, ctx context.Context, l *ratelimiter.RateLimiter, _ *network) {
		begin := time.Now()
		require.NoError(t, l.Acquire(ctx, 2)) // at once
		require.NoError(t, l.Acquire(ctx, 3)) // when the two have become available again
		require.Equal(t, 10*time.Second, time.Since(begin))

		ok, err := l.TryAcquire(ctx, 1, 4*time.Second)
		require.NoError(t, err, "to be too late is not an error")
		require.False(t, ok)
		require.Equal(t, 14*time.Second, time.Since(begin))
	})
}

// TestTourLeave shows a caller that leaves before its turn. It takes nothing, and the next one moves up.
func TestTourLeave(t *testing.T) {
	tour(t, func(t *testing.T, ctx context.Context, l *ratelimiter.RateLimiter, _ *network) {
		begin := time.Now()
		require.NoError(t, l.Acquire(ctx, 1))
		time.Sleep(3 * time.Second)
		require.NoError(t, l.Acquire(ctx, 2))

		impatient, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		left := make(chan error)
		go func() { left <- l.Acquire(impatient, 3) }() // could be served at 13 s, and leaves at 8 s
		require.NoError(t, l.Acquire(ctx, 1))
		require.Equal(t, 10*time.Second, time.Since(begin))
		require.ErrorIs(t, <-left, context.DeadlineExceeded)
	})
}

// TestTourLostReply shows a call that Redis has carried out, but whose reply got lost. It is sent again under the same
// ID, so the permits are taken once.
func TestTourLostReply(t *testing.T) {
	tour(t, func(t *testing.T, ctx context.Context, l *ratelimiter.RateLimiter, net *network) {
		require.NoError(t, l.Acquire(ctx, 1))
		net.loseNextReply = true
		r, err := l.Allow(ctx, 2)
		require.NoError(t, err)
		require.False(t, net.loseNextReply, "it got lost")
		require.True(t, r.Granted, "the second call finds the permits of the first")
	})
}

// TestTourOutage shows what happens while Redis cannot be reached: the policy of the limiter decides. Callers are told
// at once, and one of them asks Redis again each second or so.
func TestTourOutage(t *testing.T) {
	tour(t, func(t *testing.T, ctx context.Context, l *ratelimiter.RateLimiter, net *network) {
		open := l.OnOutage(ratelimiter.FailOpen())
		net.cut.Store(true)
		_, err := l.Allow(ctx, 1)
		require.ErrorIs(t, err, ratelimiter.ErrUnavailable, "a call that returns an error has no permits")
		r, err := open.Allow(ctx, 1)
		require.NoError(t, err)
		require.True(t, r.Granted && r.Degraded, "granted without Redis")

		net.cut.Store(false)
		time.Sleep(1250 * time.Millisecond)
		r, err = l.Allow(ctx, 1)
		require.NoError(t, err)
		require.True(t, r.Granted && !r.Degraded, "Redis is back")
	})
}

// tour runs a story in virtual time.
func tour(t *testing.T, story func(t *testing.T, ctx context.Context, l *ratelimiter.RateLimiter, net *network)) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		net := &network{}
		rdb.AddHook(net)
		rdb.Options().Dialer = net.dialer(rdb.Options().Dialer)
		client, err := ratelimiter.New(rdb, ratelimiter.WithClientClock()) // a real server's clock is not virtual
		require.NoError(t, err)
		defer client.Close()
		l := client.RateLimiter(redistest.Key(t))
		require.NoError(t, l.SetRate(t.Context(), ratelimiter.Rate{Permits: 3, Interval: 10 * time.Second}))
		story(t, context.Background(), l, net)
	})
}

// A network is a hook that can be cut, and that can lose a reply.
type network struct {
	redistest.Passing
	cut           atomic.Bool
	loseNextReply bool
}

func (n *network) dialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if n.cut.Load() {
			return nil, errors.New("connection refused")
		}
		return dial(ctx, network, addr)
	}
}

func (n *network) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if n.cut.Load() {
			cmd.SetErr(errors.New("connection refused"))
			return cmd.Err()
		}
		err := next(ctx, cmd)
		if n.loseNextReply && err == nil {
			n.loseNextReply = false
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return err
	}
}
