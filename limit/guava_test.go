// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
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
		{SmoothBursty{5, time.Second}, time.Minute, []acquire{{1, 0}, {1, 0}, {3, 0}, {1, 0}, {1, 200_000}}},
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

// A number of permits costs the same time however it is asked for, and Guava's tryAcquire is Allow.
func TestGuavaToTheMicrosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redistest.Must(NewLocal(SmoothBursty{3, time.Second}))(t)
		for i, want := range []struct {
			n    int64
			wait time.Duration
		}{{1, 0}, {1, 333_333}, {7, 666_666}, {1, 2_999_999}, {1, 3_333_332}} {
			r := redistest.Must(l.Reserve(t.Context(), want.n, time.Hour))(t)
			require.True(t, r.Granted)
			require.Equal(t, want.wait*time.Microsecond, r.Wait, "truncated call by call: %d", i)
		}
		r := redistest.Must(l.Allow(t.Context(), 1))(t)
		require.False(t, r.Granted)
		require.Equal(t, 3_666_665*time.Microsecond, r.Wait)
	})
}

// The burst is the double nearest to its seconds, which Duration.Seconds is not always. Of two permits 1.118 are
// stored, and the rest takes a little less than 882 ms.
func TestGuavasBurstIsTheNearestDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redistest.Must(NewLocal(SmoothBursty{1, 1118 * time.Millisecond}))(t)
		time.Sleep(time.Minute)
		redistest.Must(l.Reserve(t.Context(), 2, 0))(t)
		require.Equal(t, 881_999*time.Microsecond, redistest.Must(l.Reserve(t.Context(), 1, time.Hour))(t).Wait)
	})
}
