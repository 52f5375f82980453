// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"math/rand/v2"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A checkSchedule decides when the state of a limiter in Redis is checked for permits that are lost, or are too many.
type checkSchedule struct {
	nextAudit time.Time // the next check, after a rejection
	nextCheck time.Time // the next check, in a call that may be granted
	suspect   bool      // the rate has changed, so the next call checks
	lowered   bool      // the new rate is lower
	unchecked bool      // calls since the last check did not check
}

// checkEvery returns how often to look for permits that are lost or too many. That is once an interval, but at
// most every 50 ms, and at least every minute, because somebody else may have set a rate with a shorter
// interval.
func checkEvery(interval time.Duration) time.Duration {
	return min(max(interval, 50*time.Millisecond), time.Minute)
}

// CheckSample says that one in so many calls checks the state of a limiter that is new to this process or is
// asked less than once an interval. A limiter in constant use checks once an interval; if every call of a
// rarely used limiter did so, checking would cost more than it finds.
const CheckSample = 64

// take reports whether the call that leaves now checks that the permits left and those in use add up to the
// rate, even if nothing is rejected: it returns Lowered if the rate has been lowered since the last check, otherwise
// Checked, and Sick if the call does not check. If it does, no other call need do so for an interval.
func (c *checkSchedule) take(now time.Time, interval time.Duration, sample uint32) permit.HealCause {
	often := interval
	if often == 0 {
		often = time.Minute // the interval is not known
	}
	switch {
	case c.suspect:
	case now.Before(c.nextCheck):
		c.unchecked = true
		return permit.Sick
	case c.nextCheck.IsZero() || !c.unchecked && now.Sub(c.nextCheck)+checkEvery(often) > often:
		if rand.Uint32N(sample) > 0 {
			return permit.Sick
		}
	}
	cause := permit.Checked
	if c.lowered {
		cause = permit.Lowered
	}
	c.suspect, c.lowered, c.unchecked = false, false, false
	c.nextCheck = now.Add(checkEvery(interval))
	return cause
}

// learn takes in the rate that the reply to a call sent at the given instant has reported. If it has changed, the next call
// checks the state, which may not fit the rate: the permits of a PER_CLIENT client stay when somebody else sets the rate.
func (c *checkSchedule) learn(last, r permit.Rate, sent time.Time) {
	if last.Interval > 0 && (r.Permits != last.Permits || r.Interval != last.Interval) {
		c.suspect, c.lowered = true, r.Permits < last.Permits
	}
	if c.nextCheck.IsZero() {
		c.nextCheck = sent.Add(checkEvery(r.Interval))
	}
}

// postpone prevents checks before the given instant.
func (c *checkSchedule) postpone(until time.Time) { c.nextAudit, c.nextCheck = until, until }

// CheckDue returns why a caller whose own calls check nothing should check the state now, or Sick. Each such check is a call
// of its own.
func (l *Limiter) CheckDue() (cause permit.HealCause) {
	h, now := l.hints, time.Now()
	h.locked(func() {
		cause = h.checks.take(now, h.rate.Interval, 4*CheckSample)
		if h.checks.nextCheck.IsZero() {
			h.checks.nextCheck = now.Add(time.Second) // no reply has reported the interval
		}
	})
	return cause
}
