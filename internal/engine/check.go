package engine

import (
	"math/rand/v2"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// checks says when the state of a limiter in Redis is looked at: lost permits, and such as are too many.
type checks struct {
	nextAudit time.Time // after a refusal
	nextCheck time.Time // with a call that may be granted
	suspect   bool      // the next call checks: the rate is another
	lowered   bool      // and it is a lower one
	unchecked bool      // there have been calls since the last check that did not
}

// auditEvery returns how often lost permits, and such as are too many, are looked for: once an interval, but no more
// often than every 50 ms, and every minute where the interval is longer, since a rate set elsewhere may have made it
// shorter.
func auditEvery(interval time.Duration) time.Duration {
	return min(max(interval, 50*time.Millisecond), time.Minute)
}

// CheckSample is of how many calls of a limiter that is asked less than once an interval, or that is new here, one
// checks its state: a limiter in constant use checks once an interval. Every call of such a limiter could be the
// only one for an interval, so that checking each would cost more than it finds.
const CheckSample = 64

// take reports whether the call that leaves now checks that the permits left and those in use make up the rate,
// although nothing may be refused, and if so that another need not for an interval; and whether the rate was lowered
// since the last.
func (c *checks) take(now time.Time, interval time.Duration, sample uint32) (check, lowered bool) {
	often := interval
	if often == 0 {
		often = time.Minute // nobody has told it
	}
	switch {
	case c.suspect:
	case now.Before(c.nextCheck):
		c.unchecked = true
		return false, false
	case c.nextCheck.IsZero() || !c.unchecked && now.Sub(c.nextCheck)+auditEvery(often) > often:
		if rand.Uint32N(sample) > 0 {
			return false, false
		}
	}
	lowered = c.lowered
	c.suspect, c.lowered, c.unchecked = false, false, false
	c.nextCheck = now.Add(auditEvery(interval))
	return true, lowered
}

// postpone has neither an audit nor a check before that instant.
func (c *checks) postpone(until time.Time) { c.nextAudit, c.nextCheck = until, until }

// learnRateLocked takes in what the reply to a call that left then says of the rate. Another one than the last makes
// the next call check the state, which may not fit it: a PER_CLIENT client's permits stay when somebody else sets the
// rate.
func (l *limiter) learnRateLocked(a *permit.Reply, begin time.Time) {
	r := a.Rate
	if l.rate.Interval > 0 && (r.Permits != l.rate.Permits || r.Interval != l.rate.Interval) {
		l.checks.suspect, l.checks.lowered = true, r.Permits < l.rate.Permits
	}
	l.interval, l.rate = r.Interval, r
	if l.checks.nextCheck.IsZero() {
		l.checks.nextCheck = begin.Add(auditEvery(r.Interval))
	}
	m := l.local
	if m == nil && len(l.shard.locals) > 0 {
		m = l.shard.locals[l.h.key]
	}
	if m != nil {
		m.Learn(a, begin)
	}
}
