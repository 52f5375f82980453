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
	return adapted(r), nil
}

// Peek is l's Peek. Errors are those of Peek.
func (a *Adapter) Peek(ctx context.Context, n int64) (Result, error) {
	r, err := a.limiter.Peek(ctx, n)
	if err != nil {
		return Result{}, err
	}
	return adapted(r), nil
}

func adapted(from ratelimiter.Result) Result {
	r := Result{Granted: from.Granted, Remaining: from.Available, Wait: from.Wait}
	if r.Remaining < from.Rate.Permits {
		r.Reset = from.Rate.Interval
	}
	return r
}

// wait waits in the limiter's own line. The line does not tell how long it takes, so where the time is
// limited a Peek asks first. It takes no account of those who wait already: the wait is at least as long.
// When it fails, the limiter's policy for outages decides.
func (a *Adapter) wait(ctx context.Context, n int64, timeout time.Duration) (bool, error) {
	begin := time.Now()
	left, byContext := timeLeft(ctx, timeout)
	if left > 0 && left < math.MaxInt64 {
		r, err := a.Peek(ctx, n)
		if err == nil && !r.Granted && r.Wait > left-time.Since(begin) {
			return tooLate(byContext)
		}
	}
	if timeout == math.MaxInt64 {
		err := a.limiter.Acquire(ctx, n)
		return err == nil, err
	}
	return a.limiter.TryAcquire(ctx, n, max(timeout-time.Since(begin), 0))
}

var _ Limiter = (*Adapter)(nil)
