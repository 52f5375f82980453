// SPDX-License-Identifier: Apache-2.0

package prometheusratelimiter

import (
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/clienttest"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/prometheus/client_golang/prometheus"
)

// firstPart makes all limiters of a kind one policy.
func firstPart(limiter string) string {
	name, _, _ := strings.Cut(limiter, ":")
	return name
}

func BenchmarkHook(b *testing.B) {
	clienttest.BenchmarkHook(b, redistest.Must(NewHook(prometheus.NewRegistry(), firstPart))(b))
}

func TestHookAllocates(t *testing.T) {
	clienttest.RequireNoAllocations(t, redistest.Must(NewHook(prometheus.NewRegistry(), firstPart))(t))
}
