package ratelimiter

import (
	"context"
	"time"
)

// Peek says what [RateLimiter.Try] would answer now, and takes nothing: a dashboard's look, or that of a
// caller that has several limits to choose from. Of a grant that it foretells, Available still counts the
// permits.
//
// It knows Redis and nothing of the callers that wait in this process, for whose sake Try may refuse. As
// every call it reclaims what has expired; it does not renew Rate.KeepAlive. While Redis is away it
// answers ErrUnavailable, whatever the [OutagePolicy]. The other errors are those of TryAcquire.
func (l *RateLimiter) Peek(ctx context.Context, permits int64) (Result, error) {
	if err := l.checkPermits(ctx, permits); err != nil {
		return Result{}, err
	}
	p := part{Demand: Demand{Limiter: l, Permits: permits}}
	a, err := p.ask(ctx, true)
	if err != nil {
		return Result{}, err
	}
	r := Result{Granted: a.granted[0] > 0, Available: a.available, Rate: a.rate, Time: a.now, ClockSkew: a.skew}
	if !r.Granted {
		r.Wait = max(a.wait, time.Millisecond)
	}
	return r, nil
}
