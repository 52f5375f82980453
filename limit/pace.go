// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"math"
	"math/bits"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// A pace is a rate in parts of a permit, so that all arithmetic is on whole numbers: flow parts come in each
// microsecond, and a permit is cost parts. At 3 permits a second 3 parts come in, and a permit is a million.
type pace struct{ flow, cost int64 }

// maxSlack is by how much a pace may be slower than its rate, as a fraction of the rate.
const maxSlack = 1e-9

// paceOf returns the pace of a limiter at a rate whose state holds up to that many permits. It is the rate itself if so
// many permits are at most 2^52 parts, and otherwise the nearest lower rate at which they are. It reports
// false if that is lower by more than maxSlack.
func paceOf(r ratelimiter.Rate, permits int64) (pace, bool) {
	divisor := gcd(r.Permits, microsOf(r))
	p := pace{r.Permits / divisor, microsOf(r) / divisor}
	if p.exact(permits) {
		return p, true
	}
	p.flow, p.cost = nearestBelow(p.flow, p.cost, calls.MaxExact/(permits+ceilDiv(p.flow, p.cost)+1))
	return p, p.flow > 0 && p.exact(permits) && p.slack(r) <= maxSlack
}

// onlyPace returns a pace that was checked before.
func onlyPace(p pace, _ bool) pace { return p }

// exact reports whether that many permits and what comes in within a microsecond are at most 2^52 parts.
func (p pace) exact(permits int64) bool { return permits+(p.flow-1)/p.cost+1 <= calls.MaxExact/p.cost }

// slack returns by how much p, which is no faster, is slower than a rate, as a fraction of it.
func (p pace) slack(r ratelimiter.Rate) float64 {
	high, low := bits.Mul64(uint64(r.Permits), uint64(p.cost))
	high2, low2 := bits.Mul64(uint64(p.flow), uint64(microsOf(r)))
	low, borrow := bits.Sub64(low, low2, 0)
	high, _ = bits.Sub64(high, high2, borrow)
	return (float64(high)*(1<<32)*(1<<32) + float64(low)) / (float64(r.Permits) * float64(p.cost))
}

// most returns the most permits that a limiter grants in a window of w µs if it holds that many at its
// beginning.
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

// parts returns the parts that a settlement takes, no more than 2^53, or gives back if it is negative. It raises what was
// given back in the epoch.
func (p pace) parts(now int64, x *calls.Settlement, given *int64, e *calls.Epoch, id calls.Epoch) int64 {
	if x.By >= 0 {
		return min(times(x.By, p.cost), 2*calls.MaxExact)
	}
	if !x.Mark.Of(*e) {
		return 0
	}
	parts := p.giveBack(now, x, *given)
	if *given += ceilDiv(parts, p.flow); *given > calls.MaxExact {
		*given, *e = 0, id
	}
	return -parts
}

// giveBack returns how many parts of a grant that is settled to less come back to a bucket. It is no more than have not come in
// for it since, so that the bucket is as full as if they had never been taken, and not fuller. What it lacks is the queue of
// docs/design/limit.md: right after the grant its end is where the lack ends, and it moves forward by what comes in, and by
// what is given back of grants before it. That is no more than those lacked, and no more than was given back since.
func (p pace) giveBack(now int64, x *calls.Settlement, given int64) int64 {
	m := &x.Mark
	before := min(times(given-m.Given, p.flow), m.Owed-x.Permits*p.cost)
	return max(0, min(times(-x.By, p.cost), m.Owed-before-times(max(0, now-m.From), p.flow)))
}

// parameters returns those of the scripts that count in parts: the flow, the cost, and the permits in parts.
func (p pace) parameters(permits int64) []any { return []any{p.flow, p.cost, permits * p.cost} }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// nearestBelow returns the largest fraction that is at most n/d and whose denominator is at most most. It
// descends the Stern-Brocot tree, many steps at once. The bounds are lowN/lowD <= n/d < highN/highD; below and
// above are their differences from n/d, multiplied by both denominators.
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

// mulDiv returns a × b / c, rounded down, and the remainder; the largest int64 if the quotient is larger.
func mulDiv(a, b, c int64) (quotient, rest int64) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return math.MaxInt64, 0
	}
	q, r := bits.Div64(high, low, uint64(c))
	return int64(min(q, math.MaxInt64)), int64(r)
}

// times and plus return the product and the sum of numbers that are not negative, or the largest int64.
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

// saturated returns f, which is not negative, rounded down; the largest int64 if f is larger.
func saturated(f float64) int64 {
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(f)
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
