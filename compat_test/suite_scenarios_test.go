// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"cmp"
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
	name  string // of the original
	steps string
	run   func(s *stage) // in place of steps, for the scenarios with many threads
}

// ttl reports whether the scenario is about keys that expire, which they never do in virtual time.
func (c suiteScenario) ttl() bool {
	return strings.Contains(c.name, "Expire") || c.name == "testKeepAliveTime"
}

// suiteScenarios are in the order of the original's file.
var suiteScenarios = []suiteScenario{
	{name: "testKeepAliveTime", steps: `
		delete = false
		trySetRate OVERALL 1 1s 1s = true
		sleep 1.1s
		isExists = false
		trySetRate OVERALL 10 2s 2s = true
		sleep 1s
		tryAcquire 1 = true
		remainTimeToLive > 1500`}, // an acquire lets it live anew
	{name: "testExpire2", steps: `
		trySetRate OVERALL 5 1s = true
		expire 2s = true
		acquire 1
		sleep 2.4s
		keys = 0`}, // those that the acquire made took the TTL, which is real: all of it is a fifth
	{name: "testRateValue", run: suiteRateValue},
	{name: "testExpire", steps: `
		trySetRate OVERALL 2 5s = true
		tryAcquire 1 = true
		expire 1s = true
		sleep 1.1s
		keys = 0`},
	{name: "testAcquisitionInterval", steps: `
		trySetRate OVERALL 2 5s = true
		tryAcquire 1 = true
		sleep 4s
		tryAcquire 1 = true
		sleep 1.05s
		tryAcquire 1 = true
		tryAcquire 1 = false`}, // the first permit gets no window of its own
	{name: "testRateConfig", steps: `
		trySetRate OVERALL 1 5s = true
		getConfig = OVERALL 1 5000`},
	{name: "testAvailablePermits", steps: `
		trySetRate OVERALL 10 5s = true
		availablePermits = 10
		acquire 1
		sleep 6s
		availablePermits = 10`},
	{name: "testUpdateRateConfig", steps: `
		trySetRate OVERALL 1 5s = true
		setRate OVERALL 2 5s
		getConfig = OVERALL 2 5000`},
	{name: "testPermitsExceeding", steps: `
		trySetRate PER_CLIENT 1 1s = true
		tryAcquire 20 = !exceeds rate
		tryAcquire 1 = true`},
	{name: "testZeroTimeout", steps: `
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
	{name: "testTryAcquire", steps: `
		trySetRate OVERALL 1 5s = true
		tryAcquire 1 1s = true
		tryAcquire 1 1s = false
		tryAcquire 1 = false
		elapsed 1s`},
	{name: "testAcquire", steps: `
		trySetRate OVERALL 1 5s = true
		10 x acquire 1
		tryAcquire 1 = false
		elapsed 45s`},
	{name: "test", steps: `
		trySetRate OVERALL 10 1s = true
		trySetRate OVERALL 20 1s = false` + strings.Repeat(`
		10 x tryAcquire 1 = true
		10 x tryAcquire 1 = false
		sleep 1.05s`, 3)},
	{name: "testRemove", steps: `
		delete = false
		trySetRate OVERALL 5 5m = true
		keys = 1
		tryAcquire 1 = true
		delete = true
		keys = 0`},
	{name: "testConcurrency2", run: suiteConcurrency2},
	{name: "testConcurrency", run: suiteConcurrency},
	{name: "testChangeRate", steps: changedRate(perClient, 10) + changedRate(perClient, 20) + changedRate(overall, 10) + changedRate(overall, 20)},
	{name: "testSetStateArgs", steps: `
		setRateArgs OVERALL 10 1s - true
		acquire 3
		availablePermits = 7
		sleep 1.1s
		acquire 3
		availablePermits = 7`},
	{name: "testSetStateArgsKeepState", steps: three(overall) + `
		setRateArgs OVERALL 20 5s - true
		availablePermits = 17`},
	{name: "testSetStateArgsNotKeepState", steps: three(overall) + `
		setRateArgs OVERALL 20 5s - false
		availablePermits = 20`},
	{name: "testUpdateRateNonExisting", steps: `
		updateRate OVERALL 10 5s - true = false
		isExists = false
		updateRate PER_CLIENT 10 5s - true = false
		isExists = false
		keys = 0`},
	{name: "testUpdateRateKeepsState", steps: `
		setRateArgs OVERALL 10 5s - true
		updateRate OVERALL 10 5s - true = true
		availablePermits = 10
		acquire 2
		availablePermits = 8
		tryAcquire 10 = false
		tryAcquire 8 = true`},
	{name: "testUpdateRateHigherRate", steps: `
		setRateArgs OVERALL 10 2s - true
		sleep 1s
		acquire 4
		availablePermits = 6
		updateRate OVERALL 20 5s - true = true
		availablePermits = 16
		tryAcquire 16 = true`},
	{name: "testUpdateRateLowerRateNewValuePositive", steps: `
		setRateArgs OVERALL 10 2s - true
		sleep 1s
		acquire 3
		availablePermits = 7
		updateRate OVERALL 5 5s - true = true
		availablePermits = 2
		tryAcquire 3 = false
		tryAcquire 2 = true`},
	{name: "testUpdateRateLowerRateNewValueNegative", steps: `
		setRateArgs OVERALL 10 2s - true
		sleep 1s
		acquire 8
		availablePermits = 2
		updateRate OVERALL 5 5s - true = true
		availablePermits = 0
		tryAcquire 1 = false
		tryAcquire 2 = false`},
	{name: "testUpdateRatePermitResetFull", steps: `
		setRateArgs OVERALL 10 1s - true
		acquire 8
		availablePermits = 2
		sleep 2s
		updateRate OVERALL 10 1s - true = true
		availablePermits = 10`},
	{name: "testUpdateRateModeChangeClearsState", steps: three(overall) + `
		updateRate PER_CLIENT 10 5s - true = true
		availablePermits = 10`},
	{name: "testUpdateRateKeepAliveTimeLessThanIntervalThrows", steps: `
		2 x updateRate OVERALL 10 5s 1s true = !invalid argument`},
	{name: "testUpdateRateRateIntervalChangeDropsExpired", steps: three(overall) + `
		sleep 1.1s
		updateRate OVERALL 10 1s - true = true
		availablePermits = 10`},
	{name: "testUpdateRatePerClientUsesClientState", steps: three(perClient) + `
		updateRate PER_CLIENT 20 5s - true = true
		availablePermits = 17`},
	{name: "testRelease", steps: released(perClient) + released(overall)},
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
		2 x release 0 = !invalid argument or null
		availablePermits = 10
		2 x release -1 = !invalid argument`
}

// play does the steps of a scenario, one a line, each on the side whose turn it is: "OPERATION ARGUMENTS = REPLY", or with
// > for a number that is larger. Without a reply the operation returns nothing. "N x" repeats a step. Further steps are
// "sleep DURATION", "keys = N" for the keys of the limiter, and "elapsed DURATION" since the beginning, which is exact if only we
// wait. What only Redisson's client rejects, and no script, is left to us.
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
			time.Sleep(argument(words[1]).(time.Duration))
			continue
		case "keys":
			keys := redistest.Must(s.rdb.Keys(s.Context(), "*"+s.name+"*").Result())(s)
			require.Equal(s, want, strconv.Itoa(len(keys)), steps)
			continue
		case "elapsed":
			late := time.Since(began) - argument(words[1]).(time.Duration)
			if _, alone := s.sides[0].(goSide); alone && len(s.sides) == 1 {
				require.Zero(s, late)
			}
			require.Less(s, late.Abs(), 100*time.Millisecond)
			continue
		}
		for range times {
			who, want := s.turn(), want
			want, byRedisson, differs := strings.Cut(want, " or ")
			if _, ok := who.(scriptSide); ok && differs {
				want = byRedisson
			} else if ok && want == invalidArgument {
				continue
			}
			var args []any
			for _, w := range words[1:] {
				args = append(args, argument(w))
			}
			got := who.do(words[0], s.name, args...)
			if larger {
				require.Greater(s, redistest.Must(strconv.Atoi(got))(s), redistest.Must(strconv.Atoi(least))(s), line)
			} else {
				require.Equal(s, cmp.Or(want, "null"), got, "%T: %s", who, line)
			}
		}
	}
}

// argument returns a word of a step as an argument of an operation.
func argument(word string) any {
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
