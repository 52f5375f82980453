// SPDX-License-Identifier: Apache-2.0

package limit_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSharedWithAFullPool lets others block all connections of the client while Redis replies: nothing is granted, with and
// without a policy, and the error says how large the pool is. When Redis stands still, that is an outage all the same, which
// ends when Redis goes on.
func TestSharedWithAFullPool(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	const size = 6
	s := redistest.Start(t)
	rdb := s.Client(t, func(o *redis.Options) { o.PoolSize, o.PoolTimeout, o.MaxRetries = size, 500*time.Millisecond, -1 })
	began, ended := make(chan bool, 10), make(chan bool, 10)
	limiter := func(name string, opts ...limit.Option) *limit.Shared {
		l := redistest.Must(limit.NewShared(rdb, name, limit.FixedWindow{Rate: ratelimiter.Rate{Permits: 1, Interval: time.Hour}}, opts...))(t)
		require.True(t, redistest.Must(l.Allow(t.Context(), 1))(t).Granted)
		return l
	}
	open := limiter("open", limit.WithOutagePolicy(ratelimiter.FailOpen()), limit.WithHook(ratelimiter.Hook{Event: func(e ratelimiter.Event) {
		switch e.Kind {
		case ratelimiter.OutageBegan:
			began <- true
		case ratelimiter.OutageEnded:
			ended <- true
		}
	}}))
	none := limiter("none")
	ctx, cancel := context.WithCancel(context.Background())
	var others sync.WaitGroup
	for i := range size {
		others.Go(func() {
			for ctx.Err() == nil {
				_ = rdb.BLPop(ctx, 0, fmt.Sprint("queue", i)).Err()
			}
		})
	}
	admin := s.Client(t)
	defer others.Wait()
	defer func() {
		cancel()
		_ = admin.Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal").Err()
	}()
	for stats := rdb.PoolStats(); stats.IdleConns > 0 || stats.TotalConns < size; stats = rdb.PoolStats() {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(1100 * time.Millisecond) // what is known of a rejection is a second old

	var asking sync.WaitGroup
	for i := range 12 {
		asking.Go(func() {
			l := []*limit.Shared{open, none}[i%2]
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%3+1)*time.Second)
			defer cancel()
			r, err := l.Allow(ctx, 1)
			assert.False(t, r.Granted)
			assert.ErrorIs(t, err, ratelimiter.ErrOverloaded)
			assert.NotErrorIs(t, err, ratelimiter.ErrUnavailable)
			assert.ErrorContains(t, err, fmt.Sprintf("all %d connections of the pool are in use", size))
		})
	}
	asking.Wait()
	require.Empty(t, began)

	var stop atomic.Bool
	for range 4 {
		asking.Go(func() {
			for !stop.Load() {
				_, _ = open.Allow(context.Background(), 1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	s.Pause()
	<-began
	s.Resume()
	<-ended
	stop.Store(true)
	asking.Wait()
	r, err := open.Allow(ctx, 1)
	require.False(t, r.Granted)
	require.ErrorIs(t, err, ratelimiter.ErrOverloaded)
}
