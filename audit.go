package ratelimiter

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// auditEvery is how often lost permits, and such as are too many, are looked for: once an interval, but no more often than every
// 50 ms, and every minute where the interval is longer, since a rate set elsewhere may have made it
// shorter.
func auditEvery(interval time.Duration) time.Duration {
	return min(max(interval, 50*time.Millisecond), time.Minute)
}

// checkSample is of how many calls of a limiter that is asked less than once an interval, or whose engine is new, one
// checks its state: a limiter in constant use checks once an interval. Every call of such a limiter could be the only one
// for an interval, so that checking each would cost more than it finds.
const checkSample = 64

// takeCheck says whether the call that begins now checks that value and the permits in use make up the rate,
// although nothing may be refused, and if so that another need not for an interval; and whether the rate was lowered
// since the last. The bucket's lock is held.
func (e *engine) takeCheck(now time.Time, sample uint32) (check, lowered bool) {
	often := e.interval
	if often == 0 {
		often = time.Minute // nobody has told it
	}
	switch {
	case e.suspect:
	case now.Before(e.nextCheck):
		e.unchecked = true
		return false, false
	case e.nextCheck.IsZero() || !e.unchecked && now.Sub(e.nextCheck)+auditEvery(often) > often:
		if rand.Uint32N(sample) > 0 {
			return false, false
		}
	}
	lowered = e.lowered
	e.suspect, e.lowered, e.unchecked = false, false, false
	e.nextCheck = now.Add(auditEvery(e.interval))
	return true, lowered
}

// told takes in what the answer to a call that began then says of the rate. Another one than the last makes the next
// call check the state, which may not fit it: a PER_CLIENT client's permits stay when somebody else sets the rate. The
// bucket's lock is held.
func (e *engine) told(a *answer, begin time.Time) {
	r := a.rate
	if e.rate.Interval > 0 && (r.Permits != e.rate.Permits || r.Interval != e.rate.Interval) {
		e.suspect, e.lowered = true, r.Permits < e.rate.Permits
	}
	e.interval, e.rate = r.Interval, r
	if e.nextCheck.IsZero() {
		e.nextCheck = begin.Add(auditEvery(r.Interval))
	}
	m := e.memory
	if m == nil && len(e.bucket.memories) > 0 {
		m = e.bucket.memories[e.l.keys.hash]
	}
	if m != nil {
		m.learn(a, begin)
	}
}

// audit has value and the permits in use make up the rate, in calls of bounded work. Permits that are neither left
// nor in use are given back. Where there are too many, those are taken that the oldest grants hold, so that a
// release of Java's keeps what it gave; with lowered, those that are left go first. A set that turns over faster than
// it can be read is left for another time.
func (l *RateLimiter) audit(ctx context.Context, typ RateType, lowered bool) error {
	for range 3 {
		var t tally
		for {
			next, done, found, err := l.runAudit(ctx, typ, t)
			var other *otherTypeError
			if errors.As(err, &other) || errors.Is(err, ErrNotInitialized) {
				return nil // changed meanwhile; the next call will be told
			}
			if err != nil {
				return err
			}
			if done {
				n := found.surplus
				if lowered {
					n = min(n, -found.value)
				}
				return l.trim(ctx, typ, n)
			}
			if next.members == 0 {
				break
			}
			t = next
		}
	}
	return nil
}

// trim takes n permits out of the set, oldest first, and gives them to value, from which the audit has taken them.
func (l *RateLimiter) trim(ctx context.Context, typ RateType, n int64) error {
	for n > 0 {
		taken, err := l.run(ctx, trimScript, l.keys.of(typ), typ.wire(), n)
		if err != nil || taken[0] == 0 {
			return err
		}
		n -= taken[0]
	}
	return nil
}
