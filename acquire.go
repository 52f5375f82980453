package ratelimiter

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Result is the whole answer to one try.
type Result struct {
	// Granted says whether the permits were acquired.
	Granted bool
	// Wait is how long until the same request could be granted, if nobody else acquires first. It is
	// 0 when Granted.
	Wait time.Duration
	// Available is how many permits are left after the call, 0 to Rate.Permits. Where more grants
	// have expired than one call reclaims, it may be less than AvailablePermits would say.
	Available int64
	// Rate is the limiter's rate at the time of the call.
	Rate Rate
	// Time is the instant at which the call was decided, by the limiter's clock: that of Redis unless
	// WithClientClock.
	Time time.Time
	// ClockSkew is how far the newest grant found lies ahead of Time; 0 when none does. It is looked
	// for only when there are too few permits. More than a few ms means that a client which uses its
	// own clock, as Redisson does, is fast.
	ClockSkew time.Duration
	// Degraded says that Redis was away and the outage policy decided: then Rate is the last that Redis
	// told, or zero, Available what is left of the local share, and Time by this process' clock.
	Degraded bool
}

// TryAcquire acquires permits, waiting for them at most timeout. It answers whether it got them; when
// it did not, the limiter is as if it had not been asked.
//
// With timeout <= 0 it asks once and never waits. Otherwise it stands in line behind the callers of
// this Client that wait for the same limiter, until Redis has said that the permits are there. When
// they take longer than the time left it sleeps the time left and answers false, as Redisson does,
// unless a change meanwhile (a release, a new rate) serves it; see [WithEarlyRefusal].
//
// When ctx is done it returns at once with ctx.Err() unchanged; permits that were granted to it at
// that moment go to the next caller that waits or back to Redis. Further errors: ErrInvalidArgument
// for permits outside 1..2^32-1, ErrPermitsExceedRate, ErrNotInitialized, ErrMalformed, ErrClosed,
// ErrUnavailable, and those of Redis. While Redis is away the [OutagePolicy] decides.
func (l *RateLimiter) TryAcquire(ctx context.Context, permits int64, timeout time.Duration) (bool, error) {
	if err := l.checkPermits(ctx, permits); err != nil {
		return false, err
	}
	r, err := l.handle.Acquire(ctx, engine.Request{Permits: permits, Wait: timeout > 0, Timeout: timeout, Policy: l.policy})
	return r.Granted, err
}

// Acquire acquires permits, waiting as long as it takes. It answers nil when it has them. Errors are
// those of TryAcquire.
func (l *RateLimiter) Acquire(ctx context.Context, permits int64) error {
	if err := l.checkPermits(ctx, permits); err != nil {
		return err
	}
	_, err := l.handle.Acquire(ctx, engine.Request{Permits: permits, Wait: true, Policy: l.policy})
	return err
}

// Try asks for permits once and never waits. Its answer holds what an HTTP middleware or a dashboard
// needs: whether they were granted, how long it would take, what is left. A refusal is no error and
// spends nothing. Errors are those of TryAcquire.
//
// It does not stand in line: it takes what is free, also before callers that wait for more than that.
// Only where one of these has been passed over for a whole interval, it is refused until that one is
// served.
func (l *RateLimiter) Try(ctx context.Context, permits int64) (Result, error) {
	if err := l.checkPermits(ctx, permits); err != nil {
		return Result{}, err
	}
	r, err := l.handle.Acquire(ctx, engine.Request{Permits: permits, TellWait: true, Policy: l.policy})
	if err != nil || r.Reply == nil {
		return Result{}, err
	}
	return Result{Granted: r.Granted, Wait: r.Wait, Available: r.Available, Rate: rateOf(r.Reply.Rate), Time: r.Reply.Now,
		ClockSkew: r.Reply.Skew, Degraded: r.Degraded}, nil
}

// Peek returns what [RateLimiter.Try] would return now, and takes nothing: a dashboard's look, or that of a
// caller that has several limits to choose from. Of a grant that it foretells, Available still counts the
// permits.
//
// It knows Redis and nothing of the callers that wait in this process, for whose sake Try may refuse. As
// every call it reclaims what has expired; it does not renew Rate.KeepAlive. While Redis is away it
// returns ErrUnavailable, whatever the [OutagePolicy]. The other errors are those of TryAcquire.
func (l *RateLimiter) Peek(ctx context.Context, permits int64) (Result, error) {
	if err := l.checkPermits(ctx, permits); err != nil {
		return Result{}, err
	}
	a, err := l.handle.Peek(ctx, permits)
	if err != nil {
		return Result{}, err
	}
	r := Result{Granted: a.Granted[0] > 0, Available: a.Available, Rate: rateOf(a.Rate), Time: a.Now, ClockSkew: a.Skew}
	if !r.Granted {
		r.Wait = max(a.Wait, time.Millisecond)
	}
	return r, nil
}

// ready returns why a call must not be made: context first.
func (l *RateLimiter) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.err != nil {
		return l.err
	}
	if l.client.isClosed() {
		return ErrClosed
	}
	return nil
}

func (l *RateLimiter) checkPermits(ctx context.Context, permits int64) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	if permits < 1 || permits > permit.Max {
		return invalid("%d permits asked of %q are not in 1..%d", permits, l.name, int64(permit.Max))
	}
	return nil
}
