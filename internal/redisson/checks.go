// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// A checkSchedule decides when a limiter's state in Redis is checked for permits that are lost or too many.
type checkSchedule struct {
	nextAudit time.Time // the next check, after a rejection
	nextCheck time.Time // the next check, in a call that may be granted
	suspect   bool      // the rate has changed, so the next call checks
	lowered   bool      // the new rate is lower
	rejected  bool      // the last reply granted nothing, so the next one may reject, too
	calls     uint32    // since the last check
	permits   int64     // that these asked for
}

// checkEvery returns how often to look for permits that are lost or too many: once an interval, but at most every 50
// ms, and at least every minute, because another client may have set a rate with a shorter interval.
func checkEvery(interval time.Duration) time.Duration {
	return min(max(interval, 50*time.Millisecond), time.Minute)
}

// CheckSample bounds the share of calls that check the state: at most one in CheckSample calls of a limiter does,
// however often it is asked and however many limiters there are. There is one exception. If fewer calls than
// CheckSample have asked for as many permits as the rate has, the next one may check, because a window may hold more
// than the rate if there are too many permits.
//
// A limiter that is new to this process starts at a random count. Otherwise none of many limiters that are asked once
// would ever be checked.
const CheckSample = 64

// take decides whether the call that leaves now, for the given number of permits, checks that the permits left and
// those in use add up to the rate, even if nothing is rejected. It returns Lowered if the rate has been lowered since
// the last check, otherwise Checked, or Unchecked if the call does not check. After a check, no other call needs to check
// for an interval.
//
// With audits, a call after a rejection checks at once if a check would have to follow its own rejection. That saves
// the second call.
func (c *checkSchedule) take(now time.Time, r permit.Rate, permits int64, sample uint32, audits bool) permit.HealCause {
	c.calls, c.permits = c.calls+1, c.permits+permits
	early := now.Before(c.nextCheck)
	if r.Permits == 0 { // no reply has reported the rate, as none of a list does: a second call finds it out
		early = early || c.nextCheck.IsZero() && c.calls < sample
	} else {
		early = early || c.calls < sample && c.permits < r.Permits
	}
	if early && !c.suspect && !(audits && c.rejected && !now.Before(c.nextAudit)) {
		return permit.Unchecked
	}
	cause := permit.Checked
	if c.lowered {
		cause = permit.Lowered
	}
	c.suspect, c.lowered, c.calls, c.permits = false, false, 0, 0
	c.nextCheck = now.Add(checkEvery(r.Interval))
	return cause
}

// learn records the rate in the reply to a call that was sent at the given instant. If the rate has changed, the next
// call checks the state, which may not fit it: the permits of a PER_CLIENT client stay when another client sets the
// rate.
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

// CheckDue returns why the state should be checked now, or Unchecked if it should not. It is for a caller of the given
// number of permits whose own calls check nothing. Each such check is a call of its own.
func (l *Limiter) CheckDue(permits int64) (cause permit.HealCause) {
	h, now := l.hints, time.Now()
	h.locked(func() {
		cause = h.checks.take(now, h.rate, permits, 4*CheckSample, false)
		if h.checks.nextCheck.IsZero() {
			h.checks.nextCheck = now.Add(time.Second) // no reply has reported the interval
		}
	})
	return cause
}
