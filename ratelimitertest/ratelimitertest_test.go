// SPDX-License-Identifier: Apache-2.0

package ratelimitertest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/goredisson/ratelimiter/ratelimitertest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var perSecond = ratelimiter.Rate{Permits: 1, Interval: time.Second}

// An acquirer has the methods that a Fake stands in for.
type acquirer interface {
	Allow(ctx context.Context, permits int64) (ratelimiter.Result, error)
	TryAcquire(ctx context.Context, permits int64, timeout time.Duration) (bool, error)
	Acquire(ctx context.Context, permits int64) error
}

var (
	_ acquirer = (*ratelimiter.RateLimiter)(nil)
	_ acquirer = (*ratelimitertest.Fake)(nil)
)

// Tests in bubbles of their own run one after another and beside each other, many callers in each. A wait is exact.
func TestRun(t *testing.T) {
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			for range 2 {
				ratelimitertest.Run(t, func(t *testing.T, rdb *redis.Client) {
					l := ratelimitertest.NewClient(t, rdb).RateLimiter("orders").WithRate(perSecond)
					begin := time.Now()
					var callers sync.WaitGroup
					for range 10 {
						callers.Go(func() { _ = l.Acquire(t.Context(), 1) })
					}
					callers.Wait()
					require.Equal(t, 9*time.Second, time.Since(begin))
				})
			}
		})
	}
}

// A test may end while callers wait: its bubble ends.
func TestRunEndsWhileCallersWait(t *testing.T) {
	ratelimitertest.Run(t, func(t *testing.T, rdb *redis.Client) {
		l := ratelimitertest.NewClient(t, rdb).RateLimiter("orders").WithRate(perSecond)
		require.NoError(t, l.Acquire(t.Context(), 1))
		go func() { _ = l.Acquire(context.Background(), 1) }()
		synctest.Wait()
	})
}

// NewRedis outside of a bubble is in real time, and its limiters are not those of another NewRedis.
func TestNewRedis(t *testing.T) {
	for range 2 {
		s, err := limit.NewShared(ratelimitertest.NewRedis(t), "api", limit.GCRA{Rate: ratelimiter.Rate{Permits: 1, Interval: time.Hour}, Burst: 1})
		require.NoError(t, err)
		for _, want := range []bool{true, false} {
			r, err := s.Allow(t.Context(), 1)
			require.NoError(t, err)
			require.Equal(t, want, r.Granted)
		}
	}
}

func TestFake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var f ratelimitertest.Fake
		require.NoError(t, f.Acquire(ctx, 3))
		require.ErrorIs(t, f.Acquire(ctx, 0), ratelimiter.ErrInvalidArgument)

		free := time.Now().Add(time.Minute)
		broken := errors.New("no Redis")
		f.Reply = func(_ context.Context, permits int64) (ratelimiter.Result, error) {
			if permits > 9 {
				return ratelimiter.Result{Granted: true}, broken
			}
			wait := max(0, time.Until(free))
			return ratelimiter.Result{Granted: wait == 0, Wait: wait}, nil
		}
		ok, err := f.TryAcquire(ctx, 1, 10*time.Second)
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, 50*time.Second, time.Until(free), "it waits for as long as it may")
		ok, err = f.TryAcquire(ctx, 10, time.Second)
		require.ErrorIs(t, err, broken)
		require.False(t, ok)
		left, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, f.Acquire(left, 1), context.DeadlineExceeded)
		require.Equal(t, 49*time.Second, time.Until(free))
		_, err = f.Allow(left, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, f.Acquire(ctx, 2))
		require.Zero(t, time.Until(free))
		require.EqualValues(t, 5, f.Granted())
	})
}

func Example() {
	// What a worker needs of a limiter.
	type acquirer interface {
		Acquire(ctx context.Context, permits int64) error
	}
	work := func(l acquirer) error { return l.Acquire(context.Background(), 1) }

	var limiter ratelimitertest.Fake
	fmt.Println(work(&limiter), limiter.Granted())
	// Output: <nil> 1
}
