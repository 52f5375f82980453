package limit

import (
	_ "embed"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// A SlidingLog remembers every grant for one interval.
//
// Bound: Rate.Permits in any window of the interval: exact. This is what RRateLimiter does, too.
//
// It does not promise an even flow: all may go at one instant, and all again an interval later. It costs
// an entry for each grant, in Redis about a hundred bytes, so it is for rates of up to some thousands of
// calls an interval. A call's work grows with the logarithm of the entries; it drops at most 512.
//
// Source: the sorted-set pattern of
// https://engineering.classdojo.com/blog/2015/02/06/rolling-rate-limiter/.
type SlidingLog struct {
	Rate Rate
}

//go:embed scripts/sliding_log.lua
var slidingLogSrc string

var slidingLogScript = dispatch.New("sliding_log", slidingLogSrc, 2, 6)

// Bound implements [Algorithm].
func (a SlidingLog) Bound(window time.Duration, _ int64) int64 {
	return a.Rate.Permits * ceilDiv(max(window.Microseconds(), 0), a.Rate.micros())
}

// Largest implements [Algorithm].
func (a SlidingLog) Largest() int64 { return a.Rate.Permits }

func (a SlidingLog) check() error             { return a.Rate.check() }
func (a SlidingLog) script() *dispatch.Script { return slidingLogScript }
func (a SlidingLog) numbers() []any           { return []any{a.Rate.Permits, a.Rate.micros()} }
func (a SlidingLog) reserves() bool           { return false }
func (a SlidingLog) idle() state {
	return &slidingLog{permits: a.Rate.Permits, interval: a.Rate.micros()}
}

type slidingLog struct {
	permits, interval int64
	log               []logged // oldest first
	used              int64    // by all in log
}

type logged struct{ at, n int64 }

func (s *slidingLog) take(q request) decision {
	live, used := s.log, s.used
	for len(live) > 0 && live[0].at <= q.now-s.interval {
		used -= live[0].n
		live = live[1:]
	}
	if q.spend {
		// Entries ahead of the clock were made before it was put back. They count from now on.
		for i := len(live) - 1; i >= 0 && live[i].at > q.now; i-- {
			live[i].at = q.now
		}
	}
	d := decision{granted: used+q.n <= s.permits}
	if !d.granted {
		free := s.permits - used
		for _, e := range live {
			if free += e.n; free >= q.n {
				d.wait = min(e.at, q.now) + s.interval - q.now
				break
			}
		}
	} else if q.spend {
		live, used = append(live, logged{q.now, q.n}), used+q.n
		s.log, s.used = live, used
	}
	d.remaining = s.permits - used
	if len(live) > 0 {
		d.reset = min(live[len(live)-1].at, q.now) + s.interval - q.now
	}
	return d
}
