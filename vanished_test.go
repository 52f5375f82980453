// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// vanishes returns a client of a pool of ten connections, all of them idle, that have vanished without a word beside a healthy Redis
// when vanish returns.
func vanishes(t *testing.T) (c *Client, rdb *redis.Client, vanish func()) {
	proxy := redistest.StartProxy(t, redistest.Client(t).Options().Addr)
	rdb = redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 10, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = rdb.Close() })
	return newClient(t, rdb), rdb, func() {
		var conns []*redis.Conn
		for range 10 {
			conns = append(conns, rdb.Conn())
			require.NoError(t, conns[len(conns)-1].Ping(t.Context()).Err())
		}
		for _, conn := range conns {
			require.NoError(t, conn.Close())
		}
		proxy.Spoil(redistest.SpoilSilent)
	}
}

// TestVanishedConnections has all connections of a pool vanish without a word, and the ReadTimeout be a minute: each kind of call that takes
// or asks is made again soon, and takes once what it asks for.
func TestVanishedConnections(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, c *Client, l *RateLimiter) (took int64, err error){
		"Allow": func(ctx context.Context, _ *Client, l *RateLimiter) (int64, error) {
			_, err := l.Allow(ctx, 3)
			return 3, err
		},
		"Allow of a caller who does not leave": func(_ context.Context, _ *Client, l *RateLimiter) (int64, error) {
			_, err := l.Allow(context.Background(), 3)
			return 3, err
		},
		"TryAcquire": func(ctx context.Context, _ *Client, l *RateLimiter) (int64, error) {
			_, err := l.TryAcquire(ctx, 3, 10*time.Second)
			return 3, err
		},
		"Acquire": func(ctx context.Context, _ *Client, l *RateLimiter) (int64, error) { return 3, l.Acquire(ctx, 3) },
		"AllowAtMost": func(ctx context.Context, _ *Client, l *RateLimiter) (int64, error) {
			n, _, err := l.AllowAtMost(ctx, 3)
			return n, err
		},
		"AcquireAll": func(ctx context.Context, c *Client, l *RateLimiter) (int64, error) {
			other := c.RateLimiter(l.Name() + " other").WithRate(overall(10, time.Hour))
			return 3, c.AcquireAll(ctx, Demand{l, 3}, Demand{other, 1})
		},
		"Peek": func(ctx context.Context, _ *Client, l *RateLimiter) (int64, error) {
			_, err := l.Peek(ctx, 1)
			return 0, err
		},
		"Rate": func(ctx context.Context, _ *Client, l *RateLimiter) (int64, error) {
			_, err := l.Rate(ctx)
			return 0, err
		},
		"AvailablePermits": func(ctx context.Context, _ *Client, l *RateLimiter) (int64, error) {
			_, err := l.AvailablePermits(ctx)
			return 0, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _, vanish := vanishes(t)
			l := c.RateLimiter(redistest.Key(t)).WithRate(overall(100, time.Hour))
			require.True(t, must(l.Allow(t.Context(), 1))(t).Granted)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			vanish()
			begin := time.Now()
			took, err := call(ctx, c, l)
			require.NoError(t, err)
			require.Less(t, time.Since(begin), 2500*time.Millisecond)
			require.EqualValues(t, 99-took, must(l.AvailablePermits(t.Context()))(t))
		})
	}
}

// TestChangeWithoutReply checks that a change whose reply is long in coming, beside a Redis that replies to others, is not made once more: its
// caller gets the reply, however late, or ErrUnavailable when the time of the redis client is up.
func TestChangeWithoutReply(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(ctx context.Context, l *RateLimiter, g *Grant) error{
		"SetRate": func(ctx context.Context, l *RateLimiter, _ *Grant) error {
			return l.SetRate(ctx, overall(50, time.Hour))
		},
		"UpdateRate": func(ctx context.Context, l *RateLimiter, _ *Grant) error {
			_, err := l.UpdateRate(ctx, overall(50, time.Hour))
			return err
		},
		"Release": func(ctx context.Context, l *RateLimiter, _ *Grant) error { return l.Release(ctx, 2) },
		"Delete":  func(ctx context.Context, l *RateLimiter, _ *Grant) error { _, err := l.Admin().Delete(ctx); return err },
		"Settle":  func(ctx context.Context, _ *RateLimiter, g *Grant) error { return g.Settle(ctx, 1) },
		"CoolDown": func(ctx context.Context, l *RateLimiter, _ *Grant) error {
			return l.CoolDown(ctx, time.Now().Add(time.Second))
		},
		"LiftCoolDown": func(ctx context.Context, l *RateLimiter, _ *Grant) error {
			_, err := l.Admin().LiftCoolDown(ctx)
			return err
		},
	} {
		for _, late := range []time.Duration{1500 * time.Millisecond, time.Hour} {
			t.Run(name+" after "+late.String(), func(t *testing.T) {
				t.Parallel()
				proxy := redistest.StartProxy(t, redistest.Client(t).Options().Addr)
				rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 2 * time.Second})
				defer rdb.Close()
				c := newClient(t, rdb)
				l := c.RateLimiter(redistest.Key(t)).WithRate(overall(100, time.Hour))
				warm := l.Name() + " warm"
				g := must(c.RateLimiter(warm).WithRate(overall(100, time.Hour)).AcquireGrant(t.Context(), 5))(t)
				require.NoError(t, change(t.Context(), c.RateLimiter(warm), g)) // its script is loaded
				g = must(l.AcquireGrant(t.Context(), 5))(t)
				var sent atomic.Int64
				proxy.Judge(func(words []string) (f redistest.Fault) {
					if strings.HasPrefix(strings.ToLower(words[0]), "eval") && sent.Add(1) == 1 {
						f.Hold = late
					}
					return f
				})
				begin := time.Now()
				err := change(t.Context(), l, g)
				if late < time.Minute {
					require.NoError(t, err)
					require.GreaterOrEqual(t, time.Since(begin), late)
					require.EqualValues(t, 1, sent.Load())
				} else if err != nil {
					require.ErrorIs(t, err, ErrUnavailable)
					require.EqualValues(t, 1, sent.Load())
				}
				require.GreaterOrEqual(t, time.Since(begin), min(late, 2*time.Second))
			})
		}
	}
}
