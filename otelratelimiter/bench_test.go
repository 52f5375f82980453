// SPDX-License-Identifier: Apache-2.0

package otelratelimiter

import (
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"go.opentelemetry.io/otel/sdk/metric"
)

// firstPart makes all limiters of a kind one policy.
func firstPart(limiter string) string {
	name, _, _ := strings.Cut(limiter, ":")
	return name
}

func BenchmarkHook(b *testing.B) {
	clienttest.BenchmarkHook(b, redistest.Must(NewHook(WithMeterProvider(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))), WithPolicies(firstPart)))(b))
}

func TestHookAllocates(t *testing.T) {
	clienttest.RequireNoAllocations(t, redistest.Must(NewHook(newWorld(t, WithPolicies(firstPart)).options...))(t))
}
