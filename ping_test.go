// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestPing checks how Ping ends. The programs of the documentation show what it says of wrong settings; see docs.
func TestPing(t *testing.T) {
	inWorld(t, overall(1, time.Second), func(t *testing.T, w *world) {
		require.NoError(t, w.client.Ping(w.ctx))
		canceled, cancel := context.WithCancel(w.ctx)
		cancel()
		require.Equal(t, context.Canceled, w.client.Ping(canceled))
		require.ErrorIs(t, w.client.Ping(nil), ErrInvalidArgument) //nolint:staticcheck // that is the test
		require.ErrorIs(t, (*Client)(nil).Ping(w.ctx), ErrInvalidArgument)

		c := cutOff(w, refusedDial)
		c.down.Store(true)
		err := w.client.Ping(w.ctx)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, refusedDial)
		require.ErrorContains(t, err, "(nothing listens there; check host and port)")
		require.False(t, w.l.handle.Health().Down(), "it decides nothing about outages")
		c.err = redisError("WRONGPASS no")
		err = w.client.Ping(w.ctx)
		require.NotErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "ratelimiter: Ping: WRONGPASS no (check Username and Password")
		c.down.Store(false)

		onCommands(w.rdb, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			time.Sleep(time.Minute)
			return next(ctx, cmd)
		})
		begun := w.elapsed()
		err = w.client.Ping(w.ctx)
		require.ErrorIs(t, err, ErrUnavailable)
		require.Equal(t, begun+2*time.Second, w.elapsed())
		left, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		err = w.client.Ping(left)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, begun+3*time.Second, w.elapsed())
		time.Sleep(time.Hour)
		require.NoError(t, w.client.Close())
		require.Equal(t, ErrClosed, w.client.Ping(w.ctx))
	})
}
