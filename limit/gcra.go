// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// A GCRA is the generic cell rate algorithm: the leaky bucket as a meter, which grants or rejects and delays no
// call. It remembers the theoretical arrival time, which is the instant at which all permits that it granted
// would have flowed out at the rate.
//
// Bound: Burst + Rate × window, rounded down, in any window. It admits what a [TokenBucket] of that burst
// admits.
//
// It does not promise the rate in every window of one interval.
//
// Source: ITU-T I.371, as explained in https://dotat.at/@/2024-08-30-gcra.html.
type GCRA struct {
	Rate  Rate
	Burst int64
}

var gcraScript = script("gcra", 1, 7)

// Bound implements [Algorithm].
func (a GCRA) Bound(window time.Duration, _ int64) int64 {
	return a.pace().most(a.Burst, window.Microseconds())
}

// Largest implements [Algorithm].
func (a GCRA) Largest() int64 { return a.Burst }

func (a GCRA) check() error             { return a.Rate.checkPace("burst", a.Burst) }
func (a GCRA) script() *dispatch.Script { return gcraScript }
func (a GCRA) parameters() []any        { return a.pace().parameters(a.Burst) }
func (a GCRA) reserves() bool           { return false }
func (a GCRA) idle() state              { return &gcra{arrival: newArrival(a.pace(), a.Burst)} }
func (a GCRA) stored(text string) (state, bool) {
	v, e, ok := numbers(text, 1, 4)
	s := newArrival(a.pace(), a.Burst)
	s.us, s.part, s.owedAt = v[0], min(v[1], s.flow-1), v[2]
	if s.owedAt > 0 {
		s.us = min(s.us, s.owedAt+maxExact/s.flow)
	}
	return &gcra{s, min(v[3], maxExact), e}, ok
}
func (a GCRA) pace() pace { return onlyPace(a.Rate.pace(a.Burst)) }

// An arrival is the instant us + part/flow, in µs, at which all that was granted has flowed out.
type arrival struct {
	pace
	full     int64
	us, part int64
	owedAt   int64 // when more than a full bucket was ahead, because a grant was settled; 0 otherwise
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
		// More than a full bucket is ahead only if the clock was put back. Then the bucket is full.
		s.us, s.part = now+s.full/s.flow, s.full%s.flow
	}
	ahead = (s.us-now)*s.flow + s.part
	s.owedAt = 0
	if ahead > s.full+s.flow-1 {
		s.owedAt = now
	}
	return ahead, back
}

func (s *arrival) add(parts int64) {
	s.part += parts
	s.us += s.part / s.flow
	s.part %= s.flow
}

type gcra struct {
	arrival
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
	next.us, next.part, next.owedAt = now+ahead/s.flow, ahead%s.flow, 0
	if ahead > s.full+s.flow-1 {
		next.owedAt = now
	}
	*s = next
}

func (s *gcra) markOf(earliest, n int64) mark {
	return mark{epoch: s.epoch, from: earliest, owed: n * s.cost, given: s.given}
}

func (s *gcra) take(q demand, id epoch) decision {
	next := *s
	ahead, back := next.see(q.now, id)
	need, room := q.n*s.cost, s.full+s.flow-1-ahead // as in newTokenBucket
	d := decision{granted: need <= room}
	if !d.granted {
		d.wait = ceilDiv(need-room, s.flow)
	} else if q.spend {
		next.add(need)
		ahead, room = ahead+need, room-need
		q.marks(mark{epoch: next.epoch, from: q.now, owed: ahead, given: next.given})
	}
	d.remaining = min(max(0, room), s.full) / s.cost
	d.reset = ceilDiv(ahead, s.flow)
	if q.spend && (d.granted || back) {
		*s = next
	}
	return d
}
