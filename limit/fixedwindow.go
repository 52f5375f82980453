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

func (s *fixedWindow) take(q demand) decision {
	next, back := *s, q.now < s.start
	if back {
		next.start = q.now // the clock was put back: the window begins again and keeps its count
	}
	if q.now >= next.start+s.interval || s.count == 0 {
		next.start, next.count = q.now, 0
	}
	d := decision{granted: next.count+q.n <= s.permits}
	if !d.granted {
		d.wait = next.start + s.interval - q.now
	} else if q.spend {
		next.count += q.n
	}
	d.remaining = s.permits - next.count
	if next.count > 0 {
		d.reset = next.start + s.interval - q.now
	}
	if q.spend && (d.granted || back) {
		*s = next
	}
	return d
}
