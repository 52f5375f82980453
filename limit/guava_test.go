// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestGuavasOwnTests has what Guava's own RateLimiterTest expects, to the microsecond; TestDifferentialGuava in compat_test plays
// with Guava itself.
func TestGuavasOwnTests(t *testing.T) {
	type acquire struct {
		n    int64
		wait time.Duration // in µs
	}
	for _, c := range []struct {
		a        Algorithm
		idle     time.Duration // before the first
		acquires []acquire
	}{
		{SmoothBursty{5, time.Second}, 0, []acquire{{1, 0}, {1, 200_000}}},
		{SmoothBursty{1, time.Second}, 0, []acquire{{1, 0}, {1, 1e6}, {2, 1e6}, {4, 2e6}, {8, 4e6}, {1, 8e6}}},
		{SmoothBursty{3, time.Second}, 0, []acquire{{1, 0}, {1, 333_333}, {7, 333_333}, {1, 2_333_333}}}, // truncated call by call
		{SmoothBursty{5, time.Second}, time.Minute, []acquire{{1, 0}, {1, 0}, {3, 0}, {1, 0}, {1, 200_000}}},
		// The burst is the double nearest to its seconds, which Duration.Seconds is not always: of two permits 1.118 are stored.
		{SmoothBursty{1, 1118 * time.Millisecond}, time.Minute, []acquire{{2, 0}, {1, 881_999}}},
		{SmoothWarmingUp{2, 4 * time.Second, 3}, time.Minute, []acquire{{1, 0}, {1, 1_375_000}, {1, 1_125_000}, {1, 875_000}, {1, 625_000}, {1, 500_000}}},
		{SmoothWarmingUp{5, 4 * time.Second, 10}, time.Minute, []acquire{{1, 0}, {1, 1_752_500}, {1, 1_257_500}, {1, 762_500}, {1, 300_227}, {1, 200_000}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := redistest.Must(NewLocal(c.a))(t)
			time.Sleep(c.idle)
			for i, want := range c.acquires {
				begin := time.Now()
				require.NoError(t, Wait(t.Context(), l, want.n))
				require.Equal(t, want.wait*time.Microsecond, time.Since(begin), "%d of %+v", i, c.a)
			}
		})
	}
}
