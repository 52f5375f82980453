// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"fmt"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

const (
	overall   = "OVERALL"
	perClient = "PER_CLIENT"
)

func suiteKeepAliveTime(s *stage) {
	s.want(false, "delete")
	s.want(true, "trySetRate", overall, 1, time.Second, time.Second)
	s.sleep(1100 * time.Millisecond)
	s.want(false, "isExists")
	s.want(true, "trySetRate", overall, 10, 2*time.Second, 2*time.Second)
	s.sleep(time.Second)
	s.want(true, "tryAcquire", 1)
	require.Greater(s, redistest.Must(strconv.Atoi(s.do("remainTimeToLive")))(s), 1500, "an acquire lets it live anew")
}

func suiteExpire2(s *stage) {
	s.want(true, "trySetRate", overall, 5, 5*time.Second)
	s.want(true, "expire", 10*time.Second)
	s.done("acquire", 1)
	s.sleep(12 * time.Second)
	require.Zero(s, s.keys(), "the keys that the acquire made took the TTL")
}

func suiteExpire(s *stage) {
	s.want(true, "trySetRate", overall, 2, 5*time.Second)
	s.want(true, "tryAcquire", 1)
	s.want(true, "expire", time.Second)
	s.sleep(1100 * time.Millisecond)
	require.Zero(s, s.keys())
}

func suiteAcquisitionInterval(s *stage) {
	s.want(true, "trySetRate", overall, 2, 5*time.Second)
	s.want(true, "tryAcquire", 1)
	s.sleep(4 * time.Second)
	s.want(true, "tryAcquire", 1)
	s.sleep(1050 * time.Millisecond)
	s.want(true, "tryAcquire", 1)
	s.want(false, "tryAcquire", 1) // the first permit gets no window of its own
}

func suiteRateConfig(s *stage) {
	s.want(true, "trySetRate", overall, 1, 5*time.Second)
	s.want("OVERALL 1 5000", "getConfig")
}

func suiteAvailablePermits(s *stage) {
	s.want(true, "trySetRate", overall, 10, 5*time.Second)
	s.want(10, "availablePermits")
	s.done("acquire", 1)
	s.sleep(6 * time.Second)
	s.want(10, "availablePermits")
}

func suiteUpdateRateConfig(s *stage) {
	s.want(true, "trySetRate", overall, 1, 5*time.Second)
	s.done("setRate", overall, 2, 5*time.Second)
	s.want("OVERALL 2 5000", "getConfig")
}

func suitePermitsExceeding(s *stage) {
	s.want(true, "trySetRate", perClient, 1, time.Second)
	s.want(exceedsRate, "tryAcquire", 20)
	s.want(true, "tryAcquire", 1)
}

func suiteZeroTimeout(s *stage) {
	s.want(true, "trySetRate", overall, 5, time.Second)
	for _, left := range []int{5, 3, 1} {
		s.want(left, "availablePermits")
		for range min(2, left) {
			s.want(true, "tryAcquire", 1, time.Duration(0))
		}
	}
	s.want(0, "availablePermits")
	for range 5 {
		s.want(false, "tryAcquire", 1, time.Duration(0))
	}
	s.sleep(time.Second)
	for range 5 {
		s.want(true, "tryAcquire", 1, time.Duration(0))
	}
	for range 5 {
		s.want(false, "tryAcquire", 1, time.Duration(0))
	}
}

// suiteTryAcquire checks that a rejection takes the timeout and no longer.
func suiteTryAcquire(s *stage) {
	began := time.Now()
	s.want(true, "trySetRate", overall, 1, 5*time.Second)
	s.want(true, "tryAcquire", 1, time.Second)
	s.want(false, "tryAcquire", 1, time.Second)
	s.want(false, "tryAcquire", 1)
	if s.scale == 0 {
		require.Equal(s, time.Second, time.Since(began))
	}
	require.GreaterOrEqual(s, time.Since(began), s.real(time.Second))
}

func suiteAcquire(s *stage) {
	began := time.Now()
	s.want(true, "trySetRate", overall, 1, 5*time.Second)
	for range 10 {
		s.done("acquire", 1)
	}
	s.want(false, "tryAcquire", 1)
	if s.scale == 0 {
		require.Equal(s, 45*time.Second, time.Since(began))
	}
	require.GreaterOrEqual(s, time.Since(began), s.real(45*time.Second)-time.Millisecond)
}

// suiteWindows is the original's "test".
func suiteWindows(s *stage) {
	s.want(true, "trySetRate", overall, 10, time.Second)
	s.want(false, "trySetRate", overall, 20, time.Second)
	for range 3 {
		for i := range 20 {
			s.want(i < 10, "tryAcquire", 1)
		}
		s.sleep(1050 * time.Millisecond)
	}
}

func suiteRemove(s *stage) {
	s.want(false, "delete")
	s.want(true, "trySetRate", overall, 5, 5*time.Minute)
	require.Equal(s, 1, s.keys())
	s.want(true, "tryAcquire", 1)
	s.want(true, "delete")
	require.Zero(s, s.keys())
}

func suiteChangeRate(s *stage) {
	for _, typ := range []string{perClient, overall} {
		for _, rate := range []int{10, 20} {
			s.done("setRate", typ, rate, time.Second)
			s.want(fmt.Sprintf("%s %d 1000", typ, rate), "getConfig")
			s.done("acquire", 1)
			s.want(rate-1, "availablePermits")
		}
	}
}
