package limit

import (
	"context"
	"math"
	"time"

	"github.com/goredisson/ratelimiter"
)

// An Adapter is a RRateLimiter as a [Limiter]: a sliding log in Redis that Java shares. Its times are
// whole milliseconds. Make one with [NewAdapter].
type Adapter struct {
	limiter *ratelimiter.RateLimiter
}

// NewAdapter is l as a Limiter.
func NewAdapter(l *ratelimiter.RateLimiter) *Adapter { return &Adapter{l} }

// Allow is l's Try. Result.Reset is one interval when any permit is in use, which is when all are back at
// the latest. Errors are those of Try.
func (a *Adapter) Allow(ctx context.Context, n int64) (Result, error) {
	r, err := a.limiter.Try(ctx, n)
	if err != nil {
		return Result{}, err
	}
	return adapted(r.Granted, r.Available, r.Wait, r.Rate), nil
}

// Peek looks at l's rate and available permits, in two calls, of which the state can change in between.
// Result.Wait is an upper bound: one interval. Errors are those of Rate and AvailablePermits, and
// ratelimiter.ErrInvalidArgument and ErrPermitsExceedRate.
func (a *Adapter) Peek(ctx context.Context, n int64) (Result, error) {
	rate, err := a.limiter.Rate(ctx)
	if err != nil {
		return Result{}, err
	}
	// What a sliding log of that many permits refuses, l does.
	if err := checkPermits(SlidingLog{Rate{Permits: rate.Permits}}, n); err != nil {
		return Result{}, err
	}
	left, err := a.limiter.AvailablePermits(ctx)
	if err != nil {
		return Result{}, err
	}
	if left < n {
		return adapted(false, left, rate.Interval, rate), nil
	}
	return adapted(true, left, 0, rate), nil
}

func adapted(granted bool, left int64, wait time.Duration, rate ratelimiter.Rate) Result {
	r := Result{Granted: granted, Remaining: left, Wait: wait}
	if left < rate.Permits {
		r.Reset = rate.Interval
	}
	return r
}

// wait stands in l's own line.
func (a *Adapter) wait(ctx context.Context, n int64, timeout time.Duration) (bool, error) {
	if timeout == math.MaxInt64 {
		err := a.limiter.Acquire(ctx, n)
		return err == nil, err
	}
	return a.limiter.TryAcquire(ctx, n, timeout)
}

var _ Limiter = (*Adapter)(nil)
