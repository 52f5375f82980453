// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestLowerClassBesideJava checks that a lower class leaves its permits to every Redisson, which need not know of it: a Java
// caller gets them, Java's permits count for the class, and the wait that it is told is that until enough of Java's are back.
func TestLowerClassBesideJava(t *testing.T) {
	t.Parallel()
	versionsSteadily(t, func(tb testing.TB, v version) {
		const rate, free, interval = 10, 3, 3 * time.Second
		l := newTrouble(tb, v).another(rate, interval)
		low := l.limiter.LeaveFree(free, time.Hour)
		begun := time.Now()
		require.True(l, l.javaTries(5))
		javas := time.Now()
		require.True(l, redistest.Must(low.TryAcquire(l.Context(), 2, 0))(l))
		r := redistest.Must(low.Allow(l.Context(), 1))(l)
		require.False(l, r.Granted)
		require.Equal(l, int64(free), r.Available)
		require.LessOrEqual(l, r.Wait, time.Until(javas.Add(interval))+time.Second, "the clock of a JVM is that of the machine")
		require.True(l, l.javaTries(free), "what stays free is Java's")
		require.False(l, l.javaTries(1))
		l.requireWhole(rate)
		require.Less(l, time.Since(begun), interval, "too slow to say")
		require.True(l, redistest.Must(low.TryAcquire(l.Context(), 2, time.Minute))(l))
		require.GreaterOrEqual(l, time.Since(begun), interval)
		l.requireWhole(rate)
	})
}
