package ratelimiter

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// maxPermits is what a member of the permits set can hold: an unsigned 32-bit number in every
// Redisson version.
const maxPermits = math.MaxUint32

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

// String is the rate as a log line wants it.
func (r Rate) String() string {
	s := fmt.Sprintf("%s %d/%v", r.Type, r.Permits, r.Interval)
	if r.KeepAlive != 0 {
		s += fmt.Sprintf(" keep-alive %v", r.KeepAlive)
	}
	if r.MinGap != 0 {
		s += fmt.Sprintf(" gap %v", r.MinGap)
	}
	return s
}

// validate refuses what Redisson takes and then fails on: a rate or an interval of 0 or less, and
// rates that DECRBY cannot count (from 1e17 on).
func (r Rate) validate() error {
	if r.Type != Overall && r.Type != PerClient {
		return invalid("rate type %d is neither OVERALL nor PER_CLIENT", int(r.Type))
	}
	if r.Permits < 1 || r.Permits > maxPermits {
		return invalid("rate of %d permits is not in 1..%d", r.Permits, int64(maxPermits))
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

// parseRate reads the hash. keepAliveTime is absent in what Redisson before 3.38.0 wrote.
func parseRate(hash map[string]string) (Rate, error) {
	if hash["rate"] == "" || hash["interval"] == "" || hash["type"] == "" {
		return Rate{}, ErrNotInitialized
	}
	var r Rate
	var err error
	number := func(field string) int64 {
		n, perr := strconv.ParseInt(hash[field], 10, 64)
		if (perr != nil || n < 0) && err == nil {
			err = fmt.Errorf("%w: %s is %q", ErrMalformed, field, hash[field])
		}
		return n
	}
	duration := func(field string) time.Duration {
		n := number(field)
		if n > math.MaxInt64/int64(time.Millisecond) {
			// Java's Long.MAX_VALUE ms and the like: as long as a Duration can be.
			return math.MaxInt64 / time.Millisecond * time.Millisecond
		}
		return time.Duration(n) * time.Millisecond
	}
	r.Permits = number("rate")
	r.Interval = duration("interval")
	if hash["keepAliveTime"] != "" {
		r.KeepAlive = duration("keepAliveTime")
	}
	if hash["minGap"] != "" {
		r.MinGap = duration("minGap")
	}
	r.Type = RateType(number("type"))
	if err == nil && r.Type != Overall && r.Type != PerClient {
		err = fmt.Errorf("%w: type is %q", ErrMalformed, hash["type"])
	}
	if err == nil && (r.Permits < 1 || r.Interval < time.Millisecond) {
		err = fmt.Errorf("%w: rate is %q, interval is %q", ErrMalformed, hash["rate"], hash["interval"])
	}
	if err != nil {
		return Rate{}, err
	}
	return r, nil
}
