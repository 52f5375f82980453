// SPDX-License-Identifier: Apache-2.0

// Package fair decides how the callers of one process that wait leave room for other processes: for Redisson, whose
// callers wake later than the instant at which a permit expires, and for other processes of this package, the peers.
// Its types are values without a lock and without a clock: whoever has one guards it, and says what time it is. As long
// as nobody else takes part they are as good as their zero values.
package fair

import (
	"math"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Share is what a process may take of the permits of one limiter while others take part.
//
// When permits expire, a process takes its share of the rate. It leaves permits beyond the share to others for a grace,
// and then takes those that nobody has taken, so no permit is wasted. If nobody else takes part the share is the whole
// rate. Redisson's part is at most half, however many JVMs there are, because they cannot be told apart; the processes of
// this package share the rest equally. A part that is not used goes to those that use theirs.
//
// The newest members show who holds permits; they are read once an interval. A caller that is rejected leaves no member.
// Therefore processes of this package that wait leave tripwires in the set. Redisson's callers reclaim them unknowingly
// and so reveal that they take part; see scripts/acquire.lua.
//
// A Share has three parts: who else takes part, its [others]; how much of it the process has not taken yet, a [credit];
// and what the process holds at the moment, its [recentGrants].
type Share struct {
	credit
	recentGrants
	others

	rejected  time.Time // when the waiters were last rejected
	wireLeft  bool      // whether they left a tripwire then
	wireBegin time.Time // when the call began that was rejected then
	touched   time.Time // when another call of this process, which may have reclaimed the tripwire, last began or ended

	clockMS int64     // the last known instant of the limiter's clock
	clockAt time.Time // when that was
	urgent  bool      // the first of the waiters has no time for the grace
}

// A Waiter is a caller that waits, as far as a Share needs to know it.
type Waiter struct {
	Permits  int64
	Rejected bool      // at least once
	Deadline time.Time // zero for none
}

// A Call is a call that was made, as far as a Share needs to know it.
type Call struct {
	Begin     time.Time
	Permits   int64 // that it was granted
	Alone     bool  // no other call of the process was on its way
	Allowance permit.Allowance
}

// timerSlack is how late the call of a waiter may be.
const timerSlack = 3 * time.Millisecond

// Touch records that a call begins or has ended that does not come from the queue. Such a call may reclaim the queue's
// tripwire, whose absence then does not prove that another process took part.
func (s *Share) Touch(now time.Time) { s.touched = now }

// Allowance returns the allowance of a call that is about to leave, and whose first request is w. The first in the queue
// wants head permits.
func (s *Share) Allowance(head int64, w Waiter, r permit.Rate, now time.Time) permit.Allowance {
	if r.Type != permit.Overall || r.Interval <= 0 || s.rejected.IsZero() || now.Sub(s.rejected) > forgetAfter*r.Interval {
		return permit.Allowance{} // permits are not scarce
	}
	a := permit.Allowance{On: true, Age: -1, Survey: s.mustSurvey(now, r.Interval)}
	if s.Contended() {
		s.accrueFor(head, now, r.Interval)
		a.Grace = s.grace(r.Interval)
		switch spare := -s.lacks(w.Permits); {
		case spare >= 0:
			a.May, a.Age = s.young(w.Permits, spare, now, r.Interval)
			if a.May > 0 && w.Permits > 1 && w.Rejected && !s.IsLarge(w.Permits) {
				a.Wants = int(min(255, math.Ceil(255*float64(w.Permits)/float64(max(1, r.Permits)))))
			}
		case s.urgent && s.mayBorrow():
			a.May, a.Age = w.Permits, r.Interval.Milliseconds()
		}
	}
	s.urgent = false
	return a
}

// young returns how many permits within their grace may be taken by a request for that many and those behind it, and how
// many ms ago these expired at most. Their credit exceeds what the request needs by spare. Permits that expired before
// the credit sufficed, or before the process held less than its share, belong to others until their grace is over.
func (s *Share) young(permits int64, spare float64, now time.Time, interval time.Duration) (may, age int64) {
	clock := s.clock(now)
	s.expire(clock, s.target, interval)
	free := s.target - float64(s.held)
	if free <= 0 {
		return 0, -1
	}
	since := time.Duration(spare / s.pace * float64(interval)) // the credit has sufficed
	if !s.fullSince.IsZero() {
		since += now.Sub(s.fullSince)
	}
	may = max(permits, min(int64(s.has(permits)+1e-6), int64(math.Ceil(free))))
	return may, min(since.Milliseconds(), clock-s.roomSince, interval.Milliseconds()) + timerSlack.Milliseconds()
}

// accrueFor lets the credit grow while the first in the queue wants that many permits; it saves if they are many.
func (s *Share) accrueFor(head int64, now time.Time, interval time.Duration) {
	s.saving = s.IsLarge(head)
	s.accrue(now, interval)
}

// clock returns what the limiter's clock shows at now, as far as that is known.
func (s *Share) clock(now time.Time) int64 { return s.clockMS + now.Sub(s.clockAt).Milliseconds() }

// Counts reports whether replies are to be learned from, which they are once the queue has been rejected.
func (s *Share) Counts() bool { return !s.rejected.IsZero() }

// Learn takes in what the reply to a call for a limiter of rate r says about others. It returns the allowance of the rest of
// the call, if that goes on.
func (s *Share) Learn(c Call, a *permit.Reply, r permit.Rate, now time.Time) permit.Allowance {
	if !s.Counts() {
		return c.Allowance
	}
	s.clockMS, s.clockAt = a.Now.UnixMilli(), now
	s.note(s.clockMS, c.Permits, s.target, r.Interval)
	if !c.Allowance.On {
		return c.Allowance
	}
	o, before := &a.Others, s.Contended()
	if before && c.Allowance.Grace > 0 {
		s.accrue(now, r.Interval)
		s.balance -= float64(o.Young)
	}
	if s.wireLeft && !o.WireFound && s.touched.Before(s.wireBegin) {
		s.javaSeen = now
	}
	s.wireLeft, s.wireBegin = o.WireLeft && c.Alone, c.Begin // another call on its way may still reclaim it
	if c.Allowance.Survey && o.Mine+o.Java+o.Kin > 0 {
		c.Allowance.Survey = false
		s.learnSurvey(o, float64(r.Permits), now)
	}
	s.learnWaiting(o, now)
	s.forget(now, r.Interval)
	if s.Contended() {
		if !before {
			s.reset(now)
		}
		s.target, s.pace = s.divide(float64(r.Permits))
	}
	c.Allowance.May = max(0, c.Allowance.May-o.Young)
	return c.Allowance
}

// Next returns how soon w, the first of a call with an allowance for that grace, which was rejected with a, could be
// served, and how long the queue sleeps, in which that many others stand behind w.
func (s *Share) Next(w Waiter, behind int, grace time.Duration, a *permit.Reply, r permit.Rate, now time.Time) (soon, wait time.Duration) {
	s.rejected = now
	if grace == 0 || a.Next != permit.Done || w.Permits == 0 {
		return a.Wait, a.Wait
	}
	s.expire(s.clock(now), s.target, r.Interval)
	pace := s.pace
	if s.savesHalf() && behind > 0 {
		pace /= 2
	}
	saved := time.Duration(min(max(0, s.lacks(w.Permits))/pace, 100) * float64(r.Interval)) // until there is credit for w
	if s.IsLarge(w.Permits) {
		return a.Others.Soon, min(a.Wait, max(saved, time.Millisecond)) // then it takes them ahead
	}
	saved = max(saved, s.roomIn(s.clock(now), s.target, r.Interval))
	wait = min(a.Wait, max(a.Others.Soon, saved, time.Millisecond))
	if left := w.Deadline.Sub(now); !w.Deadline.IsZero() && left < wait && left >= a.Others.Soon && s.mayBorrow() {
		wait, s.urgent = max(a.Others.Soon, time.Millisecond), true
	}
	return a.Others.Soon, wait
}

// Affords reports whether the first in the queue may take that many permits ahead of their return.
func (s *Share) Affords(permits int64, interval time.Duration, now time.Time) bool {
	s.accrueFor(permits, now, interval)
	return s.lacks(permits) <= 0
}

// Pay records that the first in the queue has taken that many permits ahead. A large request is paid for in time, and does not
// stop small ones.
func (s *Share) Pay(permits int64, interval time.Duration, now time.Time) {
	s.pay(permits)
	if !s.IsLarge(permits) {
		s.note(s.clock(now), permits, s.target, interval)
	}
}
