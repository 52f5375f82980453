// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/stretchr/testify/require"
)

const (
	overall   = "OVERALL"
	perClient = "PER_CLIENT"
)

// A suiteScenario is a scenario of Redisson's own limiter tests (RedissonRateLimiterTest of 4.7.0), under its name
// there and written anew. Each step is a call of the side whose turn it is; see [stage.play].
type suiteScenario struct {
	name string // of the original
	// scale divides all durations in real time, so that a run is short. What has to happen within a window still has
	// half a second for it.
	scale int
	steps string
	run   func(s *stage) // in place of steps, for the scenarios with many threads: none of the others runs at the same time
}

// ttl reports whether the scenario is about keys that expire, which they never do in virtual time.
func (c suiteScenario) ttl() bool {
	return strings.Contains(c.name, "Expire") || c.name == "testKeepAliveTime"
}

// suiteScenarios are in the order of the original's file.
var suiteScenarios = []suiteScenario{
	{name: "testKeepAliveTime", scale: 1, steps: `
		delete = false
		trySetRate OVERALL 1 1s 1s = true
		sleep 1.1s
		isExists = false
		trySetRate OVERALL 10 2s 2s = true
		sleep 1s
		tryAcquire 1 = true
		remainTimeToLive > 1500`}, // an acquire lets it live anew
	{name: "testExpire2", scale: 5, steps: `
		trySetRate OVERALL 5 5s = true
		expire 10s = true
		acquire 1
		sleep 12s
		keys = 0`}, // those that the acquire made took the TTL
	{name: "testRateValue", scale: 5, run: suiteRateValue},
	{name: "testExpire", scale: 1, steps: `
		trySetRate OVERALL 2 5s = true
		tryAcquire 1 = true
		expire 1s = true
		sleep 1.1s
		keys = 0`},
	{name: "testAcquisitionInterval", scale: 4, steps: `
		trySetRate OVERALL 2 5s = true
		tryAcquire 1 = true
		sleep 4s
		tryAcquire 1 = true
		sleep 1.05s
		tryAcquire 1 = true
		tryAcquire 1 = false`}, // the first permit gets no window of its own
	{name: "testRateConfig", scale: 1, steps: `
		trySetRate OVERALL 1 5s = true
		getConfig = OVERALL 1 5000`},
	{name: "testAvailablePermits", scale: 4, steps: `
		trySetRate OVERALL 10 5s = true
		availablePermits = 10
		acquire 1
		sleep 6s
		availablePermits = 10`},
	{name: "testUpdateRateConfig", scale: 1, steps: `
		trySetRate OVERALL 1 5s = true
		setRate OVERALL 2 5s
		getConfig = OVERALL 2 5000`},
	{name: "testPermitsExceeding", scale: 1, steps: `
		trySetRate PER_CLIENT 1 1s = true
		tryAcquire 20 = !exceeds rate
		tryAcquire 1 = true`},
	{name: "testZeroTimeout", scale: 1, steps: `
		trySetRate OVERALL 5 1s = true
		availablePermits = 5
		2 x tryAcquire 1 0s = true
		availablePermits = 3
		2 x tryAcquire 1 0s = true
		availablePermits = 1
		tryAcquire 1 0s = true
		availablePermits = 0
		5 x tryAcquire 1 0s = false
		sleep 1s
		5 x tryAcquire 1 0s = true
		5 x tryAcquire 1 0s = false`},
	{name: "testTryAcquire", scale: 2, steps: `
		trySetRate OVERALL 1 5s = true
		tryAcquire 1 1s = true
		tryAcquire 1 1s = false
		tryAcquire 1 = false
		elapsed 1s`},
	{name: "testAcquire", scale: 10, steps: `
		trySetRate OVERALL 1 5s = true
		10 x acquire 1
		tryAcquire 1 = false
		elapsed 45s`},
	{name: "test", scale: 1, steps: `
		trySetRate OVERALL 10 1s = true
		trySetRate OVERALL 20 1s = false` + strings.Repeat(`
		10 x tryAcquire 1 = true
		10 x tryAcquire 1 = false
		sleep 1.05s`, 3)},
	{name: "testRemove", scale: 1, steps: `
		delete = false
		trySetRate OVERALL 5 5m = true
		keys = 1
		tryAcquire 1 = true
		delete = true
		keys = 0`},
	{name: "testConcurrency2", scale: 5, run: suiteConcurrency2},
	{name: "testConcurrency", scale: 5, run: suiteConcurrency},
	{name: "testChangeRate", scale: 1, steps: changedRate(perClient, 10) + changedRate(perClient, 20) + changedRate(overall, 10) + changedRate(overall, 20)},
	{name: "testSetStateArgs", scale: 1, steps: `
		setRateArgs OVERALL 10 1s - true
		acquire 3
		availablePermits = 7
		sleep 1.1s
		acquire 3
		availablePermits = 7`},
	{name: "testSetStateArgsKeepState", scale: 1, steps: three(overall) + `
		setRateArgs OVERALL 20 5s - true
		availablePermits = 17`},
	{name: "testSetStateArgsNotKeepState", scale: 1, steps: three(overall) + `
		setRateArgs OVERALL 20 5s - false
		availablePermits = 20`},
	{name: "testUpdateRateNonExisting", scale: 1, steps: `
		updateRate OVERALL 10 5s - true = false
		isExists = false
		updateRate PER_CLIENT 10 5s - true = false
		isExists = false
		keys = 0`},
	{name: "testUpdateRateKeepsState", scale: 1, steps: `
		setRateArgs OVERALL 10 5s - true
		updateRate OVERALL 10 5s - true = true
		availablePermits = 10
		acquire 2
		availablePermits = 8
		tryAcquire 10 = false
		tryAcquire 8 = true`},
	{name: "testUpdateRateHigherRate", scale: 1, steps: `
		setRateArgs OVERALL 10 2s - true
		sleep 1s
		acquire 4
		availablePermits = 6
		updateRate OVERALL 20 5s - true = true
		availablePermits = 16
		tryAcquire 16 = true`},
	{name: "testUpdateRateLowerRateNewValuePositive", scale: 1, steps: `
		setRateArgs OVERALL 10 2s - true
		sleep 1s
		acquire 3
		availablePermits = 7
		updateRate OVERALL 5 5s - true = true
		availablePermits = 2
		tryAcquire 3 = false
		tryAcquire 2 = true`},
	{name: "testUpdateRateLowerRateNewValueNegative", scale: 1, steps: `
		setRateArgs OVERALL 10 2s - true
		sleep 1s
		acquire 8
		availablePermits = 2
		updateRate OVERALL 5 5s - true = true
		availablePermits = 0
		tryAcquire 1 = false
		tryAcquire 2 = false`},
	{name: "testUpdateRatePermitResetFull", scale: 1, steps: `
		setRateArgs OVERALL 10 1s - true
		acquire 8
		availablePermits = 2
		sleep 2s
		updateRate OVERALL 10 1s - true = true
		availablePermits = 10`},
	{name: "testUpdateRateModeChangeClearsState", scale: 1, steps: three(overall) + `
		updateRate PER_CLIENT 10 5s - true = true
		availablePermits = 10`},
	{name: "testUpdateRateKeepAliveTimeLessThanIntervalThrows", scale: 1, steps: `
		2 x updateRate OVERALL 10 5s 1s true = !invalid argument`},
	{name: "testUpdateRateRateIntervalChangeDropsExpired", scale: 1, steps: three(overall) + `
		sleep 1.1s
		updateRate OVERALL 10 1s - true = true
		availablePermits = 10`},
	{name: "testUpdateRatePerClientUsesClientState", scale: 1, steps: three(perClient) + `
		updateRate PER_CLIENT 20 5s - true = true
		availablePermits = 17`},
	{name: "testRelease", scale: 1, steps: released(perClient) + released(overall)},
}

// three makes a limiter of rate 10 and takes three permits.
func three(typ string) string {
	return `
		setRateArgs ` + typ + ` 10 5s - true
		acquire 3
		availablePermits = 7`
}

func changedRate(typ string, rate int) string {
	r := strconv.Itoa(rate)
	return `
		setRate ` + typ + " " + r + ` 1s
		getConfig = ` + typ + " " + r + ` 1000
		acquire 1
		availablePermits = ` + strconv.Itoa(rate-1)
}

// released expects a release of 0 permits, which Redisson accepts, to be an invalid argument: a program that computes
// a 0 either has nothing to release or has a mistake.
func released(typ string) string {
	return `
		setRate ` + typ + ` 10 1s
		acquire 3
		availablePermits = 7
		release 3
		availablePermits = 10
		release 10
		availablePermits = 10
		2 x release 0 = !invalid argument or null by Java
		availablePermits = 10
		2 x release -1 = !invalid argument`
}

// play does the steps of a scenario, one a line, each on the side whose turn it is: "OPERATION ARGUMENTS = REPLY", or with
// > for a number that is larger. Without a reply the operation returns nothing. "N x" repeats a step. Further steps are
// "sleep DURATION", "keys = N" for the keys of the limiter, and "elapsed DURATION" since the beginning, which is exact in
// virtual time.
func (s *stage) play(steps string) {
	s.Helper()
	began := time.Now()
	for line := range strings.Lines(strings.TrimSpace(steps)) {
		times, line := 1, strings.TrimSpace(line)
		if n, rest, ok := strings.Cut(line, " x "); ok {
			times, line = redistest.Must(strconv.Atoi(n))(s), rest
		}
		call, want, _ := strings.Cut(line, " = ")
		call, least, larger := strings.Cut(call, " > ")
		words := strings.Fields(call)
		switch words[0] {
		case "sleep":
			s.sleep(s.argument(words[1]).(time.Duration))
			continue
		case "keys":
			require.Equal(s, want, strconv.Itoa(s.keys()), steps)
			continue
		case "elapsed":
			if d := s.argument(words[1]).(time.Duration); s.scale == 0 {
				require.Equal(s, d, time.Since(began))
			} else {
				require.GreaterOrEqual(s, time.Since(began), s.real(d)-time.Millisecond)
			}
			continue
		}
		for range times {
			var args []any
			for _, w := range words[1:] {
				args = append(args, s.argument(w))
			}
			who := s.turn()
			got := s.by(who, words[0], args...)
			want, byJava, differs := strings.Cut(want, " or ")
			if _, java := who.(javaSide); differs && java {
				want = strings.TrimSuffix(byJava, " by Java")
			} else if want == "" {
				want = "null"
			}
			if larger {
				require.Greater(s, redistest.Must(strconv.Atoi(got))(s), redistest.Must(strconv.Atoi(least))(s), line)
			} else {
				require.Equal(s, want, got, "%T: %s", who, line)
			}
		}
	}
}

// argument returns a word of a step as an argument of an operation.
func (s *stage) argument(word string) any {
	if d, err := time.ParseDuration(word); err == nil && word != "0" {
		return d
	}
	if n, err := strconv.Atoi(word); err == nil {
		return n
	}
	if b, err := strconv.ParseBool(word); err == nil {
		return b
	}
	return word
}
