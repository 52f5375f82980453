// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Limiter grants or rejects permits without waiting: a [Local], a [Shared], or a ratelimiter.RateLimiter, which Java
// programs can share. It is safe for concurrent use.
type Limiter interface {
	// Allow takes n permits if all of them are available now, and otherwise none. A rejection is not an
	// error and takes nothing.
	//
	// The limiters of this package return ratelimiter.ErrInvalidArgument if n is less than 1 or ctx is nil,
	// ratelimiter.ErrPermitsExceedRate if n is more than one call can ever be granted (both before anything
	// is sent), ctx.Err() if ctx is done, and the errors of Redis that [Shared] describes.
	Allow(ctx context.Context, n int64) (ratelimiter.Result, error)
	// Peek returns what Allow would return now, and takes nothing.
	Peek(ctx context.Context, n int64) (ratelimiter.Result, error)
}

// A reserver is a Limiter that may grant permits in advance.
type reserver interface {
	Limiter
	// Reserve takes n permits if they may be used within atMost. When they are granted, the caller must
	// wait for Result.Wait before it uses them; permits that it then does not use are not given back.
	// A limiter whose algorithm grants nothing in advance behaves as in Allow. Reserve returns the errors
	// of Allow.
	Reserve(ctx context.Context, n int64, atMost time.Duration) (ratelimiter.Result, error)
}

// A Rate is a number of permits per interval. It is not ratelimiter.Rate, because it has whole microseconds and none of
// what Redisson stores beside a rate, so that a KeepAlive that no algorithm could apply does not compile.
//
// The limiters count it exactly, with one exception. A bucket or a queue counts in fractions of a permit, and
// where the largest number that it needs, its capacity times the microseconds between two permits of the
// reduced rate, is above 2^52, it is refilled at the next lower rate that needs no such number. That is
// slower by less than a billionth. There always is such a rate for a capacity of up to four million permits that
// come in within 140 years, which at one permit a year are 140. A larger capacity that has none is rejected with
// ratelimiter.ErrInvalidArgument.
type Rate struct {
	// Permits is 1 to 2^32-1.
	Permits int64
	// Interval is a whole number of microseconds, at most 50 years. Instants are whole microseconds too: at
	// a rate of more than one permit a microsecond, several are granted at one instant.
	Interval time.Duration
}

// PerSecond returns the rate of that many permits per second.
func PerSecond(permits int64) Rate { return Rate{permits, time.Second} }

// PerMinute returns the rate of that many permits per minute.
func PerMinute(permits int64) Rate { return Rate{permits, time.Minute} }

// PerHour returns the rate of that many permits per hour.
func PerHour(permits int64) Rate { return Rate{permits, time.Hour} }

// Every returns the rate of one permit in each interval.
func Every(interval time.Duration) Rate { return Rate{1, interval} }

// ParseRate returns the rate that a text says, such as "10/s" or "100/1m30s": a number of permits, and an interval as
// [time.ParseDuration] takes it, or a unit of one. It is the inverse of [Rate.String]. It returns
// ratelimiter.ErrInvalidArgument for any other text, and for a rate that is out of range.
func ParseRate(text string) (r Rate, err error) {
	if r.Permits, r.Interval, err = permit.ParsePace(text); err != nil {
		return Rate{}, err
	}
	if err := r.check(); err != nil {
		return Rate{}, err
	}
	return r, nil
}

// String returns the rate in the form "10/1s".
func (r Rate) String() string { return fmt.Sprintf("%d/%v", r.Permits, r.Interval) }

// maxPermits is the most that one call can ask for, as with a RRateLimiter.
const maxPermits = math.MaxUint32

// maxExact bounds the numbers that Go and Lua count with. Lua's are exact up to 2^53, so that the sum of two
// of them still is.
const maxExact = 1 << 52

// longestInterval keeps an instant that is two intervals ahead exact in Lua.
const longestInterval = 50 * longest

func (r Rate) check() error {
	if r.Permits < 1 || r.Permits > maxPermits {
		return invalid("a rate of %d permits is not in 1..%d", r.Permits, int64(maxPermits))
	}
	if r.Interval < time.Microsecond || r.Interval%time.Microsecond != 0 {
		return invalid("interval %v is not a positive number of microseconds", r.Interval)
	}
	if r.Interval > longestInterval {
		return invalid("interval %v is more than 50 years", r.Interval)
	}
	return nil
}

func (r Rate) micros() int64 { return r.Interval.Microseconds() }

// checkPace checks a rate and the most permits that the state of a limiter at that rate holds.
func (r Rate) checkPace(what string, permits int64) error {
	if err := r.check(); err != nil {
		return err
	}
	if permits < 1 || permits > maxPermits {
		return invalid("%s of %d permits is not in 1..%d", what, permits, int64(maxPermits))
	}
	if _, ok := r.pace(permits); !ok {
		return invalid("%s of %d permits is too large to be counted exactly at %v; take a smaller one", what, permits, r)
	}
	return nil
}

// contextError returns the error of ctx, or that of a context that is nil.
func contextError(ctx context.Context) error {
	if ctx == nil {
		return invalid("the context is nil")
	}
	return ctx.Err()
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ratelimiter.ErrInvalidArgument, fmt.Sprintf(format, args...))
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
