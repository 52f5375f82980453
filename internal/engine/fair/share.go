// SPDX-License-Identifier: Apache-2.0

// Package fair decides how the waiting callers of one process leave room for other processes. These are Redisson,
// whose callers wake later than the instant at which a permit expires, and other processes of this package, the
// peers. Its types are values without a lock and without a clock: the owner guards them and passes the time. As long
// as no other process takes part, they behave like their zero values.
package fair

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Share decides how many permits of one limiter a process may take while others take part. There is one rule: while
// a process has got less than its share of the rate, it takes permits as soon as they are free. Otherwise it first
// leaves them to others for a grace period, and then takes those that nobody has taken, so no permit is wasted.
//
// If no other process takes part, the share is the whole rate. Redisson's part is at most half, however many JVMs
// there are, because they cannot be told apart, and less if it does not use it; the processes of this package whose
// callers wait share the rest equally.
//
// The newest members show who holds permits; they are read once an interval. A caller that is rejected leaves no
// member. Therefore processes of this package that wait leave tripwires in the set. Redisson's callers reclaim them
// unknowingly and so reveal that they take part; see scripts/acquire_rest.lua.
//
// A Share has two parts: [others] records who else takes part, and an [account] records how much of its share the
// process has not got yet.
type Share struct {
	account
	others

	rejected  time.Time // when the waiters were last rejected
	wireLeft  bool      // whether they left a tripwire then
	wireBegin time.Time // when the call began that was rejected then
	touched   time.Time // when another call of this process, which may have reclaimed the tripwire, last began or ended
}

// A Call is a call that was made, as far as a Share needs to know it.
type Call struct {
	Begin     time.Time
	Permits   int64 // that it was granted
	Alone     bool  // no other call of the process was on its way
	Allowance permit.Allowance
}

// Touch records that a call which does not come from the queue begins or has ended. Such a call may reclaim the
// queue's tripwire; then a missing tripwire does not prove that another process took part.
func (s *Share) Touch(now time.Time) { s.touched = now }

// Allowance returns the allowance of a call that is about to leave. The call's first request wants the given number
// of permits, and the first waiter of the queue wants head.
func (s *Share) Allowance(head, permits int64, r permit.Rate, now time.Time) permit.Allowance {
	if r.Type != permit.Overall || r.Interval <= 0 || s.rejected.IsZero() || now.Sub(s.rejected) > forgetAfter*r.Interval {
		return permit.Allowance{} // permits are not scarce
	}
	a := permit.Allowance{On: true, Survey: s.mustSurvey(now, r.Interval)}
	if s.Contended() {
		s.accrueFor(head, now, r.Interval)
		a.Grace = s.grace(r.Interval)
		if s.lacks(permits) <= 0 {
			a.May = int64(s.has(permits))
		}
	}
	return a
}

// Counts reports whether to learn from replies, which is so once the queue has been rejected.
func (s *Share) Counts() bool { return !s.rejected.IsZero() }

// Learn records what the reply to a call says about others; r is the rate of the limiter. It returns the allowance
// for the rest of the call, if that goes on.
func (s *Share) Learn(c Call, a *permit.Reply, r permit.Rate, now time.Time) permit.Allowance {
	before := s.Contended()
	if before {
		s.accrue(now, r.Interval)
		s.pay(c.Permits)
	}
	if !s.Counts() || !c.Allowance.On {
		return c.Allowance
	}
	o := &a.Others
	if s.wireLeft && !o.WireFound && s.touched.Before(s.wireBegin) {
		s.javaSeen = now
	}
	s.wireLeft, s.wireBegin = o.WireLeft && c.Alone, c.Begin // another call on its way may still reclaim it
	if c.Allowance.Survey && o.Mine+o.Java+o.Kin > 0 {
		c.Allowance.Survey = false
		s.learnSurvey(o, float64(r.Permits), now)
	}
	s.learnWaiting(o, now, r.Interval)
	if s.Contended() {
		s.target = s.divide(float64(r.Permits))
		if !before {
			s.account = account{target: s.target, owed: s.most(), accrued: now}
		}
	}
	c.Allowance.May = max(0, c.Allowance.May-c.Permits)
	return c.Allowance
}

// Next returns how soon the first request of a call, for the given number of permits, could be served after the reply a has
// rejected it, and how long the queue sleeps. The call had an allowance with the given grace; behind requests wait behind it.
func (s *Share) Next(permits int64, behind int, grace time.Duration, a *permit.Reply, r permit.Rate, now time.Time) (soon, wait time.Duration) {
	s.rejected = now
	if grace == 0 || a.Next != permit.Done || permits == 0 {
		return a.Wait, a.Wait
	}
	pace := s.target
	if s.savesHalf() && behind > 0 {
		pace /= 2
	}
	saved := time.Duration(min(max(0, s.lacks(permits))/pace, 100) * float64(r.Interval)) // until it is owed that many
	if !s.IsLarge(permits) {
		saved = max(saved, a.Others.Soon) // a large one takes them ahead
	}
	return a.Others.Soon, min(a.Wait, max(saved, time.Millisecond)) + s.turn(r.Interval)
}

// turn returns how much later than others this process asks for a permit that all of them wait for: the more it is
// owed, the sooner it asks. Otherwise the same process could be first each time, until it is owed nothing more. If
// Redisson takes part, no process asks later, because Redisson's callers may ask in that very millisecond each time.
func (s *Share) turn(interval time.Duration) time.Duration {
	if len(s.waiting) == 0 || !s.javaSeen.IsZero() {
		return 0
	}
	return time.Duration(max(0, 1-s.owed/s.most()) * float64(min(longestTurn, interval/50)))
}

// longestTurn is how much later a process asks that is owed nothing than one that is owed the share of an interval.
const longestTurn = 2 * time.Millisecond

// Affords reports whether the first waiter may reserve the given number of permits.
func (s *Share) Affords(permits int64, interval time.Duration, now time.Time) bool {
	s.accrueFor(permits, now, interval)
	return s.lacks(permits) <= 0
}
