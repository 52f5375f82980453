// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
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

var slidingLogScript = calls.Load(scriptFiles, "sliding_log", 2, 6)

func (a SlidingLog) bound(window time.Duration, _ int64) int64 {
	return times(a.Rate.Permits, ceilDiv(max(window.Microseconds(), 0), microsOf(a.Rate)))
}

func (a SlidingLog) check() error { return checkRate(a.Rate) }

func (a SlidingLog) model() calls.Model {
	permits, interval := a.Rate.Permits, microsOf(a.Rate)
	return calls.Model{
		Script: slidingLogScript, Parameters: []any{permits, interval}, Largest: permits,
		Idle: func() calls.State { return &slidingLog{permits: permits, interval: interval} },
		Stored: func(text string) (calls.State, bool) {
			v, _, ok := numbers(text, 4)
			return &seenLog{permits: permits, interval: interval, used: v[0], at: v[1], due: v[2], till: v[3]}, ok
		},
	}
}

// A seenLog is what a reply says about a log in Redis: how many permits are in use, when the newest were taken,
// when the oldest come back, and until when they count for the longer interval of another limiter, or 0. It does not know when the others do, so the reply says how long a rejected call
// has to wait.
type seenLog struct{ permits, interval, used, at, due, till int64 }

// Due returns when the oldest permits in use come back.
func (s *seenLog) Due() int64 { return s.due }

func (s *seenLog) Take(q calls.Demand, _ calls.Epoch) calls.Decision {
	next := *s
	d := calls.Decision{Granted: s.used+q.N <= s.permits}
	if d.Granted && q.Spend {
		next.used, next.at = s.used+q.N, q.Now
		*s = next
	}
	d.Remaining = max(0, s.permits-next.used)
	if next.used > 0 {
		d.Reset = max(next.at+s.interval, s.till) - q.Now
	}
	return d
}

type slidingLog struct {
	permits, interval int64
	log               []logged // oldest first
	used              int64    // by all in log
}

type logged struct{ at, n int64 }

func (s *slidingLog) Take(q calls.Demand, _ calls.Epoch) calls.Decision {
	live, used := s.log, s.used
	for len(live) > 0 && live[0].at <= q.Now-s.interval {
		used -= live[0].n
		live = live[1:]
	}
	// Entries in the future are from before the clock was put back. They count from now on.
	for i := len(live) - 1; i >= 0 && live[i].at > q.Now; i-- {
		live[i].at = q.Now
	}
	d := calls.Decision{Granted: used+q.N <= s.permits}
	if !d.Granted {
		free := s.permits - used
		for _, e := range live {
			if free += e.n; free >= q.N {
				d.Wait = e.at + s.interval - q.Now
				break
			}
		}
	} else if q.Spend {
		live, used = append(live, logged{q.Now, q.N}), used+q.N
		s.log, s.used = live, used
	}
	d.Remaining = s.permits - used
	if len(live) > 0 {
		d.Reset = live[len(live)-1].at + s.interval - q.Now
	}
	return d
}
