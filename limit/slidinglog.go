// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter"
)

// A SlidingLog remembers every grant for one interval.
//
// Bound: Rate.Permits in any window of one interval, which is exact. A RRateLimiter does the same.
//
// It does not promise an even flow: all permits may be taken at one instant, and all of them again one interval
// later. It stores each grant, in Redis in about a hundred bytes, so it is for rates of up to some thousands of
// calls an interval. The work of a call grows with the logarithm of their number. A call drops at most 512
// grants that have expired.
//
// Source: the sorted-set pattern of
// https://engineering.classdojo.com/blog/2015/02/06/rolling-rate-limiter/.
type SlidingLog struct {
	Rate ratelimiter.Rate
}

var slidingLogScript = script("sliding_log", 2, 6)

func (a SlidingLog) bound(window time.Duration, _ int64) int64 {
	return times(a.Rate.Permits, ceilDiv(max(window.Microseconds(), 0), microsOf(a.Rate)))
}

func (a SlidingLog) check() error { return checkRate(a.Rate) }

func (a SlidingLog) model() model {
	permits, interval := a.Rate.Permits, microsOf(a.Rate)
	return model{
		script: slidingLogScript, parameters: []any{permits, interval}, largest: permits,
		idle: func() state { return &slidingLog{permits: permits, interval: interval} },
		stored: func(text string) (state, bool) {
			v, _, ok := numbers(text, 4)
			return &seenLog{permits: permits, interval: interval, used: v[0], at: v[1], due: v[2], till: v[3]}, ok
		},
	}
}

// A seenLog is what a reply says about a log in Redis: how many permits are in use, when the newest were taken,
// when the oldest come back, and until when they count for the longer interval of another limiter, or 0. It does not know when the others do, so the reply says how long a rejected call
// has to wait.
type seenLog struct{ permits, interval, used, at, due, till int64 }

func (s *seenLog) take(q demand, _ epoch) decision {
	next := *s
	d := decision{granted: s.used+q.n <= s.permits}
	if d.granted && q.spend {
		next.used, next.at = s.used+q.n, q.now
		*s = next
	}
	d.remaining = max(0, s.permits-next.used)
	if next.used > 0 {
		d.reset = max(next.at+s.interval, s.till) - q.now
	}
	return d
}

type slidingLog struct {
	permits, interval int64
	log               []logged // oldest first
	used              int64    // by all in log
}

type logged struct{ at, n int64 }

func (s *slidingLog) take(q demand, _ epoch) decision {
	live, used := s.log, s.used
	for len(live) > 0 && live[0].at <= q.now-s.interval {
		used -= live[0].n
		live = live[1:]
	}
	if q.spend {
		// Entries in the future are from before the clock was put back. They count from now on.
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
