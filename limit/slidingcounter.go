// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"math"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// A SlidingCounter counts the permits of the current window and of the one before. It treats those of the
// latter as if they had been taken evenly, and counts the part of them that a window which slides along with
// the time still covers, rounded down.
//
// Bound: Rate.Permits in each of its windows, and in a window of one interval twice as many, if all permits of
// the previous one were taken at its end. A shorter window can hold Rate.Permits and its own share of them.
// Even traffic is held to the rate.
//
// It does not promise the rate in every window of one interval, as a [SlidingLog] does. Its state is a start and
// two counts, whatever the rate.
//
// Source: https://blog.cloudflare.com/counting-things-a-lot-of-different-things/.
type SlidingCounter struct {
	Rate ratelimiter.Rate
}

var slidingCounterScript = calls.Load(scriptFiles, "sliding_counter", 1, 6)

func (a SlidingCounter) bound(window time.Duration, _ int64) int64 {
	w, interval := window.Microseconds(), microsOf(a.Rate)
	whole := times(a.Rate.Permits, edges(w, interval))
	if w < 2 || whole == math.MaxInt64 {
		return whole
	}
	// The worst window begins at the last instant of a full counter.
	into := (w - 2) % interval
	kept, _ := mulDiv(a.Rate.Permits, interval-into, interval)
	return whole - kept
}

// edges returns how many consecutive windows of the limiter a window of w µs can touch.
func edges(w, interval int64) int64 {
	if w < 2 {
		return max(w, 0)
	}
	return (w-2)/interval + 2
}

func (a SlidingCounter) check() error { return checkRate(a.Rate) }

func (a SlidingCounter) model() calls.Model {
	permits, interval := a.Rate.Permits, microsOf(a.Rate)
	return calls.Model{
		Script: slidingCounterScript, Parameters: []any{permits, interval}, Largest: permits,
		Idle: func() calls.State { return &slidingCounter{permits: permits, interval: interval, length: interval} },
		Stored: func(text string) (calls.State, bool) {
			v, e, ok := numbers(text, 4)
			return &slidingCounter{permits: permits, interval: interval, start: v[0], current: v[1], previous: v[2], length: v[3], epoch: e}, ok && v[3] > 0
		},
	}
}

type slidingCounter struct {
	permits, interval        int64
	start, current, previous int64
	length                   int64 // of a window: the interval of the limiter that was granted the last permits
	far                      int64 // when a longer window of another limiter no longer counts
	epoch                    calls.Epoch
}

// seen returns s as of now, for the call of that id, and whether the clock was put back: then the window begins again and keeps
// its counts.
func (s slidingCounter) seen(now int64, id calls.Epoch) (next slidingCounter, back bool) {
	back = now < s.start
	if s.current == 0 && s.previous == 0 || back {
		s.start, s.epoch = now, id
	}
	return s, back
}

// own makes the windows those of this limiter, for the call of that id at now. What was granted in windows of another length comes back as
// in these, as far as they are longer, or in each interval of this limiter as many permits as it grants in one, whichever is sooner.
func (s *slidingCounter) own(now int64, id calls.Epoch) {
	if s.length == s.interval {
		switch (now - s.start) / s.interval {
		case 0:
		case 1:
			s.start, s.current, s.previous = s.start+s.interval, 0, s.current
		default:
			s.start, s.current, s.previous, s.epoch = now, 0, 0, id
		}
		return
	}
	longest, passed, used := max(s.interval, s.length), now-s.start, int64(0)
	if passed < longest {
		share, _ := mulDiv(s.previous, longest-passed, longest)
		used = s.current + min(s.previous, share+1)
	} else if passed < 2*longest {
		share, _ := mulDiv(s.current, 2*longest-passed, longest)
		used = min(s.current, share+1)
	}
	ends := passed / s.interval
	used = min(used, max(0, s.current+s.previous-times(ends, s.permits)), calls.MaxPermits)
	s.far = s.start + 2*longest
	s.start += ends * s.interval
	if used == 0 {
		s.start = now
	}
	s.current, s.previous, s.length, s.epoch = used, 0, s.interval, id
}

// Settle goes by the windows of the last grant, as long as those count.
func (s *slidingCounter) Settle(now int64, id calls.Epoch, x *calls.Settlement) {
	last := *s
	switch {
	case s.current+s.previous == 0:
	case now < s.start+2*s.length:
		last.interval = s.length
	case x.By < 0:
		return // by those numbers nothing counts that could be given back
	}
	next, _ := last.seen(now, id)
	next.own(now, id)
	own := x.Mark.Of(next.epoch)
	if x.By > 0 || own && x.Mark.From == next.start {
		next.current = min(max(0, next.current+x.By), calls.MaxPermits)
	} else if own && x.Mark.From == next.start-last.interval {
		next.previous = max(0, next.previous+x.By)
	}
	next.interval = s.interval
	*s = next
}

func (s *slidingCounter) MarkOf(e calls.Epoch, at, _ int64) calls.Mark {
	return calls.Mark{Epoch: e, From: s.start - times(ceilDiv(max(0, s.start-at), s.interval), s.interval)}
}

func (s *slidingCounter) Take(q calls.Demand, id calls.Epoch) calls.Decision {
	next, back := s.seen(q.Now, id)
	kept := next
	next.own(q.Now, id)
	share, _ := mulDiv(next.previous, next.start+s.interval-q.Now, s.interval)
	left := s.permits - next.current - share
	d := calls.Decision{Granted: q.N <= left}
	if !d.Granted {
		d.Wait = next.freeAt(q.N) - q.Now
	} else if q.Spend {
		next.current += q.N
		next.far = 0
		left -= q.N
		d.Mark = calls.Mark{Epoch: next.epoch, From: next.start}
	}
	d.Remaining = max(0, left)
	switch {
	case next.current > 0:
		d.Reset = next.start + 2*s.interval - q.Now
	case next.previous > 0:
		d.Reset = next.start + s.interval - q.Now
	}
	switch {
	case q.Spend && d.Granted:
		*s = next
	case back:
		*s = kept
	}
	return d
}

// freeAt returns the instant at which n more permits are free.
func (s *slidingCounter) freeAt(n int64) int64 {
	if excess := s.current + n - s.permits; s.far > 0 && excess > 0 {
		return min(plus(s.start, times(ceilDiv(excess, s.permits), s.interval)), s.far)
	}
	if room := s.permits - s.current - n; room >= 0 {
		if t := s.shrunk(s.previous, room); t < s.interval {
			return s.start + t
		}
	}
	return s.start + s.interval + s.shrunk(s.current, s.permits-n)
}

// shrunk returns how far into a window the share of the previous count comes down to room.
func (s *slidingCounter) shrunk(count, room int64) int64 {
	if count <= room {
		return 0
	}
	t, rest := mulDiv(room+1, s.interval, count)
	if rest == 0 {
		t--
	}
	return s.interval - t
}
