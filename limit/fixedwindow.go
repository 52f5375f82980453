// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// A FixedWindow counts the permits that are taken in one window after another. A window begins with the first
// grant after the previous one has ended, so that the windows of different limiters do not begin together.
//
// Bound: Rate.Permits in each of its windows. A window that spans the edge of two can hold one less than twice
// as many, in as little as two microseconds: all but the first permit of one and all of the next.
//
// It does not promise an even flow, nor the rate in every window of one interval. Its state is a start and a
// count.
//
// Source: the counter pattern of https://redis.io/docs/latest/commands/incr/.
type FixedWindow struct {
	Rate ratelimiter.Rate
}

var fixedWindowScript = calls.Load(scriptFiles, "fixed_window", 1, 6)

func (a FixedWindow) bound(window time.Duration, _ int64) int64 {
	return stepped(window.Microseconds(), microsOf(a.Rate), a.Rate.Permits, a.Rate.Permits)
}

// stepped returns the most permits in w µs of a limiter that holds full permits and gets brought more at the end
// of each interval, where an interval begins with its first grant. That grant is either inside of the window, or
// just before it, and the window holds the end of one more interval.
func stepped(w, interval, full, brought int64) int64 {
	if w < 1 {
		return 0
	}
	return max(plus(full, times(brought, (w-1)/interval)), plus(full-1, times(brought, ceilDiv(w-1, interval))))
}

func (a FixedWindow) check() error { return checkRate(a.Rate) }

func (a FixedWindow) model() calls.Model {
	permits, interval := a.Rate.Permits, microsOf(a.Rate)
	return calls.Model{
		Script: fixedWindowScript, Parameters: []any{permits, interval}, Largest: permits,
		Idle: func() calls.State { return &fixedWindow{permits: permits, interval: interval} },
		Stored: func(text string) (calls.State, bool) {
			v, e, ok := numbers(text, 4)
			return &fixedWindow{permits: permits, interval: interval, start: v[0], count: v[1], base: v[2], length: v[3], epoch: e}, ok
		},
	}
}

type fixedWindow struct {
	permits, interval int64
	start, count      int64
	base              int64 // how many of count were granted no later than at start
	length            int64 // the interval of the limiter that has granted the last of it
	far               int64 // when it ends for that limiter
	epoch             calls.Epoch
}

// seen returns s as of now, for the call of that id, and whether the clock was put back: then the window begins again and
// keeps its count. A window of a limiter with a longer interval does not end early: each interval of this one brings as many permits as
// it grants in one.
func (s fixedWindow) seen(now int64, id calls.Epoch) (next fixedWindow, back bool) {
	if back = now < s.start; back {
		s.start, s.base, s.epoch = now, s.count, id
	}
	ends := (now - s.start) / s.interval
	s.far = s.start + s.length
	if now < s.far && ends > 0 { // the window is one of another limiter
		s.count = max(0, s.count-times(ends, s.permits))
		s.start, s.base, s.epoch, ends = s.start+ends*s.interval, s.count, id, 0
	}
	if ends > 0 || s.count == 0 {
		s.start, s.count, s.base, s.length, s.epoch = now, 0, 0, s.interval, id
	}
	return s, back
}

// until returns the instant at which the window has granted no more than that many.
func (s *fixedWindow) until(count int64) int64 {
	if s.length <= s.interval {
		return s.start + s.interval
	}
	return min(plus(s.start, times(ceilDiv(s.count-count, s.permits), s.interval)), s.far)
}

// counts counts that many permits, which were taken at an instant. The next window must begin no earlier than an interval
// after the first of those that this one has granted and keeps. So when all that were granted up to its start have been given back, it
// begins now.
func (s *fixedWindow) counts(now, taken, by int64) {
	before := s.count
	s.length = s.interval
	s.count = min(max(0, s.count+by), calls.MaxPermits)
	if taken <= s.start {
		s.base += s.count - before
	}
	if s.base <= 0 {
		s.start, s.base = now, s.count
	}
}

// Settle goes by the interval of the last grant, as long as that counts.
func (s *fixedWindow) Settle(now int64, id calls.Epoch, x *calls.Settlement) {
	last := *s
	switch {
	case s.count == 0:
	case now < s.start+s.length:
		last.interval = s.length
	case x.By < 0:
		return // by those numbers nothing counts that could be given back
	}
	next, _ := last.seen(now, id)
	switch {
	case x.By > 0:
		next.counts(now, now, x.By)
	case x.Mark.Of(next.epoch):
		next.counts(now, x.Mark.Taken, x.By)
	default:
		next.length = last.interval
	}
	next.interval = s.interval
	*s = next
}

func (s *fixedWindow) MarkOf(e calls.Epoch, at, _ int64) calls.Mark {
	return calls.Mark{Epoch: e, Taken: at}
}

func (s *fixedWindow) Take(q calls.Demand, id calls.Epoch) calls.Decision {
	next, back := s.seen(q.Now, id)
	d := calls.Decision{Granted: next.count+q.N <= s.permits}
	if !d.Granted {
		d.Wait = next.until(s.permits-q.N) - q.Now
	} else if q.Spend {
		next.counts(q.Now, q.Now, q.N)
		d.Mark = calls.Mark{Epoch: next.epoch, Taken: q.Now}
	}
	d.Remaining = max(0, s.permits-next.count)
	if next.count > 0 {
		d.Reset = next.until(0) - q.Now
	}
	if back || q.Spend && d.Granted {
		*s = next
	}
	return d
}
