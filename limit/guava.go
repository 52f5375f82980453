package limit

import (
	"math"
	"time"
)

// Guava counts in doubles and truncates each wait to whole µs; this is that arithmetic, operation for
// operation, as it is since 23.2. Products are converted one by one, so that no compiler fuses them with
// a sum.
//
// Where a permit takes less than leastStable µs the truncation would let far more through than the rate,
// and everything from a permit a µs on. There nothing is truncated: what is below a µs is carried to the
// next call.

// A guava is the numbers that both of Guava's limiters are made of.
type guava struct {
	stable    float64 // µs between two permits at the rate
	most      float64 // permits that can be stored
	coolDown  float64 // µs of not being used that store one
	threshold float64 // stored permits above which taking them takes longer: the warm-up
	slope     float64 // µs by which each permit above it takes longer; 0 when stored ones are free
	warms     bool
}

// carries reports whether what is below a µs is carried to the next call, and not truncated.
func (g guava) carries() bool { return g.stable < leastStable }

// whole returns us as it is taken into account.
func (g guava) whole(us float64) float64 {
	if g.carries() {
		return us
	}
	return math.Trunc(us)
}

// leastStable keeps Guava's truncation, up to 2 µs a call, a small part of each permit's time. The scripts
// have the same number.
const leastStable = 10

// longest is how far ahead a reservation can be: beyond it instants would not be exact in Lua.
const longest = 365 * 24 * time.Hour

func checkGuava(permitsPerSecond float64, what string, d time.Duration) error {
	if !(permitsPerSecond > 0) || 1e6/permitsPerSecond > longest.Seconds()*1e6 {
		return invalid("%v permits per second are fewer than one a year", permitsPerSecond)
	}
	if permitsPerSecond > maxPermits {
		return invalid("%v permits per second are more than %d", permitsPerSecond, int64(maxPermits))
	}
	if d <= 0 || d%time.Microsecond != 0 || d > longest {
		return invalid("%s %v is not a positive number of microseconds of at most a year", what, d)
	}
	return nil
}

// largest is the most permits a call can ask, so that the wait of the next is exact.
func (g guava) largest() int64 { return int64(min(maxPermits, maxExact/4/g.stable)) }

// bound is the most in w µs. Stored permits that are free come first, then the flow; the last call
// may be n ahead; and each call may be let in up to lost µs too early, by truncation. Where that is
// carried, all of them together may be let in less than a µs too early.
func (g guava) bound(w, n int64, stored, lost float64) int64 {
	if w <= 0 {
		return 0
	}
	if g.carries() {
		w, lost = w+1, 0
	}
	most := ((float64(n)+stored)*g.stable + float64(w-1)) / (g.stable - lost)
	return saturated(most + 1e-6) // more than the doubles are off
}

func (g guava) idle() *guavaState { return &guavaState{guava: g, stored: g.most} }

type guavaState struct {
	guava
	stored   float64
	next, at int64   // the next free ticket; the instant of the last call
	part     float64 // what the ticket is later than next, less than a µs
}

func (s *guavaState) take(q request) decision {
	next, back := *s, q.now < s.at
	if back {
		next.next -= s.at - q.now // the clock was put back: what is owed stays as it was
	}
	next.at = q.now
	if q.now > next.next {
		next.stored = min(s.most, next.stored+(float64(q.now-next.next)-next.part)/s.coolDown)
		next.next, next.part = q.now, 0
	}
	turn := next.next - q.now
	d := decision{granted: turn <= q.atMost, wait: turn}
	if !d.granted {
		d.wait = turn - q.atMost
	} else if q.spend {
		spent := min(float64(q.n), next.stored)
		us := next.part + s.storedWait(next.stored, spent) + s.whole(float64((float64(q.n)-spent)*s.stable))
		next.next += int64(us)
		next.part = us - math.Trunc(us)
		next.stored -= spent
	}
	if next.next-q.now <= q.atMost {
		d.remaining = s.largest() // whoever comes next pays
	}
	d.reset = next.next - q.now + int64(math.Ceil(next.part+float64((s.most-next.stored)*s.coolDown)))
	if q.spend && (d.granted || back) {
		*s = next
	}
	return d
}

// storedWait is how long taking that many of the stored permits takes, in µs.
func (g guava) storedWait(stored, taken float64) float64 {
	if !g.warms {
		return 0
	}
	us, above := 0., stored-g.threshold
	if above > 0 {
		fromAbove := min(above, taken)
		length := g.permitTime(above) + g.permitTime(above-fromAbove)
		us = g.whole(float64(fromAbove*length) / 2)
		taken -= fromAbove
	}
	return us + g.whole(float64(g.stable*taken))
}

func (g guava) permitTime(above float64) float64 { return g.stable + float64(above*g.slope) }
