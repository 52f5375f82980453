// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter"
)

// A LeakyQueue is the leaky bucket as a queue: calls are granted at an even rate, in the order in which they
// come, and a full queue rejects. Reserve returns how long it is until the caller's turn; Allow grants only a
// turn that is now.
//
// A call of n permits has one turn, and the next turn is n permits' time later. The queue holds at most
// Capacity permits, those of the call included, so that no turn is further away than Capacity takes to flow
// out.
//
// Bound: fewer than n + Rate × window, as [Bound] has it, counted at the turns of calls of n permits. With n = 1 that is one turn in the
// time of each permit: there is never a burst.
//
// It does not promise that a turn is used: the turn of a caller that gave up passes unused. [Wait] reserves turns at most a second
// ahead, so such callers keep the queue closed for no longer than that second and the time of one request. Among callers of
// several processes the order of arrival is kept within that second, and for callers of Reserve.
//
// Source: the leaky bucket with which https://nginx.org/en/docs/http/ngx_http_limit_req_module.html delays
// requests.
type LeakyQueue struct {
	Rate     ratelimiter.Rate
	Capacity int64
}

var leakyQueueScript = script("leaky_queue", 1, 7)

func (a LeakyQueue) bound(window time.Duration, n int64) int64 {
	return a.pace().most(min(n, a.Capacity), window.Microseconds())
}

func (a LeakyQueue) check() error { return checkPace(a.Rate, "Capacity", a.Capacity) }

func (a LeakyQueue) model() model {
	idle := newBacklog(a.pace(), a.Capacity)
	return model{
		script: leakyQueueScript, parameters: idle.parameters(a.Capacity), largest: a.Capacity, reserves: true,
		idle: func() state { return &leakyQueue{idle} },
		stored: func(text string) (state, bool) {
			v, _, ok := numbers(text, 3)
			s := idle
			s.at, s.ahead, s.its.flow = v[0], v[1], v[2]
			return &leakyQueue{s}, ok && s.its.flow > 0
		},
	}
}

func (a LeakyQueue) pace() pace { return onlyPace(paceOf(a.Rate, a.Capacity)) }

type leakyQueue struct{ backlog }

func (s *leakyQueue) take(q demand, _ epoch) decision {
	next := s.backlog
	back := next.see(q.now)
	ahead := restated(next.ahead, s.flow, next.its.flow) // all has flowed out at the same instant
	need, room := q.n*s.cost, s.full+s.flow-1-ahead      // as in gcra.take
	// Less than a microsecond is no wait: callers, who wait for whole ones, would lose the rest each time.
	turn := ahead / s.flow
	d := decision{granted: need <= room && turn <= q.atMost, wait: turn}
	if !d.granted {
		// Until there is room, and until the turn is near enough.
		d.wait = turn - q.atMost
		if need > room {
			d.wait = max(d.wait, ceilDiv(need-room, s.flow))
		}
	} else if q.spend {
		ahead, room = ahead+need, room-need
		next.put(ahead)
	}
	if ahead/s.flow <= q.atMost {
		d.remaining = min(max(0, room), s.full) / s.cost
	}
	d.reset = next.reset()
	if q.spend && (d.granted || back) {
		s.backlog = next
	}
	return d
}
