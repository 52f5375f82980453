package limit

import (
	_ "embed"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// A FixedWindow counts the permits of one window after another. A window begins with the first grant
// after the one before has ended, so that not everybody's begin at the same instant.
//
// Bound: Rate.Permits for each interval, and around an edge twice that less one, in as little as two
// microseconds: all but the first of one window, then all of the next. That is the price of a state that
// is a start and a count.
//
// It does not promise an even flow, nor the rate in every window of its interval.
//
// Source: the counter pattern of https://redis.io/docs/latest/commands/incr/.
type FixedWindow struct {
	Rate Rate
}

//go:embed scripts/fixed_window.lua
var fixedWindowSrc string

var fixedWindowScript = dispatch.New("fixed_window", fixedWindowSrc, 2, 6)

// Bound implements [Algorithm].
func (a FixedWindow) Bound(window time.Duration, _ int64) int64 {
	return stepped(window.Microseconds(), a.Rate.micros(), a.Rate.Permits, a.Rate.Permits)
}

// stepped is the most that a full count and what each interval brings are in w µs, where an interval begins
// with the first grant: with that one inside, or with all behind it and one more interval's end.
func stepped(w, interval, full, brought int64) int64 {
	if w < 1 {
		return 0
	}
	return max(full+brought*((w-1)/interval), full-1+brought*ceilDiv(w-1, interval))
}

// Largest implements [Algorithm].
func (a FixedWindow) Largest() int64 { return a.Rate.Permits }

func (a FixedWindow) check() error             { return a.Rate.check() }
func (a FixedWindow) script() *dispatch.Script { return fixedWindowScript }
func (a FixedWindow) numbers() []any           { return []any{a.Rate.Permits, a.Rate.micros()} }
func (a FixedWindow) reserves() bool           { return false }
func (a FixedWindow) idle() state {
	return &fixedWindow{permits: a.Rate.Permits, interval: a.Rate.micros()}
}

type fixedWindow struct {
	permits, interval int64
	start, count      int64
}

func (s *fixedWindow) take(q request) decision {
	next, back := *s, q.now < s.start
	if back {
		next.start = q.now // the clock was put back: the window begins anew, with what it has counted
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
