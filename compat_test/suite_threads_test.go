// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/grantlog"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// threads runs n callers of ours for a while. Each calls f until the time is over.
func (s *stage) threads(n int, during time.Duration, f func()) {
	end := time.Now().Add(during)
	waits(n, func() {
		for time.Now().Before(end) {
			f()
		}
	})()
}

// suiteRateValue checks that 200 threads that acquire without end keep as many permits in use as the rate has. The
// original looks at the set once a second, 20 times, and expects to find 10,000 members 16 times. One of our members
// may stand for the permits of several threads.
func suiteRateValue(s *stage) {
	const rate, looks = 10_000, 20
	s.play("setRate OVERALL 10000 10s")
	full := 0
	looking := waits(1, func() {
		for range looks {
			if used(s, s.rdb, s.keys()[2])-s.tripwires() == rate {
				full++
			}
			time.Sleep(time.Second)
		}
	})
	s.threads(200, looks*time.Second, func() { assert.NoError(s, s.limiter.Acquire(s.Context(), 1)) })
	looking()
	require.GreaterOrEqual(s, full, 16)
}

// tripwires returns the number of tripwires of waiting callers in the set.
func (s *stage) tripwires() int64 { return s.rdb.ZCount(s.Context(), s.keys()[2], "0", "0").Val() }

// suiteConcurrency runs eight threads that try and sleep at random. The original expects 940 ms between every tenth
// grant and the next; here no window may hold more than the rate.
func suiteConcurrency(s *stage) {
	s.play("trySetRate OVERALL 10 1s = true\n trySetRate OVERALL 20 1s = false")
	s.inWindows(10, func() bool {
		granted := redistest.Must(s.limiter.TryAcquire(s.Context(), 1, 0))(s)
		if !granted {
			time.Sleep(rand.N(10 * time.Millisecond))
		}
		return granted
	})
}

// suiteConcurrency2 runs eight threads that acquire.
func suiteConcurrency2(s *stage) {
	s.play("trySetRate OVERALL 18 1s = true")
	s.inWindows(18, func() bool { return assert.NoError(s, s.limiter.Acquire(s.Context(), 1)) })
}

// inWindows runs eight threads on a limiter of rate permits a second. It checks that no window holds more, and that
// hardly a permit is left unused.
func (s *stage) inWindows(rate int, f func() (granted bool)) {
	s.Helper()
	const during = 20 * time.Second
	var told grantlog.Ledger
	s.threads(8, during, func() {
		if f() {
			told.Add(grantlog.At(time.Now().Truncate(time.Millisecond), 1)) // as Redisson counts
		}
	})
	grants := told.Told().Grants
	require.EqualValues(s, rate, grants.Most(time.Second))
	require.GreaterOrEqual(s, len(grants), rate*int(during/time.Second)*8/10)
}
