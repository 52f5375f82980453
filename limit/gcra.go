// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// A GCRA is the generic cell rate algorithm: the leaky bucket as a meter, which grants or rejects and delays no
// call. It remembers the theoretical arrival time, which is the instant at which all permits that it granted
// would have flowed out at the rate.
//
// Bound: Burst + Rate × window, rounded down, in any window. A [TokenBucket] is the same limiter by another name: the two
// share their permits if their names, rates and bursts are equal.
//
// It does not promise the rate in every window of one interval.
//
// Source: ITU-T I.371, as explained in https://dotat.at/@/2024-08-30-gcra.html.
type GCRA struct {
	Rate  ratelimiter.Rate
	Burst int64
}

var gcraScript = script("gcra", 1, 8)

func (a GCRA) bound(window time.Duration, _ int64) int64 { return a.bucket().bound(window, 0) }

func (a GCRA) largest() int64 { return a.Burst }

func (a GCRA) check() error                     { return checkPace(a.Rate, "Burst", a.Burst) }
func (a GCRA) script() *dispatch.Script         { return gcraScript }
func (a GCRA) parameters() []any                { return a.bucket().parameters() }
func (a GCRA) reserves() bool                   { return false }
func (a GCRA) idle() state                      { return a.bucket().idle() }
func (a GCRA) stored(text string) (state, bool) { return a.bucket().stored(text) }

// bucket returns the bucket that lends nothing, which a is.
func (a GCRA) bucket() DebtBucket { return DebtBucket{Rate: a.Rate, Burst: a.Burst} }

// An arrival is the instant us + part/flow, in µs, at which all that was granted has flowed out.
type arrival struct {
	pace
	full     int64
	us, part int64
	owedAt   int64 // when more than a full bucket was ahead, because a grant was settled or went into debt; 0 otherwise
}

func newArrival(p pace, permits int64) arrival {
	return arrival{pace: p, full: permits * p.cost}
}

// see makes s the arrival as of now, and returns how many parts have not flowed out yet, and whether the clock was put back.
func (s *arrival) see(now int64) (ahead int64, back bool) {
	if s.us < now {
		s.us, s.part = now, 0
	}
	if s.owedAt > 0 {
		if back = now < s.owedAt; back {
			s.us -= s.owedAt - now // what is owed stays the same
		}
	} else if back = s.us-now > ceilDiv(s.full+s.flow, s.flow); back {
		// More than a full bucket is ahead only if the clock was put back. Then as much is ahead as a grant can leave.
		most := s.full + s.flow - 1
		s.us, s.part = now+most/s.flow, most%s.flow
	}
	ahead = (s.us-now)*s.flow + s.part
	s.note(now, ahead)
	return ahead, back
}

// note remembers as of now whether more than a full bucket is ahead.
func (s *arrival) note(now, ahead int64) {
	s.owedAt = 0
	if ahead > s.full+s.flow-1 {
		s.owedAt = now
	}
}

// put puts s that many parts ahead of now.
func (s *arrival) put(now, ahead int64) {
	s.us, s.part = now+ahead/s.flow, ahead%s.flow
	s.note(now, ahead)
}

// A gcra is the state of a GCRA, a TokenBucket or, with a debt, a DebtBucket.
type gcra struct {
	arrival
	debt  int64
	given int64 // µs of what flowed out that were given back
	epoch epoch
}

// see is arrival.see for the call of that id.
func (s *gcra) see(now int64, id epoch) (ahead int64, back bool) {
	ahead, back = s.arrival.see(now)
	if back || ahead == 0 {
		s.given, s.epoch = 0, id
	}
	return ahead, back
}

func (s *gcra) settle(now int64, id epoch, x *settlement) {
	next := *s
	ahead, _ := next.see(now, id)
	ahead = min(max(0, ahead+s.parts(now, x, &next.given, &next.epoch, id)), maxExact)
	next.put(now, ahead)
	*s = next
}

func (s *gcra) markOf(earliest, n int64) mark {
	return mark{epoch: s.epoch, from: earliest, owed: n * s.cost, given: s.given}
}

func (s *gcra) take(q demand, id epoch) decision {
	next := *s
	ahead, back := next.see(q.now, id)
	// It holds in addition what comes in within a microsecond, which would otherwise be lost when a wait is rounded up.
	need, room := q.n*s.cost, s.full+s.flow-1-ahead
	least := max(0, need-s.debt) // a call may go into debt only while nothing is owed
	d := decision{granted: least <= room}
	if !d.granted {
		d.wait = ceilDiv(least-room, s.flow)
	} else if q.spend {
		ahead, room = ahead+need, room-need
		next.put(q.now, ahead)
		q.marks(mark{epoch: next.epoch, from: q.now, owed: ahead, given: next.given})
	}
	if room >= 0 {
		d.remaining = (min(room, s.full) + s.debt) / s.cost
	}
	d.reset = ceilDiv(ahead, s.flow)
	if q.spend && (d.granted || back) {
		*s = next
	}
	return d
}
