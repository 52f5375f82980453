// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBrokenIdleConnectionsAreNoOutage breaks the idle connections of the pool, of which there are more than a call has attempts,
// while Redis is there: every call is granted by Redis, once. The lane of faults has the rest of them, with times.
func TestBrokenIdleConnectionsAreNoOutage(t *testing.T) {
	redistest.NeedReal(t)
	for _, c := range []struct {
		name          string
		how           redistest.Spoil
		idle, callers int
		policy        OutagePolicy
	}{
		{"reset, one", redistest.SpoilReset, 1, 1, FailOpen()},
		{"reset, many", redistest.SpoilReset, 60, 1, FailClosed()},
		{"reset, many, a crowd", redistest.SpoilReset, 20, 8, FailOpen()},
		{"half-open", redistest.SpoilSilent, 20, 8, FailOpen()},
		{"replies are lost", redistest.SpoilReplies, 20, 1, FailClosed()},
		{"replies are lost to a crowd", redistest.SpoilReplies, 60, 8, LocalQuota(PerSecond(100), 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, name := t.Context(), redistest.Key(t)
			proxy := redistest.StartProxy(t, redistest.Client(t).Options().Addr)
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 100, ReadTimeout: time.Second})
			defer rdb.Close()
			var mu sync.Mutex
			var events []Event
			client := newClient(t, rdb, WithOutagePolicy(c.policy), WithHook(Hook{Event: func(e Event) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, e)
			}}))
			defer client.Close()
			l := client.RateLimiter(name).WithRate(overall(1000, time.Hour))
			allow := func() {
				r, err := l.Allow(ctx, 1)
				assert.NoError(t, err)
				assert.True(t, r.Granted)
				assert.False(t, r.Degraded)
			}
			allow()
			var conns []*redis.Conn
			for range c.idle {
				conn := rdb.Conn()
				require.NoError(t, conn.Ping(ctx).Err())
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				require.NoError(t, conn.Close())
			}
			proxy.Spoil(c.how)
			var all sync.WaitGroup
			for range c.callers {
				all.Go(func() {
					for range 5 {
						allow()
					}
				})
			}
			all.Wait()
			left, err := l.AvailablePermits(ctx)
			require.NoError(t, err)
			require.EqualValues(t, 1000-1-5*c.callers, left, "each call has taken its permit once")
			mu.Lock()
			defer mu.Unlock()
			require.Empty(t, events)
		})
	}
}

// TestASilenceIsKnownWhateverIsAsked freezes Redis beside one caller with short deadlines, whose calls take nothing:
// the outage is known, and ends.
func TestASilenceIsKnownWhateverIsAsked(t *testing.T) {
	s := redistest.Start(t)
	for name, call := range map[string]func(context.Context, *RateLimiter) error{
		"Peek": func(ctx context.Context, l *RateLimiter) error { _, err := l.Peek(ctx, 1); return err },
		"Rate": func(ctx context.Context, l *RateLimiter) error { _, err := l.Rate(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			events := make(chan Event, 100)
			client := newClient(t, s.Client(t), WithHook(Hook{Event: func(e Event) { events <- e }}))
			defer client.Close()
			l := client.RateLimiter(fmt.Sprint("silent", name)).WithRate(overall(1000, time.Hour))
			_, err := l.Allow(t.Context(), 1)
			require.NoError(t, err)
			until := func(kind EventKind) {
				for {
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					err := call(ctx, l)
					cancel()
					select {
					case e := <-events:
						require.Equal(t, kind, e.Kind)
						return
					default:
						require.True(t, err != nil || kind == OutageEnded)
						time.Sleep(10 * time.Millisecond)
					}
				}
			}
			s.Pause()
			until(OutageBegan)
			require.ErrorIs(t, call(t.Context(), l), ErrUnavailable)
			s.Resume()
			until(OutageEnded)
			require.NoError(t, call(t.Context(), l))
		})
	}
}
