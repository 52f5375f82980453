// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A cutter breaks connections within a reply, or delays a reply.
type cutter struct {
	after atomic.Int64 // bytes of the next reply, after which its connection breaks; negative for never
	delay atomic.Int64 // of the next reply
	cuts  atomic.Int64
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &cutConn{conn, c}, err
}

type cutConn struct {
	net.Conn
	c *cutter
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(time.Duration(c.c.delay.Swap(0)))
	if after := c.c.after.Load(); after >= 0 && int(after) < n {
		c.c.after.Store(-1)
		c.c.cuts.Add(1)
		_ = c.Close()
		return int(after), io.ErrUnexpectedEOF
	}
	return n, err
}

// withCutter runs f with three limiters of 10 an hour that a client reaches through a cutter. One permit of each is in use.
func withCutter(t *testing.T, f func(c *cutter, client *Client, l []*RateLimiter)) {
	c := &cutter{}
	c.after.Store(-1)
	rdb := redistest.Client(t, func(o *redis.Options) { o.Dialer = c.dial })
	client := must(New(rdb))(t)
	defer client.Close()
	var l []*RateLimiter
	for range 3 {
		o := client.RateLimiter(redistest.Key(t))
		require.NoError(t, o.SetRate(context.Background(), overall(10, time.Hour)))
		l = append(l, o)
	}
	require.NoError(t, client.AcquireAll(context.Background(), Demand{l[0], 1}, Demand{l[1], 1}, Demand{l[2], 1}))
	f(c, client, l)
}

// TestAConnectionBreaksWithinTheReplyToAList breaks the connection after each byte of the reply to the call that decides a list. The
// list is granted, and its permits are taken once.
func TestAConnectionBreaksWithinTheReplyToAList(t *testing.T) {
	for after := int64(0); ; after++ {
		cut := false
		withCutter(t, func(c *cutter, client *Client, l []*RateLimiter) {
			c.after.Store(after)
			require.NoError(t, client.AcquireAll(context.Background(), Demand{l[0], 3}, Demand{l[1], 4}, Demand{l[2], 5}), "after %d bytes", after)
			cut = c.cuts.Load() > 0
			c.after.Store(-1)
			for i, want := range []int64{6, 5, 4} {
				require.Equal(t, want, must(l[i].AvailablePermits(context.Background()))(t), "after %d bytes", after)
			}
		})
		if !cut {
			require.Greater(t, after, int64(3), "bytes of the reply")
			return
		}
	}
}

// TestAContextEndsWhileAListIsDecided ends the context of a list while the call that decides it is on its way, with and without a
// connection that breaks then. What was granted goes back.
func TestAContextEndsWhileAListIsDecided(t *testing.T) {
	for _, after := range []int64{-1, 0, 2} {
		withCutter(t, func(c *cutter, client *Client, l []*RateLimiter) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			c.delay.Store(int64(100 * time.Millisecond))
			c.after.Store(after)
			time.AfterFunc(20*time.Millisecond, cancel)
			require.ErrorIs(t, client.AcquireAll(ctx, Demand{l[0], 3}, Demand{l[1], 4}, Demand{l[2], 5}), context.Canceled)
			for _, l := range l {
				soon(t, "all is back", func() bool { return must(l.AvailablePermits(context.Background()))(t) == 9 })
			}
		})
	}
}
