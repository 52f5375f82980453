// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"math"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// A GCRA is the generic cell rate algorithm: the leaky bucket as a meter, which grants or rejects and delays no
// call. It remembers what it has granted that would not have flowed out yet at the rate, as of the last grant.
//
// Bound: fewer than Burst + Rate × window in any window, as [Bound] has it. A [TokenBucket] is the same limiter by another name: the two
// share their permits if their names, rates and bursts are equal.
//
// It does not promise the rate in every window of one interval.
//
// Source: ITU-T I.371, as explained in https://dotat.at/@/2024-08-30-gcra.html.
type GCRA struct {
	Rate  ratelimiter.Rate
	Burst int64
}

var gcraScript = calls.Load(scriptFiles, "gcra", 1, 8)

func (a GCRA) bound(window time.Duration, _ int64) int64 { return a.bucket().bound(window, 0) }

func (a GCRA) check() error { return checkPace(a.Rate, "Burst", a.Burst) }

func (a GCRA) model() calls.Model { return a.bucket().model() }

// bucket returns the bucket that lends nothing, which a is.
func (a GCRA) bucket() DebtBucket { return DebtBucket{Rate: a.Rate, Burst: a.Burst} }

// A backlog is what was granted and has not flowed out yet, in parts.
type backlog struct {
	pace
	full  int64
	at    int64 // when it was that much
	ahead int64 // in parts of its own
	its   pace  // by which it flows out: that of the last grant
}

func newBacklog(p pace, permits int64) backlog {
	return backlog{pace: p, its: p, full: permits * p.cost}
}

// see makes s the backlog as of now, and reports whether the clock was put back: then what has not flowed out stays the same.
func (s *backlog) see(now int64) (back bool) {
	back = now < s.at
	s.ahead = max(0, s.ahead-times(max(0, now-s.at), s.its.flow))
	s.at = now
	return back
}

// put makes s that many parts of the size and the flow that this limiter has.
func (s *backlog) put(ahead int64) { s.ahead, s.its = ahead, s.pace }

// reset returns how long it is until all has flowed out.
func (s *backlog) reset() int64 { return ceilDiv(s.ahead, s.its.flow) }

// restated returns parts × to / from, rounded up, and no more than maxExact. The script has the same arithmetic.
func restated(parts, to, from int64) int64 {
	if to == from {
		return parts
	}
	product := float64(parts) * float64(to)
	if product <= 2*calls.MaxExact {
		return min(ceilDiv(parts*to, from), calls.MaxExact)
	}
	return int64(min(math.Ceil(float64(product/float64(from))*(1+1./(1<<50))), calls.MaxExact))
}

// A gcra is the state of a GCRA, a TokenBucket or, with a debt, a DebtBucket.
type gcra struct {
	backlog
	debt  int64
	given int64 // µs of what flowed out that were given back
	epoch calls.Epoch
}

// see is backlog.see for the call of that id. It returns what is ahead in the parts of this limiter.
func (s *gcra) see(now int64, id calls.Epoch) (ahead int64, back bool) {
	back = s.backlog.see(now)
	ahead = restated(s.ahead, s.cost, s.its.cost)
	if back || s.its != s.pace || ahead == 0 { // what has come in for a grant can no longer be told
		s.given, s.epoch = 0, id
	}
	return ahead, back
}

// until returns how long it is until no more than that is ahead, in the parts of this limiter, where more is.
func (s *gcra) until(most int64) int64 {
	its, _ := mulDiv(most, s.its.cost, s.cost)
	return max(1, ceilDiv(s.ahead-its, s.its.flow))
}

// Settle goes by the pace of the last grant, until all has flowed out.
func (s *gcra) Settle(now int64, id calls.Epoch, x *calls.Settlement) {
	next, last := *s, s.backlog
	last.see(now)
	if last.ahead > 0 {
		next.pace = s.its
	}
	ahead, _ := next.see(now, id)
	ahead = min(max(0, ahead+next.parts(now, x, &next.given, &next.epoch, id)), calls.MaxExact)
	next.put(ahead)
	next.pace = s.pace
	*s = next
}

func (s *gcra) MarkOf(e calls.Epoch, at, n int64) calls.Mark {
	return calls.Mark{Epoch: e, From: at, Owed: n * s.cost, Given: s.given}
}

func (s *gcra) Take(q calls.Demand, id calls.Epoch) calls.Decision {
	next := *s
	ahead, back := next.see(q.Now, id)
	// It holds in addition what comes in within a microsecond, which would otherwise be lost when a wait is rounded up.
	need, room := q.N*s.cost, s.full+s.flow-1-ahead
	least := max(0, need-s.debt) // a call may go into debt only while nothing is owed
	d := calls.Decision{Granted: least <= room}
	if !d.Granted {
		d.Wait = next.until(s.full + s.flow - 1 - least)
	} else if q.Spend {
		ahead, room = ahead+need, room-need
		next.put(ahead)
		d.Mark = calls.Mark{Epoch: next.epoch, From: q.Now, Owed: ahead, Given: next.given}
	}
	if room >= 0 {
		d.Remaining = (min(room, s.full) + s.debt) / s.cost
	}
	d.Reset = next.reset()
	if back || q.Spend && d.Granted {
		*s = next
	}
	return d
}
