package limit

import (
	_ "embed"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// A SlidingCounter counts two windows and takes the one before as if its grants had been spread evenly:
// what is in use is the current count and as much of the previous one as the sliding window still
// covers, rounded down.
//
// Bound: Rate.Permits in any window of one counter, and twice that where all of the previous one's
// grants came at its very end; in a window shorter than the interval, Rate.Permits and the share of it
// that the window is. Even traffic is held to the rate.
//
// It does not promise the rate in every window of its interval: [SlidingLog] does. Its state is two
// counts, whatever the rate.
//
// Source: https://blog.cloudflare.com/counting-things-a-lot-of-different-things/.
type SlidingCounter struct {
	Rate Rate
}

//go:embed scripts/sliding_counter.lua
var slidingCounterSrc string

var slidingCounterScript = dispatch.New("sliding_counter", slidingCounterSrc, 2, 6)

// Bound implements [Algorithm].
func (a SlidingCounter) Bound(window time.Duration, _ int64) int64 {
	w, interval := window.Microseconds(), a.Rate.micros()
	whole := a.Rate.Permits * edges(w, interval)
	if w < 2 {
		return whole
	}
	// Worst is a window that begins with the last instant of a full counter.
	into := (w - 2) % interval
	return whole - a.Rate.Permits*(interval-into)/interval
}

// edges is how many of the windows that follow each other a window of w µs can touch.
func edges(w, interval int64) int64 {
	if w < 2 {
		return max(w, 0)
	}
	return (w-2)/interval + 2
}

// Largest implements [Algorithm].
func (a SlidingCounter) Largest() int64 { return a.Rate.Permits }

func (a SlidingCounter) check() error {
	if err := a.Rate.check(); err != nil {
		return err
	}
	return checkProduct("rate", a.Rate.Permits+1, a.Rate.micros())
}
func (a SlidingCounter) script() *dispatch.Script { return slidingCounterScript }
func (a SlidingCounter) numbers() []any           { return []any{a.Rate.Permits, a.Rate.micros()} }
func (a SlidingCounter) reserves() bool           { return false }
func (a SlidingCounter) idle() state {
	return &slidingCounter{permits: a.Rate.Permits, interval: a.Rate.micros()}
}

type slidingCounter struct {
	permits, interval        int64
	start, current, previous int64
}

func (s *slidingCounter) take(q request) decision {
	next, back := *s, q.now < s.start
	if s.current == 0 && s.previous == 0 || back {
		// Unused; or the clock was put back, and the window begins anew with what it has counted.
		next.start = q.now
	}
	switch (q.now - next.start) / s.interval {
	case 0:
	case 1:
		next.start, next.current, next.previous = next.start+s.interval, 0, s.current
	default:
		next.start, next.current, next.previous = q.now, 0, 0
	}
	left := s.permits - next.current - next.previous*(next.start+s.interval-q.now)/s.interval
	d := decision{granted: q.n <= left}
	if !d.granted {
		d.wait = next.freeAt(q.n) - q.now
	} else if q.spend {
		next.current += q.n
		left -= q.n
	}
	d.remaining = max(0, left)
	switch {
	case next.current > 0:
		d.reset = next.start + 2*s.interval - q.now
	case next.previous > 0:
		d.reset = next.start + s.interval - q.now
	}
	if q.spend && (d.granted || back) {
		*s = next
	}
	return d
}

// freeAt is the instant at which n more fit in.
func (s *slidingCounter) freeAt(n int64) int64 {
	if room := s.permits - s.current - n; room >= 0 {
		if t := s.shrunk(s.previous, room); t < s.interval {
			return s.start + t
		}
	}
	return s.start + s.interval + s.shrunk(s.current, s.permits-n)
}

// shrunk is how far into a window the share of the count before it is no more than room.
func (s *slidingCounter) shrunk(count, room int64) int64 {
	if count <= room {
		return 0
	}
	return s.interval - ((room+1)*s.interval-1)/count
}
