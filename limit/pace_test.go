// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A pace is the rate itself or slower by at most a billionth, and the numbers of a state of so many permits are exact.
// Up to two million permits that come in within 140 years there always is one: of the fractions whose denominator is at most n the
// nearest one is lower by less than 2/n of the rate, and n is 2^52 by so many permits.
func TestPace(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := per(rapid.Int64Range(1, calls.MaxPermits).Draw(rt, "permits"), micros(rapid.Int64Range(1, calls.Longest.Microseconds()).Draw(rt, "interval")))
		permits := rapid.Int64Range(1, calls.MaxPermits).Draw(rt, "held")
		if rapid.Bool().Draw(rt, "few") {
			permits = rapid.Int64Range(1, int64(min(calls.MaxPermits, 140*float64(r.Permits)*float64(calls.Longest.Microseconds())/float64(microsOf(r))+1))).Draw(rt, "fewer")
		}
		p, ok := paceOf(r, permits)
		if !ok {
			years := float64(permits) * float64(microsOf(r)) / float64(r.Permits) / float64(calls.Longest.Microseconds())
			require.True(rt, permits > 2_000_000 || years > 140, "%d at %v, %v years", permits, r, years)
			return
		}
		rate, got := big.NewRat(r.Permits, microsOf(r)), big.NewRat(p.flow, p.cost)
		require.LessOrEqual(rt, got.Cmp(rate), 0, "%v is faster than %v", p, r)
		slack, _ := new(big.Rat).Quo(new(big.Rat).Sub(rate, got), rate).Float64()
		require.LessOrEqual(rt, slack, 1e-9, "%v of %v", p, r)
		require.InDelta(rt, slack, p.slack(r), 1e-18)
		sum := new(big.Int).Add(new(big.Int).Mul(big.NewInt(permits), big.NewInt(p.cost)), big.NewInt(p.flow))
		require.LessOrEqual(rt, sum.Cmp(big.NewInt(calls.MaxExact)), 0)
		if g := gcd(r.Permits, microsOf(r)); microsOf(r)/g <= calls.MaxExact/(permits+r.Permits/microsOf(r)+2) {
			require.Zero(rt, got.Cmp(rate), "%v could be exact", r)
		}
	})
}

// A capacity that takes more than about 140 years to come in is too large, however small it is, and one of more than two million
// where no rate is near enough.
func TestLargestCapacitiesAtLowRates(t *testing.T) {
	for _, c := range []struct {
		a       func(capacity int64) Algorithm
		largest int64
	}{
		{func(n int64) Algorithm { return TokenBucket{per(1, calls.Longest), n} }, 141},
		{func(n int64) Algorithm { return LeakyQueue{per(1, calls.Longest), n} }, 141},
		{func(n int64) Algorithm { return IntervalBucket{per(1, calls.Longest), n} }, 142},
		{func(n int64) Algorithm { return GCRA{per(150, calls.Longest), n} }, 21420},
		{func(n int64) Algorithm { return GCRA{per(1, longestInterval), n} }, 1},
		{func(n int64) Algorithm { return GCRA{per(8, micros(6_442_450_945)), n} }, 2_796_200}, // 71 years
	} {
		require.NoError(t, c.a(c.largest).check())
		require.ErrorIs(t, c.a(c.largest+1).check(), ratelimiter.ErrInvalidArgument)
	}
}

func TestNearestBelow(t *testing.T) {
	for n := int64(1); n < 40; n++ {
		for d := int64(1); d < 40; d++ {
			for most := int64(1); most < 20; most++ {
				best := big.NewRat(0, 1)
				for q := int64(1); q <= most; q++ {
					if r := big.NewRat(n*q/d, q); r.Cmp(best) > 0 {
						best = r
					}
				}
				p, q := nearestBelow(n, d, most)
				require.LessOrEqual(t, q, most)
				require.Zero(t, best.Cmp(big.NewRat(p, q)), "%d/%d up to %d: %v, not %d/%d", n, d, most, best, p, q)
			}
		}
	}
}

func TestMulDiv(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		any := rapid.Int64Range(0, math.MaxInt64)
		a, b, c := any.Draw(rt, "a"), any.Draw(rt, "b"), max(1, any.Draw(rt, "c"))
		product := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		want, rest := new(big.Int).QuoRem(product, big.NewInt(c), new(big.Int))
		q, r := mulDiv(a, b, c)
		if !want.IsInt64() {
			require.EqualValues(rt, math.MaxInt64, q)
			return
		}
		require.Equal(rt, want.Int64(), q)
		require.Equal(rt, rest.Int64(), r)
	})
}

// The bound of a long window at a high rate is the largest int64, and not negative.
func TestBoundsDoNotOverflow(t *testing.T) {
	for kind, a := range atRate(per(calls.MaxPermits-1, time.Microsecond)) {
		if kind == "smooth bursty" || kind == "smooth warming up" {
			continue // 2^32-1 a second at most
		}
		require.EqualValues(t, math.MaxInt64, a.bound(math.MaxInt64, 1), kind)
		require.Positive(t, a.bound(time.Hour, 1), kind)
	}
	for kind, a := range atRate(per(calls.MaxPermits-1, time.Second)) {
		require.Greater(t, a.bound(math.MaxInt64, 1), int64(1e18), kind)
	}
}
