// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// What Guava's own tests expect of it, in the notation of
// https://github.com/google/guava/blob/master/guava-tests/test/com/google/common/util/concurrent/RateLimiterTest.java:
// R waits, in seconds, of acquires, and U pauses. A number of permits other than 1 stands behind the wait.
var guavaTests = []struct {
	a       Algorithm
	fromNew bool // begins with a limiter that was just made, not with one long idle
	events  string
}{
	{SmoothBursty{5, time.Second}, true, "R0.00 U0.20 R0.00 R0.20"},
	{SmoothBursty{5, time.Second}, true, "R0.00 U0.40 R0.00 R0.00 R0.20"},
	{SmoothBursty{5, time.Second}, true, "U1.00 U1.00 R0.00 R0.00 R0.00/3 R0.00 R0.20"},
	{SmoothBursty{5, time.Second}, false, "R0.00 R0.00 R0.00/3 R0.00 R0.20"},
	{SmoothBursty{1, time.Second}, true, "R0.00 R1.00 R1.00/2 R2.00/4 R4.00/8 R8.00"},
	{SmoothWarmingUp{2, 4 * time.Second, 3}, false,
		"R0.00 R1.38 R1.13 R0.88 R0.63 R0.50 R0.50 R0.50 U0.50 U4.00 " +
			"R0.00 R1.38 R1.13 R0.88 R0.63 R0.50 R0.50 R0.50 U0.50 U2.00 R0.00 R0.50 R0.50 R0.50 R0.50 R0.50 R0.50 R0.50"},
	{SmoothWarmingUp{5, 4 * time.Second, 10}, false,
		"R0.00 R1.75 R1.26 R0.76 R0.30 R0.20 R0.20 R0.20 U0.20 U4.00 " +
			"R0.00 R1.75 R1.26 R0.76 R0.30 R0.20 R0.20 R0.20 U0.20 U1.00 R0.00 R0.20 R0.20 R0.20 R0.20 R0.20 R0.20 R0.20"},
}

func acquires(t *testing.T, l Reserver, events string) {
	for i, e := range strings.Fields(events) {
		var seconds float64
		n := int64(1)
		_, err := fmt.Sscanf(strings.Replace(e[1:], "/", " ", 1), "%f %d", &seconds, &n)
		if !strings.Contains(e, "/") {
			_, err = fmt.Sscanf(e[1:], "%f", &seconds)
		}
		require.NoError(t, err)
		if e[0] == 'U' {
			time.Sleep(time.Duration(seconds * float64(time.Second)))
			continue
		}
		begin := time.Now()
		require.NoError(t, Wait(t.Context(), l, n))
		require.InDelta(t, seconds, time.Since(begin).Seconds(), 0.005001, "event %d of %s", i, events)
	}
}

func TestGuavasOwnTests(t *testing.T) {
	for _, c := range guavaTests {
		synctest.Test(t, func(t *testing.T) {
			l := redistest.Must(NewLocal(c.a))(t)
			if !c.fromNew {
				time.Sleep(time.Minute)
			}
			acquires(t, l, c.events)
		})
		if c.fromNew {
			continue
		}
		redistest.Run(t, func(t *testing.T, rdb *redis.Client) { acquires(t, shared(t, rdb, c.a), c.events) })
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
