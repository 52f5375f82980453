package limit

import (
	_ "embed"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// A LeakyQueue is the leaky bucket as a queue: what comes in goes out at an even rate, and a full bucket
// refuses. Reserve says when it is the caller's turn; Allow grants only when it is at once.
//
// A call of n permits takes its turn as a whole, and the next turn is n permits' time later. The permits
// in the bucket, those of the call included, are Capacity at most, so that nobody waits longer than
// Capacity takes to flow out.
//
// Bound: n + Rate × window, for the instants of the turns of calls of n permits. With n = 1 that is one
// turn for each permit's time: nothing ever bursts.
//
// It does not promise that who has a turn uses it: the turn of a caller that left passes unused.
//
// Source: the leaky bucket as https://nginx.org/en/docs/http/ngx_http_limit_req_module.html delays
// requests by it.
type LeakyQueue struct {
	Rate     Rate
	Capacity int64
}

//go:embed scripts/leaky_queue.lua
var leakyQueueSrc string

var leakyQueueScript = dispatch.New("leaky_queue", leakyQueueSrc, 2, 8)

// Bound implements [Algorithm].
func (a LeakyQueue) Bound(window time.Duration, n int64) int64 {
	return a.Rate.flowed(min(n, a.Capacity), window.Microseconds())
}

// Largest implements [Algorithm].
func (a LeakyQueue) Largest() int64 { return a.Capacity }

func (a LeakyQueue) check() error             { return a.Rate.checkFlow("capacity", a.Capacity) }
func (a LeakyQueue) script() *dispatch.Script { return leakyQueueScript }
func (a LeakyQueue) numbers() []any           { return flowNumbers(a.Rate, a.Capacity) }
func (a LeakyQueue) reserves() bool           { return true }
func (a LeakyQueue) idle() state              { return &leakyQueue{newArrival(a.Rate, a.Capacity)} }

type leakyQueue struct{ arrival }

func (s *leakyQueue) take(q request) decision {
	next, ahead, back := s.seen(q.now)
	need, room := q.n*s.cost, s.full+s.flow-1-ahead
	// Less than a microsecond is no wait, or who asks whole microseconds would lose the rest each time.
	turn := ahead / s.flow
	d := decision{granted: need <= room && turn <= q.atMost, wait: turn}
	if !d.granted {
		// Until there is room, and until its turn is near enough.
		d.wait = turn - q.atMost
		if need > room {
			d.wait = max(d.wait, ceilDiv(need-room, s.flow))
		}
	} else if q.spend {
		next.add(need)
		ahead, room = ahead+need, room-need
	}
	if ahead/s.flow <= q.atMost {
		d.remaining = max(0, room) / s.cost
	}
	d.reset = ceilDiv(ahead, s.flow)
	if q.spend && (d.granted || back) {
		s.arrival = next
	}
	return d
}
