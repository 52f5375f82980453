// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
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
	Rate Rate
}

var fixedWindowScript = script("fixed_window", 1, 6)

// Bound implements [Algorithm].
func (a FixedWindow) Bound(window time.Duration, _ int64) int64 {
	return stepped(window.Microseconds(), a.Rate.micros(), a.Rate.Permits, a.Rate.Permits)
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

// Largest implements [Algorithm].
func (a FixedWindow) Largest() int64 { return a.Rate.Permits }

func (a FixedWindow) check() error             { return a.Rate.check() }
func (a FixedWindow) script() *dispatch.Script { return fixedWindowScript }
func (a FixedWindow) parameters() []any        { return []any{a.Rate.Permits, a.Rate.micros()} }
func (a FixedWindow) reserves() bool           { return false }
func (a FixedWindow) idle() state {
	return &fixedWindow{permits: a.Rate.Permits, interval: a.Rate.micros()}
}
func (a FixedWindow) stored(text string) (state, bool) {
	v, ok := numbers(text, 2, 2)
	return &fixedWindow{permits: a.Rate.Permits, interval: a.Rate.micros(), start: v[0], count: v[1]}, ok
}

type fixedWindow struct {
	permits, interval int64
	start, count      int64
}

// seen returns s as of now, and whether the clock was put back: then the window begins again and keeps its count.
func (s fixedWindow) seen(now int64) (next fixedWindow, back bool) {
	if back = now < s.start; back {
		s.start = now
	}
	if now >= s.start+s.interval || s.count == 0 {
		s.start, s.count = now, 0
	}
	return s, back
}

func (s *fixedWindow) settle(now, by int64, m mark) {
	next, _ := s.seen(now)
	if by > 0 || m.at == next.start {
		next.count = min(max(0, next.count+by), maxPermits)
	}
	*s = next
}

func (s *fixedWindow) markOf(earliest, _ int64) mark {
	if s.start > earliest {
		return mark{}
	}
	return mark{at: s.start}
}

func (s *fixedWindow) take(q demand) decision {
	next, back := s.seen(q.now)
	d := decision{granted: next.count+q.n <= s.permits}
	if !d.granted {
		d.wait = next.start + s.interval - q.now
	} else if q.spend {
		next.count += q.n
		d.mark.at = next.start
	}
	d.remaining = max(0, s.permits-next.count)
	if next.count > 0 {
		d.reset = next.start + s.interval - q.now
	}
	if q.spend && (d.granted || back) {
		*s = next
	}
	return d
}
