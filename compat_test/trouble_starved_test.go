// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

// forgetsCallers reports whether each rejection of a blocked acquire adds a link to a chain of futures, until the chain
// is too long for the stack of the thread that completes it. Then the permits are spent and the caller is never told
// (Redisson's issue 6959; 4.3.0 waits in a loop). Of the matrix these versions are 3.20.1, 3.34.1 and 3.52.0; earlier
// ones have no such chain.
func forgetsCallers(v version) bool { return v.since("3.17.0") && !v.since("4.3.0") }

// TestTroubleStarvedAcquire checks a large request of Java's that waits behind small ones of ours. It is starved, as
// it would be behind any others, and tries again at each permit that comes back. When the others stop it is served,
// except by versions that have forgotten it. Its permits come back all the same.
func TestTroubleStarvedAcquire(t *testing.T) {
	t.Parallel()
	var running sync.WaitGroup
	defer running.Wait()
	for _, name := range []string{"3.15.5", "3.20.1", "4.7.0"} {
		running.Go(func() {
			t.Run(name, func(t *testing.T) {
				steadily(t, func(t testing.TB) { starved(t, name) }, newestListed(), listed(t, name))
			})
		})
	}
}

func starved(t testing.TB, version string) {
	const rate, interval, step = 200, time.Second, 5 * time.Millisecond
	l := newTrouble(t, listed(t, version)).another(rate, interval)
	for range rate { // one at a time, so that they come back one at a time
		l.spent(1)
		time.Sleep(step - time.Millisecond)
	}
	call := l.javaWaiting(rate / 2)
	for end := time.Now().Add(4 * interval); time.Now().Before(end); {
		require.NoError(t, l.limiter.Acquire(t.Context(), 1))
	}
	require.True(t, call.running(), "it is starved")
	if forgetsCallers(l.version) {
		_, err := call.wait(2 * interval)
		require.ErrorContains(t, err, "no answer within")
	} else {
		redistest.Must(call.wait(callLimit))(t)
	}
	time.Sleep(interval)
	require.EqualValues(t, rate, l.java.number(t, "availablePermits", l.name))
	require.EqualValues(t, rate, redistest.Must(l.limiter.AvailablePermits(t.Context()))(t))
}
