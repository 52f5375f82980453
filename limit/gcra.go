package limit

import (
	_ "embed"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// A GCRA is the generic cell rate algorithm: the leaky bucket as a meter, which lets pass or refuses and
// delays nobody. It remembers the theoretical arrival time: the instant at which all that it let pass
// would have flowed out at the rate.
//
// Bound: Burst + Rate × window, rounded down, in any window. It admits what a [TokenBucket] of that
// capacity admits.
//
// It does not promise the rate in every window of its interval.
//
// Source: ITU-T I.371, as told by https://dotat.at/@/2024-08-30-gcra.html.
type GCRA struct {
	Rate  Rate
	Burst int64
}

//go:embed scripts/gcra.lua
var gcraSrc string

var gcraScript = dispatch.New("gcra", gcraSrc, 2, 7)

// Bound implements [Algorithm].
func (a GCRA) Bound(window time.Duration, _ int64) int64 {
	return a.Rate.flowed(a.Burst, window.Microseconds())
}

// Largest implements [Algorithm].
func (a GCRA) Largest() int64 { return a.Burst }

func (a GCRA) check() error             { return a.Rate.checkFlow("burst", a.Burst) }
func (a GCRA) script() *dispatch.Script { return gcraScript }
func (a GCRA) numbers() []any           { return flowNumbers(a.Rate, a.Burst) }
func (a GCRA) reserves() bool           { return false }
func (a GCRA) idle() state              { return &gcra{newArrival(a.Rate, a.Burst)} }

// An arrival is an instant of µs + part/flow: when all that was let in has flowed out.
type arrival struct {
	flow, cost, full int64
	us, part         int64
}

func newArrival(r Rate, permits int64) arrival {
	flow, cost := r.parts()
	return arrival{flow: flow, cost: cost, full: permits * cost}
}

// seen is the arrival as it is now, and how many parts have not flowed out yet.
func (s arrival) seen(now int64) (next arrival, ahead int64, back bool) {
	if s.us < now {
		s.us, s.part = now, 0
	}
	// No more than a full bucket is ever ahead, unless the clock was put back: then it is full.
	back = s.us-now > ceilDiv(s.full+s.flow, s.flow)
	if back {
		s.us, s.part = now+s.full/s.flow, s.full%s.flow
	}
	return s, (s.us-now)*s.flow + s.part, back
}

func (s *arrival) add(parts int64) {
	s.part += parts
	s.us += s.part / s.flow
	s.part %= s.flow
}

type gcra struct{ arrival }

func (s *gcra) take(q request) decision {
	next, ahead, back := s.seen(q.now)
	need, room := q.n*s.cost, s.full+s.flow-1-ahead // as in newBucket
	d := decision{granted: need <= room}
	if !d.granted {
		d.wait = ceilDiv(need-room, s.flow)
	} else if q.spend {
		next.add(need)
		ahead, room = ahead+need, room-need
	}
	d.remaining = max(0, room) / s.cost
	d.reset = ceilDiv(ahead, s.flow)
	if q.spend && (d.granted || back) {
		s.arrival = next
	}
	return d
}
