// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"context"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestWaitingCallersInACoolDown shows 40 callers in two processes that wait for the end of a cool-down, whatever the limiter is: within
// two seconds, in a list and in a look at the limiter, and no longer than they wait.
func TestWaitingCallersInACoolDown(t *testing.T) {
	second := ratelimiter.Rate{Permits: 10, Interval: time.Second}
	fast, perClient, kept := second, second, second
	fast.Interval, perClient.Type, kept.KeepAlive = 20*time.Millisecond, ratelimiter.PerClient, 4*time.Second
	waits := map[string]func(ctx context.Context, c *ratelimiter.Client, l *ratelimiter.RateLimiter) error{
		"one limiter": func(ctx context.Context, _ *ratelimiter.Client, l *ratelimiter.RateLimiter) error {
			return l.Acquire(ctx, 1)
		},
		"a lower class": func(ctx context.Context, _ *ratelimiter.Client, l *ratelimiter.RateLimiter) error {
			return l.LeaveFree(5, time.Minute).Acquire(ctx, 1)
		},
		"a list": func(ctx context.Context, c *ratelimiter.Client, l *ratelimiter.RateLimiter) error {
			return c.AcquireAll(ctx, ratelimiter.Demand{Limiter: c.RateLimiter(l.Name() + "-other"), Permits: 1}, ratelimiter.Demand{Limiter: l, Permits: 1})
		},
	}
	for of, rate := range map[string]ratelimiter.Rate{"a second": second, "20 ms": fast, "PER_CLIENT": perClient, "keep-alive": kept} {
		for how, acquire := range waits {
			t.Run(of+", "+how, func(t *testing.T) {
				redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
					if !redistest.TTLsAreVirtual() {
						return // TestWaitingCallersOfAServer has one
					}
					testWaitingInACoolDown(t, rdb, rate, acquire)
				})
			})
		}
	}
}

func testWaitingInACoolDown(t *testing.T, rdb *redis.Client, rate ratelimiter.Rate, acquire func(context.Context, *ratelimiter.Client, *ratelimiter.RateLimiter) error) {
	name := redistest.Key(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients [2]*ratelimiter.Client
	for i := range clients {
		clients[i] = clienttest.New(t, rdb)
		t.Cleanup(func() { _ = clients[i].Close() })
	}
	l := clients[0].RateLimiter(name)
	require.NoError(t, l.SetRate(ctx, rate))
	require.NoError(t, clients[0].RateLimiter(name+"-other").SetRate(ctx, ratelimiter.Rate{Permits: 100, Interval: time.Second}))
	require.NoError(t, l.CoolDown(ctx, time.Now().Add(20*time.Second)))
	for i := range 40 {
		go func() { _ = acquire(ctx, clients[i%2], clients[i%2].RateLimiter(name)) }()
	}
	s := survey.New(rdb)
	for range 5 {
		time.Sleep(3 * time.Second)
		row := view.Of(redistest.Must(s.Read(ctx, name, ""))(t)).Row
		require.Equal(t, []int64{40, 2}, []int64{row.Waiting, int64(row.Processes)})
		require.True(t, row.Is(view.Queue) && row.Is(view.Limited) && row.Is(view.Cooling))
		require.Regexp(t, `^40 callers wait`, row.Headline().String())
		again := redistest.Must(s.Again(ctx, []survey.Place{{Name: name, Node: rdb.Options().Addr}}))(t)
		require.Len(t, again, 1)
		require.Equal(t, row.Queued, view.RowOf(again[0]).Queued)
		require.Equal(t, int64(40), again[0].Waiting().Callers)
	}
	cancel()
	time.Sleep(5 * time.Second)
	require.Zero(t, view.Of(redistest.Must(s.Read(t.Context(), name, ""))(t)).Row.Waiting, "they have gone")
}

// TestNotesFailNobody has callers wait in a cool-down at a server whose memory is full: that who waits cannot be noted is no reason to fail.
func TestNotesFailNobody(t *testing.T) {
	redistest.NeedReal(t)
	rdb := redistest.Start(t).Client(t)
	c := clienttest.New(t, rdb)
	defer func() { _ = c.Close() }()
	l, ctx := c.RateLimiter("limiter"), t.Context()
	require.NoError(t, l.SetRate(ctx, ratelimiter.Rate{Permits: 10, Interval: time.Second}))
	require.NoError(t, l.CoolDown(ctx, rdb.Time(ctx).Val().Add(time.Hour)))
	require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	granted, err := l.TryAcquire(ctx, 1, 2500*time.Millisecond) // it asks three times
	require.NoError(t, err)
	require.False(t, granted)
}
