// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math/rand/v2"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A checkSchedule decides when the state of a limiter in Redis is checked: for permits that are lost, or are too many, and for its
// TTL. The lock of the shard guards it.
type checkSchedule struct {
	nextAudit time.Time // the next check, after a rejection
	nextCheck time.Time // the next check, in a call that may be granted
	suspect   bool      // the rate has changed, so the next call checks
	lowered   bool      // the new rate is lower
	unchecked bool      // calls since the last check did not check

	noTTLUntil time.Time // until when the hash is assumed to have no TTL
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

// postpone prevents checks before the given instant.
func (c *checkSchedule) postpone(until time.Time) { c.nextAudit, c.nextCheck = until, until }

// maxInterval is the longest interval that this package calculates with, so that several of them still fit a
// Duration. Nobody sees the end of a longer one.
const maxInterval = 10 * 365 * 24 * time.Hour

// learnRateLocked takes in what the reply to a call that began at the given instant says about the rate. If the
// rate has changed, the next call checks the state, which may not fit the rate: the permits of a PER_CLIENT
// client stay when somebody else sets the rate.
func (l *limiter) learnRateLocked(a *permit.Reply, begin time.Time) {
	r := a.Rate
	r.Interval = min(r.Interval, maxInterval)
	if l.rate.Interval > 0 && (r.Permits != l.rate.Permits || r.Interval != l.rate.Interval) {
		l.checks.suspect, l.checks.lowered = true, r.Permits < l.rate.Permits
	}
	l.rate = r
	if l.checks.nextCheck.IsZero() {
		l.checks.nextCheck = begin.Add(checkEvery(r.Interval))
	}
	if share := l.shard.memory.Find(l.h.key); share != nil {
		share.Learn(a, begin)
	}
}

// Recheck returns how long callers that wait for a limiter of that rate sleep at most before they ask again.
func (e *Engine) Recheck(r permit.Rate) time.Duration { return min(e.cfg.Recheck, RenewEvery(r)) }

// leastRenewal is how often a limiter is renewed at most, if its permits come back less often than that. A KeepAlive of less
// than twice as long, which only others can set, is too short to be kept up by calls that are late at times.
const leastRenewal = 10 * time.Millisecond

// RenewEvery returns how often callers that wait for a limiter of that rate have to ask for it. Each call renews its
// KeepAlive, so that it does not expire while they wait. Half of it leaves time for a call that is late.
func RenewEvery(r permit.Rate) time.Duration {
	if r.KeepAlive <= 0 {
		return maxInterval
	}
	return max(r.KeepAlive/2, min(r.Interval/2, leastRenewal), time.Millisecond)
}
