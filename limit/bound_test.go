// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/proptest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/stretchr/testify/require"
)

// TestBoundIsTheLeast tests that random traffic, at an interval of a dozen microseconds, reaches the bound of each
// window and never exceeds it. With a bound that is too large every check would pass.
func TestBoundIsTheLeast(t *testing.T) {
	redistest.NoServer(t)
	redistest.NoRace(t, "one goroutine calculates")
	interval := micros(12)
	for kind, c := range map[string]struct {
		a     Algorithm
		n     int64
		loose int64 // by how much the bound may be more than what is reached
	}{
		"fixed window":         {FixedWindow{per(4, interval)}, 1, 0},
		"fixed window of one":  {FixedWindow{per(1, interval)}, 1, 0},
		"sliding log":          {SlidingLog{per(4, interval)}, 2, 0},
		"sliding counter":      {SlidingCounter{per(4, interval)}, 1, 0},
		"interval bucket":      {IntervalBucket{per(2, interval), 5}, 1, 0},
		"interval bucket, low": {IntervalBucket{per(5, interval), 2}, 1, 0},
		"token bucket":         {TokenBucket{per(5, interval), 3}, 1, 0},
		"token bucket of one":  {TokenBucket{per(7, interval), 1}, 1, 0},
		"debt bucket":          {DebtBucket{per(5, interval), 2, 3}, 5, 0},
		"debt bucket, low":     {DebtBucket{per(5, interval), 2, 3}, 2, 0},
		"gcra":                 {GCRA{per(5, interval), 3}, 2, 0},
		"leaky queue":          {LeakyQueue{per(5, interval), 4}, 1, 0},
		"leaky queue of two":   {LeakyQueue{per(5, interval), 4}, 2, 0},
		"token bucket, fast":   {TokenBucket{per(7, micros(3)), 3}, 2, 0},
		"debt bucket, fast":    {DebtBucket{per(7, micros(3)), 3, 2}, 5, 0},
		"gcra, fast":           {GCRA{per(5, micros(2)), 3}, 1, 0},
		"leaky queue, fast":    {LeakyQueue{per(7, micros(3)), 4}, 1, 0},
		"fixed window, fast":   {FixedWindow{per(7, micros(3))}, 1, 0},
		"smooth bursty, fast":  {SmoothBursty{2_300_000, micros(4)}, 2, 2},
		"warming up, fast":     {SmoothWarmingUp{PermitsPerSecond: 2_300_000, Warmup: micros(6)}, 2, 4},
		"smooth bursty":        {SmoothBursty{90_000, micros(40)}, 2, 2},
		"smooth warming up":    {SmoothWarmingUp{PermitsPerSecond: 90_000, Warmup: micros(100)}, 2, 3},
	} {
		t.Run(kind, func(t *testing.T) {
			const longest, steps = 40, 200_000
			most := [longest + 1]int64{}
			random := proptest.Rand(t)
			s, now := c.a.model().Idle(), int64(1000)
			grants, newest := [longest]int64{}, now // by instant modulo longest, up to the newest
			note := func(at, n int64) {
				for ; newest < at; newest++ {
					grants[(newest+1)%longest] = 0
				}
				grants[at%longest] += n
				sum := int64(0)
				for w := int64(1); w <= longest; w++ {
					sum += grants[(at-w+1)%longest]
					most[w] = max(most[w], sum)
				}
			}
			calm := 0                // now and then nobody asks for a while, or everybody asks at once
			reached := func() bool { // some windows are full only after traffic that is rare
				for w := range most {
					if most[w]+c.loose < c.a.bound(micros(int64(w)), c.n) {
						return false
					}
				}
				return true
			}
			for i := 0; i < steps || i < 50*steps && (i%steps != 0 || !reached()); i++ {
				if calm--; calm < 0 {
					calm = random.IntN(30)
					if strings.HasSuffix(kind, ", fast") {
						calm *= 8
					}
					now += random.Int64N(30)
				}
				q := calls.Demand{Now: now, N: 1 + random.Int64N(c.n), Spend: true}
				if c.a.model().Reserves && random.IntN(2) == 0 {
					q.AtMost = random.Int64N(8)
				}
				q.N = min(q.N, c.a.model().Largest)
				if d := s.Take(q, calls.Epoch{}); d.Granted {
					if d.Wait == 0 || now+d.Wait-newest < longest {
						note(max(now+d.Wait, newest), q.N)
					}
				} else if random.IntN(3) > 0 {
					now++
				}
			}
			for w := int64(1); w <= longest; w++ {
				bound := c.a.bound(micros(w), c.n)
				require.LessOrEqual(t, most[w], bound, "in %d µs", w)
				require.GreaterOrEqual(t, most[w]+c.loose, bound, "in %d µs", w)
			}
			require.Zero(t, c.a.bound(0, c.n))
		})
	}
}
