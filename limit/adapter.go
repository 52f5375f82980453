// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"math"
	"time"

	"github.com/goredisson/ratelimiter"
)

// An Adapter makes a ratelimiter.RateLimiter a [Limiter]: a sliding log in Redis that Java programs can share.
// Its durations are whole milliseconds. The zero value is not usable; call [NewAdapter]. A call of
// an Adapter that NewAdapter did not return, or of nil, returns ratelimiter.ErrInvalidArgument.
type Adapter struct {
	limiter *ratelimiter.RateLimiter
}

// NewAdapter returns a Limiter that uses l. If l is nil, every call returns ratelimiter.ErrInvalidArgument.
func NewAdapter(l *ratelimiter.RateLimiter) *Adapter {
	return &Adapter{l}
}

// Allow implements [Limiter] by the method Allow of the RateLimiter, and returns its errors. While any permit is
// in use Result.Reset is one interval, after which all are back at the latest.
func (a *Adapter) Allow(ctx context.Context, n int64) (Result, error) {
	r, err := a.rateLimiter().Allow(ctx, n)
	if err != nil {
		return Result{}, err
	}
	return adapted(r), nil
}

// Peek implements [Limiter] by the method Peek of the RateLimiter, and returns its errors.
func (a *Adapter) Peek(ctx context.Context, n int64) (Result, error) {
	r, err := a.rateLimiter().Peek(ctx, n)
	if err != nil {
		return Result{}, err
	}
	return adapted(r), nil
}

// rateLimiter returns the RateLimiter of a, or one whose calls say that there is none.
func (a *Adapter) rateLimiter() *ratelimiter.RateLimiter {
	if a == nil || a.limiter == nil {
		return &ratelimiter.RateLimiter{}
	}
	return a.limiter
}

func adapted(from ratelimiter.Result) Result {
	r := Result{Granted: from.Granted, Available: from.Available, Wait: from.Wait, Degraded: from.Degraded}
	if r.Available < from.Rate.Permits {
		r.Reset = from.Rate.Interval
	}
	return r
}

// waitInQueue waits in the queue of the RateLimiter, which does not say how long that takes. Where the time is
// limited it peeks first: the wait is at least as long as that says, and longer when other callers wait already.
// If the Peek fails, the RateLimiter decides, which may have an outage policy.
func (a *Adapter) waitInQueue(ctx context.Context, n int64, timeout time.Duration) (bool, error) {
	begin := time.Now()
	left, byContext := timeLeft(ctx, timeout)
	if left > 0 && left < math.MaxInt64 {
		r, err := a.Peek(ctx, n)
		if err == nil && !r.Granted && r.Wait > left-time.Since(begin) {
			return tooLate(byContext)
		}
	}
	if timeout == math.MaxInt64 {
		err := a.rateLimiter().Acquire(ctx, n)
		return err == nil, err
	}
	return a.rateLimiter().TryAcquire(ctx, n, max(timeout-time.Since(begin), 0))
}

var _ Limiter = (*Adapter)(nil)
