// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// ErrSettled is returned by [Grant.Settle] and [Grant.Cancel] of a grant that has been settled or cancelled, or is being
// settled by another call.
var ErrSettled = errors.New("ratelimiter: the grant has been settled")

// A Grant is permits that one call acquired, and that it may settle: for work whose cost is known only when it is done,
// such as the tokens of a language model. It is safe for concurrent use. A Grant that is never settled stays what was
// acquired.
type Grant struct {
	limiter *RateLimiter
	permits int64
	asked   link.Asked
	settled retry.Settlement // to what was used
}

// AcquireGrant is [RateLimiter.Acquire] with a [Grant] that can be settled. It has the same errors, such as ErrUnavailable.
// The grant is a member of its own in Redis, and does not share one with equal requests: in a herd it costs more than
// Acquire.
func (l *RateLimiter) AcquireGrant(ctx context.Context, permits int64) (*Grant, error) {
	return l.acquireGrant(ctx, engine.Request{Permits: permits, Wait: true})
}

// TryAcquireGrant is [RateLimiter.TryAcquire] with a [Grant] that can be settled, which is nil if the permits were not
// acquired in time. It has the same errors, such as ErrUnavailable.
func (l *RateLimiter) TryAcquireGrant(ctx context.Context, permits int64, timeout time.Duration) (*Grant, error) {
	return l.acquireGrant(ctx, engine.Request{Permits: permits, Wait: timeout > 0, Timeout: timeout, Known: l.known})
}

func (l *RateLimiter) acquireGrant(ctx context.Context, want engine.Request) (*Grant, error) {
	want.Own, want.Policy = true, l.policy
	r, err := l.acquire(ctx, want)
	if err != nil || !r.Granted {
		return nil, err
	}
	return &Grant{limiter: l, permits: want.Permits, asked: r.Asked}, nil
}

// Limiter returns the limiter of which the permits are.
func (g *Grant) Limiter() *RateLimiter { return g.limiter }

// Permits returns how many permits were acquired.
func (g *Grant) Permits() int64 { return g.permits }

// Cancel gives the permits back, as if they had not been acquired. It is Settle(ctx, 0).
func (g *Grant) Cancel(ctx context.Context) error { return g.Settle(ctx, 0) }

// Settle makes the grant one of the permits that were used. Less than was acquired gives the rest back at once, to whoever
// waits for it. More is taken whatever is left, so that the limiter may owe permits until grants expire: nobody is granted
// any until then. The instant of the grant stays.
//
// Settle does nothing, and returns no error, if the grant has expired, if it is no longer there because of a cool-down or of
// [RateLimiter.Release], or if an [OutagePolicy] granted it. A reply that is lost does not settle it twice. The errors are
// ErrInvalidArgument if actual is not in 0..2^32-1, ErrSettled, ctx.Err(), ErrClosed, ErrUnavailable, and those from
// Redis. After any of the last four the grant may have been settled or not: the same call may be made again, and makes
// sure of it, while one with another number returns ErrSettled.
//
// Java reads such a grant as any other. As long as the limiter owes permits, Redisson's availablePermits may be
// negative.
func (g *Grant) Settle(ctx context.Context, actual int64) error {
	if g == nil || g.limiter == nil {
		return invalid("the Grant is not one that AcquireGrant returned")
	}
	if err := g.limiter.ready(ctx); err != nil {
		return err
	}
	if actual < 0 || actual > permit.Max {
		return invalid("settled %d permits of %q, which is not in 0..%d", actual, g.limiter.name, int64(permit.Max))
	}
	if _, ok := g.settled.Begin(actual); !ok {
		return ErrSettled
	}
	var err error
	if actual != g.permits && g.asked != (link.Asked{}) {
		err = g.limiter.handle.Settle(ctx, g.asked, g.permits, actual)
	}
	g.settled.End(err)
	return err
}
