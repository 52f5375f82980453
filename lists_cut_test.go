// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// aScript is for the calls that decide a list.
func aScript(requests [][]string) bool { return strings.HasPrefix(requests[0][0], "eval") }

// withCutter runs f with three limiters of 10 an hour that a client reaches through a cutter. One permit of each is in use.
func withCutter(t *testing.T, c *redistest.Cutter, f func(client *Client, l []*RateLimiter)) {
	rdb := redistest.Client(t, c.Option)
	client := must(New(rdb))(t)
	defer client.Close()
	var l []*RateLimiter
	for range 3 {
		o := client.RateLimiter(redistest.Key(t))
		require.NoError(t, o.SetRate(context.Background(), overall(10, time.Hour)))
		l = append(l, o)
	}
	require.NoError(t, client.AcquireAll(context.Background(), Demand{l[0], 1}, Demand{l[1], 1}, Demand{l[2], 1}))
	f(client, l)
}

// TestAConnectionBreaksWithinTheReplyToAList breaks the connection after each byte of the reply to the call that decides a list. The
// list is granted, and its permits are taken once.
func TestAConnectionBreaksWithinTheReplyToAList(t *testing.T) {
	for after := 0; ; after++ {
		c := &redistest.Cutter{}
		withCutter(t, c, func(client *Client, l []*RateLimiter) {
			c.CutAt(after, aScript)
			require.NoError(t, client.AcquireAll(context.Background(), Demand{l[0], 3}, Demand{l[1], 4}, Demand{l[2], 5}), "after %d bytes", after)
			for i, want := range []int64{6, 5, 4} {
				require.Equal(t, want, must(l[i].AvailablePermits(context.Background()))(t), "after %d bytes", after)
			}
		})
		cut, matched := c.Cut()
		require.True(t, matched)
		if !cut {
			require.Greater(t, after, 3, "bytes of the reply")
			return
		}
	}
}

// TestAContextEndsWhileAListIsDecided ends the context of a list while the call that decides it is on its way, with and without a
// connection that breaks then. What was granted goes back.
func TestAContextEndsWhileAListIsDecided(t *testing.T) {
	for _, after := range []int{math.MaxInt, 0, 2} {
		c := &redistest.Cutter{Delay: 100 * time.Millisecond}
		withCutter(t, c, func(client *Client, l []*RateLimiter) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			c.CutAt(after, aScript)
			time.AfterFunc(20*time.Millisecond, cancel)
			require.ErrorIs(t, client.AcquireAll(ctx, Demand{l[0], 3}, Demand{l[1], 4}, Demand{l[2], 5}), context.Canceled)
			for _, l := range l {
				soon(t, "all is back", func() bool { return must(l.AvailablePermits(context.Background()))(t) == 9 })
			}
		})
	}
}
