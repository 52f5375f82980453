// SPDX-License-Identifier: Apache-2.0

package otelratelimiter

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
)

// BenchmarkHook measures what the Hook adds to a request: of 512 callers, a hundred of whose requests share a call.
func BenchmarkHook(b *testing.B) {
	reader := metric.NewManualReader()
	hook, err := NewHook(WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))), WithPolicies(func(limiter string) string {
		name, _, _ := strings.Cut(limiter, ":")
		return name
	}))
	require.NoError(b, err)
	ctx := context.Background()
	r := ratelimiter.RequestInfo{Limiter: "api:user", Operation: ratelimiter.OperationAllow, Outcome: ratelimiter.RequestGranted,
		Permits: 1, Duration: 300 * time.Microsecond}
	c := ratelimiter.CallInfo{Script: "acquire", Limiter: "api:user", Requests: 100, Duration: 200 * time.Microsecond}
	var requests atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(256)
	b.RunParallel(func(pb *testing.PB) {
		n := int64(0)
		for ; pb.Next(); n++ {
			hook.Request(ctx, r)
			if n%100 == 0 {
				hook.Call(c)
			}
		}
		requests.Add(n)
	})
	b.StopTimer()
	require.EqualValues(b, b.N, requests.Load())
}

// TestHookAllocates: a request costs the Hook no memory.
func TestHookAllocates(t *testing.T) {
	w := newWorld(t, WithPolicies(func(string) string { return "api" }))
	hook, err := NewHook(w.options...)
	require.NoError(t, err)
	r := ratelimiter.RequestInfo{Limiter: "api:user", Operation: ratelimiter.OperationAllow, Outcome: ratelimiter.RequestGranted, Permits: 1}
	c := ratelimiter.CallInfo{Script: "acquire", Limiter: "api:user", Requests: 1}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		hook.Waiting("api:user", 1)
		hook.Request(t.Context(), r)
		hook.Call(c)
		hook.Waiting("api:user", -1)
	}))
}
