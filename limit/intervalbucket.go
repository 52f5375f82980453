// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"cmp"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
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
	Rate  ratelimiter.Rate
	Burst int64
}

var intervalBucketScript = calls.Load(scriptFiles, "interval_bucket", 1, 7)

func (a IntervalBucket) bound(window time.Duration, _ int64) int64 {
	return stepped(window.Microseconds(), microsOf(a.Rate), a.Burst, min(a.Rate.Permits, a.Burst))
}

func (a IntervalBucket) check() error {
	if err := cmp.Or(checkRate(a.Rate), checkCount("Burst", a.Burst)); err != nil {
		return err
	}
	if ceilDiv(a.Burst, a.Rate.Permits) > calls.MaxExact/microsOf(a.Rate) {
		return calls.Invalid("Burst %d takes more than 142 years to fill at %d/%v", a.Burst, a.Rate.Permits, a.Rate.Interval)
	}
	return nil
}

func (a IntervalBucket) model() calls.Model {
	own := steps{a.Rate.Permits, microsOf(a.Rate)}
	idle := intervalBucket{steps: own, its: own, capacity: a.Burst}
	return calls.Model{
		Script: intervalBucketScript, Parameters: []any{own.permits, own.interval, a.Burst}, Largest: a.Burst,
		Idle: func() calls.State { s := idle; return &s },
		Stored: func(text string) (calls.State, bool) {
			v, e, ok := numbers(text, 6)
			s := idle
			s.begun, s.lack, s.base, s.given, s.its, s.epoch = v[0], v[1], min(v[2], v[1]), v[3], steps{v[4], v[5]}, e
			return &s, ok && s.its.permits > 0 && s.its.interval > 0
		},
	}
}

// steps are the permits that come in at the end of each interval.
type steps struct{ permits, interval int64 }

type intervalBucket struct {
	steps
	capacity    int64
	begun, lack int64
	base        int64 // how many of those that lack were taken no later than at begun
	given       int64 // how many were given back
	its         steps // in which those that lack come in: those of the last grant
	epoch       calls.Epoch
}

// seen returns s as of now, for the call of that id, and whether the clock was put back: then the interval begins again.
func (s intervalBucket) seen(now int64, id calls.Epoch) (next intervalBucket, back bool) {
	if back = now < s.begun; back {
		s.begun, s.base, s.given, s.epoch = now, s.lack, 0, id
	}
	if ends := (now - s.begun) / s.its.interval; ends >= ceilDiv(s.lack, s.its.permits) {
		s.begun, s.lack, s.base, s.given, s.epoch = now, 0, 0, 0, id
	} else if ends > 0 {
		s.begun, s.lack = s.begun+ends*s.its.interval, s.lack-ends*s.its.permits
		s.base = s.lack
	}
	return s, back
}

// own makes the steps those of this limiter, for the call of that id. An interval of them begins with its first grant.
func (s *intervalBucket) own(now int64, id calls.Epoch) {
	if s.its != s.steps {
		s.begun, s.base, s.given, s.its, s.epoch = now, s.lack, 0, s.steps, id
	}
}

// spend takes that many permits, or fewer if the bucket would lack more than it can.
func (s *intervalBucket) spend(now, n int64) {
	before := s.lack
	s.lack = min(s.most(), s.lack+n)
	if now == s.begun {
		s.base += max(0, s.lack-before)
	}
}

// giveBack gives back so many of the permits of a grant. Permits come in for grants in their order, as in pace.giveBack.
//
// An interval must end no earlier than an interval after the first grant for which it brings permits. So when all that lacked at its
// beginning has been given back, it begins now.
func (s *intervalBucket) giveBack(now, n int64, x *calls.Settlement) {
	m := &x.Mark
	left := m.Owed - min(s.given-m.Given, m.Owed-x.Permits) - times(max(0, now-m.From)/s.interval, s.permits)
	n = max(0, min(n, left, s.lack))
	s.lack, s.given = s.lack-n, s.given+n
	if m.Taken <= s.begun {
		s.base -= n
	}
	if s.base <= 0 {
		s.begun, s.base = now, s.lack
	}
}

// most returns how many may lack, so that the bucket fills in time.
func (s *intervalBucket) most() int64 {
	return min(s.capacity+calls.MaxPermits, times(calls.MaxExact/s.interval, s.permits))
}

// Settle goes by the steps of the last grant, until all have come in.
func (s *intervalBucket) Settle(now int64, id calls.Epoch, x *calls.Settlement) {
	next, _ := s.seen(now, id)
	if next.lack > 0 {
		next.steps = next.its
	}
	next.own(now, id)
	switch {
	case x.By > 0:
		next.spend(now, x.By)
	case x.Mark.Of(next.epoch):
		next.giveBack(now, -x.By, x)
	}
	next.lack, next.steps = min(next.lack, next.most()), s.steps
	*s = next
}

func (s *intervalBucket) MarkOf(e calls.Epoch, at, n int64) calls.Mark {
	from := s.begun - times(ceilDiv(max(0, s.begun-at), s.interval), s.interval)
	return calls.Mark{Epoch: e, Taken: at, From: from, Owed: n, Given: s.given}
}

func (s *intervalBucket) Take(q calls.Demand, id calls.Epoch) calls.Decision {
	next, back := s.seen(q.Now, id)
	d := calls.Decision{Granted: next.lack+q.N <= s.capacity}
	if !d.Granted {
		d.Wait = next.until(s.capacity-q.N) - q.Now
	} else if q.Spend {
		next.own(q.Now, id)
		next.spend(q.Now, q.N)
		d.Mark = calls.Mark{Epoch: next.epoch, Taken: q.Now, From: next.begun, Owed: next.lack, Given: next.given}
	}
	d.Remaining = max(0, s.capacity-next.lack)
	if next.lack > 0 {
		d.Reset = next.until(0) - q.Now
	}
	if back || q.Spend && d.Granted {
		*s = next
	}
	return d
}

// until returns the instant at which no more than that many lack if none are taken.
func (s *intervalBucket) until(lack int64) int64 {
	return s.begun + ceilDiv(s.lack-lack, s.its.permits)*s.its.interval
}
