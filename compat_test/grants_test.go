// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestSettledGrantsBesideJava checks that every Redisson reads a grant that was settled, to less or to more, as one of its
// own of that many permits: what is left, what the limiter owes, and that all of it comes back after the interval.
func TestSettledGrantsBesideJava(t *testing.T) {
	t.Parallel()
	versionsSteadily(t, func(tb testing.TB, v version) {
		const rate, interval = 10, 3 * time.Second
		settled := map[int64]trouble{}
		begun := time.Now()
		for actual, left := range map[int64]int{0: 10, 2: 8, 8: 2, 10: 0, 14: 0} {
			l := newTrouble(tb, v).another(rate, interval)
			settled[actual] = l
			g := redistest.Must(l.limiter.AcquireGrant(l.Context(), 5))(l)
			require.NoError(l, g.Settle(l.Context(), actual))
			l.requireWhole(rate)
			for range left {
				require.True(l, l.javaTries(1), "%d were settled", actual)
			}
			require.False(l, l.javaTries(1), "%d were settled", actual)
			l.requireWhole(rate)
			require.Less(l, time.Since(begun), interval, "too slow to say")
		}
		time.Sleep(2*interval + 50*time.Millisecond)
		for actual, l := range settled {
			require.True(l, l.javaTries(rate), "%d were settled", actual)
			require.False(l, l.javaTries(1))
			l.requireWhole(rate)
		}
	})
}
