// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// Guava counts in doubles and truncates each wait to whole µs. This is the same arithmetic, operation by
// operation, as in Guava since 23.2. Each product is converted to float64, so that no compiler fuses it with
// a sum.

// A guava has the parameters that both of Guava's limiters are computed from.
type guava struct {
	stable    float64 // µs between two permits at the rate
	most      float64 // permits that can be stored
	coolDown  float64 // µs of not being used that store one
	threshold float64 // stored permits above which taking them takes longer: the warm-up
	below     float64 // µs that each of the others takes: 0 of a SmoothBursty
	slope     float64 // µs by which each permit above the threshold takes longer
}

// model returns the model of both.
func (g guava) model() calls.Model {
	return calls.Model{
		Script: smoothScript, Parameters: []any{g.stable, g.most, g.coolDown, g.threshold, g.below, g.slope}, Largest: g.largest(), Reserves: true,
		Idle:   func() calls.State { return &guavaState{guava: g, stored: g.most} },
		Stored: g.text,
	}
}

// carries reports whether the fraction of a µs is carried over to the next call instead of truncated.
func (g guava) carries() bool { return g.stable < leastStable }

// whole returns us, truncated unless the fraction is carried over.
func (g guava) whole(us float64) float64 {
	if g.carries() {
		return us
	}
	return math.Trunc(us)
}

// leastStable bounds the share of Guava's truncation, which is up to 2 µs a call, in the time of a permit. The
// scripts have the same number.
const leastStable = 10

// checkGuava returns an error that names the field that is out of its range: PermitsPerSecond, or the one of d.
func checkGuava(permitsPerSecond float64, field string, d time.Duration) error {
	if !(permitsPerSecond > 0) || 1e6/permitsPerSecond > calls.Longest.Seconds()*1e6 || permitsPerSecond > calls.MaxPermits {
		return calls.Invalid("PermitsPerSecond %v is not between one a year and %d", permitsPerSecond, int64(calls.MaxPermits))
	}
	if d <= 0 || d%time.Microsecond != 0 || d > calls.Longest {
		return calls.Invalid("%s %v is not a positive number of microseconds of at most a year", field, d)
	}
	return nil
}

// largest returns the most permits that one call can ask for: the wait of the next is still exact.
func (g guava) largest() int64 { return int64(min(calls.MaxPermits, calls.MaxExact/4/g.stable)) }

// bound returns the most permits in w µs: the stored ones that cost no time, what the rate brings, and the n of
// the last call. By truncation each permit may come up to lost µs early; where the fraction is carried over,
// all of them together less than 1 µs.
func (g guava) bound(w, n int64, stored, lost float64) int64 {
	if w <= 0 {
		return 0
	}
	if g.carries() {
		w, lost = w+1, 0
	}
	most := ((float64(n)+stored)*g.stable + float64(w-1)) / (g.stable - lost)
	return saturated(most + 1e-6) // more than the rounding of the doubles
}

// text returns the state that a reply describes: the permits, two instants and the fraction.
func (g guava) text(text string) (calls.State, bool) {
	words := strings.Split(text, " ")
	if len(words) != 4 {
		return nil, false
	}
	stored, err := strconv.ParseFloat(words[0], 64)
	next, err2 := strconv.ParseInt(words[1], 10, 64)
	at, err3 := strconv.ParseInt(words[2], 10, 64)
	part, err4 := strconv.ParseFloat(words[3], 64)
	return &guavaState{guava: g, stored: min(stored, g.most), next: next, at: at, part: part},
		err == nil && err2 == nil && err3 == nil && err4 == nil
}

type guavaState struct {
	guava
	stored   float64
	next, at int64   // the instant of the next free ticket; that of the last call
	part     float64 // the fraction of a µs that belongs to next
}

func (s *guavaState) Take(q calls.Demand, _ calls.Epoch) calls.Decision {
	next, back := *s, q.Now < s.at
	if back {
		next.next -= s.at - q.Now // the clock was put back; what is owed stays the same
	}
	next.at = q.Now
	if q.Now > next.next {
		next.stored = min(s.most, next.stored+(float64(q.Now-next.next)-next.part)/s.coolDown)
		next.next, next.part = q.Now, 0
	}
	turn := next.next - q.Now
	d := calls.Decision{Granted: turn <= q.AtMost, Wait: turn}
	if !d.Granted {
		d.Wait = turn - q.AtMost
	} else if q.Spend {
		spent := min(float64(q.N), next.stored)
		us := next.part + s.storedWait(next.stored, spent) + s.whole(float64((float64(q.N)-spent)*s.stable))
		next.next += int64(us)
		next.part = us - math.Trunc(us)
		next.stored -= spent
	}
	if next.next-q.Now <= q.AtMost {
		d.Remaining = s.largest() // the call after it waits for them
	}
	d.Reset = next.next - q.Now + int64(math.Ceil(next.part+float64((s.most-next.stored)*s.coolDown)))
	if back || q.Spend && d.Granted {
		*s = next
	}
	return d
}

// storedWait returns how long it takes to take that many of the stored permits, in µs.
func (g guava) storedWait(stored, taken float64) float64 {
	us, above := 0., stored-g.threshold
	if above > 0 {
		fromAbove := min(above, taken)
		length := g.permitTime(above) + g.permitTime(above-fromAbove)
		us = g.whole(float64(fromAbove*length) / 2)
		taken -= fromAbove
	}
	return us + g.whole(float64(g.below*taken))
}

func (g guava) permitTime(above float64) float64 { return g.stable + float64(above*g.slope) }
