// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
)

// An IntervalBucket is a token bucket that is refilled in steps: it gets Rate.Permits at the end of each
// interval, up to Burst. It starts full. Between two steps the time that has passed is kept; the next
// interval of a full bucket begins when a permit is taken.
//
// Bound: Burst, and Rate.Permits for each end of an interval that the window can hold.
//
// It does not promise an even flow: what comes in with one step may be taken at one instant.
//
// Source: the token bucket of https://en.wikipedia.org/wiki/Token_bucket, refilled in intervals as
// https://bucket4j.com/ offers beside the continuous ("greedy") refill.
type IntervalBucket struct {
	Rate  Rate
	Burst int64
}

var intervalBucketScript = script("interval_bucket", 1, 7)

// Bound implements [Algorithm].
func (a IntervalBucket) Bound(window time.Duration, _ int64) int64 {
	return stepped(window.Microseconds(), a.Rate.micros(), a.Burst, min(a.Rate.Permits, a.Burst))
}

// Largest implements [Algorithm].
func (a IntervalBucket) Largest() int64 { return a.Burst }

func (a IntervalBucket) check() error {
	if err := a.Rate.check(); err != nil {
		return err
	}
	if a.Burst < 1 || a.Burst > maxPermits {
		return invalid("burst of %d permits is not in 1..%d", a.Burst, int64(maxPermits))
	}
	if ceilDiv(a.Burst, a.Rate.Permits) > maxExact/a.Rate.micros() {
		return invalid("burst of %d permits at %v takes more than 142 years to fill", a.Burst, a.Rate)
	}
	return nil
}
func (a IntervalBucket) script() *dispatch.Script { return intervalBucketScript }
func (a IntervalBucket) parameters() []any {
	return []any{a.Rate.Permits, a.Rate.micros(), a.Burst}
}
func (a IntervalBucket) reserves() bool { return false }
func (a IntervalBucket) idle() state {
	return &intervalBucket{permits: a.Rate.Permits, interval: a.Rate.micros(), capacity: a.Burst, left: a.Burst}
}
func (a IntervalBucket) stored(text string) (state, bool) {
	v, ok := numbers(text, 2, 2)
	s := &intervalBucket{permits: a.Rate.Permits, interval: a.Rate.micros(), capacity: a.Burst, begun: v[0]}
	s.left = max(s.least(), min(a.Burst, v[1]))
	return s, ok
}

type intervalBucket struct {
	permits, interval, capacity int64
	begun, left                 int64
}

// seen returns s as of now, and whether the clock was put back: then the interval begins again.
func (s intervalBucket) seen(now int64) (next intervalBucket, back bool) {
	if back = now < s.begun; back {
		s.begun = now
	}
	if ends := (now - s.begun) / s.interval; ends >= ceilDiv(s.capacity-s.left, s.permits) {
		s.begun, s.left = now, s.capacity
	} else {
		s.begun += ends * s.interval
		s.left += ends * s.permits
	}
	return s, back
}

// least returns how few may be left, so that the bucket fills in time.
func (s *intervalBucket) least() int64 {
	return max(-maxPermits, s.capacity-times(maxExact/s.interval, s.permits))
}

func (s *intervalBucket) settle(now, by int64, m mark) {
	next, _ := s.seen(now)
	if by < 0 {
		by = -max(0, min(-by, m.owed-times(max(0, now-m.at)/s.interval, s.permits)))
	}
	next.left = max(s.least(), min(s.capacity, next.left-by))
	*s = next
}

func (s *intervalBucket) markOf(earliest, n int64) mark {
	if s.begun > earliest {
		return mark{}
	}
	return mark{at: s.begun, owed: n}
}

func (s *intervalBucket) take(q demand) decision {
	next, back := s.seen(q.now)
	d := decision{granted: q.n <= next.left}
	if !d.granted {
		d.wait = next.until(q.n) - q.now
	} else if q.spend {
		next.left -= q.n
		d.mark = mark{at: next.begun, owed: s.capacity - next.left}
	}
	d.remaining = max(0, next.left)
	if next.left < s.capacity {
		d.reset = next.until(s.capacity) - q.now
	}
	if q.spend && (d.granted || back) {
		*s = next
	}
	return d
}

// until returns the instant at which that many are left if none are taken.
func (s *intervalBucket) until(left int64) int64 {
	return s.begun + ceilDiv(left-s.left, s.permits)*s.interval
}
