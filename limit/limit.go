// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"cmp"
	"context"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
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

// A reserver is a Limiter that may grant permits in advance, as [Shared.Reserve] does.
type reserver interface {
	Limiter
	Reserve(ctx context.Context, n int64, atMost time.Duration) (ratelimiter.Result, error)
}

// longestInterval keeps an instant that is two intervals ahead exact in Lua.
const longestInterval = 50 * calls.Longest

// checkRate returns an error that names the field of r that no algorithm can apply.
func checkRate(r ratelimiter.Rate) error {
	if err := checkCount("Rate.Permits", r.Permits); err != nil {
		return err
	}
	if r.Interval < time.Microsecond || r.Interval%time.Microsecond != 0 {
		return calls.Invalid("Rate.Interval %v is not a positive number of microseconds", r.Interval)
	}
	if r.Interval > longestInterval {
		return calls.Invalid("Rate.Interval %v is more than 50 years", r.Interval)
	}
	if r.Type != ratelimiter.Overall {
		return calls.Invalid("Rate.Type is %v, which only a RateLimiter can apply; for permits of each client, use For with its name as the key", r.Type)
	}
	if r.KeepAlive != 0 {
		return calls.Invalid("Rate.KeepAlive is %v, which only a RateLimiter can apply; the keys of this limiter expire by themselves", r.KeepAlive)
	}
	if r.MinGap != 0 {
		return calls.Invalid("Rate.MinGap is %v, which only a RateLimiter can apply; for an even flow, use a LeakyQueue", r.MinGap)
	}
	return nil
}

// microsOf returns the interval of a rate in µs.
func microsOf(r ratelimiter.Rate) int64 { return r.Interval.Microseconds() }

// checkCount returns an error that names the field if its number of permits is none that a limiter can hold.
func checkCount(field string, permits int64) error {
	if permits < 1 || permits > calls.MaxPermits {
		return calls.Invalid("%s %d is not in 1..%d", field, permits, int64(calls.MaxPermits))
	}
	return nil
}

// checkPace checks a rate and the most permits that the state of a limiter at that rate holds, which are in that field.
func checkPace(r ratelimiter.Rate, field string, permits int64) error {
	if err := cmp.Or(checkRate(r), checkCount(field, permits)); err != nil {
		return err
	}
	if _, ok := paceOf(r, permits); !ok {
		return calls.Invalid("%s %d is too large to be counted exactly at %d/%v; take a smaller one", field, permits, r.Permits, r.Interval)
	}
	return nil
}
