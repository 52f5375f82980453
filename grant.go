// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"context"
	"errors"
	"time"

	"github.com/goredisson/ratelimiter/internal/link"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// ErrSettled is the error of [Grant.Settle] and [Grant.Cancel] if the grant has been settled, or is being so.
var ErrSettled = errors.New("ratelimiter: the grant has been settled")

// A Grant is the permits that one call acquired, whose number can be corrected afterwards. Use it for work whose cost
// is known only when it is done, such as the tokens of a language model. One that is never settled counts with the
// permits acquired. It is safe for concurrent use. The zero value is not usable.
type Grant struct {
	limiter *RateLimiter
	permits int64
	asked   link.Asked
	settled retry.Settlement // to what was used
}

// AcquireGrant is like [RateLimiter.Acquire] and returns a [Grant] that can be settled. It returns the same errors,
// such as ErrUnavailable. It costs more than Acquire, of which equal requests at the same time share a member.
func (l *RateLimiter) AcquireGrant(ctx context.Context, permits int64) (*Grant, error) {
	g, _, err := l.acquireGrant(ctx, permits, true, 0)
	return g, err
}

// TryAcquireGrant is like [RateLimiter.TryAcquire] and returns a [Grant] that can be settled if ok is true. It returns
// the same errors, such as ErrUnavailable.
func (l *RateLimiter) TryAcquireGrant(ctx context.Context, permits int64, timeout time.Duration) (g *Grant, ok bool, err error) {
	return l.acquireGrant(ctx, permits, timeout > 0, timeout)
}

func (l *RateLimiter) acquireGrant(ctx context.Context, permits int64, wait bool, timeout time.Duration) (*Grant, bool, error) {
	l = l.made()
	want := l.want
	want.Permits, want.Wait, want.Timeout, want.Own = permits, wait, timeout, true
	r, err := l.acquire(ctx, want)
	if err != nil || !r.Granted {
		return nil, false, err
	}
	return &Grant{limiter: l, permits: permits, asked: r.Asked}, true, nil
}

// Limiter returns the limiter of the permits, nil if g is nil.
func (g *Grant) Limiter() *RateLimiter {
	if g == nil {
		return nil
	}
	return g.limiter
}

// Permits returns how many permits were acquired, 0 if g is nil.
func (g *Grant) Permits() int64 {
	if g == nil {
		return 0
	}
	return g.permits
}

// Cancel gives the permits back. It is Settle(ctx, 0), with the same errors.
func (g *Grant) Cancel(ctx context.Context) error { return g.Settle(ctx, 0) }

// Settle changes the grant to the number of permits that were actually used. What is left of it is free at once, or in
// a cool-down when that ends. What is used beyond it is taken even when fewer permits are left: then the limiter owes
// permits, for which Redisson's availablePermits may be negative, and grants nothing until enough have expired.
// The instant of the grant stays.
//
// Settle does nothing, and returns no error, if the grant has expired, if an [OutagePolicy] granted it, or if a
// cool-down, [RateLimiter.Release] or a repair removed it. It raises no grant that a repair made smaller. A reply
// that is lost does not settle it twice.
//
// Settle returns ErrInvalidArgument if actual is not in 0..2^32-1, ErrSettled, or a common error. If ctx had ended, or
// the Client was closed, before the call, the grant is as before. After any other common error it may or may not have
// been settled: make the same call again to be sure; one with another number returns ErrSettled.
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
