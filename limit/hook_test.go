// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Each request is told once, however many calls it takes, and without its key.
func TestHook(t *testing.T) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		var mu sync.Mutex
		var requests []ratelimiter.RequestInfo
		var calls []ratelimiter.CallInfo
		var panics []string
		waiting, most := 0, 0
		opts := []Option{WithClientClock(), WithoutCachedRejections(), WithHook(ratelimiter.Hook{
			Request: func(context.Context, ratelimiter.RequestInfo) { panic("mine") },
		}), WithHook(ratelimiter.Hook{
			Request: func(_ context.Context, r ratelimiter.RequestInfo) {
				mu.Lock()
				requests = append(requests, r)
				mu.Unlock()
			},
			Call:  func(c ratelimiter.CallInfo) { mu.Lock(); calls = append(calls, c); mu.Unlock() },
			Event: func(e ratelimiter.Event) { mu.Lock(); panics = append(panics, e.Err.Error()); mu.Unlock() },
			Waiting: func(_ string, delta int) {
				mu.Lock()
				defer mu.Unlock()
				waiting += delta
				most = max(most, waiting)
			},
		})}
		name := redistest.Key(t)
		l := redistest.Must(NewShared(rdb, name, GCRA{Rate: ratelimiter.Rate{Permits: 1, Interval: time.Second}, Burst: 2}, opts...))(t)
		s := l.For("alice")
		ctx := t.Context()
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		for _, c := range []struct {
			ask     func() error
			op      ratelimiter.Operation
			outcome ratelimiter.RequestOutcome
			took    time.Duration
			err     error
		}{
			{func() error { _, err := s.Allow(ctx, 2); return err }, ratelimiter.OperationAllow, ratelimiter.RequestGranted, 0, nil},
			{func() error { _, err := s.Allow(ctx, 1); return err }, ratelimiter.OperationAllow, ratelimiter.RequestRejected, 0, nil},
			{func() error { _, err := s.Peek(ctx, 1); return err }, ratelimiter.OperationPeek, ratelimiter.RequestRejected, 0, nil},
			{func() error { _, err := s.Reserve(ctx, 1, 0); return err }, ratelimiter.OperationReserve, ratelimiter.RequestRejected, 0, nil},
			{func() error { _, err := WaitTimeout(ctx, s, 1, time.Millisecond); return err }, ratelimiter.OperationAcquire, ratelimiter.RequestRejected, 0, nil},
			{func() error { return Wait(ctx, s, 1) }, ratelimiter.OperationAcquire, ratelimiter.RequestGranted, time.Second, nil},
			{func() error { return Wait(canceled, s, 1) }, ratelimiter.OperationAcquire, ratelimiter.RequestCanceled, 0, context.Canceled},
			{func() error { _, err := s.Allow(ctx, 0); return err }, ratelimiter.OperationAllow, ratelimiter.RequestError, 0, ratelimiter.ErrInvalidArgument},
		} {
			require.ErrorIs(t, c.ask(), c.err)
			require.Len(t, requests, 1)
			r := requests[0]
			requests = nil
			require.Equal(t, []any{name, c.op, c.outcome}, []any{r.Limiter, r.Operation, r.Outcome})
			require.InDelta(t, c.took, r.Duration, float64(10*time.Millisecond))
			require.True(t, errors.Is(r.Err, c.err))
		}
		require.Zero(t, waiting)
		require.Equal(t, 1, most)
		require.NotEmpty(t, calls)
		for _, c := range calls {
			require.Equal(t, name, c.Limiter)
			require.Equal(t, "gcra", c.Script)
			require.NoError(t, c.Err)
		}
		require.Contains(t, panics, "a Hook panicked: mine")

		calls = nil
		time.Sleep(time.Minute)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { _, _ = l.For("bob").Allow(ctx, 1) })
		}
		wg.Wait()
		var sum int64
		for _, c := range calls {
			sum += c.Requests
		}
		require.EqualValues(t, 8, sum)
	})
}
