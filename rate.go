package ratelimiter

import (
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// Rate is what a limiter allows, as Redis stores it: Permits in any Interval. It is a comparable
// value. Redisson: RateLimiterConfig.
type Rate struct {
	// Type says whether all clients share the permits or each has its own.
	Type RateType
	// Permits that may be acquired within any Interval, 1 to 2^32-1.
	Permits int64
	// Interval is the length of the window, a whole number of milliseconds, at least one.
	Interval time.Duration
	// KeepAlive deletes the limiter, rate and all, when nobody has acquired for so long. It is 0 for
	// a limiter that stays, otherwise a whole number of milliseconds and at least Interval.
	// Redisson before 3.38.0 ignores it.
	KeepAlive time.Duration
	// MinGap is the least time between two permits, so that they do not leave in one burst: after a
	// grant of n permits the next one comes n gaps later at the soonest. It is 0 for none, otherwise
	// a whole number of milliseconds and at most Interval. Callers of this package obey it, in all
	// processes; Redisson does not know it and leaves it alone.
	MinGap time.Duration
}

// String returns the rate as a log line wants it.
func (r Rate) String() string { return r.permit().String() }

func (r Rate) permit() permit.Rate {
	return permit.Rate{Type: permit.Type(r.Type), Permits: r.Permits, Interval: r.Interval, KeepAlive: r.KeepAlive, MinGap: r.MinGap}
}

func rateOf(r permit.Rate) Rate {
	return Rate{Type: RateType(r.Type), Permits: r.Permits, Interval: r.Interval, KeepAlive: r.KeepAlive, MinGap: r.MinGap}
}

// validate refuses what Redisson takes and then fails on: a rate or an interval of 0 or less, and
// rates that DECRBY cannot count (from 1e17 on).
func (r Rate) validate() error {
	if r.Type != Overall && r.Type != PerClient {
		return invalid("rate type %d is neither OVERALL nor PER_CLIENT", int(r.Type))
	}
	if r.Permits < 1 || r.Permits > permit.Max {
		return invalid("rate of %d permits is not in 1..%d", r.Permits, int64(permit.Max))
	}
	interval, err := millis("interval", r.Interval)
	if err != nil {
		return err
	}
	if interval < 1 {
		return invalid("interval %v is shorter than a millisecond", r.Interval)
	}
	if _, err := millis("keep-alive", r.KeepAlive); err != nil {
		return err
	}
	if r.KeepAlive != 0 && r.KeepAlive < r.Interval {
		return invalid("keep-alive %v is shorter than the interval %v", r.KeepAlive, r.Interval)
	}
	if _, err := millis("least gap", r.MinGap); err != nil {
		return err
	}
	if r.MinGap < 0 || r.MinGap > r.Interval {
		return invalid("least gap %v is not in 0..%v, the interval", r.MinGap, r.Interval)
	}
	return nil
}
