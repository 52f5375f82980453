// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// What a Hook is told of a request, and of a call that a hundred requests share.
var (
	request = ratelimiter.RequestInfo{Limiter: "api:user", Operation: ratelimiter.OperationAllow, Outcome: ratelimiter.RequestGranted,
		Permits: 1, Duration: 300 * time.Microsecond}
	call = ratelimiter.CallInfo{Script: "acquire", Limiter: "api:user", Requests: 100, Duration: 200 * time.Microsecond}
)

// BenchmarkHook measures what a Hook adds to a request: of 512 callers, a hundred of whose requests share a call.
func BenchmarkHook(b *testing.B, hook ratelimiter.Hook) {
	ctx := context.Background()
	var requests atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(256)
	b.RunParallel(func(pb *testing.PB) {
		n := int64(0)
		for ; pb.Next(); n++ {
			hook.Request(ctx, request)
			if n%100 == 0 {
				hook.Call(call)
			}
		}
		requests.Add(n)
	})
	b.StopTimer()
	require.EqualValues(b, b.N, requests.Load())
}

// RequireNoAllocations checks that a request costs a Hook no memory.
func RequireNoAllocations(t *testing.T, hook ratelimiter.Hook) {
	t.Helper()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		hook.Waiting("api:user", 1)
		hook.Request(t.Context(), request)
		hook.Call(call)
		hook.Waiting("api:user", -1)
	}))
}

// EveryOutcome makes one request for each outcome that a Hook can report, and a few more. The limiter has 2 permits a
// minute: two requests are granted, a request and a Peek are rejected, one is invalid, one for two permits times out, and
// one is canceled.
func EveryOutcome(t *testing.T, l *ratelimiter.RateLimiter) {
	t.Helper()
	ctx := t.Context()
	redistest.Must(l.Peek(ctx, 1))(t)
	for range 3 {
		redistest.Must(l.Allow(ctx, 1))(t)
	}
	redistest.Must(l.Peek(ctx, 1))(t)
	require.False(t, redistest.Must(l.TryAcquire(ctx, 2, 20*time.Millisecond))(t))
	_, err := l.Allow(ctx, 0)
	require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
	done, cancel := context.WithCancel(ctx)
	cancel()
	require.Error(t, l.Acquire(done, 1))
}
