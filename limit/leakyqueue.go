// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
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

var leakyQueueScript = calls.Load(scriptFiles, "leaky_queue", 1, 7)

func (a LeakyQueue) bound(window time.Duration, n int64) int64 {
	return a.pace().most(min(n, a.Capacity), window.Microseconds())
}

func (a LeakyQueue) check() error { return checkPace(a.Rate, "Capacity", a.Capacity) }

func (a LeakyQueue) model() calls.Model {
	idle := newBacklog(a.pace(), a.Capacity)
	return calls.Model{
		Script: leakyQueueScript, Parameters: idle.parameters(a.Capacity), Largest: a.Capacity, Reserves: true,
		Idle: func() calls.State { return &leakyQueue{idle} },
		Stored: func(text string) (calls.State, bool) {
			v, _, ok := numbers(text, 3)
			s := idle
			s.at, s.ahead, s.its.flow = v[0], v[1], v[2]
			return &leakyQueue{s}, ok && s.its.flow > 0
		},
	}
}

func (a LeakyQueue) pace() pace { return onlyPace(paceOf(a.Rate, a.Capacity)) }

type leakyQueue struct{ backlog }

func (s *leakyQueue) Take(q calls.Demand, _ calls.Epoch) calls.Decision {
	next := s.backlog
	back := next.see(q.Now)
	ahead := restated(next.ahead, s.flow, next.its.flow) // all has flowed out at the same instant
	need, room := q.N*s.cost, s.full+s.flow-1-ahead      // as in gcra.take
	// Less than a microsecond is no wait: callers, who wait for whole ones, would lose the rest each time.
	turn := ahead / s.flow
	d := calls.Decision{Granted: need <= room && turn <= q.AtMost, Wait: turn}
	if !d.Granted {
		// Until there is room, and until the turn is near enough.
		d.Wait = turn - q.AtMost
		if need > room {
			d.Wait = max(d.Wait, ceilDiv(need-room, s.flow))
		}
	} else if q.Spend {
		ahead, room = ahead+need, room-need
		next.put(ahead)
	}
	if ahead/s.flow <= q.AtMost {
		d.Remaining = min(max(0, room), s.full) / s.cost
	}
	d.Reset = next.reset()
	if back || q.Spend && d.Granted {
		s.backlog = next
	}
	return d
}
