package limit

import (
	"math"
	"math/bits"
)

// A pace is a rate counted in parts of a permit, so that the arithmetic on it is in whole numbers: that
// many parts flow in a microsecond, and a permit costs that many. At 3 permits a second 3 parts flow and a
// permit costs a million.
type pace struct{ flow, cost int64 }

// leastAccuracy is how much slower than its rate a pace may be, as a share of the rate.
const leastAccuracy = 1e-9

// pace returns the rate as a pace by which a state of up to that many permits is counted exactly. It is the
// rate itself where the parts of so many permits are at most 2^52, and otherwise the nearest that is
// slower. It reports false where that is slower by more than leastAccuracy.
func (r Rate) pace(permits int64) (pace, bool) {
	divisor := gcd(r.Permits, r.micros())
	p := pace{r.Permits / divisor, r.micros() / divisor}
	if p.exact(permits) {
		return p, true
	}
	p.flow, p.cost = nearestBelow(p.flow, p.cost, maxExact/(permits+ceilDiv(p.flow, p.cost)+1))
	return p, p.flow > 0 && p.exact(permits) && r.slack(p) <= leastAccuracy
}

// exact reports whether the parts of that many permits, and those that flow in a microsecond, are at most
// 2^52.
func (p pace) exact(permits int64) bool { return permits+(p.flow-1)/p.cost+1 <= maxExact/p.cost }

// slack returns by which share p is slower than the rate.
func (r Rate) slack(p pace) float64 {
	high, low := bits.Mul64(uint64(r.Permits), uint64(p.cost))
	high2, low2 := bits.Mul64(uint64(p.flow), uint64(r.micros()))
	low, borrow := bits.Sub64(low, low2, 0)
	high, _ = bits.Sub64(high, high2, borrow)
	return (float64(high)*(1<<32)*(1<<32) + float64(low)) / (float64(r.Permits) * float64(p.cost))
}

// most returns the most that is granted in a window of w µs by who holds that many permits and gets what
// flows in meanwhile.
func (p pace) most(held, w int64) int64 {
	if w <= 0 {
		return 0
	}
	whole, rest := mulDiv(w, p.flow, p.cost)
	if rest == 0 {
		whole--
	}
	return plus(held, whole)
}

// numbers returns what the scripts that count in parts are told: the flow, the cost, and permits in parts.
func (p pace) numbers(permits int64) []any { return []any{p.flow, p.cost, permits * p.cost} }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// nearestBelow returns the largest fraction that is at most n/d and has a denominator of at most most. The
// two bounds of the Stern-Brocot tree close in on n/d; above and below are how far they are off it, times
// their denominator and d.
func nearestBelow(n, d, most int64) (int64, int64) {
	lowN, lowD, below := int64(0), int64(1), n
	highN, highD, above := int64(1), int64(0), d
	for {
		steps := below / above
		if highD > 0 {
			steps = min(steps, (most-lowD)/highD)
		}
		lowN, lowD, below = lowN+steps*highN, lowD+steps*highD, below-steps*above
		if below == 0 || lowD+highD > most {
			return lowN, lowD
		}
		steps = min((above-1)/below, (most-highD)/lowD)
		highN, highD, above = highN+steps*lowN, highD+steps*lowD, above-steps*below
		if lowD+highD > most {
			return lowN, lowD
		}
	}
}

// mulDiv returns a × b / c, rounded down, and the rest. What an int64 cannot hold is its largest number.
func mulDiv(a, b, c int64) (quotient, rest int64) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return math.MaxInt64, 0
	}
	q, r := bits.Div64(high, low, uint64(c))
	return int64(min(q, math.MaxInt64)), int64(r)
}

// times and plus are the product and the sum of what is not negative, or the largest int64.
func times(a, b int64) int64 {
	product, _ := mulDiv(a, b, 1)
	return product
}

func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// saturated returns f, which is not negative, rounded down, or the largest int64.
func saturated(f float64) int64 {
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(f)
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
