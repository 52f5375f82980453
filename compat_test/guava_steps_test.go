// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/limit"
)

// guavaSteps can be read as documentation: it lists the replies of Guava, which are also ours. A shared limiter
// begins with all the permits that it can store, where Guava's bursty one begins with none; it takes part where idle
// makes the two equal.
var guavaSteps = []struct {
	about     string
	algorithm limit.Algorithm
	idle      time.Duration // from the creation to the first request
	steps     []guavaStep
}{
	{"a call passes at once, and the next waits for it", bursty(1, time.Second), 0, []guavaStep{
		{0, guavaAcquire, 1, 0, true, 0},
		{0, guavaAcquire, 1, 0, true, time.Second},
		{0, guavaAcquire, 100, 0, true, time.Second},
		{0, guavaAcquire, 1, 0, true, 100 * time.Second},
	}},
	{"each wait is truncated to whole microseconds", bursty(3, time.Second), 0, []guavaStep{
		{0, guavaReserve, 1, 0, true, 0},
		{0, guavaReserve, 1, 0, true, us(333_333)},
		{0, guavaReserve, 7, 0, true, us(666_666)},
		{0, guavaReserve, 1, 0, true, us(2_999_999)},
		{0, guavaTryReserve, 1, 0, false, us(3_333_332)},
	}},
	{"a second's worth is stored, and costs no time", bursty(5, time.Second), time.Hour, []guavaStep{
		{0, guavaAcquire, 1, 0, true, 0},
		{0, guavaAcquire, 4, 0, true, 0},
		{0, guavaAcquire, 1, 0, true, 0},
		{0, guavaAcquire, 1, 0, true, us(200_000)},
		{us(500_000), guavaAcquire, 1, 0, true, 0},     // 1.5 permits are stored
		{0, guavaAcquire, 1, 0, true, 0},               // half a permit is stored, and half is new
		{0, guavaAcquire, 1, 0, true, us(100_000)},     // this request waits for that half
		{us(199_999), guavaAcquire, 1, 0, true, us(1)}, // too early by a microsecond
	}},
	{"a burst of ten seconds", bursty(0.5, 10*time.Second), time.Minute, []guavaStep{
		{0, guavaTryReserve, 5, 0, true, 0},
		{0, guavaTryReserve, 1, 0, true, 0},
		{0, guavaTryReserve, 1, 0, false, 2 * time.Second},
	}},
	{"of 1.118 s the nearest double counts: 882 ms are missing, less a trifle", bursty(1, 1118*time.Millisecond), time.Minute, []guavaStep{
		{0, guavaReserve, 2, 0, true, 0},
		{0, guavaReserve, 1, 0, true, us(881_999)},
	}},
	{"a try succeeds when its turn is within the timeout, to the microsecond", bursty(5, time.Second), 0, []guavaStep{
		{0, guavaTryAcquire, 3, 0, true, 0},
		{0, guavaTryAcquire, 1, us(599_999), false, 0},
		{0, guavaTryReserve, 1, us(599_999), false, us(1)},
		{0, guavaTryAcquire, 1, us(600_000), true, us(600_000)},
		{us(199_999), guavaTryAcquire, 1, -time.Second, false, 0},
		{us(1), guavaTryAcquire, 1, -time.Second, true, 0},
		{0, guavaTryReserve, 1, us(199_999), false, us(1)},
		{0, guavaTryReserve, 1, us(200_000), true, us(200_000)},
	}},
	{"a try does not look at how many: it passes, and the next ones pay", bursty(10, time.Second), time.Minute, []guavaStep{
		{0, guavaTryAcquire, 1_000_010, 0, true, 0},
		{0, guavaTryAcquire, 1, time.Hour, false, 0},
		{24 * time.Hour, guavaTryAcquire, 1, 0, false, 0},
		{0, guavaTryAcquire, 1, 4 * time.Hour, true, 13_600 * time.Second},
	}},
	{"cold, a permit takes three times as long, and warm, after the warm-up, its time", warming(2, 4*time.Second, 3), 0, []guavaStep{
		{0, guavaAcquire, 1, 0, true, 0},
		{0, guavaAcquire, 1, 0, true, us(1_375_000)},
		{0, guavaAcquire, 1, 0, true, us(1_125_000)},
		{0, guavaAcquire, 1, 0, true, us(875_000)},
		{0, guavaAcquire, 1, 0, true, us(625_000)},
		{0, guavaAcquire, 1, 0, true, us(500_000)},
		{us(2_500_000), guavaAcquire, 6, 0, true, 0}, // 2 s unused: 4 more permits, 6 in all
		{0, guavaAcquire, 1, 0, true, us(3_500_000)}, // 1.5 s for the 2 above the threshold, 2 s for the 4 below it
	}},
	{"a cold factor of ten", warming(5, 4*time.Second, 10), 0, []guavaStep{
		{0, guavaAcquire, 1, 0, true, 0},
		{0, guavaAcquire, 1, 0, true, us(1_752_500)},
		{0, guavaAcquire, 1, 0, true, us(1_257_500)},
		{0, guavaAcquire, 1, 0, true, us(762_500)},
		{0, guavaAcquire, 1, 0, true, us(300_227)},
		{0, guavaAcquire, 1, 0, true, us(200_000)},
	}},
}

type guavaStep struct {
	gap     time.Duration
	call    string
	permits int64
	timeout time.Duration
	granted bool
	wait    time.Duration // as in guavaAnswer
}

func bursty(rate float64, burst time.Duration) limit.SmoothBursty {
	return limit.SmoothBursty{PermitsPerSecond: rate, MaxBurst: burst}
}

func warming(rate float64, warmup time.Duration, cold float64) limit.SmoothWarmingUp {
	return limit.SmoothWarmingUp{PermitsPerSecond: rate, Warmup: warmup, ColdFactor: cold}
}

func us(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// TestGuavaSteps checks that Guava, the local limiter and the shared one give the replies of the table.
func TestGuavaSteps(t *testing.T) {
	var plays []guavaPlay
	var want [][]guavaAnswer
	var full []bool
	for _, s := range guavaSteps {
		p, answers := guavaPlay{algorithm: s.algorithm}, []guavaAnswer(nil)
		for i, step := range s.steps {
			if i == 0 {
				step.gap += s.idle
			}
			p.asks = append(p.asks, guavaAsk{step.gap, step.call, step.permits, step.timeout})
			answers = append(answers, guavaAnswer{step.granted, step.wait})
		}
		_, isBursty := s.algorithm.(limit.SmoothBursty)
		plays, want, full = append(plays, p), append(want, answers), append(full, s.idle > 0 || !isBursty)
	}
	check := func(t *testing.T, side string, i int, got []guavaAnswer) {
		t.Helper()
		for k, ask := range plays[i].asks {
			require.Equal(t, want[i][k], got[k], "%s: %s: request %d, %v", guavaSteps[i].about, side, k, ask)
		}
	}
	for _, j := range guavaJars(t) {
		for i, got := range j.play(t, plays) {
			check(t, "Guava "+j.version, i, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for i, p := range plays {
			check(t, "local", i, playLocal(t, p))
		}
	})
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		name := redistest.Key(t)
		for i, p := range plays {
			if full[i] {
				check(t, "shared", i, playShared(t, rdb, name, i, p))
			}
		}
	})
}

// TestGuavaDefaults checks that the numbers of the comparison are those with which RateLimiter.create makes a
// limiter.
func TestGuavaDefaults(t *testing.T) {
	for _, j := range guavaJars(t) {
		require.Equal(t, []string{"1.0 3.0"}, j.say(t, "defaults\n"), "Guava %s: a burst of a second, a cold factor of 3", j.version)
	}
}
