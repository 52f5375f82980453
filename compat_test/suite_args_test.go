// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"time"

	"github.com/stretchr/testify/require"
)

// keeping calls setRate(args) with keepState, which makes the limiter of most scenarios below.
func (s *stage) keeping(typ string, rate int, interval time.Duration) {
	s.Helper()
	s.done("setRateArgs", typ, rate, interval, "-", true)
}

// updated calls updateRate with keepState on a limiter that exists.
func (s *stage) updated(typ string, rate int, interval time.Duration) {
	s.Helper()
	s.want(true, "updateRate", typ, rate, interval, "-", true)
}

func suiteSetStateArgs(s *stage) {
	s.keeping(overall, 10, time.Second)
	s.done("acquire", 3)
	s.want(7, "availablePermits")
	s.sleep(1100 * time.Millisecond)
	s.done("acquire", 3)
	s.want(7, "availablePermits")
}

func suiteSetStateArgsKeepState(s *stage) {
	s.keeping(overall, 10, 5*time.Second)
	s.done("acquire", 3)
	s.want(7, "availablePermits")
	s.keeping(overall, 20, 5*time.Second)
	s.want(17, "availablePermits")
}

func suiteSetStateArgsNotKeepState(s *stage) {
	s.keeping(overall, 10, 5*time.Second)
	s.done("acquire", 3)
	s.want(7, "availablePermits")
	s.done("setRateArgs", overall, 20, 5*time.Second, "-", false)
	s.want(20, "availablePermits")
}

func suiteUpdateRateNonExisting(s *stage) {
	for _, typ := range []string{overall, perClient} {
		s.want(false, "updateRate", typ, 10, 5*time.Second, "-", true)
		s.want(false, "isExists")
	}
	require.Zero(s, s.keys())
}

func suiteUpdateRateKeepsState(s *stage) {
	s.keeping(overall, 10, 5*time.Second)
	s.updated(overall, 10, 5*time.Second)
	s.want(10, "availablePermits")
	s.done("acquire", 2)
	s.want(8, "availablePermits")
	s.want(false, "tryAcquire", 10)
	s.want(true, "tryAcquire", 8)
}

func suiteUpdateRateHigherRate(s *stage) {
	s.keeping(overall, 10, 2*time.Second)
	s.sleep(time.Second)
	s.done("acquire", 4)
	s.want(6, "availablePermits")
	s.updated(overall, 20, 5*time.Second)
	s.want(16, "availablePermits")
	s.want(true, "tryAcquire", 16)
}

func suiteUpdateRateLowerRatePositive(s *stage) {
	s.keeping(overall, 10, 2*time.Second)
	s.sleep(time.Second)
	s.done("acquire", 3)
	s.want(7, "availablePermits")
	s.updated(overall, 5, 5*time.Second)
	s.want(2, "availablePermits")
	s.want(false, "tryAcquire", 3)
	s.want(true, "tryAcquire", 2)
}

func suiteUpdateRateLowerRateNegative(s *stage) {
	s.keeping(overall, 10, 2*time.Second)
	s.sleep(time.Second)
	s.done("acquire", 8)
	s.want(2, "availablePermits")
	s.updated(overall, 5, 5*time.Second)
	s.want(0, "availablePermits")
	s.want(false, "tryAcquire", 1)
	s.want(false, "tryAcquire", 2)
}

func suiteUpdateRatePermitResetFull(s *stage) {
	s.keeping(overall, 10, time.Second)
	s.done("acquire", 8)
	s.want(2, "availablePermits")
	s.sleep(2 * time.Second)
	s.updated(overall, 10, time.Second)
	s.want(10, "availablePermits")
}

func suiteUpdateRateModeChange(s *stage) {
	s.keeping(overall, 10, 5*time.Second)
	s.done("acquire", 4)
	s.want(6, "availablePermits")
	s.updated(perClient, 10, 5*time.Second)
	s.want(10, "availablePermits")
}

func suiteUpdateRateKeepAliveTooShort(s *stage) {
	for range s.sides {
		s.want(invalidArgument, "updateRate", overall, 10, 5*time.Second, time.Second, true)
	}
}

func suiteUpdateRateIntervalChange(s *stage) {
	s.keeping(overall, 10, 5*time.Second)
	s.done("acquire", 3)
	s.want(7, "availablePermits")
	s.sleep(1100 * time.Millisecond)
	s.updated(overall, 10, time.Second)
	s.want(10, "availablePermits")
}

func suiteUpdateRatePerClient(s *stage) {
	s.keeping(perClient, 10, 5*time.Second)
	s.done("acquire", 3)
	s.want(7, "availablePermits")
	s.updated(perClient, 20, 5*time.Second)
	s.want(17, "availablePermits")
}

// suiteRelease expects a release of 0 permits, which Redisson accepts, to be an invalid argument: a program that
// computes a 0 either has nothing to release or has a mistake.
func suiteRelease(s *stage) {
	for _, typ := range []string{perClient, overall} {
		s.done("setRate", typ, 10, time.Second)
		s.done("acquire", 3)
		s.want(7, "availablePermits")
		s.done("release", 3)
		s.want(10, "availablePermits")
		s.done("release", 10)
		s.want(10, "availablePermits")
		for _, who := range s.sides {
			want := "null"
			if _, ours := who.(goSide); ours {
				want = invalidArgument
			}
			require.Equal(s, want, s.by(who, "release", 0))
			s.want(10, "availablePermits")
			require.Equal(s, invalidArgument, s.by(who, "release", -1))
		}
	}
}
