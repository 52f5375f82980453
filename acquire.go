// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A Result is the outcome of [RateLimiter.Allow] or [RateLimiter.Peek].
type Result struct {
	// Granted reports whether the permits were acquired.
	Granted bool
	// Wait is how long it takes until the same request could be granted, provided that nobody else acquires
	// first. It is 0 if Granted is true.
	Wait time.Duration
	// Available is the number of permits left after the call, from 0 to Rate.Permits. If more grants have
	// expired than one call reclaims, it may be less than AvailablePermits returns.
	Available int64
	// Rate is the limiter's rate at the time of the call.
	Rate Rate
	// Time is the instant at which the call was decided, by the limiter's clock: that of Redis, or that of this
	// process with WithClientClock.
	Time time.Time
	// ClockSkew is how far the newest grant found lies ahead of Time, or 0 if none does. It is looked for only
	// when there are too few permits. A skew of more than a few milliseconds means that the clock of a client
	// which uses its own clock, as Redisson's clients do, is fast.
	ClockSkew time.Duration
	// Degraded reports that Redis was unavailable and the [OutagePolicy] decided. In that case Rate is the last
	// rate that Redis reported, or zero, Available is what is left of the local quota, and Time is by the clock
	// of this process.
	Degraded bool
}

// TryAcquire acquires permits, waiting for them until timeout is over, and reports whether it got them. If it
// did not, the limiter is as if it had not been asked.
//
// With timeout <= 0 TryAcquire asks once and never waits. Otherwise it joins the wait queue of the callers of this
// Client that wait for the same limiter. If the permits take longer than the time left, it sleeps for the time
// left and returns false, as Redisson does, unless a change in the meantime, such as a release or a new rate,
// lets it succeed; see [WithEarlyRejection].
//
// When ctx is done, TryAcquire returns at once with ctx.Err(). If Redis is known to be unavailable, if the last
// attempt failed, or if there has been no reply to the call for 10 ms or more, the error wraps ErrUnavailable and the
// cause as well. Permits that are granted to it at that moment go to the next caller in the queue or back to Redis. Other
// errors are ErrInvalidArgument if permits is not in 1..2^32-1 or ctx is nil, ErrPermitsExceedRate, ErrNotInitialized,
// ErrMalformed, ErrConflict, ErrClosed, ErrUnavailable, and those from Redis. While Redis is unavailable the
// [OutagePolicy] decides.
func (l *RateLimiter) TryAcquire(ctx context.Context, permits int64, timeout time.Duration) (bool, error) {
	r, err := l.acquire(ctx, engine.Request{Permits: permits, Wait: timeout > 0, Timeout: timeout, Known: l.known, Policy: l.policy})
	return r.Granted, err
}

// Acquire acquires permits, waiting as long as it takes. It returns the same errors as [RateLimiter.TryAcquire]. While
// Redis is unavailable it goes on waiting, and returns ErrUnavailable after the time that [WithOutageLimit] sets.
func (l *RateLimiter) Acquire(ctx context.Context, permits int64) error {
	_, err := l.acquire(ctx, engine.Request{Permits: permits, Wait: true, Policy: l.policy})
	return err
}

// Allow asks for permits once and never waits. The Result has what an HTTP middleware or a dashboard needs:
// whether the permits were granted, how long the wait would be, and how many are left. A rejection is not an
// error and takes nothing. Allow returns the same errors as [RateLimiter.TryAcquire], ErrUnavailable at once while Redis
// is known to be unavailable.
//
// Allow does not wait in the queue: it takes permits that are free even if other callers wait for more than that.
// Only when the first of these has been passed over for a whole interval does Allow reject, until that caller has
// been served.
func (l *RateLimiter) Allow(ctx context.Context, permits int64) (Result, error) {
	r, err := l.acquire(ctx, engine.Request{Permits: permits, TellWait: true, Known: l.known, Policy: l.policy})
	if err != nil || r.Reply == nil {
		return Result{}, err
	}
	return Result{Granted: r.Granted, Wait: r.Wait, Available: r.Available, Rate: rateOf(r.Reply.Rate), Time: r.Reply.Now,
		ClockSkew: r.Reply.Skew, Degraded: r.Degraded}, nil
}

// CachedRejections returns a handle of the same limiter whose requests may be rejected without asking Redis, if they are
// known to be rejected; see [WithCachedRejections], which sets it for all limiters of a Client. The requests of l go on as
// before. 0 makes each request ask. If bound is negative, every call of the handle returns ErrInvalidArgument.
func (l *RateLimiter) CachedRejections(bound time.Duration) *RateLimiter {
	handle := *l
	handle.known = bound
	if bound < 0 && handle.err == nil {
		handle.err = invalid("CachedRejections: %v is negative", bound)
	}
	return &handle
}

// Peek returns what [RateLimiter.Allow] would return now, without taking any permits. It suits dashboards, and
// callers that choose among several limits. If Granted is true, Available still counts the permits asked for.
//
// Peek looks at Redis alone and ignores the callers that wait in this process, because of which Allow may reject.
// Like every call it reclaims expired permits, but it does not renew Rate.KeepAlive. While Redis is unavailable
// it returns ErrUnavailable whatever the [OutagePolicy] is. The other errors are those of
// [RateLimiter.TryAcquire].
func (l *RateLimiter) Peek(ctx context.Context, permits int64) (Result, error) {
	a, err := l.peek(ctx, permits)
	if err != nil {
		return Result{}, err
	}
	r := Result{Granted: a.Granted[0] > 0, Available: a.Available, Rate: rateOf(a.Rate), Time: a.Now, ClockSkew: a.Skew}
	if !r.Granted {
		r.Wait = max(a.Wait, time.Millisecond)
	}
	return r, nil
}

// acquire passes a request on, if it is valid, and tells the hooks.
func (l *RateLimiter) acquire(ctx context.Context, r engine.Request) (engine.Outcome, error) {
	if l.hooked() {
		return l.acquireHooked(ctx, r)
	}
	if err := l.checkPermits(ctx, r.Permits); err != nil {
		return engine.Outcome{}, err
	}
	return l.pass(ctx, r)
}

// pass passes a request on: that of a handle which carries a rate, or is of a lower class, by their ways.
func (l *RateLimiter) pass(ctx context.Context, r engine.Request) (engine.Outcome, error) {
	switch {
	case l.rate != nil:
		return l.acquireCarrying(ctx, r)
	case l.class != nil:
		return l.acquireInClass(ctx, r)
	}
	return l.handle.Acquire(ctx, r)
}

// peek asks without taking permits, if the request is valid, and tells the hooks.
func (l *RateLimiter) peek(ctx context.Context, permits int64) (permit.Reply, error) {
	if l.hooked() {
		return l.peekHooked(ctx, permits)
	}
	if err := l.checkPermits(ctx, permits); err != nil {
		return permit.Reply{}, err
	}
	return l.in(true).Peek(ctx, permits)
}

func (l *RateLimiter) hooked() bool { return l.client != nil && l.client.hooked }

// ready returns the reason why a call cannot be made, if any. An error of the context comes first.
func (l *RateLimiter) ready(ctx context.Context) error {
	switch {
	case ctx == nil:
		return invalid("the context is nil")
	case l.client == nil && l.err == nil:
		return invalid("the RateLimiter is not one that Client.RateLimiter returned")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.err != nil {
		return l.err
	}
	if l.client.engine.IsClosed() {
		return ErrClosed
	}
	return nil
}

func (l *RateLimiter) checkPermits(ctx context.Context, permits int64) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	if permits < 1 || permits > permit.Max {
		return invalid("asked for %d permits of %q, which is not in 1..%d", permits, l.name, int64(permit.Max))
	}
	return nil
}

// deadlineAfter returns when a timeout that begins now ends, which is never, the zero Time, if it is not above 0.
func deadlineAfter(timeout time.Duration) time.Time {
	if timeout <= 0 {
		return time.Time{}
	}
	return time.Now().Add(timeout)
}
